"""Tags that go together

LEML learns a vector for each label. Labels that depend on the same words have vectors of similar direction, and
`EmbeddingDisplay` places such labels near each other in the plane. The texts are invented: each is about one theme,
and consists of words of the theme and of its tags.
"""

import numpy as np

from labelgap import LEML, EmbeddingDisplay, Tagger
from labelgap.displays import PALETTE

themes = {
    "kitchen": ["baking", "soup", "grill", "salad", "bread", "spices"],
    "sport": ["football", "tennis", "running", "cycling", "chess", "rowing"],
    "music": ["piano", "opera", "jazz", "choir", "guitar", "drums"],
    "travel": ["trains", "hotels", "visa", "luggage", "beaches", "maps"],
}
tags = [tag for group in themes.values() for tag in group]
theme_of = np.repeat(np.arange(len(themes)), 6)
rng = np.random.default_rng(0)


def write_text():
    """Return a text of one theme, and the numbers of its tags."""
    theme = rng.integers(len(themes))
    size = rng.integers(1, 4)
    mine = rng.choice(np.flatnonzero(theme_of == theme), size, replace=False, p=rare_last)
    common = [f"{list(themes)[theme]}{word}" for word in rng.integers(12, size=6)]
    special = [f"{tags[tag]}{word}" for tag in mine for word in rng.integers(4, size=2)]
    return " ".join([*common, *special]), mine


rare_last = np.array([6, 5, 4, 3, 2, 1]) / 21
texts, given = zip(*(write_text() for _ in range(600)))
Y = np.zeros((len(texts), len(tags)), int)
for row, mine in zip(Y, given):
    row[mine] = 1

tagger = Tagger(LEML(8, alpha=0.3, random_state=0), label_names=tags).fit(texts, Y)
colours = [PALETTE[theme] for theme in theme_of]
display = EmbeddingDisplay.from_estimator(tagger, Y=Y, method="tsne", n_names=24, c=colours)
figure = display.figure_
