"""The results table of the Extreme Classification Repository (as of 2020): P@1, P@3 and P@5 with every label known.

Ranks are those of the one-class paper and of the LEML authors' program: 150 on Bibtex, 300 on Delicious, 100 on
Mediamill, 256 on Eurlex.
"""

from __future__ import annotations

from labelgap_papers.experiments import read_published
from labelgap_papers.sleec_tables import RELEASED_NOTE
from labelgap_papers.study import make_comparison

_CITATION, _NUMBERS = read_published("repository")
_EMPTY = (
    "Test rows without labels count as 0, as in the repository: on Mediamill this is a factor of 0.958, "
    "elsewhere close to 1."
)
_NOTES = (_EMPTY, RELEASED_NOTE)

EXPERIMENTS = [
    make_comparison(_NUMBERS, "repository/table-1", _CITATION, "Every label known: P@1, P@3, P@5", notes=_NOTES)
]
