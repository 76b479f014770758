"""Rows with a wrong label, on the multi-label benchmark of cleanlab, regenerated from its description.

Rows of ``make_multilabel_classification`` have words of unit length in all. The labels of each class are flipped by a
2×2 noise matrix; how noisy a class is differs between classes, and a row has at most three flipped labels. The noise
is set for each case so that cleanlab's best scorer has about its published area under the precision–recall curve
(large: logistic 0.864, forest 0.806; small: 0.688 and 0.772).

The same out-of-fold probabilities go to cleanlab's scorers and to ``audit(Y, probabilities=P)``; the last lines are
audits by models of labelgap: logistic regressions on products of features (small tables only), and ``LabelMixture``,
which judges each label beside the others of its row. Rows: area under the precision–recall curve, area under the ROC
curve, and average precision among the first T rows, where T rows have a wrong label. Cells: area under the
precision–recall curve, of omissions among absent cells and of additions among written cells. cleanlab's line has the
best of its scorers in each column.

    python -m benchmarks.noisy_rows [large small] [--models logistic forest] [--draws 10] [--seed 0] [--rows N]
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import make_multilabel_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score, roc_auc_score
from sklearn.model_selection import cross_val_predict
from sklearn.multiclass import OneVsRestClassifier
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

from labelgap import BinaryRelevance, audit
from labelgap.gaps import LabelMixture

SIZES = {"large": (37_500, 20, 50, 5), "small": (6_000, 3, 4, 2)}
NOISE = {"large": {"logistic": 0.0085, "forest": 0.01}, "small": {"logistic": 0.014, "forest": 0.01}}
MODELS: dict[str, Any] = {
    "logistic": OneVsRestClassifier(LogisticRegression()),
    "forest": RandomForestClassifier(100, random_state=0),
}
MAX_FLIPPED = 3  # labels of a row


def make(size: str, noise: float, seed: int, n_rows: int | None) -> tuple[NDArray, NDArray, NDArray]:
    """Return features, true labels and noisy labels.

    The two error rates of a class sum to 2 g, g from a gamma distribution with shape 2 and scale ``noise``, plus up
    to 1 / K for the noisiest of the K classes; the sum is divided between them at random.
    """
    n, d, n_classes, n_labels = SIZES[size]
    X, Y = make_multilabel_classification(
        n_rows or n, d, n_classes=n_classes, n_labels=n_labels, length=500, random_state=seed
    )
    rng = np.random.default_rng(seed)
    right = np.sort(1 - rng.gamma(2.0, noise, n_classes))
    right *= 1 - np.exp(-(np.arange(n_classes) ** 2) / n_classes) / (2 * n_classes)
    rates = rng.permutation(2 * (1 - np.maximum(right, 1 - right)))
    part = rng.random(n_classes)
    flipped = rng.random(Y.shape) < np.where(Y > 0, rates * (1 - part), rates * part)
    flipped &= np.cumsum(flipped, axis=1) <= MAX_FLIPPED
    return X / np.linalg.norm(X, axis=1, keepdims=True), Y > 0, (Y > 0) ^ flipped


def predict_out_of_fold(model: Any, X: NDArray, written: NDArray) -> NDArray:
    """Return out-of-fold probabilities of a scikit-learn classifier."""
    P = cross_val_predict(model, X, written.astype(int), cv=5, method="predict_proba")
    return np.column_stack([part[:, 1] for part in P]) if isinstance(P, list) else P


def by_cleanlab(written: NDArray, P: NDArray) -> dict[str, tuple[NDArray, NDArray]]:
    """Return the suspicion of rows and of cells by each of cleanlab's scorers."""
    from cleanlab.multilabel_classification.rank import get_label_quality_scores, get_label_quality_scores_per_class

    lists = [np.flatnonzero(row).tolist() for row in written]
    result = {}
    for method in ("self_confidence", "normalized_margin", "confidence_weighted_entropy"):
        cells = 1 - get_label_quality_scores_per_class(lists, P, method=method)
        for pooling in (
            {"method": "exponential_moving_average", "alpha": 0.8},
            {"method": "softmin", "temperature": 0.1},
        ):
            rows = 1 - get_label_quality_scores(lists, P, method=method, aggregator_kwargs=pooling)
            result[f"cleanlab, {method}, {pooling['method']}"] = rows, cells
    return result


