"""What the papers compare with, each a method in its own right."""

from labelgap.estimators.baselines.bayesian import BayesianCS
from labelgap.estimators.baselines.binary_relevance import BinaryRelevance
from labelgap.estimators.baselines.compressed import CompressedSensing
from labelgap.estimators.baselines.cplst import CPLST
from labelgap.estimators.baselines.cssp import CSSP
from labelgap.estimators.baselines.fastxml import FastXML
from labelgap.estimators.baselines.lpsr import LPSR
from labelgap.estimators.baselines.naive_bayes import NaiveBayes
from labelgap.estimators.baselines.plst import PLST
from labelgap.estimators.baselines.wsabie import WSABIE

__all__ = [
    "CPLST",
    "CSSP",
    "LPSR",
    "PLST",
    "WSABIE",
    "BayesianCS",
    "BinaryRelevance",
    "CompressedSensing",
    "FastXML",
    "NaiveBayes",
]
