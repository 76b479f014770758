"""Statistics of the reviews: precision, calibration, and the frequencies of labels before and after."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from labelgap.gaps import Probe, estimate_from_probe, reliability
from labelgap.serve.reviews.store import Review, Suggestion

MAX_CURVE_POINTS = 200
N_BINS = 10
MIN_SAMPLE = 20  # decided suggestions of a random sample
Z_95 = 1.959964


def select_decided(reviews: Sequence[Review]) -> list[Review]:
    """Return the reviews that accept or reject."""
    return [review for review in reviews if review.verdict in ("accept", "reject")]


def count_verdicts(reviews: Sequence[Review]) -> dict[str, int]:
    """Return the number of verdicts of each kind."""
    counts = Counter(review.verdict for review in reviews)
    names = {"accepted": "accept", "rejected": "reject", "skipped": "skip", "conflicts": "conflict"}
    return {name: counts[verdict] for name, verdict in names.items()}


def compute_precision(reviews: Sequence[Review]) -> dict[str, float | int | None]:
    """Return accepted / (accepted + rejected) with its 95 % interval, and the precision that the audit expected.

    The interval is Wilson's: (p + z²/2n ± z √(p(1 − p)/n + z²/4n²)) / (1 + z²/n).

    >>> reviews = [Review(i, str(i), "", i, "a", "missing", 0.75, verdict, None)
    ...            for i, verdict in enumerate(["accept", "accept", "accept", "reject", "skip"])]
    >>> {name: round(value, 3) for name, value in compute_precision(reviews).items()}
    {'reviewed': 4, 'precision': 0.75, 'low': 0.301, 'high': 0.954, 'expected': 0.75}
    """
    decided = select_decided(reviews)
    n = len(decided)
    if not n:
        return {"reviewed": 0, "precision": None, "low": None, "high": None, "expected": None}
    p = sum(review.verdict == "accept" for review in decided) / n
    half = Z_95 * math.sqrt(p * (1 - p) / n + Z_95**2 / (4 * n * n))
    low, high = ((p + Z_95**2 / (2 * n) + side * half) / (1 + Z_95**2 / n) for side in (-1, 1))
    expected = sum(review.probability for review in decided) / n
    return {"reviewed": n, "precision": p, "low": max(low, 0.0), "high": min(high, 1.0), "expected": expected}


def compute_precision_curve(reviews: Sequence[Review]) -> list[dict[str, float]]:
    """Return precision and expected precision after each review, thinned to at most 200 points."""
    decided = select_decided(reviews)
    if not decided:
        return []
    number = np.arange(1, len(decided) + 1)
    precision = np.cumsum([review.verdict == "accept" for review in decided]) / number
    expected = np.cumsum([review.probability for review in decided]) / number
    places = np.unique(np.linspace(0, len(decided) - 1, min(len(decided), MAX_CURVE_POINTS)).round().astype(int))
    return [{"reviewed": int(number[i]), "precision": precision[i], "expected": expected[i]} for i in places]


def compute_calibration(reviews: Sequence[Review]) -> list[dict[str, float]]:
    """Return for bins of the probability its mean, the share accepted, and the number of reviews."""
    decided = select_decided(reviews)
    if not decided:
        return []
    accepted = np.array([review.verdict == "accept" for review in decided])
    bins = reliability(np.array([review.probability for review in decided]), accepted, N_BINS)
    return [
        {"predicted": mean, "accepted": rate, "reviewed": round(share * len(decided))} for mean, rate, share in bins
    ]


def count_added(reviews: Sequence[Review]) -> int:
    """Return the number of missing labels that were accepted."""
    return sum(review.kind == "missing" and review.verdict == "accept" for review in reviews)


def count_next(suggestions: Sequence[Suggestion]) -> float:
    """Return how many of suggestions are probably right.

    >>> count_next([Suggestion(0, "a", "missing", 0.9), Suggestion(1, "a", "missing", 0.6)])
    1.5
    """
    return round(sum(suggestion.probability for suggestion in suggestions), 3)


def estimate_right(at_random: Sequence[Suggestion], reviews: Sequence[Review]) -> dict[str, float] | None:
    """Return how many of all suggestions are right, from those that were decided in a random sample.

    The sample ends before the first suggestion without a verdict in the random order, so that it does not matter why
    the others were reviewed. None if fewer than 20 of the sample are accepted or rejected.

    >>> cells = [Suggestion(i, "a", "missing", 0.5) for i in range(40)]
    >>> made = [
    ...     Review(i, str(i), "", i, "a", "missing", 0.5, "accept" if i % 4 else "reject", None) for i in range(20)
    ... ]
    >>> estimate_right(cells, made)
    {'number': 30.0, 'low': 23.8, 'high': 36.2, 'sampled': 20}
    """
    verdicts = {(review.row, review.label): review.verdict for review in reviews}
    known = [verdicts.get((suggestion.row, suggestion.label)) for suggestion in at_random]
    decided = [
        i for i in range(known.index(None) if None in known else len(known)) if known[i] in ("accept", "reject")
    ]
    if len(decided) < MIN_SAMPLE:
        return None
    p = np.array([suggestion.probability for suggestion in at_random])
    probe = Probe(np.array(decided), np.full(len(decided), len(decided) / len(p)))
    estimate = estimate_from_probe(p, probe, np.array([known[i] == "accept" for i in decided]))
    return {name: round(value, 1) for name, value in estimate._asdict().items()} | {"sampled": len(decided)}


def count_labels(
    label_names: Sequence[str], written: Sequence[int], expected: Sequence[float] | None, reviews: Sequence[Review]
) -> list[dict[str, Any]]:
    """Return for each label how often it is in the file, was added and removed, and is probably still missing.

    ``expected`` is the number of rows that should have each label, by the audit's estimate.
    """
    changes = Counter((review.label, review.kind) for review in reviews if review.verdict == "accept")
    table = []
    for j, name in enumerate(label_names):
        added, removed = changes[name, "missing"], changes[name, "doubtful"]
        current = int(written[j]) + added - removed
        missing = max(0.0, expected[j] - current) if expected is not None else None
        table.append(
            {"label": name, "written": int(written[j]), "added": added, "removed": removed, "missing": missing}
        )
    return sorted(table, key=lambda count: (-(count["written"] + count["added"]), count["label"]))
