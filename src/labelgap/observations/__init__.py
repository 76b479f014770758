"""Which label cells count: the one place that says what an absent label means."""

from labelgap.observations.labels import Container, Labels, as_labels
from labelgap.observations.missingness import (
    hide_by_propensity,
    hide_cells,
    hide_positives,
    hold_out_cells,
    hold_out_positives,
    label_propensities,
)

__all__ = [
    "Container",
    "Labels",
    "as_labels",
    "hide_by_propensity",
    "hide_cells",
    "hide_positives",
    "hold_out_cells",
    "hold_out_positives",
    "label_propensities",
]
