"""Estimators: validate, build, solve, store."""

from labelgap.estimators.base import MultiLabelEstimator, load
from labelgap.estimators.leml import LEML
from labelgap.estimators.nystroem import KMeansNystroem
from labelgap.estimators.one_class import OneClassMF

__all__ = ["LEML", "KMeansNystroem", "MultiLabelEstimator", "OneClassMF", "load"]
