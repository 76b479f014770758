"""Plots in scikit-learn's manner: a display holds what it draws, ``from_…`` makes one, ``plot`` draws it again."""

from labelgap.displays.base import PALETTE, Display, new_figure
from labelgap.displays.embedding import EmbeddingDisplay
from labelgap.displays.frequency import FrequencyDisplay
from labelgap.displays.objective import ObjectiveDisplay, ObjectiveRecorder
from labelgap.displays.path import PathDisplay
from labelgap.displays.reliability import ReliabilityDisplay

__all__ = [
    "PALETTE",
    "Display",
    "EmbeddingDisplay",
    "FrequencyDisplay",
    "ObjectiveDisplay",
    "ObjectiveRecorder",
    "PathDisplay",
    "ReliabilityDisplay",
    "new_figure",
]
