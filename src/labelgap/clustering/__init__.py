"""K-means of sparse or dense rows."""

from labelgap.clustering.lloyd import Clustering, cluster
from labelgap.clustering.rows import different_rows

__all__ = ["Clustering", "cluster", "different_rows"]
