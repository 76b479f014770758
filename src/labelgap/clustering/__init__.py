"""K-means of sparse or dense rows."""

from labelgap.clustering.kmeans import Clustering, cluster, draw_distinct_rows

__all__ = ["Clustering", "cluster", "draw_distinct_rows"]
