"""Objectives: data, loss and penalty bound to kernels."""

from labelgap.objectives.cells import label_cells
from labelgap.objectives.features import make_features
from labelgap.objectives.problem import Problem, SideData, bind, solve, start
from labelgap.objectives.regression import Regression, regress, ridge

__all__ = [
    "Problem",
    "Regression",
    "SideData",
    "bind",
    "label_cells",
    "make_features",
    "regress",
    "ridge",
    "solve",
    "start",
]
