"""Methods that the papers compare with: label space reductions, trees, ranking and naive Bayes."""

from labelgap.baselines.compressed_sensing import BayesianCS, CompressedSensing
from labelgap.baselines.fastxml import FastXML
from labelgap.baselines.label_reductions import CPLST, CSSP, PLST
from labelgap.baselines.lpsr import LPSR
from labelgap.baselines.naive_bayes import NaiveBayes
from labelgap.baselines.wsabie import WSABIE

__all__ = [
    "CPLST",
    "CSSP",
    "LPSR",
    "PLST",
    "WSABIE",
    "BayesianCS",
    "CompressedSensing",
    "FastXML",
    "NaiveBayes",
]
