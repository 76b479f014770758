"""AutoLabeler: models that held-out rows choose, tune and blend, within a budget of time."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Sequence
from functools import partial
from importlib import import_module
from numbers import Integral, Real
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import DTypeLike, NDArray
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from labelgap.baselines import FastXML
from labelgap.estimators import LEML, BinaryRelevance, LabelKNN
from labelgap.estimators.base import About, MultiLabelEstimator, pack_parameter
from labelgap.estimators.binary_relevance import LinearSide
from labelgap.estimators.choosing import DEPTHS, MIN_SEARCH_ROWS, Choice, HeldOutPart, choose_estimator
from labelgap.estimators.parameters import check_number, check_propensity
from labelgap.estimators.scores import BlockScores, Scores, split_rows
from labelgap.kernels import Backend
from labelgap.metrics.at_k import PSPrecisionAtK
from labelgap.model_selection.one_class_cv import OneClassMFCV
from labelgap.model_selection.row_forms import FORMS, RowForm
from labelgap.observations import Labels
from labelgap.observations.arguments import LabelsLike, MatrixLike, RandomSeed
from labelgap.runtime import progress, scope

MIN_SECONDS, MAX_SECONDS, CELLS_PER_SECOND = 50.0, 600.0, 1e5  # of the default budget
RIDGE_SHARE = 0.4  # of the budget, after which the search of ridge regressions ends
MIN_HELD_OUT, MAX_HELD_OUT, MAX_CELLS = 3000, 5000, 11e6  # rows to compare candidates on: many if labels are few
MAX_DENSE_CELLS = 5e7  # of these rows, whose scores of every candidate stay in memory
SEED = 0  # of the folds; the random state is that of the members
PROBE_SHARE, MIN_PROBE_ROWS = 8, 1000  # candidates are timed on an eighth of the rows if there are more than these
LATE = "skipped: it would exceed the budget"
PROBE_MARGIN = 1.5  # fits take longer than in proportion to the rows of a probe
MIN_SHARE, MIN_SHARE_OF_SEARCH = 0.05, 0.15  # of the budget that must be left; a search has to end what it has begun
SEARCH_SHARE = 0.6  # of the time left, for a candidate that is a search
WEIGHTS = (0.15, 0.3, 0.6, 1.0)  # of a further member, in standard deviations of the scores so far
MIN_GAIN = 1e-3  # relative, of a further member
NEAR_TIE = 5e-3  # relative, by which a later candidate must be better to lead
CLOSE = 0.02  # relative, between one-vs-all on two forms of the rows, for which one-class models try both
MAX_MEMBERS = 4
FEW_ROWS_ALPHA = 0.5  # without a search; 1 / (1 + α), the score of the only row, is above ½
RARITIES = (0.05, 0.1, 0.2, 0.4, 0.8)  # weights of log p, in standard deviations of the scores
WEIGHTS_UNLABELLED = [2.0**power for power in range(-13, 2)]
FREQUENCY_POWERS = (0.0, 0.15, 0.25, 0.35)
DENSE_FORM_SHARE = 0.5  # of the budget that must be left for a form with dense rows


class Candidate(NamedTuple):
    """An unfitted estimator, the form of its rows, and what it takes an absent label for.

    A ``labelled`` one learns from the rows with a label only; ``prior`` is the weight of a prior in its fit.
    """

    name: str
    estimator: MultiLabelEstimator
    rows: str = "raw"
    absent: str = "no"
    labelled: bool = False
    prior: float = 0.0


class Scored(NamedTuple):
    """A candidate with its parameters chosen, its scores of the held-out rows, and the seconds of a last fit.

    ``fitted`` is the model on all rows, if there is one already.
    """

    candidate: Candidate
    scores: NDArray
    seconds: float = 0.0
    fitted: MultiLabelEstimator | None = None


class Found(NamedTuple):
    """The result of a search: members with weights, the weight of rarity, the table, and the held-out scores.

    ``fitted`` holds the models of members that are fitted on all rows already, and None for the others; ``forms``
    are the forms of the rows that the search has learned.
    """

    members: list[dict[str, Any]]
    rarity: float
    report: list[dict[str, Any]]
    held_out: list[HeldOutPart] | None
    fitted: list[MultiLabelEstimator | None]
    forms: dict[str, RowForm]


def find_learned(labels: Labels) -> NDArray | None:
    """Return the labels with a positive, or None if these are half of all or more, or none.

    >>> find_learned(Labels([[0, 1, 0], [0, 1, 0]])), find_learned(Labels([[0, 1], [0, 1]]))
    (array([1]), None)
    """
    learned = np.unique(labels.positives.indices).astype(np.int64)
    return learned if 0 < 2 * len(learned) < labels.shape[1] else None


class AutoLabeler(MultiLabelEstimator):
    """The model for labels of which nothing is known: several methods, compared and blended on held-out rows.

    Candidates are ridge regression with a chosen penalty and power of label frequencies, squared hinge one-vs-all,
    nearest neighbours, :class:`~labelgap.OneClassMFCV` and :class:`~labelgap.FastXML`, on rows in several forms: as
    they are; sparse ones also weighted by log((1 + n) / (1 + n_w)) + 1 (idf), with length 1, and, with up to 3,000
    features, times (XᵀX)^0.4 ("smooth"), by which words that occur together count for each other; those of up to 500
    features also with features of a Gaussian kernel (:class:`~labelgap.KMeansNystroem`). Some take an absent
    label for a "no" and some for unlabelled. Each one is fitted without some rows and scored on them by the geometric
    mean of P@1, P@3 and P@5, which missing labels lower for all candidates alike (with ``propensity``, a hit counts
    1/p_j). The best one leads; others are added, with weights in units of standard deviations, while the score rises
    by 0.1 %:

        s = s_1 + Σ_m w_m s_m − τ log p.

    Last, held-out rows choose τ. With ``propensity``, τ ≥ 0 raises labels that are rarely written; without, p_j is
    the relative frequency of label j, and τ ≤ 0 raises frequent labels, which helps if rows have few of their labels.

    Parameters
    ----------
    budget : float, optional
        The seconds that a fit may take. Candidates whose expected time is longer than what is left are skipped. By
        default 50 seconds and one more for each 100,000 cells of Y, at most 600.
    propensity : "counts" or array of shape (L,), optional
        The probability p_j that a true label j is written, if it depends on the label: "counts" estimates it from the
        numbers of positives (:func:`~labelgap.label_propensities`). The choice then aims at PSP@k.
    members : list of dict, optional
        Fixed members instead of a search, as ``members_`` holds them.
    rarity : float, default=0.0
        The weight τ of −log p_j with fixed members; negative to raise frequent labels.
    absent, random_state, n_jobs, dtype, verbose
        As in :class:`~labelgap.LEML`.
    device : str, default="auto"
        Deprecated; has no effect.

    Attributes
    ----------
    members_ : list of dict
        For each member "method", "parameters", the form of its "rows" ("raw", "idf", "smooth" or "kernel"),
        "labelled" (whether it learns from the rows with a label only), "prior" (the weight of the prior of
        :meth:`fit`) and "weight".
    models_ : list of estimators
        The fitted members.
    rarity_ : float
        The weight of −log p_j.
    report_ : list of dict
        All candidates: "candidate", what "absent" means to it, its chosen "parameters", its "score" on held-out rows,
        "seconds", and its "weight" in the blend, 0 if it is no member; "note" says why there is no score.
    forms_ : dict
        What the forms of the members' rows need: "weights" of the features for "idf"; "weights" and "smoothing" (d×d)
        for "smooth"; "landmarks", "whitening" and "gamma" for "kernel".
    learned_ : ndarray, or None
        The labels with a positive, if most have none; the members know these only.

    Examples
    --------
    >>> from labelgap import AutoLabeler
    >>> from labelgap.datasets import make_low_rank
    >>> data = make_low_rank(300, 12, 10, rank=3, random_state=0)
    >>> model = AutoLabeler(random_state=0).fit(data.X, data.Y)
    >>> sorted(model.report_[0])
    ['absent', 'candidate', 'note', 'parameters', 'score', 'seconds', 'weight']
    """

    about = About(
        "Chooses and blends other methods on held-out rows, within a budget of time.",
        "Caruana, Niculescu-Mizil, Crew and Ksikes 2004",
        missing_labels=True,
        fit="the budget",
        predict="as its members",
    )

    chooses_prior = True  # a Tagger then passes the names of labels

    members_: list[dict[str, Any]]
    models_: list[MultiLabelEstimator]
    rarity_: float
    report_: list[dict[str, Any]]
    forms_: dict[str, dict[str, Any]]
    offset_: NDArray | None
    learned_: NDArray | None

    def __init__(
        self,
        budget: float | None = None,
        *,
        propensity: Any = None,
        members: Sequence[dict[str, Any]] | None = None,
        rarity: float = 0.0,
        absent: Literal["negative", "unknown"] = "negative",
        random_state: RandomSeed = None,
        n_jobs: int | None = None,
        device: str = "auto",
        dtype: DTypeLike = "float32",
        verbose: int = 0,
    ) -> None:
        self.budget = budget
        self.propensity = propensity
        self.members = members
        self.rarity = rarity
        self.absent = absent
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.device = device
        self.dtype = dtype
        self.verbose = verbose

    def fit(
        self,
        X: MatrixLike,
        Y: LabelsLike,
        observed: MatrixLike | None = None,
        *,
        prior: MatrixLike | None = None,
        calibrate: bool | str = False,
    ) -> Self:
        """Choose members and fit them; see :meth:`BinaryRelevance.fit`, whose ``prior`` gets a chosen weight."""
        return self._fit(X, Y, observed, LinearSide(prior), calibrate=calibrate)

    def chosen(self) -> AutoLabeler:
        """Return an unfitted AutoLabeler with the members and weights of this one."""
        return clone(self).set_params(members=self.members_, rarity=self.rarity_)

    def _check_parameters(self) -> None:
        self._check_common()
        check_number("verbose", self.verbose, Integral, least=0)
        check_number("rarity", self.rarity, Real, least=-np.inf)
        if self.budget is not None and not (isinstance(self.budget, Real) and self.budget > 0):
            raise ValueError(f"budget={self.budget!r} is not a positive number of seconds; pass one, such as 60.")
        for member in self.members or ():
            make_member(member)._check_parameters()

    def _learn(self, X: Any, labels: Labels, side: LinearSide | None = None) -> None:
        deadline = time.perf_counter() + find_budget(self.budget, labels)
        prior = None if side is None else side.prior
        prior = BinaryRelevance(loss="squared", dtype=self.dtype)._check_prior(prior, labels.shape[1], X.shape[1])
        propensity = check_propensity(self.propensity, labels)
        self.learned_ = find_learned(labels) if prior is None else None
        if self.learned_ is not None:
            labels = labels.T[self.learned_].T
            propensity = None if propensity is None else propensity[self.learned_]
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        data = TrainingData(X, labels, prior, propensity)
        if self.members is None:
            blend = MemberSearch(data, deadline, self._member_options(seed), self._kernels()).run()
        else:
            members = [dict(member) for member in self.members]
            blend = Found(members, float(self.rarity), [], None, [None] * len(members), {})
        self.members_, self.rarity_, self.report_, self._held_out, fitted, forms = blend
        used = sorted({member["rows"] for member in self.members_} - {"raw"})
        self.forms_ = {name: vars(forms.get(name) or FORMS[name].learn(X, seed)) for name in used}
        self.offset_ = (-self.rarity_ * data.log_p).astype(X.dtype) if self.rarity_ else None
        self.models_, rows_in = [], self._form_rows(X)
        for number, (member, model) in enumerate(zip(self.members_, fitted, strict=True)):
            with scope(f"member {number}"):
                rows = select_rows(labels, member["labelled"])
                with_prior = prior is not None and member["prior"] > 0
                options = {"prior": member["prior"] * self._take_form(member["rows"], prior)} if with_prior else {}
                model = model or make_member(member).fit(rows_in[member["rows"]][rows], labels[rows], **options)
                self.models_.append(model)

    def _member_options(self, seed: int) -> dict[str, Any]:
        return {"n_jobs": self.n_jobs, "dtype": np.dtype(self.dtype).name, "random_state": seed}

    def _form_rows(self, X: Any) -> dict[str, Any]:
        """Return rows in each form that a member takes."""
        return {name: self._take_form(name, X) for name in ("raw", *self.forms_)}

    def _take_form(self, name: str, X: Any) -> Any:
        return X if name == "raw" else self._form(name).transform(X)

    def _form(self, name: str) -> RowForm:
        form: RowForm = FORMS[name].form(**self.forms_[name])
        return form

    def _scores(self, X: Any) -> Scores:
        kernels, pairs = self._kernels(), list(zip(self.members_, self.models_, strict=True))
        plain = self.offset_ is None and self.learned_ is None
        if len(pairs) == 1 and plain and pairs[0][0]["weight"] == 1:
            return pairs[0][1]._scores(self._take_form(pairs[0][0]["rows"], X))

        def blocks() -> Iterator[NDArray]:
            for rows in split_rows(X, self.n_labels_, arrays=1 + len(pairs)):
                total = np.zeros((rows.shape[0], self.models_[0].n_labels_), np.dtype(self.dtype))
                rows_in = self._form_rows(rows)
                for member, model in pairs:
                    total += total.dtype.type(member["weight"]) * model._scores(rows_in[member["rows"]]).dense()
                yield self._widen(total if self.offset_ is None else total + self.offset_)

        return BlockScores(blocks, kernels)

    def _widen(self, scores: NDArray) -> NDArray:
        """Return scores of all labels: those without a positive have the lowest of the row, at most −½, a "no"."""
        if self.learned_ is None:
            return scores
        wide = np.repeat(np.minimum(scores.min(axis=1, keepdims=True), -0.5), self.n_labels_, axis=1)
        wide[:, self.learned_] = scores
        return wide

    def _held_out_rows(self) -> list[HeldOutPart] | None:
        held_out: list[HeldOutPart] | None = self.__dict__.get("_held_out")
        if held_out is None or self.learned_ is None:
            return held_out
        kernels = self._kernels()

        def widen(part: HeldOutPart) -> HeldOutPart:
            return HeldOutPart(part.rows, BlockScores(lambda: map(self._widen, part.scores.blocks()), kernels))

        return [widen(part) for part in held_out]

    @classmethod
    def _upgrade_values(cls, values: dict[str, Any]) -> dict[str, Any]:
        values = {"learned_": None} | values
        if "forms_" in values:
            return values
        idf, kernel = values.pop("idf_", None), values.pop("kernel_", None)
        forms = ({} if idf is None else {"idf": {"weights": idf}}) | ({} if kernel is None else {"kernel": kernel})
        return values | {"forms_": forms}

    def _check_loaded(self) -> None:
        if len(self.models_) != len(self.members_) or not self.models_:
            raise ValueError(f"{len(self.members_)} members and {len(self.models_)} models")
        n_learned = self.n_labels_ if self.learned_ is None else len(self.learned_)
        if {model.n_labels_ for model in self.models_} != {n_learned}:
            raise ValueError("a member has another number of labels than the model")
        sizes = {"raw": self.n_features_in_}
        sizes |= {name: self._form(name).check(self.n_features_in_) for name in self.forms_}
        for member, model in zip(self.members_, self.models_, strict=True):
            if model.n_features_in_ != sizes.get(member["rows"]):
                raise ValueError(f"a member with {model.n_features_in_} features for {member['rows']} rows")


def find_budget(budget: float | None, labels: Labels) -> float:
    """Return the seconds that a fit may take."""
    n, n_labels = labels.shape
    return min(MIN_SECONDS + n * n_labels / CELLS_PER_SECOND, MAX_SECONDS) if budget is None else float(budget)


def make_member(member: dict[str, Any]) -> MultiLabelEstimator:
    """Return the unfitted estimator of a member.

    >>> shared = {"rows": "raw", "labelled": True, "prior": 0.0, "weight": 1.0}
    >>> make_member({"method": "LabelKNN", "parameters": {}} | shared)
    LabelKNN()
    """
    missing = {"method", "parameters", "rows", "labelled", "prior", "weight"} - set(member)
    cls = getattr(import_module("labelgap"), str(member.get("method")), None)
    has_method = isinstance(cls, type) and issubclass(cls, MultiLabelEstimator)
    if cls is None or missing or not has_method or member["rows"] not in ("raw", *FORMS):
        raise ValueError(
            f"members holds {member!r}; pass dicts with 'method', 'parameters', 'rows', 'labelled' and 'weight'."
        )
    model: MultiLabelEstimator = cls(**member["parameters"])
    return model


def describe_member(candidate: Candidate, weight: float) -> dict[str, Any]:
    """Return a member as JSON values."""
    estimator = candidate.estimator
    defaults = type(estimator)().get_params(deep=False)
    parameters = {
        name: pack_parameter(name, value)
        for name, value in estimator.get_params(deep=False).items()
        if not np.array_equal(value, defaults[name])
    }
    return {
        "method": type(estimator).__name__,
        "parameters": parameters,
        "rows": candidate.rows,
        "labelled": candidate.labelled,
        "prior": candidate.prior,
        "weight": float(weight),
    }


def select_rows(labels: Labels, labelled: bool, rows: NDArray | None = None) -> NDArray:
    """Return the rows to learn from: those given, or all, and with ``labelled`` only those with a label.

    >>> select_rows(Labels([[1, 0], [0, 0], [0, 1]]), True)
    array([0, 2])
    """
    rows = np.arange(len(labels)) if rows is None else rows
    return rows[np.diff(labels.positives.indptr)[rows] > 0] if labelled else rows


class TrainingData(NamedTuple):
    """Validated rows and labels, the prior of labels, and propensities, or None."""

    X: Any
    labels: Labels
    prior: Any = None
    propensity: NDArray | None = None

    @property
    def log_p(self) -> NDArray[np.float64]:
        """Log p_j: of the propensity, or else of the frequency (n_j + 1) / m, mean 0 over positives.

        >>> TrainingData(None, Labels([[1, 0], [1, 0], [1, 1]])).log_p.round(3).tolist()
        [0.173, -0.52]
        """
        if self.propensity is not None:
            return np.log(self.propensity)
        counts = np.bincount(self.labels.positives.indices, minlength=self.labels.shape[1])
        log_p = np.log(counts + 1)
        return log_p - (counts @ log_p / counts.sum() if counts.any() else 0.0)


class MemberSearch:
    """Search for the members of a blend: fit candidates without some rows, score these, and blend greedily."""

    def __init__(self, data: TrainingData, deadline: float, options: dict[str, Any], kernels: Backend) -> None:
        self.labels, self.log_p, self.propensity = data.labels, data.log_p, data.propensity
        self.deadline, self.options, self.kernels = deadline, options, kernels
        self.began = time.perf_counter()
        self.rows, self.priors = {"raw": data.X}, {"raw": data.prior}
        self.forms: dict[str, RowForm] = {}
        self.report: list[dict[str, Any]] = []
        self.scored: list[Scored] = []

    def run(self) -> Found:
        """Return the members and what was tried."""
        if len(self.labels) < MIN_SEARCH_ROWS:
            estimator = self._choose("raw").estimator
            if estimator.get_params().get("loss") == "squared":
                estimator.set_params(alpha=FEW_ROWS_ALPHA)
            return Found([describe_member(Candidate("", estimator), 1.0)], 0.0, [], None, [None], {})
        self.folds = self._split()
        self.judge = Judge(self.labels, self.folds, self.propensity, self.kernels)
        with progress(None, "AutoLabeler: candidates", 0) as advance, warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # what counts is the score on held-out rows
            self._try_chosen("raw")
            for form in FORMS:
                self._try_form(form)
            forms = self._rank_forms()
            for candidate in self._list_candidates(forms):
                self._try(candidate)
                advance(candidate.name)
        return self._blend()

    def _try_chosen(self, form: str) -> None:
        """Try one-vs-all with parameters chosen for a form of the rows."""
        choice = self._choose(form)
        candidate = Candidate(_name_chosen(form), choice.estimator, form, prior=choice.prior_weight)
        self._try(candidate, required=True)

    def _try_form(self, name: str) -> None:
        """Try a further form of the rows, if it is for them and enough time is left."""
        X, kind = self.rows["raw"], FORMS[name]
        if not kind.suits(X):
            return
        share = DENSE_FORM_SHARE * (self.deadline - self.began) if kind.dense else 0.0
        if not self._can_go_on(self.scored[0].seconds) or self._seconds_left() < share:
            self._report(Candidate(_name_chosen(name), BinaryRelevance(), name), 0.0, note=LATE)
            return
        form, prior = kind.learn(X, self.options["random_state"]), self.priors["raw"]
        self.forms[name], self.rows[name] = form, form.transform(X)
        if prior is not None and form.keeps_priors:
            self.priors[name] = form.transform(prior)
        self._try_chosen(name)

    def _rank_forms(self) -> list[str]:
        """Return the best form of the rows by the scores so far, and those that are nearly as good."""
        scores = self._score_forms()
        best = self._find_base()
        return [best, *(form for form in scores if form != best and scores[form] > scores[best] * (1 - CLOSE))]

    def _find_base(self, *excluded: str) -> str:
        """Return the best form of the rows but for some, or an earlier one that is nearly as good."""
        scores, best = self._score_forms(), "raw"
        for form, score in scores.items():
            best = form if form not in excluded and score > scores[best] * (1 + NEAR_TIE) else best
        return best

    def _score_forms(self) -> dict[str, float]:
        """Return the score of one-vs-all on each form of the rows."""
        chosen = (scored for scored in self.scored if scored.candidate.name == _name_chosen(scored.candidate.rows))
        return {scored.candidate.rows: self.judge.score(scored.scores) for scored in chosen}

    def _choose(self, form: str) -> Choice:
        share = RIDGE_SHARE * (self.deadline - self.began) / 2
        with scope(f"ridge, {form}"):
            jobs = self.options["n_jobs"]
            until = time.perf_counter() + share
            prior = self.priors.get(form)
            choice = choose_estimator(self.rows[form], self.labels, prior=prior, n_jobs=jobs, deadline=until)
        choice.estimator.set_params(dtype=self.options["dtype"])
        return choice

    def _split(self) -> list[NDArray]:
        """Return the rows of as few folds as hold enough rows."""
        n, n_labels = self.labels.shape
        wanted = min(np.clip(MAX_CELLS // n_labels, MIN_HELD_OUT, MAX_HELD_OUT), max(1, MAX_DENSE_CELLS // n_labels))
        order, size = np.random.RandomState(SEED).permutation(n), int(max(1, min(n // 5, MIN_HELD_OUT, wanted)))
        n_folds = int(min(5, -(-wanted // size)))
        return [np.sort(order[start : start + size]) for start in range(0, n_folds * size, size)]

    def _list_candidates(self, forms: list[str]) -> Iterator[Candidate]:
        """Yield further candidates, those that usually help most first, on the best form of the rows or on others."""
        jobs = {"n_jobs": self.options["n_jobs"], "dtype": self.options["dtype"]}
        seeded = jobs | {"random_state": self.options["random_state"]}
        complete, best = self.labels.complete, forms[0]
        weights, powers = WEIGHTS_UNLABELLED, FREQUENCY_POWERS
        one_class = OneClassMFCV(weights=weights, frequency_powers=powers, metric=self._list_metrics(), **seeded)
        yield Candidate(f"one-class, {best}", one_class, best, "unlabelled")
        words = "idf" if "idf" in self.rows else "raw"
        base = self._find_base("smooth")  # Newton's method and trees are slow on many dense features
        for count in (40, 100):
            yield Candidate(f"{count} neighbours, {words}", LabelKNN(count, **seeded), words, labelled=complete)
        if complete:
            yield Candidate(f"one-vs-all, squared hinge, {base}", BinaryRelevance(**jobs), base)
            if self.propensity is not None:  # weights make the problems harder: these fits take much longer
                weighted = BinaryRelevance(propensity=self.propensity, **jobs)
                yield Candidate(f"one-vs-all, weighted squared hinge, {base}", weighted, base)
        elif min(self.labels.shape[1], self.rows[best].shape[1]) > 1:
            yield Candidate(f"low rank, {best}", LEML(**seeded), best)
        plain = self._find_base("smooth", "kernel")
        yield Candidate(f"trees, {plain}", FastXML(**seeded), plain, labelled=complete)
        for form in forms[1:]:
            yield Candidate(f"one-class, {form}", one_class, form, "unlabelled")

    def _list_metrics(self) -> list[Any]:
        """Return the metrics of searches: P@1, P@3 and P@5, or PSP@k with propensities."""
        depths = [min(k, self.labels.shape[1]) for k in DEPTHS]
        if self.propensity is None:
            return [f"P@{k}" for k in depths]
        return [PSPrecisionAtK(k, self.propensity) for k in depths]

    def _try(self, candidate: Candidate, required: bool = False) -> None:
        """Score a candidate on the held-out rows, unless that is expected to take longer than the time left."""
        start = time.perf_counter()
        try:
            scored = self._fit(candidate, required)
        except ValueError as error:
            scored = f"failed: {error}"
        if isinstance(scored, str):
            self._report(candidate, time.perf_counter() - start, note=scored)
            return
        score, parameters = self.judge.score(scored.scores), describe_member(scored.candidate, 0.0)["parameters"]
        self.scored.append(scored)
        self._report(candidate, time.perf_counter() - start, score, parameters)

    def _report(
        self,
        candidate: Candidate,
        seconds: float,
        score: float = float("nan"),
        parameters: dict[str, Any] | None = None,
        note: str = "",
    ) -> None:
        self.report.append(
            {
                "candidate": candidate.name,
                "absent": candidate.absent,
                "parameters": parameters or {},
                "score": score,
                "seconds": seconds,
                "weight": 0.0,
                "note": note,
            }
        )

    def _fit(self, candidate: Candidate, required: bool) -> Scored | str:
        """Return the scores of a candidate, or why there are none."""
        if isinstance(candidate.estimator, OneClassMFCV):
            return self._search_one_class(candidate)
        if not required and (obstacle := self._find_obstacle(candidate)):
            return obstacle
        start, blocks, X = time.perf_counter(), [], self.rows[candidate.rows]
        for number, held_out in enumerate(self.folds):
            train = self._rows_without(held_out, candidate)
            with scope(f"{candidate.name}, fold {number}"):
                model = clone(candidate.estimator).fit(X[train], self.labels[train], **self._fit_options(candidate))
            blocks.append(model._scores(X[held_out]).dense())
            if not required and number == 0 and not self._can_go_on(time.perf_counter() - start):
                return LATE
        seconds = (time.perf_counter() - start) / len(self.folds)
        return Scored(candidate, np.concatenate(blocks), 1.25 * seconds)

    def _fit_options(self, candidate: Candidate) -> dict[str, Any]:
        return {"prior": candidate.prior * self.priors[candidate.rows]} if candidate.prior else {}

    def _rows_without(self, held_out: NDArray, candidate: Candidate) -> NDArray:
        return select_rows(self.labels, candidate.labelled, np.setdiff1d(np.arange(len(self.labels)), held_out))

    def _search_one_class(self, candidate: Candidate) -> Scored | str:
        """Search on the folds; the chosen parameters have scores of held-out rows, and a model of all rows."""
        left = self._seconds_left()
        if left < MIN_SHARE_OF_SEARCH * (self.deadline - self.began):
            return LATE
        search = clone(candidate.estimator).set_params(budget=SEARCH_SHARE * left, hold_out=self.folds)
        with scope(candidate.name):
            search.fit(self.rows[candidate.rows], self.labels)
        scores = [part.scores.dense() for part in search.held_out_]
        chosen = candidate._replace(estimator=search.chosen())
        return Scored(chosen, np.concatenate(scores), 0.0, search.best_estimator_)

    def _find_obstacle(self, candidate: Candidate) -> str:
        """Return "" if fits on the folds and on all rows are expected to end in time, from a fit on few rows.

        The first fit also compiles what is not compiled yet; if it promises enough time, there is no second one.
        """
        if self._seconds_left() < MIN_SHARE * (self.deadline - self.began):
            return LATE
        if len(self.labels) <= MIN_PROBE_ROWS:
            return ""
        for share in (2 * PROBE_SHARE, PROBE_SHARE):
            if PROBE_MARGIN * share * self._time_fit(candidate, share) * (len(self.folds) + 1) < self._seconds_left():
                return ""
        return LATE

    def _can_go_on(self, seconds: float) -> bool:
        """Return whether the other folds and a fit on all rows are expected to end in time, from the first fold."""
        return 1.25 * seconds * len(self.folds) < self._seconds_left()

    def _seconds_left(self) -> float:
        """Return the seconds until the deadline, less those of the last fit of all candidates so far."""
        return self.deadline - time.perf_counter() - sum(scored.seconds for scored in self.scored)

    def _time_fit(self, candidate: Candidate, share: int) -> float:
        """Return the seconds of a fit on one of ``share`` rows."""
        start, rows = time.perf_counter(), self._rows_without(self.folds[0], candidate)
        rows = np.sort(np.random.RandomState(SEED).permutation(rows)[: len(rows) // share])
        with scope(f"{candidate.name}, probe {share}"):
            X, options = self.rows[candidate.rows][rows], self._fit_options(candidate)
            clone(candidate.estimator).fit(X, self.labels[rows], **options)
        return time.perf_counter() - start

    def _blend(self) -> Found:
        """Return the blend: the best candidate, and others while they raise the score."""
        values = [row["score"] for row in self.report if not row["note"]]
        lead = 0
        for place, value in enumerate(values):
            lead = place if value > values[lead] * (1 + NEAR_TIE) else lead
        weights, total, best = {lead: 1.0}, self.scored[lead].scores.copy(), values[lead]
        unit, gain = float(total.std()) or 1.0, max(MIN_GAIN, 2 / self.judge.n_rows)
        while len(weights) < MAX_MEMBERS:
            trials = [
                (self.judge.score(total + scale * scored.scores), place, scale)
                for place, scored in enumerate(self.scored)
                if place not in weights
                for scale in (np.float32(w * unit / (scored.scores.std() or 1.0)) for w in WEIGHTS)
            ]
            value, place, scale = max(trials, default=(0.0, 0, np.float32(0)))
            if value <= best * (1 + gain):
                break
            weights[place], best = float(scale), value
            total += scale * self.scored[place].scores
        rarity = self._choose_rarity(total, unit, best * (1 + gain))
        if rarity:
            total -= (rarity * self.log_p).astype(total.dtype)
        scored_rows = [row for row in self.report if not row["note"]]
        for place, weight in weights.items():
            scored_rows[place]["weight"] = weight
        members = [describe_member(self.scored[place].candidate, weight) for place, weight in weights.items()]
        fitted = [self.scored[place].fitted for place in weights]
        return Found(members, rarity, self.report, self._part_rows(total), fitted, self.forms)

    def _choose_rarity(self, scores: NDArray, unit: float, least: float) -> float:
        """Return the weight of −log p; 0 unless another one has a score of at least ``least``."""
        sign = -1 if self.propensity is None else 1
        log_p = self.log_p.astype(scores.dtype)
        trials = [(self.judge.score(scores - np.float32(sign * r * unit) * log_p), sign * r) for r in RARITIES]
        value, rarity = max(trials)
        return rarity * unit if value >= least else 0.0

    def _part_rows(self, scores: NDArray) -> list[HeldOutPart]:
        ends = np.cumsum([len(rows) for rows in self.folds])[:-1]
        return [
            HeldOutPart(rows, BlockScores(partial(iter, [block]), self.kernels))
            for rows, block in zip(self.folds, np.split(scores, ends), strict=True)
        ]


def _name_chosen(form: str) -> str:
    return f"one-vs-all, chosen, {form}"


class Judge:
    """The score of candidates on held-out rows, over known cells; a hit counts 1/p of its label.

    It is the geometric mean of P@1, P@3 and P@5. If no row has more than one label, where the first places say
    little, it is MRR (1 − R) / R: the mean reciprocal rank of the label, and the ranking loss R.
    """

    def __init__(self, labels: Labels, folds: list[NDArray], propensity: NDArray | None, kernels: Backend) -> None:
        held_out = labels[np.concatenate(folds)]
        self.kernels = kernels
        self.truth = held_out.positives.toarray().astype(np.float32)
        self.one_label = labels.shape[1] > 1 and int(np.diff(labels.positives.indptr).max(initial=0)) == 1
        if propensity is not None:
            self.truth /= propensity.astype(np.float32)
        self.unknown = None if held_out.known is None else ~held_out.known.toarray().astype(bool)
        self.n_rows = max(1, int(np.count_nonzero(self.truth.any(axis=1))))
        self.depths = [min(k, labels.shape[1]) for k in DEPTHS]

    def score(self, scores: NDArray) -> float:
        """Return the score of the held-out rows' scores."""
        if self.unknown is not None:
            scores = np.where(self.unknown, -np.inf, scores)
        if self.one_label:
            return self._score_ranks(scores)
        best, _ = self.kernels.best_in_rows(np.ascontiguousarray(scores), max(self.depths))
        gains = np.take_along_axis(self.truth, best, 1).sum(axis=0, dtype=float).cumsum()
        shares = [gains[k - 1] / (self.n_rows * k) for k in self.depths]
        return float(np.exp(np.mean(np.log(np.maximum(shares, 1e-6)))))

    def _score_ranks(self, scores: NDArray) -> float:
        rows, labels = np.nonzero(self.truth)
        own = scores[rows, labels][:, None]
        ahead = (scores[rows] > own).sum(axis=1) + 0.5 * ((scores[rows] == own).sum(axis=1) - 1)
        loss = float(np.average(ahead, weights=self.truth[rows, labels])) / (scores.shape[1] - 1)
        reciprocal = float((self.truth[rows, labels] / (1 + ahead)).sum()) / self.n_rows
        return reciprocal * (1 - loss) / max(loss, 1e-6)
