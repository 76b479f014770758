"""Estimators: validate, build, solve, store."""

from labelgap.estimators.base import MultiLabelEstimator, load
from labelgap.estimators.leml import LEML

__all__ = ["LEML", "MultiLabelEstimator", "load"]
