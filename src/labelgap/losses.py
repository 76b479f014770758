"""The loss of one cell, ℓ(a, b), for a target a and a score b: value, derivative and curvature in b.

Each loss is written once, with arithmetic, comparisons, ``abs``, ``exp`` and ``log1p``, so that it works on numbers
in compiled code, on NumPy arrays and on tensors of other devices; :meth:`Loss.functions` takes the namespace of
``exp`` and ``log1p``.
Kernels receive a loss and compile it; none refers to a particular loss.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np


class CellFunctions(NamedTuple):
    """ℓ, ∂ℓ/∂b and ∂²ℓ/∂b², each a function of (a, b)."""

    value: Callable[[Any, Any], Any]
    gradient: Callable[[Any, Any], Any]
    curvature: Callable[[Any, Any], Any]


class Loss(ABC):
    """Base class of losses. A subclass sets ``name`` and ``max_curvature``; the other attributes have defaults.

    Attributes
    ----------
    name : str
        The name that selects it, as in ``LEML(loss="logistic")``.
    negative, positive : float
        The targets of negative and positive labels.
    threshold : float
        The score above which a label is predicted: halfway between the targets.
    max_curvature : float
        The supremum of the curvature, for step sizes.
    quadratic : bool
        True if the curvature is 1 everywhere, so that sums over all cells have closed forms.
    margin : float or None
        The product a·b from which the loss is 0; None if there is none. It allows ``BinaryRelevance`` to skip the
        rows beyond it.
    squares_margin : bool
        True for max(0, 1 − a·b)² alone, which has a compiled solver of its own.
    """

    name: str
    negative: float = -1.0
    positive: float = 1.0
    max_curvature: float
    quadratic: bool = False
    margin: float | None = None
    squares_margin: bool = False

    @property
    def threshold(self) -> float:
        """The score above which a label is predicted."""
        return (self.negative + self.positive) / 2

    @abstractmethod
    def functions(self, xp: Any = np) -> CellFunctions:
        """Return ℓ, ∂ℓ/∂b and ∂²ℓ/∂b², built with the ``exp`` and ``log1p`` of a namespace."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class Squared(Loss):
    """ℓ(a, b) = ½ (a − b)², a ∈ {0, 1}.

    >>> Squared().functions().gradient(1.0, 0.25)
    -0.75
    """

    name = "squared"
    negative = 0.0
    max_curvature = 1.0
    quadratic = True

    def functions(self, xp: Any = np) -> CellFunctions:
        def value(a, b):
            return 0.5 * (a - b) * (a - b)

        def gradient(a, b):
            return b - a

        def curvature(a, b):
            return 0.0 * b + 1.0

        return CellFunctions(value, gradient, curvature)


class Logistic(Loss):
    """ℓ(a, b) = log(1 + exp(−ab)), a ∈ {−1, +1}; no overflow at any margin.

    LEML's table 1 misprints its derivatives: ℓ' = −a / (1 + e^{ab}), ℓ'' = e^{−|ab|} / (1 + e^{−|ab|})².

    >>> float(Logistic().functions().value(1.0, 0.0)) == float(np.log(2))
    True
    """

    name = "logistic"
    max_curvature = 0.25

    def functions(self, xp: Any = np) -> CellFunctions:
        exp, log1p = xp.exp, xp.log1p

        def value(a, b):
            margin = a * b
            return log1p(exp(-abs(margin))) + 0.5 * (abs(margin) - margin)

        def gradient(a, b):
            margin = a * b
            small = exp(-abs(margin))
            # 1 / (1 + e^m) is small / (1 + small) for m > 0 and 1 / (1 + small) otherwise.
            return -a * (small * (margin > 0) + (margin <= 0)) / (1.0 + small)

        def curvature(a, b):
            small = exp(-abs(a * b))
            return a * a * small / ((1.0 + small) * (1.0 + small))

        return CellFunctions(value, gradient, curvature)


class SquaredHinge(Loss):
    """ℓ(a, b) = max(0, 1 − ab)², a ∈ {−1, +1}; its curvature at the kink ab = 1 is defined as 0.

    >>> SquaredHinge().functions().value(-1.0, 0.5)
    2.25
    """

    name = "squared_hinge"
    max_curvature = 2.0
    margin = 1.0
    squares_margin = True

    def functions(self, xp: Any = np) -> CellFunctions:
        def value(a, b):
            gap = 1.0 - a * b
            return gap * gap * (gap > 0)

        def gradient(a, b):
            gap = 1.0 - a * b
            return -2.0 * a * gap * (gap > 0)

        def curvature(a, b):
            return 2.0 * a * a * (a * b < 1.0)

        return CellFunctions(value, gradient, curvature)


LOSSES: dict[str, type[Loss]] = {cls.name: cls for cls in (Squared, Logistic, SquaredHinge)}


def get_loss(loss: str | Loss) -> Loss:
    """Return the loss with this name; return a Loss unchanged.

    >>> get_loss("logistic")
    Logistic()
    """
    if isinstance(loss, Loss):
        for attribute in ("name", "max_curvature"):
            if not hasattr(loss, attribute):
                raise ValueError(f"The loss {loss!r} has no {attribute}; set it in its class.")
        return loss
    if isinstance(loss, type):
        raise ValueError(f"loss={loss.__name__} is a class; pass an instance: loss={loss.__name__}().")
    if loss not in LOSSES:
        raise ValueError(f"loss={loss!r} is not known; choose from {sorted(LOSSES)} or pass a Loss.")
    return LOSSES[loss]()
