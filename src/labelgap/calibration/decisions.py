"""Thresholds for a stated aim, and the calibration of an estimator: probabilities, thresholds, their quality."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from labelgap.calibration.curves import Calibration, calibration_error, reliability
from labelgap.calibration.scored_cells import ScoredCells
from labelgap.calibration.written import WrittenShare, estimate_written
from labelgap.observations import Labels

AIMS = ("f1", "expected", "precision>=P", "k=K")
MIN_LIKELY = 0.05  # probabilities above this are worth a look; nearly all cells are below
LABEL_SCALES = (0.05, 0.3)  # of the terms of each label
N_PARTS = 2  # of the rows, to compare these scales
TINY = 1e-6  # a probability that counts as 0 in the logarithmic loss
Meaning = Literal["written", "true"]


class NotCalibrated(ValueError, AttributeError):
    """Error for probabilities of an estimator that has scores only.

    It is an AttributeError, since scikit-learn asks ``hasattr(estimator, "predict_proba")``.
    """


class Aim(NamedTuple):
    """What thresholds are chosen for: a name of ``AIMS`` without its number, and the number."""

    name: str
    value: float = 0.0


def parse_aim(aim: str) -> Aim:
    """Return the aim of a text; raise ValueError if there is no such aim.

    >>> parse_aim("f1"), parse_aim("precision>=0.8"), parse_aim("k=3")
    (Aim(name='f1', value=0.0), Aim(name='precision', value=0.8), Aim(name='k', value=3.0))
    """
    text = str(aim).replace(" ", "").lower()
    if text in ("f1", "expected"):
        return Aim(text)
    number = re.fullmatch(r"(precision)>=(0?\.\d+|1\.?0*)|(k)=(\d+\.?\d*)", text)
    if number is None or float(number[2] or number[4]) <= 0:
        raise ValueError(
            f"aim={aim!r} is not known; use one of {', '.join(AIMS)}, such as 'precision>=0.8' or 'k=3'."
        )
    return Aim(number[1] or number[3], float(number[2] or number[4]))


@dataclass(frozen=True)
class RowCalibration:
    """Probabilities and thresholds of an estimator, from rows that were held out of its fit.

    Attributes
    ----------
    curve : Calibration
        P(label is written | row) of a score.
    written : WrittenShare
        The share c_j of true labels that are written. P(label is true | row) = min(1, P(written | row) / c_j).
    thresholds : ndarray of shape (L,)
        For each label, the score above which it is predicted.
    probability : float
        The probability, of the meaning that ``aim`` uses, at these scores.
    always_best : bool
        Whether the best label of each row is predicted even if it is below its threshold.
    aim : str
        What the thresholds were chosen for.
    quality : dict
        Numbers from the held-out rows: see :func:`measure_quality`.
    reliability : list of (mean probability, share of written labels, share of cells)
        P(written) of the held-out rows in bins of equal width.
    """

    curve: Calibration
    written: WrittenShare
    thresholds: NDArray[np.float64]
    probability: float
    always_best: bool
    aim: str
    quality: dict[str, float]
    reliability: list[tuple[float, float, float]] = field(default_factory=list)

    def convert(self, scores: NDArray, labels: NDArray, meaning: Meaning = "written") -> NDArray[np.float64]:
        """Return the probabilities of cells with these scores and labels."""
        probabilities = self.curve.predict(scores, labels)
        return probabilities if meaning == "written" else self.written.find_true(probabilities, labels).probabilities

    def to_values(self) -> dict[str, Any]:
        """Return the calibration as values of a model file."""
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return values | {
            "curve": self.curve.to_values(),
            "written": asdict(self.written),
            "reliability": np.array(self.reliability, np.float64).reshape(-1, 3),
        }

    @classmethod
    def from_values(cls, values: dict[str, Any]) -> RowCalibration:
        """Return the calibration of :meth:`to_values`."""
        curve, written = Calibration.from_values(values["curve"]), WrittenShare(**values["written"])
        bins = [tuple(map(float, row)) for row in values["reliability"]]
        if not len(written.of_label) == len(values["thresholds"]) == curve.n_labels:
            raise ValueError(f"a calibration of {curve.n_labels} labels and {len(values['thresholds'])} thresholds")
        return cls(**(values | {"curve": curve, "written": written, "reliability": bins}))


def fit_row_calibration(
    cells: ScoredCells, labels: Labels, *, aim: str = "f1", positives_only: bool = False
) -> RowCalibration:
    """Return the calibration of scored cells of held-out rows.

    With ``positives_only`` an absent label may be forgotten: the share c of true labels that are written is
    estimated, and thresholds count P(true). Otherwise c is 1.

    Parameters
    ----------
    cells : ScoredCells
        Cells of held-out rows.
    labels : Labels
        The labels of all held-out rows.
    aim : str, default="f1"
        "f1": the largest expected F1, 2 Σ p / (predicted + Σ over all cells of p), with the first sum over predicted
        cells; "precision>=P": as many labels as possible with an expected precision of at least P; "k=K": K labels a
        row on average; "expected": as many labels as the probabilities sum to.
    positives_only : bool, default=False
        Whether absent labels may be forgotten.
    """
    parsed, n_labels = parse_aim(aim), labels.shape[1]
    cells = cells._replace(weights=cells.weights.astype(np.float64))  # sums of them need more digits
    own, honest = choose_label_scale(cells, n_labels)
    curve = Calibration(n_labels, own=own).fit(cells.scores, cells.labels, cells.positive, cells.weights)
    f = curve.predict(cells.scores, cells.labels)
    written = WrittenShare(1.0, 1.0, 1.0, np.ones(n_labels))
    if positives_only and cells.positive.any():
        written = estimate_written(cells, n_labels)
    c = written.overall
    p = np.minimum(f / c, 1.0)
    probability = choose_threshold(p, cells.weights, parsed, len(labels))
    thresholds = curve.find_scores(probability * c)
    always_best = parsed.name == "f1" and positives_only and float(cells.weights @ p) >= len(labels)
    quality = measure_quality(cells, honest, p, thresholds, always_best)
    bins = reliability(honest, cells.positive, weights=cells.weights)
    return RowCalibration(curve, written, thresholds, probability, always_best, aim, quality, bins)


def choose_label_scale(cells: ScoredCells, n_labels: int) -> tuple[float, NDArray[np.float64]]:
    """Return how much the curves of labels differ, and P(written) of cells by curves of other rows.

    Of ``LABEL_SCALES``, it is the one with the smallest logarithmic loss −Σ log P(what is there). Curves that follow
    each label's own cells closely help where there are many of them, and repeat their noise where there are few.
    """
    fits = [cross_fit(cells, n_labels, own) for own in LABEL_SCALES]
    losses = [-float(cells.weights @ np.log(np.maximum(np.where(cells.positive, f, 1 - f), TINY))) for f in fits]
    best = int(np.argmin(losses))
    return LABEL_SCALES[best], fits[best]


def cross_fit(cells: ScoredCells, n_labels: int, own: float) -> NDArray[np.float64]:
    """Return P(written) of cells by curves that were fitted on the other parts of the rows."""
    probabilities, part = np.empty(len(cells.scores)), cells.rows % N_PARTS
    for test in (part == number for number in np.unique(part)):
        train = cells.select(~test)
        if not len(train.scores):  # all rows are in one part
            train = cells
        curve = Calibration(n_labels, own=own).fit(train.scores, train.labels, train.positive, train.weights)
        probabilities[test] = curve.predict(cells.scores[test], cells.labels[test])
    return probabilities


def choose_threshold(p: NDArray, weights: NDArray, aim: Aim, n_rows: int) -> float:
    """Return the probability above which cells are predicted, for an aim; see :func:`fit_row_calibration`.

    >>> p, weights = np.array([0.9, 0.5, 0.4, 0.1]), np.ones(4)
    >>> [choose_threshold(p, weights, parse_aim(aim), 2) for aim in ("f1", "precision>=0.7", "k=0.5", "expected")]
    [0.25, 0.45, 0.7, 0.45]
    """
    order = np.argsort(-p, kind="stable")
    sorted_p, counts = p[order], np.cumsum(weights[order])
    hits, total = np.cumsum(weights[order] * sorted_p), float(weights @ p)
    if aim.name == "f1":
        last = int(np.argmax(2 * hits / (counts + total)))
    elif aim.name == "precision":
        # Sorted by probability, the expected precision never rises.
        last = int(np.searchsorted(-hits / counts, -aim.value, side="right")) - 1
    else:
        size = aim.value * n_rows if aim.name == "k" else round(total)
        last = int(np.searchsorted(counts, size, side="right")) - 1
    if last < 0:
        return float((1 + sorted_p[0]) / 2)
    following = sorted_p[last + 1 :]
    following = following[following < sorted_p[last]]
    return float((sorted_p[last] + (following[0] if len(following) else 0.0)) / 2)


def measure_quality(
    cells: ScoredCells, f: NDArray, p: NDArray, thresholds: NDArray, always_best: bool
) -> dict[str, float]:
    """Return the quality on held-out rows: rows, P@1, F1, labels a row, rows with a label, calibration errors.

    f is P(written) by curves of other rows; "calibration_error_likely" is that of the cells with f above 0.05.
    P@1 and F1 compare with the written labels, and are too low where labels were forgotten. "expected_f1" and
    "expected_precision" count p, the probability that the label is true.
    """
    margins = cells.scores - thresholds[cells.labels]
    order = np.lexsort((cells.labels, -cells.scores, cells.rows))
    rows, first = np.unique(cells.rows[order], return_index=True)
    best = order[first]
    predicted = margins > 0
    if always_best:
        predicted[best] = True
    has_label = np.zeros(len(rows), bool)
    has_label[np.searchsorted(rows, cells.rows[predicted])] = True
    with_positive = np.isin(rows, cells.rows[cells.positive])
    weights, n_predicted = cells.weights, float(cells.weights @ predicted)
    n_positive, likely = float(weights @ cells.positive), f > MIN_LIKELY
    hits, total = float(weights @ (predicted & cells.positive)), float(weights @ p)
    expected_hits = float(weights @ (predicted * p))
    return {
        "rows": float(len(rows)),
        "precision_at_1": float(cells.positive[best][with_positive].mean()) if with_positive.any() else float("nan"),
        "f1": 2 * hits / max(n_predicted + n_positive, 1.0),
        "expected_f1": 2 * expected_hits / max(n_predicted + total, 1.0),
        "expected_precision": expected_hits / n_predicted if n_predicted else float("nan"),
        "labels_per_row": n_predicted / max(len(rows), 1),
        "rows_with_label": float(has_label.mean()) if len(rows) else 0.0,
        "calibration_error": calibration_error(f, cells.positive, weights=weights),
        "calibration_error_likely": (
            calibration_error(f[likely], cells.positive[likely], weights=weights[likely]) if likely.any() else 0.0
        ),
    }
