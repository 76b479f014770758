"""What a review teaches: the order of the queue, and how many labels are still missing.

The store keeps what the last audit stated about each suggestion and about the shares of written labels. From these
and from the verdicts :func:`labelgap.gaps.learn` finds the probabilities by which the queue is ordered.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np

from labelgap.calibration import MissingCount, WrittenShare
from labelgap.gaps import Audit, learn
from labelgap.gaps.auditing import Suggestions
from labelgap.serve.reviews.store import Review, Suggestion


@dataclass(frozen=True)
class Shares:
    """The shares of the true labels that are written, when an audit began.

    Attributes
    ----------
    written : list of int
        The number of written labels of each label.
    of_label : list of float
        The share of each label that is written, see :class:`~labelgap.calibration.WrittenShare`.
    overall, low, high : float
        The share of all labels, with a 95 % interval.
    n_wrong : float
        How many of the written labels are wrong, by the audit.
    n_added : int
        How many of them verdicts had added.

    Examples
    --------
    >>> shares = Shares([40, 40], [0.8, 0.8], 0.8, 0.5, 1.0, 0.0, n_added=5)
    >>> Shares.of_json(shares.to_json()) == shares
    True
    >>> found = shares.count_missing(n_added=15)
    >>> found["number"], found["low"], found["high"], found["share"], found["share_high"], found["text"]
    (10.0, 0.0, 70.0, 0.1, 0.4375, 'at most 70')
    """

    written: list[int]
    of_label: list[float]
    overall: float
    low: float
    high: float
    n_wrong: float
    n_added: int

    @classmethod
    def of_json(cls, text: str) -> Shares:
        """Return the shares that :meth:`to_json` wrote."""
        return cls(**json.loads(text))

    def to_json(self) -> str:
        """Return the shares as JSON."""
        return json.dumps(asdict(self))

    def update(self, share: WrittenShare) -> Shares:
        """Return the same with other shares."""
        of_label = share.of_label.tolist()
        return replace(self, of_label=of_label, overall=share.overall, low=share.low, high=share.high)

    @property
    def expected(self) -> list[float]:
        """How many rows should have each label."""
        return [round(n / share, 3) for n, share in zip(self.written, self.of_label, strict=True)]

    def count_missing(self, n_added: int) -> dict[str, float | str]:
        """Return how many labels are missing after verdicts added ``n_added``, also in words, and their share."""
        n_right = sum(self.written) - self.n_wrong
        ends = {"": self.overall, "low": self.high, "high": self.low}
        numbers = {end: max(n_right / c - n_right - (n_added - self.n_added), 0.0) for end, c in ends.items()}
        shares = {f"_{end}".rstrip("_"): round(numbers[end] * c / max(n_right, 1.0), 4) for end, c in ends.items()}
        count = MissingCount(*(round(number, 1) for number in numbers.values()))
        return count._asdict() | {f"share{end}": share for end, share in shares.items()} | {"text": count.describe()}


def learn_queue(
    stated: Shares, suggestions: Sequence[Suggestion], reviews: Sequence[Review], label_names: Sequence[str]
) -> tuple[Shares, list[Suggestion]]:
    """Return the shares and the undecided suggestions with the probabilities that verdicts teach.

    Parameters
    ----------
    stated : Shares
        The shares that the audit stated.
    suggestions : sequence of Suggestion
        All suggestions of the audit with the stated probabilities, the most probable of each kind first.
    reviews : sequence of Review
        Current verdicts that accept or reject.
    label_names : sequence of str
        The names of the labels.
    """
    if not reviews:
        return stated, list(suggestions)
    numbers = {name: j for j, name in enumerate(label_names)}
    audit = _restore_audit(stated, suggestions, numbers)
    rows, labels, right = zip(
        *((review.row, numbers[review.label], review.verdict == "accept") for review in reviews), strict=True
    )
    learned = learn(audit, rows, labels, right)
    return stated.update(learned.share), [Suggestion(*record) for record in learned.records(label_names)]


def _restore_audit(stated: Shares, suggestions: Sequence[Suggestion], numbers: dict[str, int]) -> Audit:
    def select(kind: str) -> Suggestions:
        cells = [(cell.row, numbers[cell.label], cell.probability) for cell in suggestions if cell.kind == kind]
        rows, labels, probabilities = np.array(cells, np.float64).reshape(-1, 3).T
        return Suggestions(rows.astype(np.int64), labels.astype(np.int64), probabilities)

    places = np.array([cell.place for cell in suggestions if cell.kind == "missing"])
    of_label = np.array(stated.of_label)
    share = WrittenShare(stated.overall, stated.low, stated.high, of_label, stated.high < 1)
    bounds = np.column_stack([of_label, of_label])  # nothing is learned from them
    return Audit(select("missing"), select("doubtful"), share, np.array(stated.written), places, bounds)
