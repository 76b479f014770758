"""How strong a penalty

`tune` tries penalties on held-out rows and keeps a table of their scores, which `PathDisplay` draws. The objective is
a sum over known cells: if fewer cells are known, the same penalty weighs more, and the best one is smaller. A ring
marks the penalty that `tune` chose.
"""

import numpy as np

from labelgap import LEML, PathDisplay, hide_cells
from labelgap.datasets import make_low_rank
from labelgap.displays import new_figure
from labelgap.model_selection import tune

data = make_low_rank(600, 60, 30, rank=5, labels_per_row=4, noise=0.5, random_state=0)
grid = {"alpha": np.geomspace(1, 300, 12).round(1).tolist()}

figure, (ax,) = new_figure()
paths = {}
for share in (1.0, 0.3):
    known = hide_cells(data.Y, share, random_state=0)
    model = LEML(15, random_state=0)
    found = tune(model, data.X, known, grid=grid, metric="AUC", random_state=0)
    name = f"{share:.0%} of the cells known"
    paths[share] = PathDisplay.from_selection(found, name=name, ax=ax)
