"""A first look: generated data whose labels have gaps, and what taking a gap for a "no" costs."""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from labelgap.datasets import make_low_rank
from labelgap.estimators import LEML, MultiLabelEstimator
from labelgap.metrics import HammingLoss, InstanceAUC, Metric, NDCGAtK, PrecisionAtK, evaluate
from labelgap.observations import Labels, hide_cells
from labelgap.runtime import optional

ROWS, TEST_ROWS, FEATURES, LABELS, RANK = 4000, 2000, 200, 120, 10
KNOWN = 0.2
SHARES = (0.05, 0.1, 0.2, 0.4, 0.8)


class Split(NamedTuple):
    """Generated rows to learn from, with all of their labels, and rows to be judged on."""

    X: np.ndarray
    Y: Any
    X_test: np.ndarray
    Y_test: Any


def _generate() -> Split:
    data = make_low_rank(ROWS + TEST_ROWS, FEATURES, LABELS, RANK, labels_per_row=6, noise=0.2, random_state=0)
    return Split(data.X[:ROWS], data.Y[:ROWS], data.X[ROWS:], data.Y[ROWS:])


def _metrics() -> dict[str, Metric]:
    return {
        "P@1": PrecisionAtK(1),
        "P@3": PrecisionAtK(3),
        "nDCG@5": NDCGAtK(5),
        "AUC": InstanceAUC(),
        "Hamming loss": HammingLoss(),
    }


class _PerLabel:
    """One scikit-learn model for each label, on a matrix in which every gap has become a "no"."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def fit(self, X: np.ndarray, labels: Labels) -> _PerLabel:
        self.never = np.bincount(labels.positives.indices, minlength=labels.shape[1]) == 0
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Label .* is present in all training examples")
            self.model.fit(X, labels.positives.toarray().astype(int))
        return self

    def decision_function(self, X: np.ndarray) -> np.ndarray:
        """Return scores; a regression on 0/1 says yes above one half."""
        if not hasattr(self.model, "decision_function"):
            return self.model.predict(X) - 0.5
        scores = self.model.decision_function(X)
        # scikit-learn scores a label that never occurred 0, above every unlikely one.
        scores[:, self.never] = scores.min() - 1
        return scores


class _Blind:
    """An estimator of ours that is told that every gap is a "no"."""

    def __init__(self, model: MultiLabelEstimator) -> None:
        self.model = model

    def fit(self, X: np.ndarray, labels: Labels) -> _Blind:
        self.model.fit(X, labels.positives)
        return self

    def decision_function(self, X: np.ndarray) -> np.ndarray:
        return self.model.decision_function(X)


def _leml() -> LEML:
    return LEML(RANK, alpha=3.0, random_state=0)


def _contestants() -> dict[str, Any]:
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.multiclass import OneVsRestClassifier

    return {
        "LEML, gaps unknown": _leml(),
        "LEML, gaps taken for no": _Blind(_leml()),
        "ridge regression per label, gaps taken for no": _PerLabel(Ridge(alpha=3.0)),
        "logistic regression per label, gaps taken for no": _PerLabel(
            OneVsRestClassifier(LogisticRegression(solver="liblinear"))
        ),
    }


def _judge(model: Any, split: Split) -> dict[str, float]:
    return evaluate(_metrics(), [(split.Y_test, model.decision_function(split.X_test))])


def _compare(split: Split, console: Console) -> LEML:
    labels = hide_cells(split.Y, KNOWN, random_state=0)
    console.print(f"Training labels: {labels}")
    table = Table("method", *_metrics(), "seconds", title=f"{KNOWN:.0%} of the label cells are known")
    contestants = _contestants()
    for name, model in contestants.items():
        start = time.perf_counter()
        model.fit(split.X, labels)
        seconds = time.perf_counter() - start
        table.add_row(name, *(f"{value:.4f}" for value in _judge(model, split).values()), f"{seconds:.1f}")
    console.print(table)
    return contestants["LEML, gaps unknown"]


def _plot(split: Split, path: Path) -> None:
    pyplot = optional("matplotlib.figure", "plot")
    figure = pyplot.Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    for name, make in (("gaps unknown", _leml), ("gaps taken for no", lambda: _Blind(_leml()))):
        scores = []
        for share in SHARES:
            model = make().fit(split.X, hide_cells(split.Y, share, random_state=0))
            scores.append(_judge(model, split)["P@3"])
        axes.plot(np.array(SHARES) * 100, scores, marker="o", label=f"LEML, {name}")
    axes.set(xscale="log", xlabel="known label cells, %", ylabel="precision at 3", title="What a gap means")
    axes.set_xticks([100 * s for s in SHARES], [f"{100 * s:g}" for s in SHARES])
    axes.minorticks_off()
    axes.legend()
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=150)


def run(output: Path) -> None:
    """Compare, print a table, and leave ``gaps.png`` and ``model.labelgap`` in ``output``."""
    console = Console(width=140)
    optional("matplotlib", "plot")
    output.mkdir(parents=True, exist_ok=True)
    split = _generate()
    model = _compare(split, console)
    model.save(output / "model.labelgap")
    _plot(split, output / "gaps.png")
    console.print(f"Saved {output / 'gaps.png'} and {output / 'model.labelgap'}; labelgap.load reads the model.")
