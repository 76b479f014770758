"""How fast a fit descends

`ObjectiveRecorder` is a callback that records the objective and the time after each alternation. LEML with logistic
loss is fitted to labels with gaps in three ways: with Newton's method and conjugate gradients, with a trust region
(both from the default start, leading singular vectors), and with the former from a random start. The plot shows how
far each is above the best objective of all. Seconds depend on the machine that built this page.
"""

import warnings

from sklearn.exceptions import ConvergenceWarning

from labelgap import LEML, ObjectiveDisplay, ObjectiveRecorder, hide_cells
from labelgap.datasets import make_low_rank
from labelgap.displays import new_figure

data = make_low_rank(1000, 50, 30, rank=5, labels_per_row=4, noise=0.2, random_state=0)
known = hide_cells(data.Y, 0.4, random_state=0)
ways = {
    "Newton–CG": {"solver": "cg"},
    "trust region": {"solver": "tron"},
    "Newton–CG, random start": {"solver": "cg", "init": "random"},
}


def follow(max_iter, **options):
    """Fit with a recorder, and return what it noted."""
    record = ObjectiveRecorder()
    model = LEML(5, loss="logistic", tol=0, max_iter=max_iter, random_state=0, **options)
    model.set_params(callbacks=[record]).fit(data.X, known)
    return record


with warnings.catch_warnings():
    warnings.simplefilter("ignore", ConvergenceWarning)  # max_iter is what ends these fits
    for options in ways.values():
        follow(1, **options)  # the first fit compiles
    records = {name: follow(12, **options) for name, options in ways.items()}

figure, (ax,) = new_figure()
best = min(min(record.objective) for record in records.values())
for name, record in records.items():
    ObjectiveDisplay.from_history(record, best=best, name=name, ax=ax)
