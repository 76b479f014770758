"""The loss of one cell, ℓ(a, b), for a target a and a score b: value, derivative and curvature in b.

Each loss is written once, as expressions of ``+ − * / abs < exp log1p`` that mean the same for a number in compiled
code, for a NumPy array and for a tensor on another device; :meth:`Loss.functions` takes the namespace that ``exp``
and ``log1p`` come from. Kernels receive a loss and compile it; none of them knows which losses there are.
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
    """What a loss must say.

    Attributes
    ----------
    name : str
        The word that selects it, as in ``LEML(loss="logistic")``.
    negative, positive : float
        The targets that "no" and "yes" are written as.
    threshold : float
        The score above which the answer is "yes": halfway between the targets.
    max_curvature : float
        The supremum of the curvature, for step sizes.
    quadratic : bool
        True when the curvature is 1 everywhere, so that sums over all cells have closed forms.
    margin : float or None
        The product a·b from which the loss is 0, so that cells beyond it do not count; None where there is none.
    squares_margin : bool
        True when the loss is the square of what a cell lacks to a margin of 1, and nothing else.
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
        """The score above which the answer is "yes"."""
        return (self.negative + self.positive) / 2

    @abstractmethod
    def functions(self, xp: Any = np) -> CellFunctions:
        """Return the cell's three functions, built from the ``exp`` and ``log1p`` of a namespace."""

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
    """ℓ(a, b) = max(0, 1 − ab)², a ∈ {−1, +1}; at its kink ab = 1 the curvature is taken as 0.

    >>> SquaredHinge().functions().value(-1.0, 0.5)
    2.25
    """

    name = "squared_hinge"
    max_curvature = 2.0
    margin = 1.0
    squares_margin = True

    def functions(self, xp: Any = np) -> CellFunctions:
        def value(a, b):
            short = 1.0 - a * b
            return short * short * (short > 0)

        def gradient(a, b):
            short = 1.0 - a * b
            return -2.0 * a * short * (short > 0)

        def curvature(a, b):
            return 2.0 * a * a * (a * b < 1.0)

        return CellFunctions(value, gradient, curvature)


LOSSES: dict[str, type[Loss]] = {cls.name: cls for cls in (Squared, Logistic, SquaredHinge)}


def get_loss(loss: str | Loss) -> Loss:
    """Return the loss of that name; a loss passes through.

    >>> get_loss("logistic")
    Logistic()
    """
    if isinstance(loss, Loss):
        return loss
    if loss not in LOSSES:
        raise ValueError(f"loss={loss!r} is not known; choose from {sorted(LOSSES)} or pass a Loss.")
    return LOSSES[loss]()
