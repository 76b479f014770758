"""Probabilities that can be believed

`complete` fills unknown cells with probabilities. It learns what a score is worth from known cells that it held
out, so of the cells that it says have 30 %, about three in ten are positive: its curve runs along the diagonal.
A logistic model of each label that takes gaps for negatives believes far too little, since it has learned that
most positives are none. Both are judged by known cells that they were not fitted on.
"""

from labelgap import LEML, BinaryRelevance, ReliabilityDisplay, complete, hide_cells
from labelgap.datasets import make_low_rank

data = make_low_rank(1200, 20, 15, rank=4, labels_per_row=3, noise=0.5, random_state=0)
X, Y, X_test, Y_test = data.X[:800], data.Y[:800], data.X[800:], data.Y[800:]
known = hide_cells(Y, 0.5, random_state=0)

filled = complete(X, known, LEML(4, random_state=0), random_state=0)
naive = BinaryRelevance(loss="logistic").fit(X, known.positives)

calibrated = ReliabilityDisplay.from_completed(filled, name="complete")
options = {"name": "gaps taken for no", "ax": calibrated.ax_}
believed = ReliabilityDisplay.from_estimator(naive, X_test, Y_test, **options)
figure = believed.figure_
