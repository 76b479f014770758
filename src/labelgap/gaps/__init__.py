"""What to do about gaps: find forgotten labels, fill unknown cells, say why."""

from labelgap.gaps.auditing import Audit, Suggestions, audit
from labelgap.gaps.calibration import Calibration, calibration_error, reliability
from labelgap.gaps.completing import Completed, complete
from labelgap.gaps.explaining import Argument, Explanation, explain

__all__ = [
    "Argument",
    "Audit",
    "Calibration",
    "Completed",
    "Explanation",
    "Suggestions",
    "audit",
    "calibration_error",
    "complete",
    "explain",
    "reliability",
]
