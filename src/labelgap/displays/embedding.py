"""Labels or rows as points in the plane."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.manifold import TSNE
from sklearn.utils.validation import check_is_fitted
from threadpoolctl import threadpool_limits

from labelgap.displays.base import PALETTE, Display, require_matplotlib
from labelgap.displays.names import place_names
from labelgap.metrics.base import one_of
from labelgap.model_selection.criteria import last_step
from labelgap.observations import as_labels

SMALLEST, LARGEST = 8.0, 160.0  # areas of points, in points²


class EmbeddingDisplay(Display):
    """Factors of labels, or of rows, in the plane: on their two principal axes, or by t-SNE.

    Principal axes keep distances as far as two axes of variance can, which the axes state; of many factors they show
    little. t-SNE keeps who is near whom by the angle of their factors, and no distance beyond that. Points are the
    larger the more frequent a label is, and the most frequent have their names.

    Parameters
    ----------
    points : ndarray of shape (m, 2)
        Where they are.
    explained : ndarray of shape (2,), optional
        The share of the factors' variance that each axis shows; None for t-SNE.
    frequencies : ndarray of shape (m,), optional
        How large the points are.
    names : sequence of str, optional
        Of the points.
    n_names : int
        The most names that are shown; those that would cover others are not.
    name : str, optional
        The title.

    Attributes
    ----------
    points_ : matplotlib PathCollection
        The points.
    texts_ : list of matplotlib Text
        The names that are shown.

    Examples
    --------
    >>> shown = EmbeddingDisplay.from_factors([[0.0, 1.0, 0.0], [0.0, -1.0, 0.0], [0.0, 0.0, 0.1]])
    >>> shown.points.shape, bool(shown.explained[0] > 0.9)
    ((3, 2), True)
    """

    points_: Any
    texts_: list[Any]

    def __init__(
        self,
        points: NDArray[np.float64],
        explained: NDArray[np.float64] | None = None,
        *,
        frequencies: NDArray | None = None,
        names: Sequence[str] | None = None,
        n_names: int = 15,
        name: str | None = None,
    ) -> None:
        self.points = points
        self.explained = explained
        self.frequencies = frequencies
        self.names = names
        self.n_names = n_names
        self.name = name

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any = None,
        *,
        Y: Any = None,
        frequencies: ArrayLike | None = None,
        names: Sequence[str] | None = None,
        n_names: int = 15,
        method: Literal["pca", "tsne"] = "pca",
        random_state: Any = 0,
        name: str | None = None,
        ax: Any = None,
        **kwargs: Any,
    ) -> Self:
        """Draw the label factors of a fitted estimator, or with X the factors of these rows.

        Parameters
        ----------
        estimator : fitted estimator with label factors
            Such as :class:`~labelgap.LEML` or :class:`~labelgap.OneClassMF`; a pipeline may end with it, and a
            :class:`~labelgap.Tagger` may hold it.
        X : rows, optional
            Draw these and not the labels.
        Y : labels, optional
            Count the positives of each label (with X: of each row) in these for the sizes; or pass ``frequencies``.
        names : sequence of str, optional
            By default the labels' names that fit was given.
        method : {"pca", "tsne"}, default="pca"
            Principal axes, or t-SNE, which ``random_state`` seeds.
        n_names, name, ax, **kwargs
            See the class and :meth:`plot`.
        """
        require_matplotlib()
        if Y is not None:
            frequencies = np.bincount(*_positives(Y, of_rows=X is not None))
        if names is None and X is None:
            names = getattr(last_step(estimator), "label_names_in_", None)
        factors = label_factors(estimator) if X is None else row_factors(estimator, X)
        settings: dict[str, Any] = {"frequencies": frequencies, "names": names, "n_names": n_names, "name": name}
        return cls.from_factors(factors, method=method, random_state=random_state, ax=ax, **settings, **kwargs)

    @classmethod
    def from_factors(
        cls,
        factors: ArrayLike,
        *,
        frequencies: ArrayLike | None = None,
        names: Sequence[str] | None = None,
        n_names: int = 15,
        method: Literal["pca", "tsne"] = "pca",
        random_state: Any = 0,
        name: str | None = None,
        ax: Any = None,
        **kwargs: Any,
    ) -> Self:
        """Draw any factors, an array of shape (m, k); for the rest see :meth:`from_estimator`."""
        F = _checked_factors(factors)
        if one_of("method", method, ("pca", "tsne")) == "pca":
            points, explained = principal_axes(F)
        else:
            points, explained = near_by_angle(F, random_state), None
        if frequencies is not None:
            frequencies = np.asarray(frequencies, np.float64)
            if frequencies.shape != (len(points),) or not (frequencies >= 0).all():
                raise ValueError(
                    f"frequencies has shape {frequencies.shape} or numbers below 0; pass a count for each of the "
                    f"{len(points)} points."
                )
        if names is not None and len(names) != len(points):
            raise ValueError(f"names has {len(names)} names for {len(points)} points; pass one for each.")
        shown = cls(points, explained, frequencies=frequencies, names=names, n_names=n_names, name=name)
        return shown.plot(ax, **kwargs)

    def plot(self, ax: Any = None, *, name: str | None = None, **kwargs: Any) -> Self:
        name = self._begin(ax, name)
        style: dict[str, Any] = {"alpha": 0.55, "linewidths": 0.4, "edgecolors": "white", "s": self._areas()}
        if "c" not in kwargs and "color" not in kwargs:
            style["c"] = PALETTE[len(self.ax_.collections) % len(PALETTE)]
        self.points_ = self.ax_.scatter(*self.points.T, **(style | kwargs))
        labels = ["t-SNE axis 1", "t-SNE axis 2"]
        if self.explained is not None:
            labels = [f"principal axis {axis + 1} ({self.explained[axis]:.0%} of variance)" for axis in (0, 1)]
        self.ax_.margins(0.08)
        self._finish(xlabel=labels[0], ylabel=labels[1])
        if name is not None:
            self.ax_.set_title(name)
        self.texts_ = self._write_names()
        return self

    def _areas(self) -> float | NDArray[np.float64]:
        if self.frequencies is None or not np.any(self.frequencies):
            return 2 * SMALLEST
        return SMALLEST + (LARGEST - SMALLEST) * self.frequencies / self.frequencies.max()

    def _write_names(self) -> list[Any]:
        if self.names is None or self.n_names <= 0:
            return []
        weights = np.linalg.norm(self.points, axis=1) if self.frequencies is None else self.frequencies
        order = np.argsort(-weights, kind="stable")[: self.n_names]
        return place_names(self.ax_, self.points[order], [str(self.names[i]) for i in order])


def _checked_factors(factors: ArrayLike) -> NDArray[np.float64]:
    F = np.asarray(factors, np.float64)
    if F.ndim != 2 or len(F) < 2 or not F.shape[1] or not np.isfinite(F).all():
        raise ValueError(f"factors has shape {F.shape} or values that are not finite; pass (m, k) numbers, m ≥ 2.")
    return F


def near_by_angle(F: NDArray[np.float64], random_state: Any = 0) -> NDArray[np.float64]:
    """Return points in the plane whose neighbours are those of the smallest angles between factors, by t-SNE."""
    lengths = np.linalg.norm(F, axis=1, keepdims=True)
    unit = np.divide(F, lengths, out=np.zeros_like(F), where=lengths > 0)
    perplexity = min(30.0, (len(F) - 1) / 3)
    with threadpool_limits(1):  # its threads wait for each other in busy loops, a thousand times over
        return TSNE(perplexity=perplexity, init="random", random_state=random_state).fit_transform(unit).astype(float)


def principal_axes(F: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return points on the two axes of the largest variance, and the share of it on each; one is 0 for k = 1.

    An axis points to where the largest coordinate of its direction is positive, so that plots do not flip by chance.
    """
    U, s, Vt = np.linalg.svd(F - F.mean(axis=0), full_matrices=False)
    signs = np.sign(Vt[np.arange(len(s)), np.abs(Vt).argmax(axis=1)])
    scaled = np.zeros((len(F), 2))
    scaled[:, : min(2, len(s))] = (U * s * signs)[:, :2]
    explained = np.zeros(2)
    if s[0] > 0:
        explained[: min(2, len(s))] = (s**2 / (s**2).sum())[:2]
    return scaled, explained


