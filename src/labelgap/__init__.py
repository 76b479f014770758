"""Multi-label learning when labels have gaps: an absent tag may be a "no", or may be forgotten.

Names are loaded when they are first used, so that ``import labelgap`` costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module as _import_module
from typing import Any as _Any

__version__ = "0.1.0"

_HOMES = {
    "AutoLabeler": "model_selection",
    "BayesianCS": "baselines",
    "BinaryRelevance": "estimators",
    "CPLST": "baselines",
    "CSSP": "baselines",
    "CompressedSensing": "baselines",
    "EMImputer": "estimators",
    "EmbeddingDisplay": "displays",
    "FPCImputer": "estimators",
    "FastXML": "baselines",
    "FrequencyDisplay": "displays",
    "KMeansNystroem": "estimators",
    "LEML": "estimators",
    "LPSR": "baselines",
    "LabelKNN": "estimators",
    "LabelwiseSVM": "estimators",
    "LocalLEML": "estimators",
    "MC1": "estimators",
    "MC1CV": "model_selection",
    "MCb": "estimators",
    "MCbCV": "model_selection",
    "NaiveBayes": "baselines",
    "ObjectiveDisplay": "displays",
    "ObjectiveRecorder": "displays",
    "OneClassMF": "estimators",
    "OneClassMFCV": "model_selection",
    "PLST": "baselines",
    "PathDisplay": "displays",
    "ReliabilityDisplay": "displays",
    "SLEEC": "estimators",
    "Tagger": "estimators",
    "WSABIE": "baselines",
    "audit": "gaps",
    "complete": "gaps",
    "explain": "gaps",
    "export": "estimators",
    "get_scorer": "model_selection",
    "load": "estimators",
    "save": "estimators",
    "Labels": "observations",
    "hide_cells": "observations",
    "hide_positives": "observations",
    "hide_by_propensity": "observations",
    "hold_out_cells": "observations",
    "hold_out_positives": "observations",
    "label_propensities": "observations",
    "Loss": "losses",
    "load_dataset": "datasets",
    "load_interactions": "datasets",
    "list_datasets": "datasets",
    "make_completion": "datasets",
    "threads": "runtime",
    "tune": "model_selection",
}

__all__ = ["__version__", *sorted(_HOMES)]


def __getattr__(name: str) -> _Any:
    if name in _HOMES:
        value = getattr(_import_module(f"labelgap.{_HOMES[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'labelgap' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
