"""A display of labels or rows as points in the plane."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.manifold import TSNE
from sklearn.utils.validation import check_is_fitted
from threadpoolctl import threadpool_limits

from labelgap.displays.base import PALETTE, Display, require_matplotlib
from labelgap.estimators import get_final_estimator
from labelgap.metrics.base import check_option
from labelgap.observations import as_labels
from labelgap.observations.arguments import LabelsLike, MatrixLike, RandomSeed
from labelgap.runtime import import_optional

MIN_AREA, MAX_AREA = 8.0, 160.0  # of the points, in points²
POINT_RADIUS = 3.0  # around each point, in points, that no name may cover
# Positions of a name: its offset from the point in points, and its alignment.
NAME_POSITIONS = (
    (5, 4, "left", "bottom"),
    (5, -4, "left", "top"),
    (-5, 4, "right", "bottom"),
    (-5, -4, "right", "top"),
    (0, 9, "center", "bottom"),
    (0, -9, "center", "top"),
)


@dataclass(eq=False, repr=False)
class EmbeddingDisplay(Display):
    """Factors of labels or rows as points in the plane: on their two principal axes, or by t-SNE.

    Principal axes preserve distances as far as two axes can; the axis labels state the share of the variance, which
    is small if there are many factors. t-SNE preserves which points are near each other by the angle of their
    factors, but not the distances between other points. The area of a point grows with the frequency of its label,
    and the most frequent labels have their names.

    Parameters
    ----------
    points : ndarray of shape (m, 2)
        The coordinates.
    explained : ndarray of shape (2,), optional
        The share of the factors' variance on each axis; None for t-SNE.
    frequencies : ndarray of shape (m,), optional
        The frequencies that set the areas of the points.
    names : sequence of str, optional
        The names of the points.
    n_names : int, default=15
        Maximum number of names to show; names that would cover others are left out.
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
    >>> display = EmbeddingDisplay.from_factors([[0.0, 1.0, 0.0], [0.0, -1.0, 0.0], [0.0, 0.0, 0.1]])
    >>> display.points.shape, bool(display.explained[0] > 0.9)
    ((3, 2), True)
    """

    points: NDArray[np.float64]
    explained: NDArray[np.float64] | None = None
    _: KW_ONLY
    frequencies: NDArray | None = None
    names: Sequence[str] | None = None
    n_names: int = 15
    name: str | None = None

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: MatrixLike | None = None,
        *,
        Y: LabelsLike | None = None,
        frequencies: ArrayLike | None = None,
        names: Sequence[str] | None = None,
        n_names: int = 15,
        method: Literal["pca", "tsne"] = "pca",
        random_state: RandomSeed = 0,
        name: str | None = None,
        ax: Any = None,
        **kwargs: Any,
    ) -> Self:
        """Draw the label factors of a fitted estimator, or the factors of the rows X.

        Parameters
        ----------
        estimator : fitted estimator with label factors
            Such as :class:`~labelgap.LEML` or :class:`~labelgap.OneClassMF`, a pipeline that ends with it, or a
            :class:`~labelgap.Tagger` that contains it.
        X : rows, optional
            The rows to draw in place of the labels.
        Y : labels, optional
            Labels whose positives are counted, for each label or with X for each row, and used as ``frequencies``.
        frequencies : array-like of shape (m,), optional
            The frequencies that set the areas of the points.
        names : sequence of str, optional
            The names of the points; by default the names of the labels in ``fit``.
        method : {"pca", "tsne"}, default="pca"
            Principal axes or t-SNE.
        random_state : int, RandomState or None, default=0
            The seed of t-SNE.
        n_names, name, ax, **kwargs
            See the class and :meth:`plot`.
        """
        require_matplotlib()
        if Y is not None:
            frequencies = _count_positives(Y, of_rows=X is not None)
        if names is None and X is None:
            names = getattr(get_final_estimator(estimator), "label_names_in_", None)
        factors = get_label_factors(estimator) if X is None else get_row_factors(estimator, X)
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
        random_state: RandomSeed = 0,
        name: str | None = None,
        ax: Any = None,
        **kwargs: Any,
    ) -> Self:
        """Draw factors, an array of shape (m, k); for the other parameters see :meth:`from_estimator`."""
        F = np.asarray(factors, np.float64)
        if F.ndim != 2 or len(F) < 2 or not F.shape[1] or not np.isfinite(F).all():
            raise ValueError(
                f"factors has shape {F.shape} or values that are not finite; pass (m, k) numbers, m ≥ 2."
            )
        if check_option("method", method, ("pca", "tsne")) == "pca":
            points, explained = project_on_principal_axes(F)
        else:
            points, explained = embed_by_tsne(F, random_state), None
        if frequencies is not None:
            frequencies = np.asarray(frequencies, np.float64)
            if frequencies.shape != (len(points),) or not (frequencies >= 0).all():
                raise ValueError(
                    f"frequencies has shape {frequencies.shape} or numbers below 0; pass a count for each of the "
                    f"{len(points)} points."
                )
        if names is not None and len(names) != len(points):
            raise ValueError(f"names has {len(names)} names for {len(points)} points; pass one for each.")
        display = cls(points, explained, frequencies=frequencies, names=names, n_names=n_names, name=name)
        return display.plot(ax, **kwargs)

    def plot(self, ax: Any = None, *, name: str | None = None, **kwargs: Any) -> Self:
        name = self._set_axes(ax, name)
        style: dict[str, Any] = {"alpha": 0.55, "linewidths": 0.4, "edgecolors": "white", "s": self._areas()}
        if "c" not in kwargs and "color" not in kwargs:
            style["c"] = PALETTE[len(self.ax_.collections) % len(PALETTE)]
        self.points_ = self.ax_.scatter(*self.points.T, **(style | kwargs))
        labels = ["t-SNE axis 1", "t-SNE axis 2"]
        if self.explained is not None:
            labels = [f"principal axis {axis + 1} ({self.explained[axis]:.0%} of variance)" for axis in (0, 1)]
        self.ax_.margins(0.08)
        self._label_axes(xlabel=labels[0], ylabel=labels[1])
        if name is not None:
            self.ax_.set_title(name)
        self.texts_ = self._write_names()
        return self

    def _areas(self) -> float | NDArray[np.float64]:
        if self.frequencies is None or not np.any(self.frequencies):
            return 2 * MIN_AREA
        return MIN_AREA + (MAX_AREA - MIN_AREA) * self.frequencies / self.frequencies.max()

    def _write_names(self) -> list[Any]:
        if self.names is None or self.n_names <= 0:
            return []
        weights = np.linalg.norm(self.points, axis=1) if self.frequencies is None else self.frequencies
        order = np.argsort(-weights, kind="stable")[: self.n_names]
        return place_names(self.ax_, self.points[order], [str(self.names[i]) for i in order])


def project_on_principal_axes(F: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the points on the two axes of largest variance, and the share of the variance on each axis.

    The sign of an axis makes the largest coordinate of its direction positive, so that plots do not flip by chance.
    With one factor the second coordinate is 0.
    """
    U, s, Vt = np.linalg.svd(F - F.mean(axis=0), full_matrices=False)
    signs = np.sign(Vt[np.arange(len(s)), np.abs(Vt).argmax(axis=1)])
    points = np.zeros((len(F), 2))
    points[:, : min(2, len(s))] = (U * s * signs)[:, :2]
    explained = np.zeros(2)
    if s[0] > 0:
        explained[: min(2, len(s))] = (s**2 / (s**2).sum())[:2]
    return points, explained


