"""The pictures of README and documentation, made by the program itself: `make pictures`.

Writes examples/posts.csv, and into this folder gaps.svg (tags before and after an audit), review.png (the review
page, which needs Chromium) and methods/NAME.png (what each method learns from, and what it predicts).
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import warnings
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from labelgap import Tagger, audit, hide_cells, hide_positives
from labelgap.datasets import make_low_rank, read_documents
from labelgap.displays import new_figure
from labelgap.methods import list_classes

sys.path.insert(0, str(Path(__file__).parent))
from table import make_table

HERE = Path(__file__).parent
TABLE = HERE.parents[1] / "examples" / "posts.csv"


# --- tags before and after ------------------------------------------------------------------------------------------

WIDTH, LINE, TOP = 920, 52, 76
COLORS = {"written": ("#e8ecf1", "#26323f"), "missing": ("#d5f2dd", "#0f5a2b"), "wrong": ("#fbdcdc", "#8c1d1d")}
COLUMNS = {"post": 24, "tags in the table": 480, "labelgap suggests": 670}
MAX_CONTENT = 72  # characters, to fit into the first column


class Post(NamedTuple):
    """A row of the picture: a text, the tags that were written, and suggested changes with their probabilities."""

    title: str
    content: str
    tags: list[str]
    missing: list[tuple[str, float]]
    wrong: list[tuple[str, float]]


def draw_gaps(n_posts: int = 6) -> str:
    """Return an SVG of a few posts of the table with what an audit suggests."""
    table = read_documents(TABLE, ["title", "content"], tags="tags")
    result = audit(table.texts, table.Y, Tagger(), random_state=0)
    written = table.Y.toarray() > 0
    posts = [
        Post(
            row["title"],
            row["content"],
            [name for name, has in zip(table.label_names, written[i], strict=True) if has],
            list_probable(result.missing.of_row(i), table.label_names),
            list_probable(result.doubtful.of_row(i), table.label_names),
        )
        for i, row in enumerate(table.rows)
        if len(row["content"]) <= MAX_CONTENT
    ]
    return make_svg(choose_posts(posts, n_posts))


def list_probable(suggestions: Any, names: list[str]) -> list[tuple[str, float]]:
    """Return the names and probabilities of suggestions that are more likely right than wrong."""
    pairs = zip(suggestions.labels, suggestions.probabilities, strict=True)
    return [(names[label], float(value)) for label, value in pairs if value > 0.5]


def choose_posts(posts: list[Post], n_posts: int) -> list[Post]:
    """Return posts of every kind: one without a suggestion, one with a wrong tag, the others with missing tags."""
    untouched = [post for post in posts if len(post.tags) == 2 and not post.missing and not post.wrong][:1]
    wrong = [post for post in posts if post.wrong and len(post.tags) == 2 and len(post.missing) < 2][:1]
    missing = [post for post in posts if post.missing and not post.wrong and len(post.missing + post.tags) > 1]
    chosen = [*missing[: n_posts - 2], *wrong, *untouched]
    return [post for post in posts if post in chosen]


def make_svg(posts: list[Post]) -> str:
    """Return the picture of posts, two lines of text each."""
    height = TOP + LINE * len(posts)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        'font-family="system-ui, -apple-system, Segoe UI, Roboto, Helvetica, Arial, sans-serif" font-size="14">',
        f'<rect x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="10" fill="#ffffff" stroke="#d5dbe3"/>',
    ]
    parts += [f'<text x="{x}" y="40" font-weight="600" fill="#5a6675">{name}</text>' for name, x in COLUMNS.items()]
    for i, post in enumerate(posts):
        y = TOP + LINE * i
        parts.append(f'<line x1="12" x2="{WIDTH - 12}" y1="{y - 16}" y2="{y - 16}" stroke="#edf0f4"/>')
        parts.append(f'<text x="24" y="{y + 6}" fill="#26323f">{escape(post.title)}</text>')
        parts.append(f'<text x="24" y="{y + 24}" fill="#5a6675" font-size="12">{escape(post.content)}</text>')
        parts += draw_chips(COLUMNS["tags in the table"], y, [(tag, "written") for tag in post.tags])
        missing = [(f"+ {tag} {value:.0%}", "missing") for tag, value in post.missing]
        wrong = [(f"− {tag} {value:.0%}", "wrong") for tag, value in post.wrong]
        parts += draw_chips(COLUMNS["labelgap suggests"], y, missing + wrong)
    return "\n".join([*parts, "</svg>\n"])


def draw_chips(x: float, y: float, chips: list[tuple[str, str]]) -> list[str]:
    """Return rounded boxes with words in them, side by side."""
    parts = []
    for words, kind in chips:
        fill, ink = COLORS[kind]
        width = 7.8 * len(words) + 18
        parts.append(f'<rect x="{x:.0f}" y="{y - 4}" width="{width:.0f}" height="25" rx="12" fill="{fill}"/>')
        parts.append(f'<text x="{x + 9:.0f}" y="{y + 13}" fill="{ink}">{words}</text>')
        x += width + 6
    return parts


# --- the review page ------------------------------------------------------------------------------------------------


def photograph_review(path: Path) -> None:
    """Serve a model of the table, open the review page in Chromium and store what it shows."""
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(TABLE, folder)
        command = [sys.executable, "-m", "labelgap"]
        subprocess.run(
            [*command, "fit", "posts.csv", "--output", "model", "--seed", "0", "--quiet"], cwd=folder, check=True
        )
        serve = [*command, "serve", "model", "--data", "posts.csv", "--port", "0"]
        server = subprocess.Popen(serve, cwd=folder, stdout=subprocess.PIPE, text=True)
        try:
            url = re.search(r"http://[\w.:]+\d", server.stdout.readline())[0]  # type: ignore[union-attr, index]
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
                page = browser.new_page(viewport={"width": 1240, "height": 640}, color_scheme="light")
                page.goto(url)
                page.wait_for_selector(".suggested-label:not(:empty)", timeout=120_000)
                page.wait_for_timeout(500)
                page.screenshot(path=path)
                browser.close()
        finally:
            server.terminate()
            server.wait()


# --- what each method does ------------------------------------------------------------------------------------------

PARAMETERS: dict[str, dict[str, Any]] = {
    "FastXML": {"n_estimators": 20},
    "LabelKNN": {"n_neighbors": 10},
    "LPSR": {"n_clusters": 3},
    "LocalLEML": {"n_components": 3, "n_clusters": 2, "n_learners": 2},
    "NaiveBayes": {"model": "bernoulli"},
    "SLEEC": {"n_components": 5, "n_learners": 2, "n_neighbors": 10},
} | {name: {"n_components": 3} for name in ("LEML", "OneClassMF", "OneClassMFCV", "PLST", "CPLST", "CSSP", "WSABIE")}
N_TRAIN, N_TEST, N_LABELS = 200, 40, 14


def draw_method(name: str, cls: type) -> Any:
    """Return a figure: labels that a method learns from, its ranking of labels for new rows, and the truth."""
    data = make_low_rank(N_TRAIN + N_TEST, 12, N_LABELS, rank=3, labels_per_row=4, noise=0.1, random_state=3)
    Y, train = data.Y.toarray(), slice(0, N_TRAIN)
    labels = np.argsort(np.linalg.svd(Y - Y.mean(axis=0))[2][0])
    Y, about = Y[:, labels], cls.about  # type: ignore[attr-defined]
    X = data.X.toarray() if hasattr(data.X, "toarray") else np.array(data.X)
    if about.missing_features:
        X = np.where(np.random.RandomState(0).rand(*X.shape) < 0.2, np.nan, X)
    if about.positives_only:
        seen, title = hide_positives(Y[train], 0.5, random_state=0).toarray(), "learns from: half of the positives"
    elif about.missing_labels:
        seen, title = hide_cells(Y[train], 0.5, random_state=0).toarray(), "learns from: half of the cells"
    else:
        seen, title = Y[train], "learns from: every cell"
    parameters = PARAMETERS.get(name, {})
    estimator = cls(**parameters)
    if "random_state" in estimator.get_params():
        estimator.set_params(random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        scores = estimator.fit(X[train], seen).decision_function(X[N_TRAIN:])
    rows = np.argsort(np.linalg.svd(Y[N_TRAIN:] - Y.mean(axis=0))[0][:, 0])
    ranks = scores.argsort(axis=1).argsort(axis=1)[rows] / (N_LABELS - 1)
    return draw_panels(
        {
            title: seen[:N_TEST],
            "ranks labels of new rows": ranks**2,
            "the truth": Y[N_TRAIN:][rows],
        }
    )


def draw_panels(panels: dict[str, np.ndarray]) -> Any:
    """Return a figure of matrices side by side; unknown cells are sand-coloured."""
    from matplotlib.colors import ListedColormap

    figure, axes = new_figure(len(panels))
    figure.set_size_inches(7.2, 2.8)
    colors = ListedColormap(np.linspace([1, 1, 1], [0.05, 0.3, 0.55], 64)).with_extremes(bad="#e4d9c4")
    for ax, (title, values) in zip(axes, panels.items(), strict=True):
        ax.imshow(values, cmap=colors, vmin=0, vmax=1, aspect="auto", interpolation="nearest")
        ax.set_title(title, fontsize=9)
        ax.set(xticks=[], yticks=[], xlabel="labels")
        ax.grid(visible=False)
    axes[0].set_ylabel("rows")
    return figure


def build(names: list[str]) -> None:
    """Make the pictures whose names are given; all without names."""
    wanted = set(names)
    TABLE.parent.mkdir(exist_ok=True)
    TABLE.write_text(make_table(), encoding="utf-8")
    if not wanted or "gaps" in wanted:
        (HERE / "gaps.svg").write_text(draw_gaps(), encoding="utf-8")
    if not wanted or "review" in wanted:
        photograph_review(HERE / "review.png")
    (HERE / "methods").mkdir(exist_ok=True)
    for name, cls in list_classes().items():
        if name != "Tagger" and (not wanted or name in wanted or "methods" in wanted):
            draw_method(name, cls).savefig(HERE / "methods" / f"{name}.png", dpi=100)


if __name__ == "__main__":
    build(sys.argv[1:])
