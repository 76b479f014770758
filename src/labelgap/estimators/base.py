"""The base class of all estimators: validation, prediction, ranking and model files."""

from __future__ import annotations

import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import update_wrapper, wraps
from pathlib import Path
from types import MethodType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import ClassifierTags
from sklearn.utils.validation import check_is_fitted, validate_data

from labelgap import __version__
from labelgap.calibration import NotCalibrated, RowCalibration, parse_aim
from labelgap.calibration.decisions import Meaning
from labelgap.calibration.written import TrueProbabilities
from labelgap.estimators.calibrating import calibrate_fitted, calibrate_rows
from labelgap.estimators.fit_callbacks import CallbackSupportMixin, with_fit_task
from labelgap.estimators.parameters import check_choice, check_dtype, check_k, check_sample_weight
from labelgap.estimators.scores import Scores, ThresholdedScores
from labelgap.kernels import Backend, explain_out_of_memory, get_backend
from labelgap.kernels.row_shards import RowShards, gather_each, list_blocks, map_blocks, start_blocks
from labelgap.losses import LOSSES, Loss
from labelgap.metrics.batch import Batch
from labelgap.observations import Container, Labels, as_labels, check_sparse_indices, encode_tags, holds_tags
from labelgap.observations.arguments import LabelsLike, MatrixLike
from labelgap.observations.frames import read_array
from labelgap.observations.labels import check_distinct_names, stack_rows
from labelgap.persistence import write_model
from labelgap.runtime import get_runner, n_threads, progress, threads

MIN_DEVICE_ROWS = 64  # of a prediction on a GPU: to copy the factors takes as long as to score so many rows


class About(NamedTuple):
    """The entry of a method in ``labelgap methods``.

    Attributes
    ----------
    summary : str
        What the method does, in one line.
    paper : str
        Authors and year.
    missing_labels : bool
        Whether the method ignores unknown cells; if not, :meth:`fit` raises ValueError for labels with gaps.
    positives_only : bool
        Whether the method is for data in which only positives are known.
    missing_features : bool
        Whether features may be missing.
    graph : bool
        Whether the method uses a graph of rows or labels.
    fit, predict : str
        The time of a fit and of the scores of one row, in terms of n rows, d features, z nonzero features of all
        rows, L labels, y positives of all rows, k dimensions, and T trees or learners.

    Examples
    --------
    >>> about = About("One model per label.", "Boutell et al. 2004", missing_labels=True, fit="z L", predict="d L")
    >>> about.handles
    ['missing labels']
    """

    summary: str
    paper: str
    missing_labels: bool = False
    positives_only: bool = False
    missing_features: bool = False
    graph: bool = False
    fit: str = ""
    predict: str = ""

    @property
    def handles(self) -> list[str]:
        """The names of the capabilities that the method has."""
        names = ("missing_labels", "positives_only", "missing_features", "graph")
        return [name.replace("_", " ") for name in names if getattr(self, name)]


class Outcome(NamedTuple):
    """The end of a fit: a warning to issue, or the Ctrl-C that ended it after some result could be stored."""

    warning: str | None = None
    interrupt: KeyboardInterrupt | None = None

    def report(self, stacklevel: int = 2) -> None:
        """Raise the interrupt again, or warn; call it after everything is stored."""
        if self.interrupt is not None:
            raise self.interrupt
        if self.warning is not None:
            warnings.warn(self.warning, ConvergenceWarning, stacklevel=stacklevel + 1)


class if_calibrated:
    """Decorator of a method that a fitted estimator has only if it was calibrated; else its lookup is an error.

    An estimator that is not fitted has the method, so that a call raises NotFittedError.
    """

    def __init__(self, method: Callable[..., Any]) -> None:
        self._method = method
        update_wrapper(self, method)  # type: ignore[arg-type]

    def __get__(self, estimator: Any, owner: type | None = None) -> Any:
        if estimator is None:
            return self._method
        if "n_labels_" in vars(estimator):
            estimator._get_calibration("written")
        return MethodType(self._method, estimator)


