"""Estimators: validate, build, solve, store."""

from labelgap.estimators.base import MultiLabelEstimator, load
from labelgap.estimators.completion import MC1, MCb
from labelgap.estimators.imputers import EMImputer, FPCImputer
from labelgap.estimators.leml import LEML
from labelgap.estimators.local_leml import LocalLEML
from labelgap.estimators.nystroem import KMeansNystroem
from labelgap.estimators.one_class import OneClassMF
from labelgap.estimators.sleec import SLEEC
from labelgap.estimators.svm import LabelwiseSVM
from labelgap.estimators.voting import LabelKNN

__all__ = [
    "LEML",
    "MC1",
    "SLEEC",
    "EMImputer",
    "FPCImputer",
    "KMeansNystroem",
    "LabelKNN",
    "LabelwiseSVM",
    "LocalLEML",
    "MCb",
    "MultiLabelEstimator",
    "OneClassMF",
    "load",
]
