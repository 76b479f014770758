"""Gaps in labels: find missing labels, fill unknown cells, and explain both."""

from labelgap.calibration import Calibration, calibration_error, reliability
from labelgap.gaps.auditing import Audit, RankedRows, Suggestions, audit
from labelgap.gaps.explanations import Argument, Explanation, LabelCooccurrence, explain
from labelgap.gaps.filling import Completed, complete
from labelgap.gaps.label_mixture import LabelMixture
from labelgap.gaps.verdicts import (
    Probe,
    Remaining,
    draw_best,
    draw_probe,
    estimate_from_probe,
    estimate_missing,
    expect_next,
    learn,
    recalibrate,
)

__all__ = [
    "Argument",
    "Audit",
    "Calibration",
    "Completed",
    "Explanation",
    "LabelCooccurrence",
    "LabelMixture",
    "Probe",
    "RankedRows",
    "Remaining",
    "Suggestions",
    "audit",
    "calibration_error",
    "complete",
    "draw_best",
    "draw_probe",
    "estimate_from_probe",
    "estimate_missing",
    "expect_next",
    "explain",
    "learn",
    "recalibrate",
    "reliability",
]
