"""Rare labels and frequent ones

Precision at k says nothing about which labels are found. `FrequencyDisplay` takes the hits apart by how many
training positives a label has. Here labels come in topics, a few of them frequent and most of them rare. A
model of low rank does well on the frequent ones; SLEEC lets the nearest rows vote, and finds more of the rare
ones. Below two training positives there is nothing to learn from for either.
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
