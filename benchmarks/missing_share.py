"""The share of missing labels: do its 95 % intervals hold the truth, and what do 200 verdicts add?

Generated tables with strong and weak features; labels are omitted at random, or more often for rare labels, and some
wrong ones are added. Then 200 of the best absent cells, drawn at random, are reviewed, with 5 % wrong verdicts; the
interval after them is that of the verdicts within that of the audit. The last columns are for a review of the 200
most probable cells instead, which are no random sample (``labelgap.gaps.learn``).

    python -m benchmarks.missing_share [low-rank noisy logistic multilabel multilabel-small] [--draws 10]
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import make_multilabel_classification
from sklearn.preprocessing import StandardScaler

from benchmarks.common import show
from labelgap import BinaryRelevance, audit
from labelgap.datasets import make_low_rank
from labelgap.gaps import draw_best, estimate_missing, learn

RATES = (0.0, 0.06, 0.3, 0.7)
N_VERDICTS, WRONG_VERDICTS = 200, 0.05


def low_rank(seed: int, noise: float) -> tuple[NDArray, NDArray]:
    data = make_low_rank(3000, 25, 20, rank=5, noise=noise, random_state=seed)
    return data.X, data.Y.toarray() > 0


def logistic(seed: int) -> tuple[NDArray, NDArray]:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((3000, 15))
    scores = 0.6 * X @ rng.standard_normal((15, 20)) - rng.uniform(2, 4, 20)
    return X, rng.random(scores.shape) < 1 / (1 + np.exp(-scores))


def multilabel(seed: int, *sizes: int) -> tuple[NDArray, NDArray]:
    n, d, n_classes, n_labels = sizes
    X, Y = make_multilabel_classification(n, d, n_classes=n_classes, n_labels=n_labels, random_state=seed)
    return StandardScaler().fit_transform(X), Y > 0


TABLES: dict[str, Any] = {
    "low-rank": lambda seed: low_rank(seed, 0.0),
    "noisy": lambda seed: low_rank(seed, 0.5),
    "logistic": logistic,
    "multilabel": lambda seed: multilabel(seed, 6000, 20, 30, 4),
    "multilabel-small": lambda seed: multilabel(seed, 6000, 3, 4, 2),
}


def omit(Y: NDArray, rate: float, shaped: bool, added: float, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Omit a share of the labels, of each label alike or more of rare labels, and add wrong ones."""
    keep = np.full(Y.shape[1], 1 - rate)
    if shaped and rate:
        place = np.log(np.maximum(Y.sum(axis=0), 1))
        place = 0.7 * (place - place.mean()) / max(place.std(), 1e-9)
        low, high = -12.0, 12.0
        for _ in range(60):
            keep = 1 / (1 + np.exp(-((low + high) / 2 + place)))
            few = keep @ Y.sum(axis=0) < (1 - rate) * Y.sum()
            low, high = ((low + high) / 2, high) if few else (low, (low + high) / 2)
    return (Y & (rng.random(Y.shape) < keep)) | (~Y & (rng.random(Y.shape) < added * Y.mean(axis=0)))


def judge(found: Any, missing: NDArray, positions: NDArray, seed: int) -> NDArray[np.bool_]:
    """Return verdicts on suggestions, some of which are wrong."""
    right = missing[found.missing.rows[positions], found.missing.labels[positions]]
    return right ^ (np.random.default_rng(seed).random(len(right)) < WRONG_VERDICTS)


def review(found: Any, missing: NDArray, seed: int) -> tuple[float, float]:
    """Return the bounds of the share of missing labels after verdicts on 200 of the best cells."""
    drawn = draw_best(found, N_VERDICTS, seed)
    counted = estimate_missing(found, drawn, judge(found, missing, drawn, seed), WRONG_VERDICTS)
    n_right = found.n_written.sum() - found.doubtful.probabilities.sum()
    low, high = (number / (number + n_right) for number in (counted.low, counted.high))
    before = found.share_missing_interval
    return float(np.clip(low, *before)), float(np.clip(high, *before))


def review_first(found: Any, missing: NDArray, seed: int) -> tuple[float, float]:
    """Return the bounds of the share of missing labels after verdicts on the 200 most probable cells."""
    first = found.missing.first(N_VERDICTS)
    right = judge(found, missing, np.arange(len(first)), seed)
    return learn(found, first.rows, first.labels, right, WRONG_VERDICTS).share_missing_interval


def measure(name: str, rate: float, shaped: bool, draws: int, added: float) -> list[Any]:
    """Return a row of the table."""
    rows = []
    for seed in range(draws):
        X, Y = TABLES[name](seed)
        written = omit(Y, rate, shaped, added, np.random.default_rng(100 + seed))
        estimator = BinaryRelevance(0.1, loss="logistic")
        found = audit(X, written.astype(np.int8), estimator, candidates=Y.shape[1], random_state=seed)
        truth = (Y & ~written).sum() / Y.sum()
        after = [how(found, Y & ~written, seed) for how in (review, review_first)]
        rows.append((truth, found.share_missing, *found.share_missing_interval, *after[0], *after[1]))
    truth, estimate, *bounds = np.transpose(rows)
    pairs = [(bounds[i], bounds[i + 1]) for i in (0, 2, 4)]
    held = [float(np.mean((a - 1e-9 <= truth) & (truth <= b + 1e-9))) for a, b in pairs]
    widths = [float((b - a).mean()) for a, b in pairs]
    error = float(np.abs(estimate - truth).mean())
    shape = "rare labels more" if shaped else "at random"
    figures = [value for pair in zip(held, widths, strict=True) for value in pair]
    return [name, rate, shape, float(truth.mean()), float(estimate.mean()), error, *figures]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(TABLES))
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--added", type=float, default=0.03)
    options = parser.parse_args()
    rows = [
        measure(name, rate, shaped, options.draws, options.added)
        for name in options.names
        for rate in RATES
        for shaped in ((False, True) if rate else (False,))
    ]
    header = ["table", "rate", "omitted", "truth", "estimate", "error", "hold", "width"]
    header += ["hold after", "width after", "hold, first", "width, first"]
    show("Share of missing labels", header, rows)
    before, after, first = (np.mean([row[column] for row in rows]) for column in (6, 8, 10))
    print(
        f"all intervals: {before:.3f} hold before verdicts, {after:.3f} after them, {first:.3f} after the first cells"
    )


if __name__ == "__main__":
    main()
