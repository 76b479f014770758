"""How the methods are fitted that the papers compare with; importing this registers them."""

from labelgap.reproduce.baselines import one_vs_all, ranking, reductions, trees  # noqa: F401
