"""What a method is, whose it is, and what it can take: the facts that ``labelgap methods`` lists."""

from __future__ import annotations

from typing import NamedTuple


class About(NamedTuple):
    """The facts about a method.

    Attributes
    ----------
    what : str
        What it does, in one line.
    paper : str
        Authors and year.
    missing_labels : bool
        An unknown cell is left out of what it learns from; a method without this refuses labels that have gaps.
    positives_only : bool
        Made for labels where only a yes is known.
    missing_features : bool
        Rows may have gaps too.
    graph : bool
        Takes a graph of rows or labels.
    fit, predict : str
        The time to learn and to score one row, in n rows, d features, z of them not 0 in all rows together, L labels,
        y positives in all rows together, k dimensions, T trees or learners.

    Examples
    --------
    >>> about = About("One classifier a label.", "Boutell et al. 2004", missing_labels=True, fit="z L", predict="d L")
    >>> about.handles
    ['missing labels']
    """

    what: str
    paper: str
    missing_labels: bool = False
    positives_only: bool = False
    missing_features: bool = False
    graph: bool = False
    fit: str = ""
    predict: str = ""

    @property
    def handles(self) -> list[str]:
        """The names of what it can take."""
        marks = ("missing_labels", "positives_only", "missing_features", "graph")
        return [name.replace("_", " ") for name in marks if getattr(self, name)]
