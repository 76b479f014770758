"""Objectives: data, loss and penalty bound to kernels."""

from labelgap.objectives.cells import label_cells
from labelgap.objectives.features import make_features
from labelgap.objectives.low_rank import LowRank

__all__ = ["LowRank", "label_cells", "make_features"]
