"""Solvers for any objective, without losses, labels or sparse matrices."""

from labelgap.solvers.admm import Splitting, alternate_directions, soft_threshold
from labelgap.solvers.base import Fit, Kronecker, Model, Objective, Solution, Solver, Status, alternate
from labelgap.solvers.linear_systems import Direct, conjugate_gradient
from labelgap.solvers.newton import TRON, GradientDescent, NewtonCG, backtrack
from labelgap.solvers.spectral import find_right_vectors, reduced_rank_regression

__all__ = [
    "TRON",
    "Direct",
    "Fit",
    "GradientDescent",
    "Kronecker",
    "Model",
    "NewtonCG",
    "Objective",
    "Solution",
    "Solver",
    "Splitting",
    "Status",
    "alternate",
    "alternate_directions",
    "backtrack",
    "conjugate_gradient",
    "find_right_vectors",
    "reduced_rank_regression",
    "soft_threshold",
]
