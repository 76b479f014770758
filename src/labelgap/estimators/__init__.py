"""Estimators: validate, build, solve, store."""

from labelgap.estimators.base import MultiLabelEstimator, load
from labelgap.estimators.baselines import (
    CPLST,
    CSSP,
    LPSR,
    PLST,
    WSABIE,
    BayesianCS,
    BinaryRelevance,
    CompressedSensing,
    FastXML,
    NaiveBayes,
)
from labelgap.estimators.completion import MC1, MCb
from labelgap.estimators.imputers import EMImputer, FPCImputer
from labelgap.estimators.leml import LEML
from labelgap.estimators.local_leml import LocalLEML
from labelgap.estimators.nystroem import KMeansNystroem
from labelgap.estimators.one_class import OneClassMF
from labelgap.estimators.sleec import SLEEC
from labelgap.estimators.svm import LabelwiseSVM
from labelgap.estimators.text import Tagger
from labelgap.estimators.voting import LabelKNN

__all__ = [
    "CPLST",
    "CSSP",
    "LEML",
    "LPSR",
    "MC1",
    "PLST",
    "SLEEC",
    "WSABIE",
    "BayesianCS",
    "BinaryRelevance",
    "CompressedSensing",
    "EMImputer",
    "FPCImputer",
    "FastXML",
    "KMeansNystroem",
    "LabelKNN",
    "LabelwiseSVM",
    "LocalLEML",
    "MCb",
    "MultiLabelEstimator",
    "NaiveBayes",
    "OneClassMF",
    "Tagger",
    "load",
]
