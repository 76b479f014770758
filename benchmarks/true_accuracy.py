"""Figures of the true labels from test labels with gaps.

A one-vs-all ridge regression ranks the labels of test rows. Each test label is kept with a probability, 50 times; the
corrected metrics estimate the figures of all labels from those that were kept. The table shows the figure of the
kept labels and the mean estimate, the mean absolute error of one estimate, the share of 95 % intervals that hold the
truth, and their mean width over the width that the mask alone forces, 2 · 1.96 · standard deviation over masks.

With ``--shaped`` rare labels lose more, and the share of each label is the estimate of the calibrated model on the
test rows. With ``--probe`` nothing is assumed, and so many cells are drawn and looked up, 50 times.

    python -m benchmarks.true_accuracy [bibtex delicious eurlex] [--masks 50] [--keep 0.2 0.5 0.8]
        [--metrics P nDCG recall] [--shaped] [--probe 200 1000]
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from benchmarks.common import normalised, show
from labelgap import BinaryRelevance, hide_positives
from labelgap.metrics import Batch, ProbeCells, corrected_metrics, draw_cells, probed_metrics
from labelgap.observations import as_labels
from labelgap.observations.missingness import hide_by_propensity

KS = (1, 3, 5)


def estimates(Y: Any, ranked: Any, written: Any, names: list[str], bounds: Any = None) -> NDArray:
    """Return the estimate and the interval of each metric, shape (metrics, 3)."""
    metrics, batch = corrected_metrics(KS, written, bounds), Batch(Y, ranked)
    for name in names:
        metrics[name].observe(batch)
    return np.array([(metrics[name].compute(), *metrics[name].interval()) for name in names])


def masked(name: str, keep: float, masks: int, kinds: list[str], Y: Any, ranked: Any) -> list[list[Any]]:
    """Return the rows of the table for labels that are kept at random."""
    names = [f"{kind}@{k}" for kind in kinds for k in KS]
    truth = estimates(Y, ranked, 1.0, names)[:, 0]
    drawn = [sp.csr_array(hide_positives(Y, keep, random_state=seed)) for seed in range(masks)]
    plain = np.mean([estimates(W, ranked, 1.0, names)[:, 0] for W in drawn[:3]], axis=0)
    found = np.array([estimates(W, ranked, keep, names) for W in drawn])
    values, low, high = np.moveaxis(found, 2, 0)
    forced = 2 * 1.96 * values.std(axis=0)
    held = ((low <= truth) & (truth <= high)).mean(axis=0)
    errors = np.abs(values.mean(axis=0) - truth), np.abs(values - truth).mean(axis=0)
    columns = (truth, plain, values.mean(axis=0), *errors, held, (high - low).mean(axis=0) / forced)
    return [[name, keep, metric, *(float(column[i]) for column in columns)] for i, metric in enumerate(names)]


def shaped(name: str, model: Any, X: Any, Y: Any, ranked: Any) -> list[list[Any]]:
    """Return the rows of the table for rare labels that lose more, with estimated shares."""
    names = [f"P@{k}" for k in KS]
    truth = estimates(Y, ranked, 1.0, names)[:, 0]
    written = sp.csr_array(hide_by_propensity(Y, random_state=0))
    share = model.calibrate(X, written, positives_only=True).calibration_.written
    found = estimates(written, ranked, share.of_label, names, (share.low, share.high))
    plain = estimates(written, ranked, 1.0, names)[:, 0]
    kept = written.nnz / Y.nnz
    return [
        [
            name,
            f"{kept:.2f} (said {share.overall:.2f})",
            metric,
            float(truth[i]),
            float(plain[i]),
            *map(float, found[i]),
        ]
        for i, metric in enumerate(names)
    ]


def probed(name: str, model: Any, X: Any, Y: Any, sizes: list[int], draws: int) -> list[list[Any]]:
    """Return the rows of the table for rare labels that lose more, and probes."""
    written, truth, scores = (
        sp.csr_array(hide_by_propensity(Y, random_state=0)),
        Y.toarray() > 0,
        model.decision_function(X),
    )
    everything = ProbeCells(*np.indices(Y.shape).reshape(2, -1), np.ones(truth.size))
    exact = probed_metrics(written, scores, everything, truth.ravel(), KS)
    model.calibrate(X, written, positives_only=True)
    indices, p = model.predict_topk(X, min(30, Y.shape[1]), proba=True, meaning="true")
    rows = []
    for size in sizes:
        drawn = [draw_cells(written, indices, p, size, seed) for seed in range(draws)]
        found = [probed_metrics(written, scores, c, truth[c.rows, c.labels], KS) for c in drawn]
        for metric in ("P@1", "P@5", "micro F1"):
            value, low, high = np.array([part[metric][:3] for part in found]).T
            held = float(((low <= exact[metric].value) & (exact[metric].value <= high)).mean())
            error, width = float(np.abs(value - exact[metric].value).mean()), float((high - low).mean())
            rows.append([name, size, metric, exact[metric].value, float(value.mean()), error, held, width])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=["bibtex", "delicious", "eurlex"])
    parser.add_argument("--masks", type=int, default=50)
    parser.add_argument("--keep", type=float, nargs="*", default=[0.2, 0.5, 0.8])
    parser.add_argument("--metrics", nargs="*", default=["P", "nDCG", "recall"])
    parser.add_argument("--shaped", action="store_true")
    parser.add_argument("--probe", type=int, nargs="*", help="mean numbers of cells that are looked up")
    options = parser.parse_args()
    rows: list[list[Any]] = []
    for name in options.names:
        dataset, X_train, X_test = normalised(name)
        model = BinaryRelevance(1.0, loss="squared").fit(X_train, dataset.Y_train)
        Y, ranked = sp.csr_array(as_labels(dataset.Y_test).positives), model.predict_topk(X_test, max(KS))
        if options.probe:
            rows += probed(name, model, X_test, Y, options.probe, options.masks)
            continue
        if options.shaped:
            rows += shaped(name, model, X_test, Y, ranked)
            continue
        for keep in options.keep:
            rows += masked(name, keep, options.masks, options.metrics, Y, ranked)
    if options.probe:
        header = ["data", "cells", "metric", "truth", "mean estimate", "mean error", "intervals hold", "width"]
        show("Rare labels lose more; cells looked up", header, rows)
        return
    if options.shaped:
        show(
            "Rare labels lose more",
            ["data", "kept", "metric", "truth", "kept labels", "estimate", "low", "high"],
            rows,
        )
        return
    header = ["data", "kept", "metric", "truth", "kept labels", "estimate", "error of the mean", "mean error"]
    show("Labels kept at random", [*header, "intervals hold", "width / forced"], rows)


if __name__ == "__main__":
    main()
