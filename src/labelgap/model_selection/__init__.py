"""Splits that hold out rows or cells, and tuning that never looks outside the known cells."""

from labelgap.model_selection.completion import MC1CV, MCbCV
from labelgap.model_selection.criteria import Criterion, MeanLoss, get_criterion, score_batches
from labelgap.model_selection.one_class import OneClassMFCV
from labelgap.model_selection.selection import Selection, Tuning, select
from labelgap.model_selection.spaces import SPACES
from labelgap.model_selection.splits import CellKFold, hold_out_rows
from labelgap.model_selection.tuning import tune

__all__ = [
    "MC1CV",
    "SPACES",
    "CellKFold",
    "Criterion",
    "MCbCV",
    "MeanLoss",
    "OneClassMFCV",
    "Selection",
    "Tuning",
    "get_criterion",
    "hold_out_rows",
    "score_batches",
    "select",
    "tune",
]
