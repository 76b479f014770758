"""Splits that hold out rows or cells, and searches that score candidates on held-out known cells."""

from labelgap.model_selection.auto import AutoLabeler
from labelgap.model_selection.candidates import SPACES
from labelgap.model_selection.completion_cv import MC1CV, MCbCV
from labelgap.model_selection.criteria import Criterion, MeanLoss, Scorer, get_criterion, get_scorer, score_batches
from labelgap.model_selection.one_class_cv import OneClassMFCV
from labelgap.model_selection.selection import Selection, Tuning, select, tune
from labelgap.model_selection.splits import CellKFold, hold_out_rows

__all__ = [
    "MC1CV",
    "SPACES",
    "AutoLabeler",
    "CellKFold",
    "Criterion",
    "MCbCV",
    "MeanLoss",
    "OneClassMFCV",
    "Scorer",
    "Selection",
    "Tuning",
    "get_criterion",
    "get_scorer",
    "hold_out_rows",
    "score_batches",
    "select",
    "tune",
]