def embed_by_tsne(F: NDArray[np.float64], random_state: Any = 0) -> NDArray[np.float64]:
    """Return the points of t-SNE, whose neighbours have the smallest angles between their factors."""
    lengths = np.linalg.norm(F, axis=1, keepdims=True)
    unit = np.divide(F, lengths, out=np.zeros_like(F), where=lengths > 0)
    perplexity = min(30.0, (len(F) - 1) / 3)
    with threadpool_limits(1):  # the threads of t-SNE wait for each other in busy loops
        return TSNE(perplexity=perplexity, init="random", random_state=random_state).fit_transform(unit).astype(float)


def get_label_factors(estimator: Any) -> NDArray:
    """Return H of a fitted estimator without the column of the constant."""
    model = _get_model(estimator)
    if not hasattr(model, "label_factors_"):
        raise ValueError(
            f"{type(model).__name__} has no label_factors_ to draw; fit an estimator that has, such as LEML or "
            "OneClassMF, or pass your own factors to from_factors."
        )
    features = getattr(model, "feature_factors_", None)
    return model.label_factors_ if features is None else model.label_factors_[:, : features.shape[1]]


def get_row_factors(estimator: Any, X: Any) -> NDArray:
    """Return the factors of rows without the column of the constant."""
    k = get_label_factors(estimator).shape[1]
    if hasattr(estimator, "steps"):
        X = estimator[:-1].transform(X)
    final = get_final_estimator(estimator)
    model, rows = _get_model(final), final._check_rows(X)
    return model._prediction_kernels(rows.shape[0]).to_numpy(model._embed(rows))[:, :k]


def _get_model(estimator: Any) -> Any:
    """Return the estimator that has the factors, within a pipeline, a Tagger or a search."""
    final = get_final_estimator(estimator)
    check_is_fitted(final)
    return getattr(final, "model_", getattr(final, "best_estimator_", final))


def _count_positives(Y: Any, *, of_rows: bool) -> NDArray:
    positives = as_labels(Y).positives
    if of_rows:
        return np.diff(positives.indptr)
    return np.bincount(positives.indices, minlength=positives.shape[1])


def place_names(ax: Any, points: NDArray[np.float64], names: list[str]) -> list[Any]:
    """Write names next to their points, in the order of priority.

    A name is left out if it would cover another name or a point, or would extend beyond the axes.
    """
    bbox = import_optional("matplotlib.transforms", "plot").Bbox
    halo = import_optional("matplotlib.patheffects", "plot").withStroke(linewidth=2.5, foreground="white", alpha=0.8)
    ax.figure.draw_without_rendering()  # computes the layout, and with it the size of the axes
    frame, radius = ax.get_window_extent(), POINT_RADIUS * ax.figure.dpi / 72
    occupied = [bbox([center - radius, center + radius]) for center in ax.transData.transform(points)]
    texts: list[Any] = []
    for point, name in zip(points, names, strict=True):
        for right, up, horizontal, vertical in NAME_POSITIONS:
            style = {"ha": horizontal, "va": vertical, "fontsize": "small", "path_effects": [halo]}
            text = ax.annotate(name, point, (right, up), textcoords="offset points", **style)
            box = text.get_window_extent()
            inside = frame.x0 <= box.x0 and frame.y0 <= box.y0 and box.x1 <= frame.x1 and box.y1 <= frame.y1
            if inside and not any(box.overlaps(other) for other in occupied):
                occupied.append(box)
                texts.append(text)
                break
            text.remove()
    return texts
