"""Fill missing features: by a matrix of low rank, or by the expectations of a mixture of Gaussians."""

from labelgap.estimators.imputers.base import Imputer
from labelgap.estimators.imputers.em import EMImputer
from labelgap.estimators.imputers.fpc import FPCImputer

__all__ = ["EMImputer", "FPCImputer", "Imputer"]
