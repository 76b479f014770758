"""Objectives: data, loss and penalty bound to kernels."""

from labelgap.objectives.cells import label_cells
from labelgap.objectives.features import Features
from labelgap.objectives.problem import Problem, SideData, bind, solve, start
from labelgap.objectives.regression import Regression, regress, ridge

__all__ = [
    "Features",
    "Problem",
    "Regression",
    "SideData",
    "bind",
    "label_cells",
    "regress",
    "ridge",
    "solve",
    "start",
]