def label_factors(estimator: Any) -> NDArray:
    """Return H of a fitted estimator, less the column of a constant where it has one."""
    model = _model_of(estimator)
    if not hasattr(model, "label_factors_"):
        raise ValueError(
            f"{type(model).__name__} has no label_factors_ to draw; fit an estimator that has, such as LEML or "
            "OneClassMF, or pass factors of yours to from_factors."
        )
    features = getattr(model, "feature_factors_", None)
    return model.label_factors_ if features is None else model.label_factors_[:, : features.shape[1]]


def row_factors(estimator: Any, X: Any) -> NDArray:
    """Return the factors of rows, less the column of a constant."""
    k = label_factors(estimator).shape[1]
    if hasattr(estimator, "steps"):
        X = estimator[:-1].transform(X)
    last = last_step(estimator)
    return np.asarray(_model_of(last)._embed(last._check_rows(X)))[:, :k]


def _model_of(estimator: Any) -> Any:
    """Return what holds the factors: the last step of a pipeline, what a Tagger learned, what a search found."""
    last = last_step(estimator)
    check_is_fitted(last)
    return getattr(last, "model_", getattr(last, "best_estimator_", last))


def _positives(Y: Any, *, of_rows: bool) -> tuple[NDArray, None, int]:
    labels = as_labels(Y)
    positives = labels.positives
    places = np.repeat(np.arange(len(labels)), np.diff(positives.indptr)) if of_rows else positives.indices
    return places, None, labels.shape[0 if of_rows else 1]
