"""When features are missing too

Features and labels are both known only in part. `MC1` completes them together, as one matrix of low rank: the known
labels of a row help to fill its features, and vice versa. It is compared with one support vector machine per label,
on features filled with their means. The errors are those of the hidden labels, averaged over two draws.
"""

import numpy as np
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline

from labelgap import MC1, LabelwiseSVM, make_completion
from labelgap.displays import new_figure
from labelgap.metrics import label_error

shares = [0.1, 0.2, 0.3, 0.4]
errors = {name: np.zeros(4) for name in ("MC-1", "means, then one SVM per label")}
draws = 2
for place, share in enumerate(shares):
    for draw in range(draws):
        holes = make_completion(300, 20, 20, rank=4, observed=share, random_state=draw)
        together = MC1(mu=1e-3).fit(holes.X, holes.Y)
        means = SimpleImputer(keep_empty_features=True)
        apart = make_pipeline(means, LabelwiseSVM(C=0.1)).fit(holes.X, holes.Y)
        for name, labels in zip(errors, (together.labels_, apart.predict(holes.X))):
            error = label_error(holes.Y_true, labels, holes.hidden_labels)
            errors[name][place] += error / draws

figure, (ax,) = new_figure()
for name, values in errors.items():
    ax.plot([100 * share for share in shares], values, marker="o", label=name)
ax.set(xlabel="known cells of features and labels, %", ylabel="error of the hidden labels, %")
ax.set_ylim(bottom=0)
ax.legend()
