"""Estimators: validate, build, solve, store."""

from labelgap.estimators.base import MultiLabelEstimator, load
from labelgap.estimators.leml import LEML
from labelgap.estimators.local_leml import LocalLEML
from labelgap.estimators.nystroem import KMeansNystroem
from labelgap.estimators.one_class import OneClassMF
from labelgap.estimators.sleec import SLEEC
from labelgap.estimators.voting import LabelKNN

__all__ = [
    "LEML",
    "SLEEC",
    "KMeansNystroem",
    "LabelKNN",
    "LocalLEML",
    "MultiLabelEstimator",
    "OneClassMF",
    "load",
]
