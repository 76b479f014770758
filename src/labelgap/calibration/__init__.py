"""Probabilities from scores: calibration, shares of written labels, thresholds."""

from labelgap.calibration.curves import Calibration, calibration_error, reliability
from labelgap.calibration.decisions import NotCalibrated, RowCalibration, fit_row_calibration, parse_aim
from labelgap.calibration.scored_cells import ScoredCells
from labelgap.calibration.written import MissingCount, WrittenShare

__all__ = [
    "Calibration",
    "MissingCount",
    "NotCalibrated",
    "RowCalibration",
    "ScoredCells",
    "WrittenShare",
    "calibration_error",
    "fit_row_calibration",
    "parse_aim",
    "reliability",
]
