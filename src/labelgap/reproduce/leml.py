"""LEML (Yu, Jain, Kar and Dhillon 2014): tables 3 to 15, figures 1, 2b, 2c and 3.

Protocol: rows of length one, a constant feature, α from validation on the training set and then a fit on all of it,
k = ⌊ratio · L⌋, missing labels by :func:`labelgap.hide_cells` with one mask for each seed. Hamming loss rounds at ½
for 0/1 targets and at 0 for ±1, which is a decision value above 0; AUC is the mean over test rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from labelgap.reproduce.beside import beside
from labelgap.reproduce.records import Experiment, Setting
from labelgap.reproduce.registry import published
from labelgap.reproduce.speedup import speedups

_CITATION, _NUMBERS = published("leml")

_SPLIT = "Bibtex and Delicious are split otherwise in the paper (its mean feature counts differ), Eurlex too."
_MISSING = "The paper's autofood, compphys, nus-wide and wiki are left out: labelgap has no source for them."
_SECONDS = "The paper's seconds are of 32 cores of 2013; compare them in order of magnitude only."
_NO_AXIS = "The figure's axis cannot be read from its text: P@3 as in table 12 is drawn."
_NO_AXIS_1 = "The figure's axis cannot be read from its text: P@3 as in table 7 is drawn."
_NO_NUMBERS = "The paper prints this figure without numbers, so there is nothing to subtract."

_TITLES = {
    3: "All labels known: LEML with three losses, and WSABIE",
    4: "Eurlex: five alternations of LEML, and WSABIE",
    5: "Missing labels: 20 % of the cells known, k = 0.4 L, squared loss",
    6: "All labels known: top-1 accuracy",
    7: "All labels known: top-3 accuracy",
    8: "All labels known: top-5 accuracy",
    9: "All labels known: Hamming loss",
    10: "All labels known: average AUC",
    11: "Missing labels: top-1 accuracy",
    12: "Missing labels: top-3 accuracy",
    13: "Missing labels: top-5 accuracy",
    14: "Missing labels: Hamming loss",
    15: "Missing labels: average AUC",
}


def _table(number: int) -> Experiment:
    numbers = [n for n in _NUMBERS if n.table == number]
    if number == 4:
        numbers = [replace(n, setting=replace(n.setting, iterations=5)) for n in numbers]
    notes = (_SPLIT, _MISSING, _SECONDS) if number == 4 else (_SPLIT, _MISSING)
    return beside(numbers, f"leml/table-{number}", _CITATION, _TITLES[number], notes=notes)


def _curve(name: str, title: str, x: str, on_curve: Callable[[Setting], bool]) -> Experiment:
    numbers = [n for n in _NUMBERS if n.table == 12 and n.setting.loss == "squared" and on_curve(n.setting)]
    return beside(numbers, f"leml/{name}", _CITATION, title, x=x, notes=(_NO_AXIS, _SPLIT, _MISSING))


def _reductions() -> Experiment:
    """Return figure 1: the methods that reduce dimensions by the squared loss, and BR, which has no rank."""
    numbers = [n for n in _NUMBERS if n.table == 7 and n.setting.loss == "squared"]
    lines = [replace(n, setting=replace(n.setting, method="BR"), value=None) for n in numbers if _is_leml(n.setting)]
    title = "All labels known, squared loss: P@3 over the rank, with BR for reference"
    notes = (_NO_AXIS_1, _SPLIT, _MISSING)
    return beside(numbers + lines, "leml/figure-1", _CITATION, title, x="k_ratio", notes=notes)


def _is_leml(setting: Setting) -> bool:
    return setting.method == "LEML"


EXPERIMENTS = [
    *(_table(number) for number in _TITLES),
    _reductions(),
    _curve("figure-2b", "Bibtex over the share of known cells, k = 0.4 L", "observed", lambda s: s.k_ratio == 0.4),
    _curve("figure-2c", "Bibtex over the rank, 20 % of the cells known", "k_ratio", lambda s: s.observed == 0.2),
    Experiment(
        "leml/figure-3",
        _CITATION,
        "Speed-up of gradient and Hessian product over cores",
        lambda study: speedups("leml/figure-3", study),
        lambda: [Setting(name, "LEML", "squared", 0.2, 0.4) for name in ("bibtex", "delicious")],
        "cores",
        (_NO_NUMBERS,),
    ),
]
