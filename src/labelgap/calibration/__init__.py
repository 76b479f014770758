"""Probabilities from scores: calibration, shares of written labels, thresholds."""

from labelgap.calibration.curves import Calibration, calibration_error, reliability
from labelgap.calibration.decisions import NotCalibrated, RowCalibration, fit_row_calibration, parse_aim
from labelgap.calibration.scored_cells import ScoredCells
from labelgap.calibration.written import WrittenShare

__all__ = [
    "Calibration",
    "NotCalibrated",
    "RowCalibration",
    "ScoredCells",
    "WrittenShare",
    "calibration_error",
    "fit_row_calibration",
    "parse_aim",
    "reliability",
]
