"""Estimators of texts."""

from labelgap.estimators.text.tagger import Tagger

__all__ = ["Tagger"]
