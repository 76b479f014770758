"""The audit: labels that are probably missing, and labels that are probably wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from labelgap.calibration import Calibration, WrittenShare
from labelgap.calibration.scored_cells import ScoredCells
from labelgap.calibration.written import Odds, combine_odds, count_before, estimate_odds, group_labels
from labelgap.estimators import Tagger, get_final_estimator
from labelgap.estimators.parameters import check_number
from labelgap.gaps.out_of_fold import (
    check_labels,
    choose_probable_cells,
    make_resumable_generator,
    score_out_of_fold,
)
from labelgap.gaps.row_context import adjust_to_row
from labelgap.observations import Labels, as_labels, encode_tags, holds_tags
from labelgap.observations.arguments import LabelsLike, MatrixLike, RandomSeed

LOW_SHARE = 0.5  # of the absent cells of a label: cells below these have a low score
LOWEST_SHARE = 0.1  # of the absent cells of a label: hardly any right label is below these
PRIOR_WRONG = 30.0  # wrong labels that would make as sure of a label's rate as that of its group does
MIN_LABELS = 10
N_SHARES, N_FACTORS, FACTOR_SHAPES = 40, 60, (0.3, 0.5, 1.0)  # grids of φ and of g in `estimate_right_among_low`
RATE_SPREAD = 0.1  # between groups of labels: prior standard deviation, in parts of the rate of all cells
MIN_SHARE_OF_BOUND = 0.1  # rates of missing or wrong labels, in parts of their upper bounds
ROW_TEMPERATURE = 0.1
LABEL_SCALE = 0.03  # of the calibration; a curve close to a label's own written cells would not doubt them


class Suggestions(NamedTuple):
    """Cells with the probability that the label is missing (or wrong), in descending order.

    Of cells with one probability, such as the largest that the data support, the one with more evidence comes first.
    """

    rows: NDArray[np.int64]
    labels: NDArray[np.int64]
    probabilities: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        range_ = f", probabilities {self.probabilities[0]:.2f} to {self.probabilities[-1]:.2f}" if len(self) else ""
        return f"Suggestions({len(self)} cells{range_})"

    def first(self, k: int) -> Suggestions:
        """Return the k most probable suggestions."""
        return Suggestions(self.rows[:k], self.labels[:k], self.probabilities[:k])

    def of_row(self, row: int) -> Suggestions:
        """Return the suggestions for a row."""
        return self._select(self.rows == row)

    def of_label(self, label: int) -> Suggestions:
        """Return the suggestions for a label."""
        return self._select(self.labels == label)

    def expected_precision(self, k: int | None = None) -> float:
        """Return the expected share of correct suggestions among the first k, or all; NaN if there are none."""
        return float(self.probabilities[:k].mean()) if len(self.probabilities[:k]) else float("nan")

    def _select(self, mask: NDArray) -> Suggestions:
        return Suggestions(self.rows[mask], self.labels[mask], self.probabilities[mask])


class RankedRows(NamedTuple):
    """Rows with a score between the mean and the largest probability of their suggestions, in descending order."""

    rows: NDArray[np.int64]
    scores: NDArray[np.float64]


@dataclass(frozen=True, repr=False)
class Audit:
    """Result of an audit.

    Attributes
    ----------
    missing : Suggestions
        Labels that a row does not have and probably should have.
    doubtful : Suggestions
        Labels that a row has and probably should not have.
    share : WrittenShare
        The estimated share of the true labels that are written, with an interval.
    n_written : ndarray of shape (L,)
        The number of written labels.
    places : ndarray
        For each missing label, the share of the written cells of labels of similar frequency with a higher score.
    written_interval : ndarray of shape (L, 2)
        A 95 % interval of ``written``; labels of similar frequency share one.
    right_among_low : float
        The estimated share of right labels among the written labels with low scores; the others are wrong.
    label_names : list of str, optional
        The names of the labels, if Y has them.
    """

    missing: Suggestions
    doubtful: Suggestions
    share: WrittenShare
    n_written: NDArray[np.int64]
    places: NDArray[np.float64]
    written_interval: NDArray[np.float64]
    right_among_low: float = 0.0
    label_names: list[str] | None = None

    @property
    def written(self) -> NDArray[np.float64]:
        """The estimated share of the true labels of each label that are written, shape (L,)."""
        return self.share.of_label

    @property
    def n_missing(self) -> NDArray[np.float64]:
        """The estimated number of missing labels of each label, shape (L,)."""
        return self.n_written * (1 / self.share.of_label - 1)

    @property
    def share_missing(self) -> float:
        """The estimated share of all true labels that are missing."""
        return 1 - self.share.overall

    @property
    def share_missing_interval(self) -> tuple[float, float]:
        """A 95 % interval of ``share_missing``; it starts at 0 if the data cannot tell whether labels are missing."""
        return 1 - self.share.high, 1 - self.share.low

    def __repr__(self) -> str:
        low, high = self.share_missing_interval
        missing = f"{low:.0%} to {high:.0%}" if low > 0 else f"at most {high:.0%}"
        counts = f"{len(self.missing)} missing, {len(self.doubtful)} doubtful labels"
        return f"Audit({counts}; {missing} of the true labels are missing)"

    def rank_rows(self) -> RankedRows:
        """Return all rows with a suggestion, by Σ p exp(p / 0.1) / Σ exp(p / 0.1) over their suggestions.

        The cells of a row share its features, so that their errors are no independent events: 1 − Π (1 − p) would
        rank a row with many slight doubts before one with a strong doubt. Probabilities of missing labels are upper
        bounds where the data cannot tell, so those of doubtful labels count as if none with a low score were right.
        """
        rows = np.concatenate([self.missing.rows, self.doubtful.rows])
        doubts = np.minimum(self.doubtful.probabilities / (1 - self.right_among_low), 1.0)
        p = np.concatenate([self.missing.probabilities, doubts])
        present, position = np.unique(rows, return_inverse=True)
        weights = np.exp(p / ROW_TEMPERATURE)
        scores = np.bincount(position, p * weights, len(present)) / np.bincount(position, weights, len(present))
        order = np.argsort(-scores, kind="stable")
        return RankedRows(present[order], scores[order])

    def records(
        self, label_names: Sequence[str] | None = None, top: int | None = None
    ) -> Iterator[tuple[int, str, str, float]]:
        """Yield (row, label, "missing" or "doubtful", probability): all missing labels, then all doubtful ones.

        With ``top``, yield only the most probable suggestions of each kind.
        """
        names = self.label_names if label_names is None else label_names
        for kind, suggestions in (("missing", self.missing), ("doubtful", self.doubtful)):
            for i, j, p in zip(*(field[:top] for field in suggestions), strict=True):
                yield int(i), str(j) if names is None else str(names[j]), kind, float(p)

    def to_frame(self, min_probability: float = 0.0, ids: Sequence[Any] | None = None) -> Any:
        """Return the suggestions as a pandas data frame, both kinds together, the most probable first.

        Parameters
        ----------
        min_probability : float, default=0.0
            Leave out suggestions below this probability.
        ids : sequence of length n, optional
            A column "id" with these values of the rows is added.
        """
        import pandas as pd  # late: an optional package

        frame = pd.DataFrame.from_records(list(self.records()), columns=["row", "label", "kind", "probability"])
        frame = frame[frame["probability"] >= min_probability]
        frame = frame.sort_values("probability", ascending=False, kind="stable", ignore_index=True)
        if ids is not None:
            frame.insert(0, "id", np.asarray(ids, object)[frame["row"].to_numpy()])
        return frame


def audit(
    X: MatrixLike,
    Y: LabelsLike | None = None,
    estimator: Any = None,
    *,
    probabilities: MatrixLike | None = None,
    observed: MatrixLike | None = None,
    groups: ArrayLike | None = None,
    n_folds: int = 5,
    candidates: int = 30,
    random_state: RandomSeed = None,
    callback: Callable[[Audit], Any] | None = None,
) -> Audit:
    """Rank the labels that are probably missing, and those that are probably wrong.

    A model that was fitted without the row scores its cells, and the scores are calibrated to
    f = P(label is written | row). The other labels of the row are not used: if every row has at least one label, a
    row without others would reveal its own. An estimator with a method ``score_labels(X, Y)``, such as
    :class:`~labelgap.gaps.LabelMixture`, does use them.

    The audit assumes that in every row a true label j is written with the same probability c_j ("missing at random
    per label"), and that a label is wrongly written with the same probability ε_j. Then

        P(missing | absent, row) = λ_j f / (1 − f),    λ_j = missing / written labels of label j,
        P(wrong | written, row)  = η_j (1 − f) / f,    η_j = wrong / absent labels of label j,

    the first as Elkan and Noto (2008). λ and η come from ranks of cells (see ``labelgap.calibration.written``), for
    groups of labels of similar frequency; a label with many written cells among its lowest scores has a larger η. No
    probability exceeds λ / (λ + its standard error).

    What features do not show cannot be known. Negatives that look just like positives are counted as missing, unless
    fewer of them have the largest scores; so the interval of the share of missing labels starts at 0 where the
    features are weak. Right labels of which the row shows no trace look like wrong ones: η is an upper bound, and
    doubtful labels are those worth a look rather than those proven wrong.

    Parameters
    ----------
    X : array-like, sparse matrix or list of texts, n rows
        Rows that the estimator accepts. With ``probabilities`` leave it out: ``audit(Y, probabilities=P)``.
    Y : sequence of lists of str, or labels of any form, (n, L)
        A label that is not written may be missing. Unknown cells are neither suggested nor used for fitting. Lists
        of tags have a column for each of the estimator's ``label_names``, by default for each tag, sorted.
    estimator : estimator, optional
        Cloned and fitted ``n_folds`` times; for texts, by default ``Tagger()``. If Y has no unknown cell, it may be a
        multi-label estimator of scikit-learn, such as ``OneVsRestClassifier(LogisticRegression())``.
    probabilities : array-like or sparse matrix of shape (n, L), optional
        Probabilities (or any scores that rise with them) by models that had not seen the row, instead of an
        estimator. Cells that a sparse matrix does not store have the probability 0.
    observed : array-like or sparse matrix, optional
        True where Y is known.
    groups : array-like of shape (n,), optional
        Rows of one group (an author, a document) stay in one fold. Equal rows always do.
    n_folds : int, default=5
        Number of folds.
    candidates : int, default=30
        Maximum number of missing labels to suggest for a row.
    random_state : int, RandomState or None
        Seed of the folds and of the sample of cells for the calibration.
    callback : callable, optional
        Called with the audit of the rows scored so far after each fold but the last, so that the first suggestions
        can be reviewed before all are found.

    Returns
    -------
    Audit

    Examples
    --------
    >>> from labelgap import LEML, hide_positives
    >>> from labelgap.datasets import make_low_rank
    >>> data = make_low_rank(400, 20, 10, rank=4, random_state=0)
    >>> written = hide_positives(data.Y, 0.7, random_state=0)
    >>> missing = audit(data.X, written, LEML(4, alpha=1.0, random_state=0), random_state=0).missing.first(50)
    >>> bool(data.Y.toarray()[missing.rows, missing.labels].mean() > 0.8)
    True

    Texts and lists of tags; the last text lost its tag:

    >>> texts = ["chewy cookies", "crisp cookies", "smoked bacon", "crisp bacon"] * 20 + ["cookies again"]
    >>> found = audit(texts, [["baking"], ["baking"], ["meat"], ["meat"]] * 20 + [[]], random_state=0)
    >>> next(found.records())[:3]
    (80, 'baking', 'missing')
    """
    check_number("n_folds", n_folds, int, least=2)
    check_number("candidates", candidates, int, least=1)
    rng = make_resumable_generator(random_state)
    Y = X if Y is None and probabilities is not None else Y
    estimator = Tagger() if estimator is None and _holds_texts(X) else estimator
    Y, names = _read_names(Y, estimator)
    if probabilities is not None:
        labels = _check_audit_labels(as_labels(Y, observed))
        cells = choose_probable_cells(probabilities, labels, rng=rng, candidates=candidates)
    elif Y is None or estimator is None:
        raise ValueError("Pass audit(X, Y, estimator), or audit(Y, probabilities=P) with out-of-fold probabilities.")
    else:
        labels = _check_audit_labels(check_labels(Y, observed, estimator))
        report = None if callback is None else lambda cells: callback(judge_cells(cells, labels.shape[1], names))
        cells = score_out_of_fold(
            estimator, X, labels, n_folds=n_folds, rng=rng, candidates=candidates, groups=groups, report=report
        )
    return judge_cells(cells, labels.shape[1], names)


def _holds_texts(X: Any) -> bool:
    return getattr(X, "ndim", 1) == 1 and hasattr(X, "__len__") and isinstance(next(iter(X), None), str)


def _read_names(Y: Any, estimator: Any) -> tuple[Any, list[str] | None]:
    """Return Y, lists of tags as a matrix, and the names of its labels if there are any."""
    names = getattr(get_final_estimator(estimator), "label_names", None)
    if Y is not None and holds_tags(Y):
        return encode_tags(Y, names)
    names = getattr(Y, "columns", names)
    return Y, None if names is None else [str(name) for name in names]


def _check_audit_labels(labels: Labels) -> Labels:
    if labels.positives.nnz == 0:
        raise ValueError("Y has no positive label; an audit needs some to learn from.")
    if len(labels) < 2 or (labels.known is not None and np.count_nonzero(np.diff(labels.known.indptr)) < 2):
        raise ValueError("Y has known labels in one row only; an audit needs at least two such rows.")
    return labels


def judge_cells(cells: ScoredCells, n_labels: int, label_names: list[str] | None = None) -> Audit:
    """Return the audit of scored cells, which include all written ones of their rows."""
    n_written = np.bincount(cells.labels[cells.positive], minlength=n_labels)
    calibration = Calibration(n_labels, own=LABEL_SCALE)
    calibration.fit(cells.scores, cells.labels, cells.positive, cells.weights)
    group = group_labels(n_written)
    places = count_before(cells, group, cells.positive, descending=True)
    omitted, depths = estimate_odds(places, cells), np.empty(len(cells.rows), np.float32)
    depths[places.cells] = places.find_shares()
    del places
    added = estimate_odds(count_before(cells, group, ~cells.positive, descending=False), cells)
    f = calibration.predict(cells.scores, cells.labels)
    absent, written = np.flatnonzero(~cells.positive & ~cells.sampled), np.flatnonzero(cells.positive)
    of_group = np.bincount(group, n_written)
    rates, cap = _shrink_rates(added, of_group)
    of_label = estimate_wrong_rates(cells, rates[group])
    estimates = of_label[cells.labels[written]] * (1 - f[written]) / f[written]
    ranked_written = _rank_cells(written, estimates, estimates, cap)
    rates, cap = _shrink_rates(omitted, of_group)
    # An estimated share of written labels makes probabilities right, but cuts off differences between the best cells.
    shares = np.ones(n_labels), 1 / (1 + rates[group])
    for_order, for_values = (_find_odds(cells, absent, rates[group], adjust_to_row(cells, f, c)) for c in shares)
    del f
    ranked_absent = _rank_cells(absent, for_order, for_values, cap)
    del absent, for_order, for_values
    right = estimate_right_among_low(cells, n_labels)
    missing, doubtful = (
        Suggestions(cells.rows[index].astype(np.int64), cells.labels[index].astype(np.int64), p)
        for index, p in (ranked_absent, (ranked_written[0], ranked_written[1] * (1 - right)))
    )
    bounds = 1 / (1 + np.array([(part.high or np.inf, part.low) for part in omitted]))[group]
    share = combine_odds(omitted, n_written, group)
    depth = depths[ranked_absent[0]].astype(np.float64)
    return Audit(missing, doubtful, share, n_written, depth, bounds, right, label_names)


def _find_odds(cells: ScoredCells, index: NDArray, odds: NDArray, f: NDArray) -> NDArray[np.float64]:
    """Return the odds λ f / (1 − f) of some cells; ``odds`` is λ of each label."""
    f = f[index]
    return odds[cells.labels[index]] * f / (1 - f)


def _shrink_rates(odds: list[Odds], n_written: NDArray) -> tuple[NDArray[np.float64], float]:
    """Return the odds of each group, shrunk to the mean odds in proportion to their variance, and the cap.

    Groups count in the mean as their written cells. The cap of probabilities is 1 / (1 + relative standard error of
    the mean odds): what the data can support.
    """
    # A rate of 0 would lose the order of its cells.
    rates = np.array([max(part.estimate, MIN_SHARE_OF_BOUND * part.high) for part in odds])
    errors = np.array([part.error for part in odds])
    sizes = n_written / n_written.sum()
    overall = float(sizes @ rates)
    cap = 1 / (1 + np.linalg.norm(sizes * errors) / max(overall, 1e-300))
    spread = RATE_SPREAD * overall
    return overall + (rates - overall) * spread**2 / np.maximum(spread**2 + errors**2, 1e-300), float(cap)


def _rank_cells(
    index: NDArray, for_order: NDArray, for_values: NDArray, cap: float
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return cells in descending order of an estimate, and their probabilities.

    These are other estimates, capped, and averaged so that they fall in this order.
    """
    order = np.argsort(-for_order, kind="stable")
    values = np.minimum(for_values[order], cap)
    if (values[1:] > values[:-1]).any():
        from sklearn.isotonic import isotonic_regression  # late: `import labelgap` stays fast

        values = isotonic_regression(values, increasing=False)
    return index[order], values


def estimate_wrong_rates(cells: ScoredCells, of_group: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return η_j, wrong / absent labels of each label, from the rate of its group and its own lowest scores.

    The scores of wrong labels are distributed as those of absent cells. Let k_j written cells of label j be among the
    lowest tenth of its absent cells, and E_j be the size of this tenth. If all of them are wrong, k_j is Poisson with
    the mean η_j E_j. A gamma prior of shape 30, whose mean is the rate r_j of the label's group, gives

        η_j = r_j (30 + k_j) / (30 + r_j E_j):

    almost the rate of its group for a label with few cells, and its own for one with many.

    >>> labels, written = np.repeat([0, 1], 1000), np.tile(np.arange(1000) < 10, 2)
    >>> written[:90] = True
    >>> scores, ones = np.tile(np.arange(1000.0), 2), np.ones(2000)
    >>> cells = ScoredCells(np.arange(2000), labels, scores, written, ones, labels < 0)
    >>> estimate_wrong_rates(cells, np.full(2, 0.2)).round(2).tolist()
    [0.5, 0.16]
    """
    counts, sizes = _count_low(cells, len(of_group), LOWEST_SHARE)
    return of_group * (PRIOR_WRONG + counts) / (PRIOR_WRONG + of_group * sizes)


def _count_low(cells: ScoredCells, n_labels: int, share: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return how many written cells of each label are among the lowest share of its absent ones, and its size."""
    places = count_before(cells, np.arange(n_labels), ~cells.positive, descending=False)
    low = places.cells[places.find_shares() < share]
    return np.bincount(cells.labels[low], minlength=n_labels).astype(np.float64), share * places.totals


def estimate_right_among_low(cells: ScoredCells, n_labels: int) -> float:
    """Estimate the share of right labels among the written labels with low scores.

    A low score does not prove that a written label is wrong: features may not show a right one. The two differ in how
    they are spread over labels. Wrong labels are as frequent, relative to the label's own frequency, for every label.
    Right labels with low scores are common for some labels and rare for others. So the labels with relatively few low
    scores show how many wrong ones there are everywhere.

    Let n_j written cells have label j, of which k_j have low scores. Then k_j is Poisson with the mean

        (α + β n_j) · (φ + (1 − φ) g_j),

    where α and β ≥ 0 come from a regression of k on n, φ is the share of wrong labels, and g_j has a gamma
    distribution of mean 1. The estimate is the mean of 1 − φ given all k_j, with equal prior weights of all φ and of
    three shapes of the distribution. With fewer than ten labels nothing can be said, and the share is 0.
    """
    counts, _ = _count_low(cells, n_labels, LOW_SHARE)
    sizes = np.bincount(cells.labels[cells.positive], minlength=n_labels).astype(np.float64)
    if (sizes > 0).sum() < MIN_LABELS or not counts.any():
        return 0.0
    from scipy.optimize import nnls  # late: `import labelgap` stays fast
    from scipy.special import logsumexp
    from scipy.stats import gamma

    weights = 1 / np.sqrt(np.maximum(sizes, 1.0))  # the variance of a count is about proportional to the label's size
    means = np.column_stack([np.ones(n_labels), sizes])
    means = means @ nnls(means * weights[:, None], counts * weights)[0]
    counts, means = counts[sizes > 0], means[sizes > 0]
    wrong = (np.arange(N_SHARES) + 0.5) / N_SHARES

    def compute_likelihood(share: float, g: NDArray) -> float:
        rates = np.maximum(means[:, None] * (share + (1 - share) * g), 1e-300)
        return float(logsumexp(counts[:, None] * np.log(rates) - rates, axis=1).sum())

    factors = [gamma.ppf((np.arange(N_FACTORS) + 0.5) / N_FACTORS, shape) for shape in FACTOR_SHAPES]
    table = np.array([[compute_likelihood(share, g / g.mean()) for share in wrong] for g in factors])
    posterior = np.exp(table - table.max()).sum(axis=0)
    return float(1 - posterior @ wrong / posterior.sum())
