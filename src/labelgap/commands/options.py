"""Options of the command line that come from the signatures of estimators."""

from __future__ import annotations

import difflib
import inspect
import json
from collections.abc import Sequence
from typing import Any

from labelgap.commands.terminal import WrongOption
from labelgap.estimators import MultiLabelEstimator
from labelgap.methods import list_classes

NOT_FOR_A_COMMAND = ("callbacks", "estimator", "label_names", "device")


def find_class(name: str) -> type[MultiLabelEstimator]:
    """Return the estimator of a name, or say which come near.

    >>> find_class("leml").__name__
    'LEML'
    >>> find_class("LEMN")
    Traceback (most recent call last):
        ...
    labelgap.commands.terminal.WrongOption: --method LEMN is not known; did you mean LEML? ...
    """
    classes = list_classes()
    by_lower = {known.lower(): known for known in classes}
    known = by_lower.get(name.lower())
    if known is None:
        near = difflib.get_close_matches(name.lower(), by_lower, 3)
        meant = f"did you mean {' or '.join(by_lower[one] for one in near)}? " if near else ""
        raise WrongOption(f"--method {name} is not known; {meant}`labelgap methods` lists them all.")
    return classes[known]


def parameters_of(cls: type) -> dict[str, Any]:
    """Return the parameters that the command line can set, with their defaults.

    >>> parameters_of(find_class("LEML"))["alpha"]
    1.0
    """
    signature = inspect.signature(cls.__init__)  # type: ignore[misc]
    return {
        name: parameter.default
        for name, parameter in signature.parameters.items()
        if name != "self" and name not in NOT_FOR_A_COMMAND
    }


def parse_options(cls: type, words: Sequence[str]) -> dict[str, Any]:
    """Return ``--name value`` pairs as parameters of an estimator.

    Values are JSON where they can be, else text; a flag without a value is true. ``--name=value`` works too.

    >>> parse_options(find_class("LEML"), ["--alpha", "0.5", "--loss=logistic", "--n-components", "20"])
    {'alpha': 0.5, 'loss': 'logistic', 'n_components': 20}
    >>> parse_options(find_class("LEML"), ["--alhpa", "1"])
    Traceback (most recent call last):
        ...
    labelgap.commands.terminal.WrongOption: --alhpa is no option of LEML; did you mean --alpha? ...
    """
    known, found, rest = parameters_of(cls), {}, [part for word in words for part in _halves(word)]
    while rest:
        word = rest.pop(0)
        name = word.removeprefix("--").replace("-", "_")
        if not word.startswith("--") or name not in known:
            raise WrongOption(_no_option(word, cls, list(known)))
        found[name] = _value(rest.pop(0)) if rest and not _is_option(rest[0]) else True
    return found


def _halves(word: str) -> list[str]:
    return word.split("=", 1) if word.startswith("--") and "=" in word else [word]


def _is_option(word: str) -> bool:
    return word.startswith("--")


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return {"true": True, "false": False, "none": None}.get(text.lower(), text)


def _no_option(word: str, cls: type, known: list[str]) -> str:
    names = [f"--{name.replace('_', '-')}" for name in known]
    near = difflib.get_close_matches(word, names, 1)
    meant = f" did you mean {near[0]}?" if near else ""
    return f"{word} is no option of {cls.__name__};{meant} It has {', '.join(names)}."


def make_estimator(method: str, words: Sequence[str], seed: int | None, jobs: int | None) -> MultiLabelEstimator:
    """Return an estimator of the command line's options."""
    cls = find_class(method)
    given = parse_options(cls, words)
    for name, value in (("random_state", seed), ("n_jobs", jobs)):
        if value is not None and name in parameters_of(cls):
            given.setdefault(name, value)
    return cls(**given)
