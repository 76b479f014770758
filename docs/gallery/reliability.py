"""Probabilities that can be believed

`complete` fills unknown cells with probabilities. It learns from held-out known cells how likely a score is to be
right. So about three in ten of the cells with a probability of 30 % are positive: its curve follows the diagonal. A
logistic model of each label that reads gaps as negatives gives probabilities that are far too low, because it has
seen most positives as negatives. Both are measured on known cells that they were not fitted on.
"""

from labelgap import LEML, BinaryRelevance, ReliabilityDisplay, complete, hide_cells
from labelgap.datasets import make_low_rank

data = make_low_rank(1200, 20, 15, rank=4, labels_per_row=3, noise=0.5, random_state=0)
X, Y, X_test, Y_test = data.X[:800], data.Y[:800], data.X[800:], data.Y[800:]
known = hide_cells(Y, 0.5, random_state=0)

filled = complete(X, known, LEML(4, random_state=0), random_state=0)
naive = BinaryRelevance(loss="logistic").fit(X, known.positives)

calibrated = ReliabilityDisplay.from_completed(filled, name="complete")
options = {"name": "gaps read as no", "ax": calibrated.ax_}
believed = ReliabilityDisplay.from_estimator(naive, X_test, Y_test, **options)
figure = believed.figure_