def over_blocks(method: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator of a method of rows: rows on the workers of a Dask cluster are given to it there, block by block."""

    @wraps(method)
    def call(self: Any, X: Any, *arguments: Any, **options: Any) -> Any:
        blocks = list_blocks(X)
        if blocks is None:
            return method(self, X, *arguments, **options)
        check_is_fitted(self)
        return map_blocks(self, method.__name__, blocks, arguments, options)

    return call


class Decided(NamedTuple):
    """The scores of rows, which order labels, their decision values, and P(written), None without a calibration."""

    scores: NDArray
    decisions: NDArray
    probabilities: NDArray[np.float64] | None


class MultiLabelEstimator(CallbackSupportMixin, BaseEstimator, ABC):
    """Base class of estimators of label matrices that may have gaps.

    A subclass defines :meth:`_check_parameters`, :meth:`_learn` and :meth:`_scores`. This class adds validation,
    prediction, ranking, model files and scikit-learn's conventions.
    """

    about: ClassVar[About]
    _doc_link_module: ClassVar[str] = "labelgap"
    _uses_device: ClassVar[bool] = False  # if False, the parameter ``device`` is deprecated
    _takes_row_shards: ClassVar[bool] = False  # whether a fit takes rows on workers, which cannot be selected

    absent: str = "negative"
    n_jobs: int | None = None
    device: str = "auto"
    dtype: Any = "float32"

    container_: Container
    n_features_in_: int
    n_labels_: int
    if TYPE_CHECKING:  # model files must have all declared attributes; this one is optional
        calibration_: RowCalibration

    @abstractmethod
    def _check_parameters(self) -> Any:
        """Raise ValueError for parameters that are out of range."""

    @abstractmethod
    def _learn(self, X: Any, labels: Labels) -> Outcome | None:
        """Learn from validated rows and labels, set the fitted attributes, and return how the fit ended."""

    @abstractmethod
    def _scores(self, X: Any) -> Scores:
        """Return the decision values of validated rows."""

    def fit(
        self, X: MatrixLike, Y: LabelsLike, observed: MatrixLike | None = None, *, calibrate: bool | str = False
    ) -> Self:
        """Fit the model to rows X and labels Y.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
            Features.
        Y : array-like, sparse matrix or Labels of shape (n, L)
            Labels: 0/1, bool or −1/+1; NaN is unknown.
        observed : array-like or sparse matrix of shape (n, L), optional
            True where Y is known. By default all cells are known except NaN.
        calibrate : bool or str, default=False
            Whether to calibrate scores to probabilities and to choose thresholds, on rows that are held out of
            further fits; see :meth:`calibrate`. A str is the aim of the thresholds; True means "f1".

        Returns
        -------
        self
        """
        return self._fit(X, Y, observed, calibrate=calibrate)

    @with_fit_task
    def _fit(self, X: Any, Y: Any, observed: Any, *side: Any, calibrate: bool | str = False) -> Self:
        """Validate, learn, and report how the fit ended; ``side`` is passed on to :meth:`_learn`."""
        self._check_parameters()
        aim = "f1" if calibrate is True else calibrate or None
        if aim is not None:
            self._check_calibrate(aim, X, *side)
        if self.device != "auto" and not self._uses_device:
            warnings.warn(
                f"device={self.device!r} has no effect in {type(self).__name__}: the parameter is deprecated here "
                "and will be removed; leave it out.",
                FutureWarning,
                stacklevel=4,
            )
        with self._restore_on_error(), self._compute():
            X, labels = self._check_fit(X, Y, observed)
            self.container_, self.n_labels_ = labels.container, labels.shape[1]
            self.__dict__.pop("calibration_", None)
            outcome = self._learn(X, labels, *side)
            if aim is not None and not (outcome is not None and outcome.interrupt):
                self._calibrate_in_folds(X, labels, aim)
        if outcome is not None and any(outcome):
            outcome.report(stacklevel=4)
        return self

    @over_blocks
    def decision_function(self, X: MatrixLike) -> NDArray:
        """Return decision values, an (n, L) array: above 0 exactly for the labels that :meth:`predict` returns.

        The array is dense; for many labels use :meth:`predict_topk`.
        """
        check_is_fitted(self)
        with self._compute():
            # The same blocks as in predict: with others, rounding could make the two disagree.
            return self._decisions(self._check_rows(X)).dense()

    @over_blocks
    def predict(self, X: MatrixLike) -> Any:
        """Return the predicted labels, in the container and encoding of the ``Y`` passed to :meth:`fit`.

        For a data frame that is a data frame with the names of the labels, and with the index of X if X has one.
        """
        check_is_fitted(self)
        with self._compute():
            positives = self._decisions(self._check_rows(X)).positives()
        names = getattr(self, "label_names_in_", None)
        return self.container_.pack(positives, names, getattr(X, "index", None) if hasattr(X, "iloc") else None)

    def get_label_names_out(self) -> NDArray:
        """Return the names of the labels, in the order of the columns of :meth:`predict`.

        Labels without names are called "label0", "label1" and so on.
        """
        check_is_fitted(self)
        numbered = [f"label{j}" for j in range(self.n_labels_)]
        return np.asarray(getattr(self, "label_names_in_", numbered), dtype=object)

    @over_blocks
    def predict_topk(
        self, X: MatrixLike, k: int = 5, *, proba: bool = False, meaning: Meaning = "written"
    ) -> tuple[NDArray, NDArray]:
        """Return the indices and decision values of the k best labels of each row, two (n, k) arrays, best first.

        The order is that of the scores, whatever the thresholds. With ``proba`` the values are the probabilities of
        :meth:`predict_proba`, which may be in a slightly other order, since each label has its own curve;
        :meth:`rank` sorts by them. No n×L array is allocated. Of equal values the lower index comes first.
        """
        check_is_fitted(self)
        check_k(k, self.n_labels_, f"there are {self.n_labels_} labels, so ")
        calibration = self._get_calibration(meaning) if proba else None
        with self._compute():
            X = self._check_rows(X)
            if calibration is None:
                return self._decisions(X).topk(int(k))
            indices, scores = self._scores(X).topk(int(k))
            return indices, calibration.convert(scores, indices, meaning)

    @over_blocks
    def rank(
        self, X: MatrixLike, k: int, *, meaning: Meaning = "written"
    ) -> tuple[NDArray, NDArray, NDArray[np.float64] | None]:
        """Return indices, decision values and probabilities of the k best labels of each row, three (n, k) arrays.

        They are those of :meth:`predict_topk`, computed at once, in the order of the probabilities: a list to show.
        Without a calibration there are none, the last array is None, and the order is that of the scores.
        """
        check_is_fitted(self)
        check_k(k, self.n_labels_, f"there are {self.n_labels_} labels, so ")
        calibration = getattr(self, "calibration_", None)
        with self._compute():
            X = self._check_rows(X)
            all_scores = self._scores(X)
            indices, scores = all_scores.topk(int(k))
        if calibration is None:
            return indices, scores, None
        probabilities = calibration.convert(scores, indices, meaning)
        parts = indices, self._threshold(X, all_scores).decide(scores, indices), probabilities
        order = np.argsort(-probabilities, axis=1, kind="stable")
        return tuple(np.take_along_axis(part, order, axis=1) for part in parts)  # type: ignore[return-value]

    def decide(self, X: MatrixLike) -> Decided:
        """Return the scores, decision values and probabilities of all labels of rows, computed at once."""
        check_is_fitted(self)
        with self._compute():
            X = self._check_rows(X)
            all_scores = self._scores(X)
            scores = all_scores.dense()
        calibration = getattr(self, "calibration_", None)
        if calibration is None:
            return Decided(scores, scores, None)
        probabilities = calibration.convert(scores, np.arange(self.n_labels_))
        return Decided(scores, self._threshold(X, all_scores).decide_rows(scores), probabilities)

    @if_calibrated
    @over_blocks
    def predict_proba(
        self, X: Any, *, meaning: Meaning = "written", return_interval: bool = False
    ) -> NDArray[np.float64] | TrueProbabilities:
        """Return a probability for each row and label, an (n, L) array.

        Parameters
        ----------
        X : rows
            As in :meth:`predict`.
        meaning : {"written", "true"}, default="written"
            "written": the probability that a person who tags the row writes the label, which held-out rows can
            check. "true": the probability that the label is true, P(written) / c_j and at most 1, where a true label
            j is written with the same probability c_j in every row. c_j is estimated (``calibration_.written``) if
            only positives are known, and 1 otherwise.
        return_interval : bool, default=False
            Whether to return the bounds of P(true) that follow from the 95 % interval of c_j too.

        Returns
        -------
        ndarray of shape (n, L), or three of them with ``return_interval``: ``probabilities``, ``low`` and ``high``

        Raises
        ------
        NotCalibrated
            If the estimator was not calibrated: pass ``calibrate=True`` to :meth:`fit`, or call :meth:`calibrate`.
        """
        check_is_fitted(self)
        calibration = self._get_calibration(meaning)
        if return_interval and meaning != "true":
            raise ValueError("return_interval=True is for meaning='true': P(written) is checked and has no bounds.")
        labels = np.arange(self.n_labels_)
        with self._compute():
            blocks = self._scores(self._check_rows(X)).blocks()
            if not return_interval:
                return np.concatenate([calibration.convert(block, labels, meaning) for block in blocks])
            written = np.concatenate([calibration.convert(block, labels) for block in blocks])
            return calibration.written.find_true(written, labels)

    def calibrate(
        self,
        X: MatrixLike,
        Y: LabelsLike,
        observed: MatrixLike | None = None,
        *,
        aim: str = "f1",
        positives_only: bool | None = None,
    ) -> Self:
        """Calibrate scores to probabilities and choose thresholds, on rows that were not used in :meth:`fit`.

        Parameters
        ----------
        X, Y, observed
            Held-out rows and their labels, as in :meth:`fit`.
        aim : str, default="f1"
            What thresholds are chosen for: "f1", the largest expected F1; "precision>=P"; "k=K", K labels a row on
            average; or "expected", as many labels as the probabilities sum to.
        positives_only : bool, optional
            Whether an absent label may be forgotten; by default that is so for one-class methods.

        Returns
        -------
        self
        """
        check_is_fitted(self)
        parse_aim(aim)
        X, labels = self._check_rows(X), self._read_labels(Y, observed)
        self._check_match(X, labels)
        if positives_only is None:
            positives_only = self._has_positives_only(labels)
        with self._compute():
            self.calibration_ = calibrate_rows(self._scores(X), labels, aim=aim, positives_only=positives_only)
        return self

    @property
    def classes_(self) -> NDArray[np.int64]:
        """The numbers of the labels, the columns of :meth:`decision_function` and :meth:`predict_proba`."""
        if "n_labels_" not in vars(self):
            raise AttributeError(f"{type(self).__name__} has classes_ only after fit.")
        return np.arange(self.n_labels_)

    def chosen(self) -> MultiLabelEstimator:
        """Return an unfitted estimator with the parameters that this one was fitted with.

        For a search these are the parameters that it chose, so that a fit does not search again.
        """
        return clone(self)

    def _decisions(self, X: Any) -> Scores:
        """Return the scores of validated rows, less thresholds if these were chosen."""
        scores = self._scores(X)
        return self._threshold(X, scores) if hasattr(self, "calibration_") else scores

    def _threshold(self, X: Any, scores: Scores) -> ThresholdedScores:
        """Return the scores of validated rows less the thresholds of the calibration."""
        calibration = self._get_calibration("written")
        always_best = calibration.always_best & self._find_evidence(X)
        return ThresholdedScores(scores, calibration.thresholds, always_best)

    def _find_evidence(self, X: Any) -> NDArray[np.bool_]:
        """Return which validated rows say anything about their labels; the others need not have one."""
        return np.ones(X.shape[0], bool)

    def _get_calibration(self, meaning: str) -> RowCalibration:
        check_choice("meaning", meaning, ("written", "true"))
        calibration = getattr(self, "calibration_", None)
        if calibration is None:
            raise NotCalibrated(
                f"{type(self).__name__} has scores and no probabilities, because it was not calibrated; pass "
                "calibrate=True to fit, or call calibrate(X, Y) with held-out rows."
            )
        return calibration

    def _drop_calibration(self, reason: str) -> None:
        """Remove a calibration that no longer fits the model, with a warning."""
        if self.__dict__.pop("calibration_", None) is not None:
            warnings.warn(f"{reason}, so the calibration was dropped; call calibrate(X, Y) again.", stacklevel=3)

    def _has_positives_only(self, labels: Labels) -> bool:
        """Return whether an absent label may be a forgotten one."""
        return self.about.positives_only

    def _check_calibrate(self, aim: str, X: Any, *side: Any) -> None:
        """Raise ValueError for an unknown aim, and for data that cannot be split by rows."""
        parse_aim(aim)
        if list_blocks(X) is not None and self._fits_on_cluster():
            raise ValueError(
                "calibrate=True holds rows out, which rows on a Dask cluster cannot be; fit without it, then call "
                "calibrate(X, Y) with held-out rows."
            )
        if X is None or any(part is not None for data in side for part in vars(data).values()):
            raise ValueError(
                "calibrate=True holds rows out, which needs features of rows and excludes graphs, label features and "
                "row weights; fit without it, then call calibrate(X, Y) with held-out rows."
            )

    def _calibrate_in_folds(self, X: Any, labels: Labels, aim: str) -> None:
        """Calibrate on validated training rows, by clones that were fitted without the rows they score."""
        positives_only = self._has_positives_only(labels)
        self.calibration_ = calibrate_fitted(self, X, labels, aim=aim, positives_only=positives_only)

    def _held_out_rows(self) -> Any:
        """Return parts with ``rows``, training rows, and their ``scores`` by a fit without them, or None.

        Only a search has them: those of the candidate that it chose.
        """
        return None

    def score(
        self,
        X: MatrixLike,
        y: LabelsLike,
        observed: MatrixLike | None = None,
        *,
        sample_weight: ArrayLike | None = None,
    ) -> float:
        """Return the precision at 1 over known cells; rows without a known positive do not count.

        ``y`` holds labels in any form that :meth:`fit` accepts (scikit-learn passes them by this name).
        ``sample_weight`` holds the weights of the rows in the mean.
        """
        check_is_fitted(self)
        X, labels = self._check_rows(X), self._read_labels(y, observed)
        self._check_match(X, labels)
        with self._compute():
            scores = self._scores(X)
            at_known = scores.topk(1) if labels.complete else scores.known(labels)
        batch = Batch(labels, at_known)
        counted = batch.n_positives > 0
        weights = check_sample_weight(sample_weight, len(labels))[counted]
        hits = batch.ranking(1).hits[counted, 0]
        return float(np.average(hits, weights=weights)) if weights.any() else float("nan")

    def known_scores(self, X: MatrixLike, Y: LabelsLike, *, ranked: bool = False) -> sp.csr_array:
        """Return the decision values at the known cells of Y, as a sparse matrix with these cells.

        With ``ranked`` they are the scores that order labels, whatever the thresholds.
        """
        check_is_fitted(self)
        X, labels = self._check_rows(X), self._read_labels(Y, None)
        self._check_match(X, labels)
        with self._compute():
            return (self._scores(X) if ranked else self._decisions(X)).known(labels)

    @contextmanager
    def _compute(self) -> Iterator[None]:
        """Set the number of threads of the block, and explain its error if the memory of a GPU is full."""
        names = type(self)._get_param_names()
        settings = [name for name in ("n_components", "max_features") if name in names]
        alternatives = ["dtype='float32'"] if np.dtype(self.dtype) == np.float64 else []
        with threads(self.n_jobs), explain_out_of_memory(settings, [*alternatives, "fewer rows"]):
            yield

    def _kernels(self) -> Backend:
        return get_backend(self.device if self._uses_device else "cpu")

    def _part_kernels(self) -> Backend:
        """Return the backend of a part of a fit; a cluster of machines runs whole parts instead."""
        return get_backend() if self._is_on_cluster() else self._kernels()

    def _prediction_kernels(self, n: int) -> Backend:
        """Return the backend that predicts n rows: that of fits if it predicts and rows are many, else the CPU."""
        backend = self._kernels()
        return backend if backend.predicts and n >= MIN_DEVICE_ROWS else get_backend()

    def _check_rows(self, X: Any, *, reset: bool = False) -> Any:
        blocks = list_blocks(X)
        if blocks is not None:
            return self._check_blocks(blocks, reset=reset)
        X = check_sparse_indices("X", read_array(X))
        if not reset and self._takes_as_is(X):
            return X
        # SciPy's products and our kernels both need CSR. Values that overflow are reported as infinity below.
        with np.errstate(over="ignore"):
            return validate_data(
                self,
                X,
                reset=reset,
                accept_sparse="csr",
                dtype=np.dtype(self.dtype).type,
                accept_large_sparse=True,
                ensure_all_finite="allow-nan" if self.about.missing_features else True,
            )

    def _takes_as_is(self, X: Any) -> bool:
        """Return whether validation would not change rows; it takes longer than the prediction of a single one."""
        return (
            type(X) is sp.csr_array
            and X.shape[0] > 0
            and X.shape[1] == getattr(self, "n_features_in_", None)
            and X.dtype == np.dtype(self.dtype)
            and not hasattr(self, "feature_names_in_")
            and bool(np.isfinite(X.data.sum(dtype=float)))
        )

    def _check_blocks(self, blocks: list[Any], *, reset: bool) -> Any:
        """Return validated rows of blocks on a Dask cluster; they come here unless the fit is on the cluster too."""
        nan = self.about.missing_features
        shards = RowShards.of(blocks, np.dtype(self.dtype).type, allow_nan=nan)
        if not (reset and self._fits_on_cluster()):
            return self._check_rows(shards.gather(), reset=reset)
        self.n_features_in_ = shards.shape[1]
        self.__dict__.pop("feature_names_in_", None)
        return shards

    def _fits_on_cluster(self) -> bool:
        """Return whether the fit keeps its rows on a Dask cluster."""
        return self._takes_row_shards and self._is_on_cluster()

    def _is_on_cluster(self) -> bool:
        return self.device == "dask" or (self.device == "auto" and get_runner() is not None)

    def _check_common(self) -> None:
        """Raise ValueError for invalid values of the parameters that all estimators share."""
        check_choice("absent", self.absent, ("negative", "unknown"))
        check_dtype(self.dtype)
        n_threads(self.n_jobs)
        get_backend(self.device)

    @contextmanager
    def _restore_on_error(self) -> Iterator[None]:
        """Restore all attributes if the block raises an error, so that no estimator is left half fitted."""
        before = self.__dict__.copy()
        try:
            yield
        except BaseException:
            self.__dict__ = before
            raise

    def _check_match(self, X: Any, labels: Labels) -> None:
        """Raise ValueError unless the labels have one row for each row of X and one column for each label of fit."""
        _check_rows_match(X, labels)
        if labels.shape[1] != self.n_labels_:
            raise ValueError(
                f"Y has {labels.shape[1]} labels and {type(self).__name__} was fitted with "
                f"{self.n_labels_}; pass a column for each label of fit."
            )

    def _check_fit(self, X: Any, Y: Any, observed: Any) -> tuple[Any, Labels]:
        """Return validated rows and labels."""
        if Y is not None:  # an error about a missing Y comes before errors about X
            with progress(None, f"{type(self).__name__}: rows", 0):
                X = self._check_rows(X, reset=True)
        labels = self._check_labels(
            Y,
            observed,
            X,
            missing=f"{type(self).__name__} requires y to be passed, but the target y is None: "
            "Y holds the labels, one row for each row of X.",
            empty="Y has no labels: its shape is (n, 0). Pass at least one column.",
        )
        return X, labels

    def _check_labels(self, Y: Any, observed: Any, X: Any = None, *, missing: str, empty: str) -> Labels:
        """Return validated labels to learn from, with one row for each row of X unless X is None.

        ``missing`` and ``empty`` are the error messages for a Y that is None or has no cell; ``empty`` may contain
        {shape}.
        """
        if Y is None:
            raise ValueError(missing)
        self._store_label_names(Y)
        labels = self._read_labels(Y, observed)
        if X is not None:
            _check_rows_match(X, labels)
        if 0 in labels.shape:
            raise ValueError(empty.format(shape=labels.shape))
        if labels.n_known == 0:
            raise ValueError(
                "No cell of Y is known: the mask (or NaN, or absent='unknown') leaves nothing to learn from. "
                "Check that observed is True where labels are known."
            )
        if not labels.complete and not (self.about.missing_labels or self.about.positives_only):
            raise ValueError(
                f"Y has {labels.shape[0] * labels.shape[1] - labels.n_known} unknown cells, and "
                f"{type(self).__name__} must know every one; pass 0 if a missing label is negative, or use a method "
                "that handles gaps: `labelgap methods` lists them."
            )
        return labels

    def _read_labels(self, Y: Any, observed: Any) -> Labels:
        """Return labels of any form; those on a Dask cluster come here as patterns."""
        blocks = list_blocks(Y)
        if blocks is not None:
            Y = stack_rows(*gather_each(as_labels, start_blocks(blocks), None, self.absent))
        return as_labels(Y, observed, self.absent)  # type: ignore[arg-type]

    def _store_label_names(self, Y: Any) -> None:
        """Store the column names of a data frame Y, as scikit-learn stores those of X."""
        self.__dict__.pop("label_names_in_", None)
        names = np.asarray(getattr(Y, "columns", []), dtype=object)
        if len(names) and all(isinstance(name, str) for name in names):
            check_distinct_names("Y", names)
            self.label_names_in_ = names

    def save(self, path: str | os.PathLike, *, folder: bool = False) -> None:
        """Write the fitted estimator to a file that :func:`labelgap.load` reads, without pickle.

        The file is a zip archive of JSON and ``.npy`` members with checksums, or a folder of them with ``folder``. It
        is written atomically. Callbacks and random generator objects are not saved.
        """
        check_is_fitted(self)
        write_model(path, self._header(), self._fitted_values(), folder=folder)

    def _header(self) -> dict[str, Any]:
        """Return the version, class name and parameters as JSON values; a file does not name a device."""
        parameters = self.get_params(deep=False)
        if "device" in parameters:  # the model may be loaded where this device is not
            parameters["device"] = "auto"
        return {
            "version": __version__,
            "estimator": type(self).__name__,
            "parameters": {name: pack_parameter(name, value) for name, value in parameters.items()},
        }

    def _fitted_values(self) -> dict[str, Any]:
        """Return the fitted attributes as values that a model file can hold."""
        values = {name: _pack_nested(value) for name, value in vars(self).items() if name.endswith("_")}
        return values | {"container_": asdict(self.container_)}

    @classmethod
    def _upgrade_values(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Return the fitted attributes of an older model file under their present names."""
        return values

    def _check_loaded(self) -> None:
        """Raise ValueError if attributes read from a file are inconsistent."""

    @property
    def _doc_link_template(self) -> str:
        """The page that scikit-learn's HTML representation links to; empty if no documentation is known."""
        folder = find_documentation()
        return f"{folder}/methods/{type(self).__name__}.html" if folder else ""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = self.about.missing_features
        tags.target_tags.required = True
        tags.target_tags.single_output = False
        tags.target_tags.multi_output = True
        # Targets are 0/1. estimator_type stays None because the stratified splitter of classifiers rejects NaN in y.
        tags.classifier_tags = ClassifierTags(multi_class=False, multi_label=True)
        return tags


def find_documentation() -> str:
    """Return the address of the documentation: the variable ``LABELGAP_DOCS``, or what ``make docs`` built."""
    built = Path(__file__).parents[3] / "docs" / "_build" / "html"
    return os.environ.get("LABELGAP_DOCS", "").rstrip("/") or (built.as_uri() if built.is_dir() else "")


def _check_rows_match(X: Any, labels: Labels) -> None:
    if X.shape[0] != len(labels):
        raise ValueError(
            f"X has {X.shape[0]} rows and Y has {len(labels)}; pass one row of labels for each row of X."
        )


def pack_parameter(name: str, value: Any) -> Any:
    """Return a parameter as a JSON value; raise TypeError if it has code, such as a function."""
    if isinstance(value, Loss) and type(value) is LOSSES.get(value.name):
        value = value.name
    if hasattr(value, "__array__"):
        value = np.asarray(value).tolist()
    if isinstance(value, tuple | list):
        value = [pack_parameter(name, part) for part in value]
    if isinstance(value, type | np.dtype):
        value = np.dtype(value).name
    if isinstance(value, MultiLabelEstimator):
        value = value._header()
    if name == "callbacks" or isinstance(value, np.random.RandomState | np.random.Generator):
        return None
    if not isinstance(value, str | int | float | bool | list | dict | None):
        raise TypeError(
            f"{name}={value!r} cannot be written to a model file, which holds no code; "
            "use a named option (or kernel='precomputed') to save the model."
        )
    return value


def get_final_estimator(estimator: Any) -> Any:
    """Return the last step of a pipeline, also of nested ones, or the estimator itself if it is not a pipeline."""
    while hasattr(estimator, "steps"):
        estimator = estimator[-1]
    return estimator


def set_device(model: Any, device: str) -> None:
    """Set the device on which a fitted model and those that it holds predict; it keeps copies of their arrays."""
    keep, pending = getattr(get_backend(device), "keep", None), [model]
    while pending:
        value = pending.pop()
        if isinstance(value, MultiLabelEstimator):
            if value._uses_device:
                value.set_params(device=device)
            pending.extend(vars(value).values())
        elif isinstance(value, list | dict):
            pending.extend(value.values() if isinstance(value, dict) else value)
        elif keep is not None and isinstance(value, np.ndarray):
            keep(value)


def as_labels_for(estimator: Any, Y: Any, observed: Any = None) -> Labels:
    """Return Y as :class:`Labels`; the estimator's parameter ``absent`` says what an absent label means.

    Lists of tags have the columns of a fitted estimator's label names.
    """
    final = get_final_estimator(estimator)
    names = getattr(final, "label_names_in_", None)
    if names is not None and Y is not None and holds_tags(Y):
        Y = encode_tags(Y, list(names)).Y
    return as_labels(Y, observed, getattr(final, "absent", "negative"))


PackedModel = dict[str, Any]
NESTED, CALIBRATION = "fitted estimator", "calibration"  # keys of packed values among those of a model


def pack_model(model: MultiLabelEstimator) -> PackedModel:
    """Return a fitted estimator as values that the model file of an enclosing estimator can hold."""
    return {"header": model._header(), "values": model._fitted_values()}


def _pack_nested(value: Any) -> Any:
    if isinstance(value, list) and value and isinstance(value[0], MultiLabelEstimator):
        return [_pack_nested(part) for part in value]
    if isinstance(value, RowCalibration):
        return {CALIBRATION: value.to_values()}
    return {NESTED: pack_model(value)} if isinstance(value, MultiLabelEstimator) else value
