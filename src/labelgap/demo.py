"""The demo: on generated data whose labels have gaps, the cost of treating gaps as negatives."""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from labelgap.datasets import make_low_rank
from labelgap.estimators import LEML
from labelgap.metrics import HammingLoss, InstanceAUC, Metric, NDCGAtK, PrecisionAtK, evaluate
from labelgap.observations import hide_cells
from labelgap.runtime import import_optional

N_ROWS, N_TEST_ROWS, N_FEATURES, N_LABELS, RANK = 4000, 2000, 200, 120, 10
KNOWN_SHARE = 0.2  # of the label cells, for the table
KNOWN_SHARES = (0.05, 0.1, 0.2, 0.4, 0.8)  # for the plot


class DemoData(NamedTuple):
    """Generated training and test rows with all their labels."""

    X: np.ndarray
    Y: Any
    X_test: np.ndarray
    Y_test: Any


class _PerLabel:
    """One scikit-learn model for each label."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def fit(self, X: np.ndarray, Y: Any) -> _PerLabel:
        self.without_positives = np.bincount(Y.indices, minlength=Y.shape[1]) == 0
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Label .* is present in all training examples")
            self.model.fit(X, Y.toarray().astype(int))
        return self

    def decision_function(self, X: np.ndarray) -> np.ndarray:
        """Return scores that are positive for a yes; a regression on 0 and 1 has its threshold at one half."""
        if not hasattr(self.model, "decision_function"):
            return self.model.predict(X) - 0.5
        scores = self.model.decision_function(X)
        # scikit-learn gives a label without positives the score 0, which is above those of unlikely labels.
        scores[:, self.without_positives] = scores.min() - 1
        return scores


def _make_leml() -> LEML:
    return LEML(RANK, alpha=3.0, random_state=0)


def _make_metrics() -> dict[str, Metric]:
    return {
        "P@1": PrecisionAtK(1),
        "P@3": PrecisionAtK(3),
        "nDCG@5": NDCGAtK(5),
        "AUC": InstanceAUC(),
        "Hamming loss": HammingLoss(),
    }


def _evaluate(model: Any, data: DemoData) -> dict[str, float]:
    return evaluate(_make_metrics(), [(data.Y_test, model.decision_function(data.X_test))])


def _compare_models(data: DemoData, console: Console) -> LEML:
    """Print a table of the models' scores; return the LEML model that treats gaps as unknown."""
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.multiclass import OneVsRestClassifier

    labels = hide_cells(data.Y, KNOWN_SHARE, random_state=0)
    console.print(f"Training labels: {labels}")
    table = Table("method", *_make_metrics(), "seconds", title=f"{KNOWN_SHARE:.0%} of the label cells are known")
    logistic = OneVsRestClassifier(LogisticRegression(solver="liblinear"))
    best = _make_leml()
    for name, model, Y in (
        ("LEML, gaps unknown", best, labels),
        ("LEML, gaps as negatives", _make_leml(), labels.positives),
        ("ridge regression per label, gaps as negatives", _PerLabel(Ridge(alpha=3.0)), labels.positives),
        ("logistic regression per label, gaps as negatives", _PerLabel(logistic), labels.positives),
    ):
        start = time.perf_counter()
        model.fit(data.X, Y)
        seconds = time.perf_counter() - start
        table.add_row(name, *(f"{value:.4f}" for value in _evaluate(model, data).values()), f"{seconds:.1f}")
    console.print(table)
    return best


def _plot_shares(data: DemoData, path: Path) -> None:
    """Plot the precision of LEML over the share of known cells, with gaps as unknown and as negatives."""
    pyplot = import_optional("matplotlib.figure", "plot")
    figure = pyplot.Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    for name in ("gaps unknown", "gaps as negatives"):
        scores = []
        for share in KNOWN_SHARES:
            labels = hide_cells(data.Y, share, random_state=0)
            model = _make_leml().fit(data.X, labels if name == "gaps unknown" else labels.positives)
            scores.append(_evaluate(model, data)["P@3"])
        axes.plot(np.array(KNOWN_SHARES) * 100, scores, marker="o", label=f"LEML, {name}")
    axes.set(
        xscale="log", xlabel="known label cells, %", ylabel="precision at 3", title="Gaps as unknown or negative"
    )
    axes.set_xticks([100 * s for s in KNOWN_SHARES], [f"{100 * s:g}" for s in KNOWN_SHARES])
    axes.minorticks_off()
    axes.legend()
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=150)


def run(output: Path) -> None:
    """Print a comparison, and write ``gaps.png`` and ``model.labelgap`` to the folder ``output``."""
    console = Console(width=140)
    import_optional("matplotlib", "plot")
    output.mkdir(parents=True, exist_ok=True)
    planted = make_low_rank(
        N_ROWS + N_TEST_ROWS, N_FEATURES, N_LABELS, RANK, labels_per_row=6, noise=0.2, random_state=0
    )
    X, Y = planted.X, planted.Y
    data = DemoData(X[:N_ROWS], Y[:N_ROWS], X[N_ROWS:], Y[N_ROWS:])
    _compare_models(data, console).save(output / "model.labelgap")
    _plot_shares(data, output / "gaps.png")
    console.print(f"Saved {output / 'gaps.png'} and {output / 'model.labelgap'}; labelgap.load reads the model.")
