"""Labels with gaps: the one place that decides which label cells are known."""

from labelgap.observations.labels import Container, Labels, as_labels
from labelgap.observations.missingness import (
    hide_by_propensity,
    hide_cells,
    hide_positives,
    hold_out_cells,
    hold_out_positives,
    label_propensities,
)
from labelgap.observations.sparse_indices import check_sparse_indices
from labelgap.observations.tags import EncodedTags, encode_tags, holds_tags

__all__ = [
    "Container",
    "EncodedTags",
    "Labels",
    "as_labels",
    "check_sparse_indices",
    "encode_tags",
    "hide_by_propensity",
    "hide_cells",
    "hide_positives",
    "hold_out_cells",
    "hold_out_positives",
    "holds_tags",
    "label_propensities",
]
