"""Completion of matrices: MC-1 and MC-b for labels with features, and imputers for features alone."""

from labelgap.estimators.completion.completion_path import CompletionFit, RowSpace, solve_path, solve_paths
from labelgap.estimators.completion.imputers import EMImputer, FPCImputer, Imputer
from labelgap.estimators.completion.mc import MC1, CompletionEstimator, MCb

__all__ = [
    "MC1",
    "CompletionEstimator",
    "CompletionFit",
    "EMImputer",
    "FPCImputer",
    "Imputer",
    "MCb",
    "RowSpace",
    "solve_path",
    "solve_paths",
]
