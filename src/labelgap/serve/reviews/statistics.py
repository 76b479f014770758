"""What the reviews say so far: progress, precision, calibration, and labels written, added and still missing."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from labelgap.gaps import reliability
from labelgap.serve.reviews.store import Review

MOST_POINTS = 200
N_BINS = 10
Z_95 = 1.959964


def decided(reviews: Sequence[Review], kind: str | None = None) -> list[Review]:
    """Return the reviews that accept or reject, of one kind of suggestion or of both."""
    return [one for one in reviews if one.verdict in ("accept", "reject") and kind in (None, one.kind)]


def counts(reviews: Sequence[Review]) -> dict[str, int]:
    """Return how many verdicts of each sort hold now."""
    found = Counter(one.verdict for one in reviews)
    return {"accepted": found["accept"], "rejected": found["reject"], "skipped": found["skip"]}


def precision(reviews: Sequence[Review]) -> dict[str, float | int | None]:
    """Return accepted / (accepted + rejected) with its 95 % interval, and the precision that was expected of them.

    The interval is Wilson's: (p + z²/2n ± z √(p(1 − p)/n + z²/4n²)) / (1 + z²/n).

    >>> from labelgap.serve.reviews.store import Review
    >>> made = [Review(i, str(i), "", i, "a", "missing", 0.75, verdict, None)
    ...         for i, verdict in enumerate(["accept", "accept", "accept", "reject", "skip"])]
    >>> {name: round(value, 3) for name, value in precision(made).items()}
    {'reviewed': 4, 'precision': 0.75, 'low': 0.301, 'high': 0.954, 'expected': 0.75}
    """
    kept = decided(reviews)
    n = len(kept)
    if not n:
        return {"reviewed": 0, "precision": None, "low": None, "high": None, "expected": None}
    p = sum(one.verdict == "accept" for one in kept) / n
    half = Z_95 * math.sqrt(p * (1 - p) / n + Z_95**2 / (4 * n * n))
    low, high = ((p + Z_95**2 / (2 * n) + side * half) / (1 + Z_95**2 / n) for side in (-1, 1))
    expected = sum(one.probability for one in kept) / n
    return {"reviewed": n, "precision": p, "low": max(low, 0.0), "high": min(high, 1.0), "expected": expected}


def curve(reviews: Sequence[Review]) -> list[dict[str, float]]:
    """Return precision and expected precision after each review, at most some hundred points."""
    kept = decided(reviews)
    if not kept:
        return []
    number = np.arange(1, len(kept) + 1)
    right = np.cumsum([one.verdict == "accept" for one in kept]) / number
    expected = np.cumsum([one.probability for one in kept]) / number
    places = np.unique(np.linspace(0, len(kept) - 1, min(len(kept), MOST_POINTS)).round().astype(int))
    return [{"reviewed": int(number[i]), "precision": right[i], "expected": expected[i]} for i in places]


def calibration(reviews: Sequence[Review]) -> list[dict[str, float]]:
    """Return for bins of the probability the mean prediction, the share accepted, and the number of reviews."""
    kept = decided(reviews)
    if not kept:
        return []
    yes = np.array([one.verdict == "accept" for one in kept])
    bins = reliability(np.array([one.probability for one in kept]), yes, N_BINS)
    return [{"predicted": mean, "accepted": rate, "reviewed": round(share * len(kept))} for mean, rate, share in bins]


def distribution(
    label_names: Sequence[str], written: Sequence[int], expected: Sequence[float] | None, reviews: Sequence[Review]
) -> list[dict[str, Any]]:
    """Return for each label how often it is written in the file, added, taken away, and still missing by estimate.

    ``expected`` is how often the audit thinks that each label should be written; what is there now counts against it.
    """
    changes = Counter((one.label, one.kind) for one in reviews if one.verdict == "accept")
    table = []
    for j, name in enumerate(label_names):
        added, removed = changes[name, "missing"], changes[name, "doubtful"]
        there = int(written[j]) + added - removed
        missing = max(0.0, expected[j] - there) if expected is not None else None
        table.append(
            {"label": name, "written": int(written[j]), "added": added, "removed": removed, "missing": missing}
        )
    return sorted(table, key=lambda one: (-(one["written"] + one["added"]), one["label"]))
