"""What every estimator shares: three-state labels in, decisions, rankings and files out."""

from __future__ import annotations

import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import ClassifierTags, get_tags
from sklearn.utils.validation import check_is_fitted, validate_data

from labelgap import __version__
from labelgap.estimators.about import About
from labelgap.estimators.parameters import check_choice, check_k, is_float_type
from labelgap.estimators.scores import Scores
from labelgap.kernels import Backend, get_backend
from labelgap.losses import LOSSES, Loss
from labelgap.metrics import PrecisionAtK
from labelgap.observations import Container, Labels, as_labels
from labelgap.observations.joining import check_distinct
from labelgap.persistence import ModelFileError, read_model, write_model
from labelgap.runtime import n_threads, progress, threads


class Outcome(NamedTuple):
    """How learning ended: what to warn of, and the Ctrl-C that ended it once there was something to store."""

    warning: str | None = None
    interrupt: KeyboardInterrupt | None = None

    def report(self, stacklevel: int = 2) -> None:
        """Raise the interrupt again, or warn; call it when everything is stored."""
        if self.interrupt is not None:
            raise self.interrupt
        if self.warning is not None:
            warnings.warn(self.warning, ConvergenceWarning, stacklevel=stacklevel + 1)


class MultiLabelEstimator(BaseEstimator, ABC):
    """An estimator of label matrices that may have gaps.

    A subclass checks its parameters, learns from validated rows and labels, and gives the scores of validated rows;
    validation, prediction, ranking, model files and scikit-learn's conventions are here.
    """

    about: ClassVar[About]
    _uses_device: ClassVar[bool] = False  # where False, ``device`` is deprecated

    absent: str = "negative"
    n_jobs: int | None = None
    device: str = "auto"
    dtype: Any = "float32"

    container_: Container
    n_features_in_: int
    n_labels_: int

    @abstractmethod
    def _check_parameters(self) -> Any:
        """Raise ValueError for parameters that are out of range."""

    @abstractmethod
    def _learn(self, X: Any, labels: Labels) -> Outcome | None:
        """Learn from validated rows and labels, set the fitted attributes, and say how it ended."""

    @abstractmethod
    def _scores(self, X: Any) -> Scores:
        """Return the decision values of validated rows."""

    def fit(self, X: Any, Y: Any, observed: Any = None) -> Self:
        """Learn from rows X and labels Y.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
            Features.
        Y : array-like, sparse matrix or Labels of shape (n, L)
            Labels: 0/1, bool or −1/+1; NaN is unknown.
        observed : array-like or sparse matrix of shape (n, L), optional
            True where Y is known.

        Returns
        -------
        self
        """
        return self._fit(X, Y, observed)

    def _fit(self, X: Any, Y: Any, observed: Any, *side: Any) -> Self:
        """Validate, learn, and report how it ended; ``side`` is handed on to :meth:`_learn`."""
        self._check_parameters()
        if self.device != "auto" and not self._uses_device:
            warnings.warn(
                f"device={self.device!r} has no effect in {type(self).__name__}: the parameter is deprecated here "
                "and will be removed; leave it out.",
                FutureWarning,
                stacklevel=3,
            )
        with self._unchanged_on_error(), threads(self.n_jobs):
            X, labels = self._check_fit(X, Y, observed)
            self.container_, self.n_labels_ = labels.container, labels.shape[1]
            outcome = self._learn(X, labels, *side)
        if outcome is not None and any(outcome):
            outcome.report(stacklevel=3)
        return self

    def decision_function(self, X: Any) -> NDArray:
        """Return an (n, L) array of decision values: above 0 exactly where :meth:`predict` says yes.

        It is dense; for many labels use :meth:`predict_topk`.
        """
        check_is_fitted(self)
        with threads(self.n_jobs):
            # In the blocks of predict, so that rounding cannot make the two disagree.
            return self._scores(self._check_rows(X)).dense()

    def predict(self, X: Any) -> Any:
        """Return the labels of each row, in the container and the encoding that ``Y`` had in :meth:`fit`."""
        check_is_fitted(self)
        with threads(self.n_jobs):
            positives = self._scores(self._check_rows(X)).positives()
        return self.container_.pack(positives)

    def predict_topk(self, X: Any, k: int = 5) -> tuple[NDArray, NDArray]:
        """Return the indices and the decision values of the k best labels of each row, two (n, k) arrays, best first.

        Never makes an n×L array; ties go to the lower index.
        """
        check_is_fitted(self)
        check_k(k, self.n_labels_, f"there are {self.n_labels_} labels, so ")
        with threads(self.n_jobs):
            return self._scores(self._check_rows(X)).topk(int(k))

    def score(self, X: Any, y: Any, observed: Any = None) -> float:
        """Return the precision at 1 over known cells; rows without a known positive are left out.

        ``y`` are labels in any form that :meth:`fit` takes (scikit-learn passes them by this name).
        """
        check_is_fitted(self)
        X, labels = self._check_rows(X), as_labels(y, observed, self.absent)  # type: ignore[arg-type]
        self._check_match(X, labels)
        with threads(self.n_jobs):
            scores = self._scores(X)
            at_known = scores.topk(1) if labels.complete else scores.known(labels)
        return PrecisionAtK(1).update(labels, at_known).compute()

    def known_scores(self, X: Any, Y: Any) -> sp.csr_array:
        """Return decision values at the known cells of Y alone, as a sparse matrix with that pattern."""
        check_is_fitted(self)
        X, labels = self._check_rows(X), as_labels(Y, absent=self.absent)  # type: ignore[arg-type]
        self._check_match(X, labels)
        with threads(self.n_jobs):
            return self._scores(X).known(labels)

    def _kernels(self) -> Backend:
        return get_backend(self.device if self._uses_device else "cpu")

    def _check_rows(self, X: Any, *, reset: bool = False) -> Any:
        # SciPy's products and our kernels both want CSR. A number that overflows is reported as infinity below.
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

    def _check_common(self) -> None:
        """Refuse a value of a shared parameter that means nothing."""
        check_choice("absent", self.absent, ("negative", "unknown"))
        if not is_float_type(self.dtype):
            raise ValueError(f"dtype={self.dtype!r} is not supported; use 'float32' or 'float64'.")
        n_threads(self.n_jobs)
        get_backend(self.device)

    @contextmanager
    def _unchanged_on_error(self) -> Iterator[None]:
        """Put every attribute back if the block fails, so that no estimator is left half fitted."""
        before = self.__dict__.copy()
        try:
            yield
        except BaseException:
            self.__dict__ = before
            raise

    def _check_match(self, X: Any, labels: Labels) -> None:
        """Refuse labels that do not belong to these rows or to this model."""
        _check_rows_match(X, labels)
        if labels.shape[1] != self.n_labels_:
            raise ValueError(
                f"Y has {labels.shape[1]} labels and {type(self).__name__} was fitted with "
                f"{self.n_labels_}; pass a column for each label of fit."
            )

    def _check_fit(self, X: Any, Y: Any, observed: Any) -> tuple[Any, Labels]:
        """Return validated rows and labels, or say what is wrong with them."""
        if Y is not None:  # that there is no Y is said before what is wrong with X
            takes = "words" if get_tags(self).input_tags.string else "rows"
            with progress(None, f"{type(self).__name__}: {takes}", 0):
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
        """Return labels to learn from, one row for each of X where it is given, or say what is wrong with them.

        ``missing`` and ``empty`` are what to say of a Y that is None or has no cell; the latter may name its {shape}.
        """
        if Y is None:
            raise ValueError(missing)
        self._keep_label_names(Y)
        labels = as_labels(Y, observed, self.absent)  # type: ignore[arg-type]
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
                f"{type(self).__name__} must know every one; pass 0 where a missing label is a no, or use a method "
                "that takes gaps: `labelgap methods` lists them."
            )
        return labels

    def _keep_label_names(self, Y: Any) -> None:
        """Keep the names of labels that a data frame has, as scikit-learn keeps those of features."""
        self.__dict__.pop("label_names_in_", None)
        names = np.asarray(getattr(Y, "columns", []), dtype=object)
        if len(names) and all(isinstance(name, str) for name in names):
            check_distinct("Y", names)
            self.label_names_in_ = names

    def save(self, path: str | os.PathLike, *, folder: bool = False) -> None:
        """Write the fitted estimator to a file that :func:`labelgap.load` reads; no pickle is involved.

        The file is a zip, or with ``folder`` a folder, of JSON and ``.npy`` with checksums, and appears whole or not
        at all. Callbacks and a random generator object are not kept.
        """
        check_is_fitted(self)
        write_model(path, self._header(), self._fitted_values(), folder=folder)

    def _header(self) -> dict[str, Any]:
        """Return what the estimator is, as JSON can hold it."""
        return {
            "version": __version__,
            "estimator": type(self).__name__,
            "parameters": {name: _plain(name, value) for name, value in self.get_params(deep=False).items()},
        }

    def _fitted_values(self) -> dict[str, Any]:
        """Return what fit has set, as a model file can hold it; a model within a model is kept like this too."""
        values = {name: value for name, value in vars(self).items() if name.endswith("_")}
        return values | {"container_": asdict(self.container_)}

    def _check_loaded(self) -> None:
        """Raise ValueError if attributes that came from a file do not fit each other."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = self.about.missing_features
        tags.target_tags.required = True
        tags.target_tags.single_output = False
        tags.target_tags.multi_output = True
        # Only 0/1 targets; estimator_type stays None, since a classifier's splitter rejects NaN in y.
        tags.classifier_tags = ClassifierTags(multi_class=False, multi_label=True)
        return tags


def _check_rows_match(X: Any, labels: Labels) -> None:
    if X.shape[0] != len(labels):
        raise ValueError(
            f"X has {X.shape[0]} rows and Y has {len(labels)}; pass one row of labels for each row of X."
        )


def _plain(name: str, value: Any) -> Any:
    """Return a parameter as JSON can hold it."""
    if isinstance(value, Loss) and type(value) is LOSSES.get(value.name):
        value = value.name
    if hasattr(value, "__array__"):
        value = np.asarray(value).tolist()
    if isinstance(value, tuple | list):
        value = [_plain(name, part) for part in value]
    if isinstance(value, type | np.dtype):
        value = np.dtype(value).name
    if isinstance(value, MultiLabelEstimator):
        value = value._header()
    if name == "callbacks" or isinstance(value, np.random.RandomState | np.random.Generator):
        return None
    if not isinstance(value, str | int | float | bool | list | dict | None):
        raise TypeError(
            f"{name}={value!r} cannot be written to a model file, which holds no code; "
            "use a named option (or kernel='precomputed') if the model must be saved."
        )
    return value


def load(path: str | os.PathLike, *, mmap: bool = False, check: bool = True) -> MultiLabelEstimator:
    """Read an estimator that :meth:`MultiLabelEstimator.save` wrote.

    Parameters
    ----------
    path : str or path
        A model file or folder.
    mmap : bool, default=False
        Leave arrays where they lie and read them as they are used; processes that load the same model share them.
    check : bool, default=True
        Compare checksums, for which every byte is read once.

    Examples
    --------
    >>> import numpy as np, tempfile, os, labelgap
    >>> model = labelgap.LEML(n_components=1).fit(np.eye(3), np.array([[1, 0], [1, 0], [0, 1]]))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model.save(os.path.join(folder, "model"))
    ...     again = labelgap.load(os.path.join(folder, "model"))
    >>> bool((again.decision_function(np.eye(3)) == model.decision_function(np.eye(3))).all())
    True
    """
    header, values = read_model(path, mmap=mmap, check=check)
    return restored(path, header, values)


def restored(path: Any, header: dict[str, Any], values: dict[str, Any]) -> MultiLabelEstimator:
    """Return the fitted estimator that a header and values of ``path`` are of, or say what is wrong with them."""
    model = _make(path, header)
    missing = _fitted_names(type(model)) - values.keys()
    if missing:
        raise ModelFileError(f"{path} lacks {', '.join(sorted(missing))}; save the model again.")
    try:
        container = Container(**values["container_"])
    except (KeyError, TypeError) as error:
        raise _unfitting(path, header, error) from error
    model.__dict__.update(values, container_=container)
    try:
        model._check_loaded()
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise ModelFileError(f"{path} does not hold together ({error}); save the model again.") from error
    return model


def _make(path: Any, header: dict[str, Any]) -> MultiLabelEstimator:
    """Return an estimator with the parameters of a header, some of which may be estimators themselves."""
    classes = {cls.__name__: cls for cls in _all_subclasses(MultiLabelEstimator)}
    name = header.get("estimator")
    if name not in classes:
        raise ModelFileError(
            f"{path} holds an estimator {name!r}, which this version of labelgap does not have; upgrade labelgap."
        )
    try:
        parameters = {
            key: _make(path, value) if isinstance(value, dict) and "estimator" in value else value
            for key, value in header["parameters"].items()
        }
        return classes[name](**parameters)
    except (AttributeError, KeyError, TypeError) as error:
        raise _unfitting(path, header, error) from error


def _unfitting(path: Any, header: dict[str, Any], error: Exception) -> ModelFileError:
    name = header.get("estimator")
    return ModelFileError(f"{path} has a header that does not fit {name} ({error}); save the model again.")


def _fitted_names(cls: type) -> set[str]:
    """Return the attributes that a class declares as there after fit."""
    declared = (name for base in cls.__mro__ for name in vars(base).get("__annotations__", ()))
    return {name for name in declared if name.endswith("_") and not name.startswith("_")}


def _all_subclasses(cls: type) -> Iterator[type]:
    subclass: type
    for subclass in cls.__subclasses__():
        yield subclass
        yield from _all_subclasses(subclass)
