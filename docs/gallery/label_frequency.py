"""Rare labels and frequent ones

Precision at k does not say which labels are found. `FrequencyDisplay` splits the hits by the number of training
positives of a label. Labels come in topics here, a few of them frequent and most of them rare. A low-rank model does
well on the frequent ones; SLEEC lets the nearest rows vote and finds more of the rare ones. With fewer than two
training positives, neither has anything to learn from.
"""

from labelgap import LEML, SLEEC, FrequencyDisplay
from labelgap.datasets import make_sparse_multilabel

X, Y = make_sparse_multilabel(1500, 400, 250, 20, 3, random_state=0)
X, Y, X_test, Y_test = X[:1000], Y[:1000], X[1000:], Y[1000:]

low_rank = LEML(50, alpha=3.0, random_state=0).fit(X, Y)
neighbours = SLEEC(10, n_clusters=1, n_learners=1, n_neighbors=20, random_state=0).fit(X, Y)

options = {"Y_train": Y, "k": 5, "measure": "recall", "bins": 5}
leml = FrequencyDisplay.from_estimator(low_rank, X_test, Y_test, **options)
sleec = FrequencyDisplay.from_estimator(neighbours, X_test, Y_test, ax=leml.ax_, **options)
figure = sleec.figure_
