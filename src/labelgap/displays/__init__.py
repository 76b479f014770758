"""Plots like scikit-learn's displays: ``from_…`` creates and draws a display, ``plot`` draws it again."""

from labelgap.displays.base import PALETTE, Display, new_figure
from labelgap.displays.embedding import EmbeddingDisplay
from labelgap.displays.frequency import FrequencyDisplay
from labelgap.displays.objective import ObjectiveDisplay, ObjectiveRecorder
from labelgap.displays.parameter_path import PathDisplay
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
