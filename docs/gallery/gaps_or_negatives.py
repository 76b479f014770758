"""A gap is not a "no"

Only some cells of a label matrix are known. The same model is fitted twice: once with the gaps as unknown, and once
with every gap read as a negative, as in most tools. The plot shows the precision at 3 on rows whose labels are all
known. If most cells are known, the two agree; if few are known, the difference is large.
"""

from labelgap import LEML, hide_cells
from labelgap.datasets import make_low_rank
from labelgap.displays import new_figure
from labelgap.metrics import precision_at_k

data = make_low_rank(1500, 40, 40, rank=6, labels_per_row=5, noise=0.2, random_state=0)
X, Y, X_test, Y_test = data.X[:1000], data.Y[:1000], data.X[1000:], data.Y[1000:]
shares = [0.05, 0.1, 0.2, 0.4, 0.8]

precision = {"gaps unknown": [], "gaps read as no": []}
for share in shares:
    known = hide_cells(Y, share, random_state=0)
    for meaning, labels in zip(precision, (known, known.positives)):
        model = LEML(6, random_state=0).fit(X, labels)
        precision[meaning].append(precision_at_k(Y_test, model.decision_function(X_test), k=3))

figure, (ax,) = new_figure()
for meaning, values in precision.items():
    ax.plot([100 * share for share in shares], values, marker="o", label=f"LEML, {meaning}")
ax.set(xscale="log", xlabel="known label cells, %", ylabel="precision at 3")
ax.set_xticks([100 * share for share in shares], [f"{100 * share:g}" for share in shares])
ax.minorticks_off()
ax.legend()
