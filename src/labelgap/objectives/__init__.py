"""Objectives: data, loss and penalty bound to kernels."""

from labelgap.objectives.embeddings import Regression, fit_ridge, regress
from labelgap.objectives.features import Features
from labelgap.objectives.positive_unlabelled import bind_label_cells
from labelgap.objectives.problem import Problem, SideData, bind, solve, start

__all__ = [
    "Features",
    "Problem",
    "Regression",
    "SideData",
    "bind",
    "bind_label_cells",
    "fit_ridge",
    "regress",
    "solve",
    "start",
]
