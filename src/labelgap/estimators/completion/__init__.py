"""MC-1 and MC-b: labels and features completed together as one matrix of low rank (Goldberg et al. 2010)."""

from labelgap.estimators.completion.estimator import CompletionEstimator
from labelgap.estimators.completion.models import MC1, MCb
from labelgap.estimators.completion.path import Found, solve_path
from labelgap.estimators.completion.rows import RowSpace

__all__ = ["MC1", "CompletionEstimator", "Found", "MCb", "RowSpace", "solve_path"]
