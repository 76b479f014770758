"""Metrics over known cells, computed from sums that can be added up over batches."""

from labelgap.metrics.at_k import (
    NDCGAtK,
    PrecisionAtK,
    PSNDCGAtK,
    PSPrecisionAtK,
    RecallAtK,
    ndcg_at_k,
    precision_at_k,
    psndcg_at_k,
    psp_at_k,
    recall_at_k,
    standard_metrics,
)
from labelgap.metrics.base import Metric, evaluate
from labelgap.metrics.batch import Batch, Ranking
from labelgap.metrics.cell_metrics import (
    F1,
    HammingLoss,
    InstanceAUC,
    f1_score,
    hamming_loss,
    imputation_error,
    instance_auc,
    label_error,
)
from labelgap.metrics.corrected import (
    CorrectedF1,
    CorrectedNDCGAtK,
    CorrectedPrecisionAtK,
    CorrectedRecallAtK,
    corrected_metrics,
)
from labelgap.metrics.probed import Estimate, ProbeCells, draw_cells, probed_metrics

__all__ = [
    "F1",
    "Batch",
    "CorrectedF1",
    "CorrectedNDCGAtK",
    "CorrectedPrecisionAtK",
    "CorrectedRecallAtK",
    "Estimate",
    "HammingLoss",
    "InstanceAUC",
    "Metric",
    "NDCGAtK",
    "PSNDCGAtK",
    "PSPrecisionAtK",
    "PrecisionAtK",
    "ProbeCells",
    "Ranking",
    "RecallAtK",
    "corrected_metrics",
    "draw_cells",
    "evaluate",
    "f1_score",
    "hamming_loss",
    "imputation_error",
    "instance_auc",
    "label_error",
    "ndcg_at_k",
    "precision_at_k",
    "probed_metrics",
    "psndcg_at_k",
    "psp_at_k",
    "recall_at_k",
    "standard_metrics",
]
