"""Estimators: validate, build, solve, store."""

import importlib
import warnings
from typing import TYPE_CHECKING, Any

from labelgap.estimators.base import MultiLabelEstimator, as_labels_for, get_final_estimator, set_device

if TYPE_CHECKING:
    from labelgap.estimators.binary_relevance import BinaryRelevance, LabelwiseSVM
    from labelgap.estimators.completion import MC1, EMImputer, FPCImputer, MCb
    from labelgap.estimators.exporting import export
    from labelgap.estimators.leml import LEML
    from labelgap.estimators.local import LocalLEML
    from labelgap.estimators.nystroem import KMeansNystroem
    from labelgap.estimators.one_class import OneClassMF
    from labelgap.estimators.pipelines import load, save
    from labelgap.estimators.sleec import SLEEC
    from labelgap.estimators.tagger import Tagger
    from labelgap.estimators.voting import LabelKNN

__all__ = [
    "LEML",
    "MC1",
    "SLEEC",
    "BinaryRelevance",
    "EMImputer",
    "FPCImputer",
    "KMeansNystroem",
    "LabelKNN",
    "LabelwiseSVM",
    "LocalLEML",
    "MCb",
    "MultiLabelEstimator",
    "OneClassMF",
    "Tagger",
    "as_labels_for",
    "export",
    "get_final_estimator",
    "load",
    "save",
    "set_device",
]

# Modules are loaded when a name is first used: most users need one or two of them, and some load much else.
_MODULES = {
    "BinaryRelevance": "binary_relevance",
    "EMImputer": "completion",
    "FPCImputer": "completion",
    "KMeansNystroem": "nystroem",
    "LEML": "leml",
    "LabelKNN": "voting",
    "LabelwiseSVM": "binary_relevance",
    "LocalLEML": "local",
    "MC1": "completion",
    "MCb": "completion",
    "OneClassMF": "one_class",
    "SLEEC": "sleec",
    "Tagger": "tagger",
    "export": "exporting",
    "load": "pipelines",
    "save": "pipelines",
}
_MOVED_TO_BASELINES = {
    "BayesianCS",
    "CPLST",
    "CSSP",
    "CompressedSensing",
    "FastXML",
    "LPSR",
    "NaiveBayes",
    "PLST",
    "WSABIE",
}


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        value = getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
        globals()[name] = value
        return value
    if name not in _MOVED_TO_BASELINES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warnings.warn(
        f"labelgap.estimators.{name} has moved; use `from labelgap import {name}` or labelgap.baselines.{name}.",
        DeprecationWarning,
        stacklevel=2,
    )
    return getattr(importlib.import_module("labelgap.baselines"), name)
