"""Tags that somebody forgot

Three in ten positives were never written down. `audit` ranks the absent labels by the probability that they were
forgotten, without being told which ones were. As long as the list is shorter than the number of forgotten labels,
most of it is right; a random list would be right once in eighteen times. The dashed line is what the audit expects:
the mean of its own probabilities.
"""

import numpy as np

from labelgap import LEML, audit, hide_positives
from labelgap.datasets import make_low_rank
from labelgap.displays import new_figure

data = make_low_rank(1000, 30, 25, rank=5, labels_per_row=4, noise=0.2, random_state=0)
written = hide_positives(data.Y, 0.7, random_state=0)
truth = data.Y.toarray() > 0

found = audit(data.X, written, LEML(5, random_state=0), random_state=0).missing
right = truth[found.rows, found.labels]
n_forgotten = data.Y.nnz - written.nnz
lengths = np.unique(np.geomspace(50, 2 * n_forgotten, 25).astype(int))
precision = np.array([right[:length].mean() for length in lengths])
expected = np.array([found.expected_precision(length) for length in lengths])
by_chance = n_forgotten / (truth.size - written.nnz)

figure, (ax,) = new_figure()
ax.plot(lengths, precision, marker="o", markersize=4, label="was indeed forgotten")
ax.plot(lengths, expected, linestyle="--", label="expected by the audit")
ax.axhline(by_chance, color="0.5", linestyle=":", label="by chance")
ax.axvline(n_forgotten, color="0.8", linewidth=1)
ax.text(n_forgotten, 0.09, "number forgotten ", rotation=90, ha="right", color="0.4")
ax.set(xscale="log", xlabel="length of the list", ylabel="share that was forgotten")
ax.set_ylim(0, 1.02)
ax.legend(loc="center left")
