"""Multi-label learning when labels have gaps: an absent tag may be a "no", or may be forgotten.

Names are loaded when they are first used, so that ``import labelgap`` costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_HOMES = {
    "BayesianCS": "estimators",
    "BinaryRelevance": "estimators",
    "CPLST": "estimators",
    "CSSP": "estimators",
    "CompressedSensing": "estimators",
    "EMImputer": "estimators",
    "EmbeddingDisplay": "displays",
    "FPCImputer": "estimators",
    "FastXML": "estimators",
    "FrequencyDisplay": "displays",
    "KMeansNystroem": "estimators",
    "LEML": "estimators",
    "LPSR": "estimators",
    "LabelKNN": "estimators",
    "LabelwiseSVM": "estimators",
    "LocalLEML": "estimators",
    "MC1": "estimators",
    "MC1CV": "model_selection",
    "MCb": "estimators",
    "MCbCV": "model_selection",
    "NaiveBayes": "estimators",
    "ObjectiveDisplay": "displays",
    "ObjectiveRecorder": "displays",
    "OneClassMF": "estimators",
    "OneClassMFCV": "model_selection",
    "PLST": "estimators",
    "PathDisplay": "displays",
    "ReliabilityDisplay": "displays",
    "SLEEC": "estimators",
    "Tagger": "estimators",
    "WSABIE": "estimators",
    "audit": "gaps",
    "complete": "gaps",
    "explain": "gaps",
    "load": "estimators",
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


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(importlib.import_module(f"labelgap.{_HOMES[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'labelgap' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
