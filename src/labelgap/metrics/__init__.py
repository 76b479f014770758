"""How good scores are: over known cells only, in parts that can be added up, from 0 to 1 or as they say."""

from labelgap.metrics.at_k import NDCGAtK, PrecisionAtK, RecallAtK, ndcg_at_k, precision_at_k, recall_at_k
from labelgap.metrics.base import Metric, evaluate
from labelgap.metrics.batch import Batch, Ranking
from labelgap.metrics.classification import F1, HammingLoss, InstanceAUC, f1_score, hamming_loss, instance_auc
from labelgap.metrics.completion import imputation_error, label_error
from labelgap.metrics.propensity import PSNDCGAtK, PSPrecisionAtK, psndcg_at_k, psp_at_k
from labelgap.metrics.standard import standard_metrics

__all__ = [
    "F1",
    "Batch",
    "HammingLoss",
    "InstanceAUC",
    "Metric",
    "NDCGAtK",
    "PSNDCGAtK",
    "PSPrecisionAtK",
    "PrecisionAtK",
    "Ranking",
    "RecallAtK",
    "evaluate",
    "f1_score",
    "hamming_loss",
    "imputation_error",
    "instance_auc",
    "label_error",
    "ndcg_at_k",
    "precision_at_k",
    "psndcg_at_k",
    "psp_at_k",
    "recall_at_k",
    "standard_metrics",
]
