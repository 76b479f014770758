"""Gaps in labels: find missing labels, fill unknown cells, and explain both."""

from labelgap.calibration import Calibration, calibration_error, reliability
from labelgap.gaps.auditing import Audit, Suggestions, audit
from labelgap.gaps.explanations import Argument, Explanation, LabelCooccurrence, explain
from labelgap.gaps.filling import Completed, complete

__all__ = [
    "Argument",
    "Audit",
    "Calibration",
    "Completed",
    "Explanation",
    "LabelCooccurrence",
    "Suggestions",
    "audit",
    "calibration_error",
    "complete",
    "explain",
    "reliability",
]
