"""Minimisers that know an objective and nothing of losses, labels or sparse matrices."""

from labelgap.solvers.admm import Splitting, alternate_directions, soft_threshold
from labelgap.solvers.base import Fit, Kronecker, Model, Objective, Solution, Solver, Status, alternate
from labelgap.solvers.cg import conjugate_gradient
from labelgap.solvers.descent import GradientDescent
from labelgap.solvers.kronecker import Direct
from labelgap.solvers.newton import NewtonCG, backtrack
from labelgap.solvers.reduced_rank import reduced_rank_regression
from labelgap.solvers.subspace import leading_right_vectors
from labelgap.solvers.tron import TRON

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
    "leading_right_vectors",
    "reduced_rank_regression",
    "soft_threshold",
]
