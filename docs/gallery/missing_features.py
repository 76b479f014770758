"""When features are missing too

Of features and labels alike only a share is known. `MC1` completes both together, as one matrix of low rank:
what is known of a row's labels helps to fill its features, and the other way round. Compared with it are
features filled with their means and a machine for each label. Errors are of the labels that were hidden, means
of two draws.
"""

import numpy as np
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline

from labelgap import MC1, LabelwiseSVM, make_completion
from labelgap.displays import new_figure
from labelgap.metrics import label_error

shares = [0.1, 0.2, 0.3, 0.4]
errors = {name: np.zeros(4) for name in ("MC-1", "means, then a machine for each label")}
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