def by_audit(found: Any, shape: tuple[int, int]) -> tuple[NDArray, NDArray]:
    """Return the suspicion of rows and of cells by an audit."""
    rows, cells = np.zeros(shape[0]), np.zeros(shape)
    ranked = found.rank_rows()
    rows[ranked.rows] = ranked.scores
    for suggestions in (found.missing, found.doubtful):
        places = np.linspace(1, 0, len(suggestions))  # the order, also among equal probabilities
        cells[suggestions.rows, suggestions.labels] = suggestions.probabilities + 1e-6 * places
    return rows, cells


def measure(rows: NDArray, cells: NDArray, truth: NDArray, written: NDArray) -> list[float]:
    """Return the figures of a table's row."""
    wrong = truth != written
    row = wrong.any(axis=1)
    first = np.argsort(-rows, kind="stable")[: row.sum()]
    of_cells = [average_precision_score(wrong[kind], cells[kind]) for kind in (~written, written)]
    of_rows = [average_precision_score(row, rows), roc_auc_score(row, rows)]
    return [*of_rows, average_precision_score(row[first], rows[first]), *of_cells]


def compare(size: str, model: str, noise: float, seeds: range, n_rows: int | None) -> None:
    """Print the mean figures of all draws."""
    figures: dict[str, list[list[float]]] = {}
    shares = []
    for seed in seeds:
        X, truth, written = make(size, noise, seed, n_rows)
        P = predict_out_of_fold(MODELS[model], X, written)
        judged = by_cleanlab(written, P)
        Y, n_classes = written.astype(np.int8), written.shape[1]
        judged["audit, the same probabilities"] = by_audit(
            audit(Y, probabilities=P, candidates=n_classes, random_state=seed), Y.shape
        )
        features = PolynomialFeatures(2, include_bias=False).fit_transform(StandardScaler().fit_transform(np.sqrt(X)))
        own = ("products", features, BinaryRelevance(0.1, loss="logistic")), ("mixture", X, LabelMixture())
        for kind, rows, estimator in own if size == "small" else own[1:]:
            found = audit(rows, Y, estimator, candidates=n_classes, random_state=seed)
            judged[f"audit, {kind}"] = by_audit(found, Y.shape)
        for name, (rows, cells) in judged.items():
            figures.setdefault(name, []).append(measure(rows, cells, truth, written))
        shares.append((truth != written).any(axis=1).mean())
    print(
        f"{size}, {model}, noise {noise:g}, {len(seeds)} draws: {np.mean(shares):.2f} of the rows have a wrong label"
    )
    means = {name: np.mean(values, axis=0) for name, values in figures.items()}
    peers = [name for name in means if name.startswith("cleanlab")]
    best = max(peers, key=lambda name: means[name][0])
    means["cleanlab"] = np.max([means[name] for name in peers], axis=0)
    for name in ["cleanlab", *(name for name in means if name.startswith("audit"))]:
        values = "  ".join(f"{value:.3f}" for value in means[name])
        note = f"   ({best.removeprefix('cleanlab, ')})" if name == "cleanlab" else ""
        print(f"  {name:30s} AUPRC AUROC AP@T, omissions, additions: {values}{note}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sizes", nargs="*", default=["large", "small"])
    parser.add_argument("--models", nargs="*", choices=MODELS, default=list(MODELS))
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--noise", type=float)
    parser.add_argument("--seed", type=int, default=0, help="of the first draw")
    parser.add_argument("--rows", type=int)
    options = parser.parse_args()
    seeds = range(options.seed, options.seed + options.draws)
    for size in options.sizes:
        for model in options.models:
            compare(size, model, options.noise or NOISE[size][model], seeds, options.rows)


if __name__ == "__main__":
    main()
