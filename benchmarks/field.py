"""labelgap and other packages on the same rows, with all labels and with several kinds of gaps.

    python -m benchmarks.field [--sets bibtex …] [--regimes "kept 0.2" …] [--masks 3] [--methods NAME …]
        [--peers .peers/bin/python] [--results FOLDER] [--markdown FILE] [--json FILE] [--plot FILE]

needs LABELGAP_DATA, and ``make peers`` for the other packages, which run with their defaults in an environment of
their own. Rows have unit length. A regime removes labels from the training set, differently for each mask; all
methods get the same ones. Test labels are complete, and test rows without labels are left out. PSP@k has the
propensities of the complete training labels; methods that use propensities (1/p) estimate them from what is left.

A mask removes all labels of some rows. Other packages would learn that such a row has no label, and most of them are
better without these rows (omikuji's trees by far), so they train on the rows that still have a label. labelgap gets
all rows.

The regime "one positive" follows the protocol of CRISP instead: 80 % of all rows to train on, with one positive each,
10 % that are not used, and 10 % to test on; a mask is a trial. It reports the ranking loss and the average precision.

Each method runs in a process of its own; memory is what training adds at most. Each result is stored in FOLDER as
soon as it is known, and a later run adds only those that are missing: ``--report`` runs nothing.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from benchmarks import field_methods
from benchmarks.common import normalised
from benchmarks.field_methods import CLASSIFIERS, OURS, Ranked, Task, pack_matrices
from benchmarks.paired import Result, lead, mean_and_error, values
from labelgap.metrics import evaluate, standard_metrics
from labelgap.observations import as_labels, hide_by_propensity, hide_cells, hide_positives, label_propensities

DEPTHS = (1, 3, 5)
PEER_PYTHON = ".peers/bin/python"
SETS = ("bibtex", "delicious", "eurlex", "mediamill")
AUTO = "labelgap AutoLabeler"
COSTS = {"seconds": "train s", "cpu_seconds": "CPU s", "ranking_seconds": "rank s", "megabytes": "MB added"}
COSTS |= {"model_megabytes": "model MB"}
ONE_POSITIVE = "one positive"
RANKING = ("ranking loss", "average precision")


# --- methods in processes of their own ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Peer:
    """A method that runs in a process of its own, in the environment of the other packages or in this one."""

    name: str
    python: str = PEER_PYTHON

    def unavailable(self) -> str | None:
        """Return the reason why it cannot run, or None."""
        return check_methods(self.python)[1].get(self.name)

    def version(self) -> str:
        """Return the version of its distribution."""
        return check_methods(self.python)[0][self.name]

    def rank(self, task: Task, settings: Sequence[Mapping[str, Any]] = ({},)) -> list[Ranked]:
        """Return the rankings with each of several settings."""
        with TemporaryDirectory() as folder:
            source, target = Path(folder, "data.npz"), Path(folder, "out.npz")
            arrays: dict[str, Any] = pack_matrices(X=task.X, Y=task.Y, T=task.T, known=task.known)
            if task.propensities is not None:
                arrays["propensities"] = task.propensities
            np.savez(source, k=task.k, settings=json.dumps([dict(each) for each in settings]), **arrays)
            command = [self.python, field_methods.__file__, self.name, str(source), str(target)]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                raise RuntimeError(f"{self.name} failed: {done.stderr.strip().splitlines()[-1:]}")
            with np.load(target) as out:
                columns = [out[name] for name in Ranked._fields]
        return [Ranked(best, *map(float, costs), str(notes)) for best, *costs, notes in zip(*columns, strict=True)]


# The other packages with their defaults and without propensities, for benchmarks of single methods.
PEERS = tuple(Peer(name) for name in CLASSIFIERS if not name.endswith("1/p") and not name.startswith("scikit-learn"))


@cache
def check_methods(python: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return the versions of the methods that a Python can run, and the reasons why it cannot run the others."""
    try:
        run = subprocess.run([python, field_methods.__file__, "check"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return {}, dict.fromkeys(field_methods.METHODS, f"no {python}; run `make peers`")
    versions, reasons = json.loads(run.stdout.splitlines()[-1])
    return versions, reasons


def list_methods(names: Sequence[str] | None, python: str) -> list[Peer]:
    """Return the methods with these names, or all of them."""
    return [
        Peer(name, sys.executable if name in OURS else python)
        for name in (*OURS, *CLASSIFIERS)
        if names is None or name in names
    ]


# --- regimes --------------------------------------------------------------------------------------------------------


class Gaps(NamedTuple):
    """Training labels with gaps, and the known cells if one can tell them."""

    Y: sp.csr_array
    known: sp.csr_array | None = None


def keep_cells(Y: Any, share: float, *, random_state: int) -> Gaps:
    """Return labels of which a share of the cells, positive or not, is known."""
    labels = as_labels(hide_cells(Y, share, random_state=random_state))
    return Gaps(sp.csr_array(labels.positives, dtype=float), labels.known)


def keep_one(Y: Any, *, random_state: int) -> sp.csr_array:
    """Return one random positive of each row.

    >>> keep_one(np.array([[1, 1, 1], [0, 1, 0]]), random_state=0).sum(axis=1).tolist()
    [1.0, 1.0]
    """
    positives, rng = as_labels(Y).positives, np.random.RandomState(random_state)
    rows = np.flatnonzero(np.diff(positives.indptr))
    places = positives.indptr[rows] + (rng.random_sample(len(rows)) * np.diff(positives.indptr)[rows]).astype(int)
    return sp.csr_array((np.ones(len(rows)), (rows, positives.indices[places])), shape=positives.shape)


def keep_all(Y: Any, *, random_state: int) -> sp.csr_array:
    """Return all labels."""
    return sp.csr_array(as_labels(Y).positives, dtype=float)


REGIMES: dict[str, Callable[..., Any]] = {
    "all labels": keep_all,
    "kept 0.5": partial(hide_positives, keep=0.5),
    "kept 0.2": partial(hide_positives, keep=0.2),
    "kept 0.1": partial(hide_positives, keep=0.1),
    "cells 0.2": partial(keep_cells, share=0.2),
    "by frequency": hide_by_propensity,
    ONE_POSITIVE: keep_one,
}


@dataclass(frozen=True)
class Trial:
    """A data set under one mask of a regime."""

    name: str
    regime: str
    mask: int
    X: Any
    gaps: Gaps
    T: Any
    truth: Any
    propensities: NDArray = field(repr=False)  # of the complete labels

    @classmethod
    def draw(cls, name: str, regime: str, mask: int) -> Trial:
        """Load a data set and hide labels."""
        data, X, T = normalised(name)
        Y, truth = data.Y_train, data.Y_test
        if regime == ONE_POSITIVE:
            X, Y, T, truth = split_anew(sp.vstack([X, T]).tocsr(), sp.vstack([Y, truth]).tocsr(), mask)
        drawn = REGIMES[regime](Y, random_state=mask)
        gaps = drawn if isinstance(drawn, Gaps) else Gaps(drawn)
        return cls(name, regime, mask, X, gaps, T, truth, label_propensities(Y))

    @property
    def key(self) -> str:
        """The name of the trial; its checksum changes if a generator draws another mask."""
        cells = zlib.crc32(self.gaps.Y.indices.astype(np.int64).tobytes())
        return f"{self.name}, {self.regime}, mask {self.mask}, {cells:08x}"

    def make_task(self, labelled_only: bool) -> Task:
        """Return what a method gets: all rows, or those with a label."""
        X, Y, known = self.X, self.gaps.Y, self.gaps.known
        depth = Y.shape[1] if self.regime == ONE_POSITIVE else max(DEPTHS)
        if labelled_only:
            rows = np.diff(Y.indptr) > 0
            X, Y, known = X[rows], Y[rows], None
        return Task(X, Y, self.T, depth, known, label_propensities(self.gaps.Y))

    def evaluate(self, ranked: Ranked) -> Result:
        """Return the measures in percent, and the costs."""
        metrics = standard_metrics(DEPTHS, self.propensities)
        result = {name: 100 * value for name, value in evaluate(metrics, [(self.truth, ranked.scores())]).items()}
        if self.regime == ONE_POSITIVE:
            result |= dict(zip(RANKING, rank_all(self.truth, ranked.best), strict=True))
        return result | {name: getattr(ranked, name) for name in COSTS} | {"notes": ranked.notes}


def split_anew(X: Any, Y: Any, seed: int) -> tuple[Any, Any, Any, Any]:
    """Return 80 % of the rows to train on and 10 % to test on."""
    order = np.random.RandomState(1000 + seed).permutation(X.shape[0])
    first, last = int(0.8 * len(order)), int(0.9 * len(order))
    return X[order[:first]], Y[order[:first]], X[order[last:]], Y[order[last:]]


def rank_all(truth: Any, best: NDArray) -> tuple[float, float]:
    """Return the ranking loss and the average precision of complete rankings, over rows with both kinds of labels.

    >>> rank_all(np.array([[1, 0, 1]]), np.array([[0, 1, 2]]))
    (0.5, 0.8333333333333333)
    """
    hits = np.take_along_axis(as_labels(truth).positives.toarray() > 0, best, 1)
    count = hits.sum(axis=1)
    hits, count = hits[(count > 0) & (count < hits.shape[1])], count[(count > 0) & (count < hits.shape[1])]
    order = 1 + np.arange(hits.shape[1])
    precision = (np.where(hits, hits.cumsum(axis=1) / order, 0).sum(axis=1) / count).mean()
    wrong = np.where(hits, (~hits).cumsum(axis=1), 0).sum(axis=1) / (count * (hits.shape[1] - count))
    return float(wrong.mean()), float(precision)


# --- the table ------------------------------------------------------------------------------------------------------


class Store:
    """Results in a folder, one small file each, so that several runs can fill it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def _path(self, trial: Trial, method: Peer) -> Path:
        return self.folder / f"{trial.key}, {method.name.replace('/', '÷')}.json"

    def get(self, trial: Trial, method: Peer) -> Result | None:
        """Return a stored result, or None."""
        path = self._path(trial, method)
        return json.loads(path.read_text()) if path.exists() else None

    def put(self, trial: Trial, method: Peer, result: Result) -> None:
        """Store a result."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._path(trial, method).write_text(json.dumps(result, indent=1))


def run_trial(trial: Trial, methods: Sequence[Peer], store: Store, budget: float | None = None) -> None:
    """Run the methods that have no stored result; print why a method cannot run."""
    for method in methods:
        if store.get(trial, method) is not None:
            continue
        reason = method.unavailable()
        if reason is None:
            try:
                settings = {"budget": budget} if budget and method.name.startswith(AUTO) else {}
                ranked = method.rank(trial.make_task(labelled_only=method.name not in OURS), [settings])[0]
            except RuntimeError as error:
                reason = str(error)
            else:
                store.put(trial, method, trial.evaluate(ranked) | {"version": method.version()})
                result = store.get(trial, method) or {}
                line = " / ".join(f"{result[name]:.2f}" for name in ("P@1", "P@3", "P@5"))
                print(f"{trial.key}, {method.name}: {line}, {result['seconds']:.1f} s", flush=True)
        if reason is not None:
            print(f"{trial.key}, {method.name}: {reason}", flush=True)


def collect(trials: Sequence[Trial], methods: Sequence[Peer], store: Store) -> dict[str, dict[int, Result]]:
    """Return the stored results of each method by mask."""
    found = {method.name: {trial.mask: store.get(trial, method) for trial in trials} for method in methods}
    present = {name: {mask: it for mask, it in results.items() if it} for name, results in found.items()}
    return {name: results for name, results in present.items() if results}


def write_table(title: str, results: dict[str, dict[int, Result]]) -> Iterator[str]:
    """Yield the lines of a Markdown table, with the lead over the best other package of each column."""
    measures = [name for name in next(iter(next(iter(results.values())).values())) if "@" in name or name in RANKING]
    measures = [name for name in measures if not name.startswith("PSnDCG")]
    yield f"\n### {title}\n"
    yield "| | masks | " + " | ".join([*measures, *COSTS.values()]) + " |"
    yield "|---" * (2 + len(measures) + len(COSTS)) + "|"
    for name, by_mask in results.items():
        rows = list(by_mask.values())
        digits = 4 if RANKING[0] in measures else 2
        cells = [mean_and_error(values(rows, measure), digits=digits) for measure in measures]
        cells += [f"{values(rows, cost).mean():.1f}" for cost in COSTS]
        yield f"| {name} | {len(rows)} | " + " | ".join(cells) + " |"
    ours = [name for name in results if name in OURS and "AutoLabeler" in name]
    for name in ours:
        cells = [find_lead(results, name, measure) for measure in measures]
        yield f"| *lead of {name}* | | " + " | ".join(cells) + " |" + " |" * len(COSTS)


def find_lead(results: dict[str, dict[int, Result]], name: str, measure: str) -> str:
    """Return the lead over the best other package in one measure, on the masks that both have."""
    peers = {peer: it for peer, it in results.items() if peer not in OURS and it.keys() & results[name].keys()}
    if not peers or measure in RANKING:
        return ""
    best = max(peers, key=lambda peer: values(list(peers[peer].values()), measure).mean())
    masks = sorted(peers[best].keys() & results[name].keys())
    return lead([results[name][m] for m in masks], [peers[best][m] for m in masks], [measure])[0] + f" ({best})"


def plot(tables: dict[str, dict[str, dict[int, Result]]], path: Path) -> None:
    """Draw P@1 of all methods, one panel for each table."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, panels = plt.subplots(len(tables), 1, figsize=(8, 2.6 * len(tables)), squeeze=False)
    for panel, (title, results) in zip(panels.ravel(), tables.items(), strict=True):
        rows = {name: values(list(by_mask.values()), "P@1") for name, by_mask in results.items()}
        means = {name: row.mean() for name, row in sorted(rows.items(), key=lambda pair: pair[1].mean())}
        errors = [rows[name].std(ddof=1) / np.sqrt(len(rows[name])) if len(rows[name]) > 1 else 0 for name in means]
        colours = ["tab:orange" if name in OURS else "tab:blue" for name in means]
        panel.barh(list(means), list(means.values()), xerr=errors, color=colours)
        panel.set(title=title, xlabel="P@1", xlim=(0.9 * min(means.values()), None))
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=list(SETS), metavar="NAME")
    parser.add_argument("--regimes", nargs="+", default=list(REGIMES), choices=list(REGIMES), metavar="NAME")
    parser.add_argument("--masks", nargs="+", type=int, default=[0, 1, 2], help="seeds of the masks")
    names = [*OURS, *CLASSIFIERS]
    parser.add_argument("--methods", nargs="+", choices=names, metavar="NAME", help=", ".join(names))
    parser.add_argument("--peers", default=PEER_PYTHON, help="the Python of the other packages")
    parser.add_argument("--results", type=Path, default=Path("results/field"), help="folder of the results")
    parser.add_argument("--budget", type=float, help="seconds of AutoLabeler, if not its default")
    parser.add_argument("--report", action="store_true", help="run nothing, write the tables")
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    store, methods = Store(options.results), list_methods(options.methods, options.peers)
    tables = {}
    for name in options.sets:
        for regime in options.regimes:
            masks = options.masks[:1] if regime == "all labels" else options.masks
            trials = [Trial.draw(name, regime, mask) for mask in masks]
            if not options.report:
                for trial in trials:
                    run_trial(trial, methods, store, options.budget)
            if results := collect(trials, methods, store):
                tables[f"{name}, {regime}"] = results
    text = "\n".join(line for title, results in tables.items() for line in write_table(title, results))
    print(text)
    if options.markdown:
        options.markdown.write_text(text + "\n")
    if options.json:
        options.json.write_text(json.dumps(tables, indent=1))
    if options.plot and tables:
        plot(tables, options.plot)


if __name__ == "__main__":
    main()
