"""Objectives: data, loss and penalty bound to kernels."""

from labelgap.objectives.cells import label_cells
from labelgap.objectives.features import make_features
from labelgap.objectives.low_rank import LowRank
from labelgap.objectives.regression import Regression, regress, ridge

__all__ = ["LowRank", "Regression", "label_cells", "make_features", "regress", "ridge"]
