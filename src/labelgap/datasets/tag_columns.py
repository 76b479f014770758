"""Columns of tags in the forms in which people write them.

A form is a separator, such as "," or " ", or the name of a notation:

======  =======================================================================
json    ``["red wine", "cheese"]``
python  ``['red wine', 'cheese']``, as pandas writes a list, a tuple or a set; also ``[np.str_('cheese')]``
<>      ``<red-wine><cheese>``
======  =======================================================================
"""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

SEPARATORS = (",", ";", "|")
MIN_CELLS, MIN_SHARE = 10, 0.9  # a notation that this share of the cells has is an error in the others

_TEXT = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""
_ITEM = re.compile(rf"\s*(?:np\.str_\(({_TEXT})\)|({_TEXT}|-?\d+))\s*,?\s*", re.DOTALL)
_BRACKETS = {"[": "]", "(": ")", "{": "}"}
_ANGLES = re.compile(r"\s*<([^<>]+)>\s*")


def split_tags(values: Sequence[Any], form: str | None = None) -> list[list[str]]:
    """Return the tags of each row without duplicates; the form of the strings is detected by default.

    A column of JSON or Python lists is read as such whatever the separator.

    >>> split_tags(["a b", "b", None])
    [['a', 'b'], ['b'], []]
    >>> split_tags(["red wine, cheese", ["a b"]])
    [['red wine', 'cheese'], ['a b']]
    >>> split_tags(['["red, dry", "wine"]', "[]", ""])
    [['red, dry', 'wine'], [], []]
    >>> split_tags(["['a b', 'c']"]), split_tags(["<a-b><c>"])
    ([['a b', 'c']], [['a-b', 'c']])
    """
    form = form or detect_form(values)
    if form not in NOTATIONS:
        form = next((name for name in ("json", "python") if _count_readable(name, values)[0] == 1), form)

    def split(number: int, value: Any) -> Iterable[Any]:
        if value is None or (isinstance(value, float) and math.isnan(value)):
            return []
        if not isinstance(value, str):
            return value if isinstance(value, Iterable) else [value]
        if form not in NOTATIONS:
            return value.split(None if form in (" ", "") else form)
        tags = NOTATIONS[form](value) if value.strip() else []
        if tags is None:
            raise ValueError(
                f"row {number} (counted from 0): the tags {value[:60]!r} are not of the form {form!r}; correct it."
            )
        return tags

    lists = ([str(part).strip() for part in split(number, value)] for number, value in enumerate(values))
    return [list(dict.fromkeys(tag for tag in tags if tag)) for tags in lists]


def detect_form(values: Sequence[Any]) -> str:
    """Return the form of a column of tags: a notation, the separator that most cells have, or " ".

    A column without strings has the form "".

    >>> detect_form(["red wine, cheese", None]), detect_form(["a b"]), detect_form([["a"]])
    (',', ' ', '')
    >>> detect_form(['["a"]']), detect_form(["['a']", '["it\\'s"]']), detect_form(["<a><b>"])
    ('json', 'python', '<>')
    """
    texts = [value for value in values if isinstance(value, str) and value.strip()]
    for name in NOTATIONS:
        share, number, odd = _count_readable(name, values)
        if share == 1:
            return name
        if share >= MIN_SHARE and len(texts) >= MIN_CELLS:
            raise ValueError(
                f"row {number} (counted from 0): the tags {odd[:60]!r} are not written like those of other rows, "
                f"which are in the form {name!r}; correct the row, or pass the separator (--separator)."
            )
    counts = {mark: sum(mark in text for text in texts) for mark in SEPARATORS}
    best = max(SEPARATORS, key=lambda mark: counts[mark])
    return best if counts[best] else " " if texts else ""


def choose_form(values: Sequence[Any], preferred: str, names: Iterable[str]) -> str:
    """Return the preferred form of a column, or the detected form if more of its tags are among ``names``.

    >>> choose_form(["red wine"], ",", ["red wine"]), choose_form(["<a><b>"], " ", ["a", "b"])
    (',', '<>')
    """
    detected = detect_form(values)
    if not preferred or detected in (preferred, ""):
        return preferred or detected
    known = set(names)

    def count_known(form: str) -> int:
        try:
            return sum(tag in known for tags in split_tags(values, form) for tag in tags)
        except ValueError:
            return -1

    return preferred if count_known(preferred) >= count_known(detected) else detected


def join_tags(tags: Sequence[str], form: str, joint: str | None = None) -> str:
    """Return tags as a string of a form; ``joint`` replaces the separator, such as ", " for ",".

    >>> join_tags(["a b", "c"], "json"), join_tags(["a b", "c"], "python"), join_tags(["a", "c"], "<>")
    ('["a b", "c"]', "['a b', 'c']", '<a><c>')
    >>> join_tags(["a b", "c"], ",", ", ")
    'a b, c'
    """
    if form == "json":
        return json.dumps(list(tags), ensure_ascii=False)
    if form == "python":
        return repr(list(tags))
    if form == "<>":
        return "".join(f"<{tag}>" for tag in tags)
    return (joint or form or " ").join(tags)


def _count_readable(name: str, values: Sequence[Any]) -> tuple[float, int, str]:
    """Return the share of the strings that are in a notation, and the row and text of the first that is not."""
    total = readable = 0
    number, odd = -1, ""
    for row, value in enumerate(values):
        if not isinstance(value, str) or not value.strip():
            continue
        total += 1
        if NOTATIONS[name](value) is not None:
            readable += 1
        elif number < 0:
            number, odd = row, value
        if total == MIN_CELLS and not readable:  # most columns have no notation
            break
    return (readable / total if total else 0.0), number, odd


def _parse_json_list(text: str) -> list[Any] | None:
    if not text.lstrip().startswith("["):
        return None
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):  # RecursionError: endlessly nested brackets
        return None
    return values if all(isinstance(value, str) or type(value) is int for value in values) else None


def _parse_python_list(text: str) -> list[Any] | None:
    """Return the items of a list, tuple or set of strings, also with blanks between them, as NumPy prints arrays."""
    text = text.strip()
    if text == "set()":
        return []
    if len(text) < 2 or _BRACKETS.get(text[0]) != text[-1]:
        return None
    inner, place, items = text[1:-1].strip(), 0, []
    while place < len(inner):
        match = _ITEM.match(inner, place)
        if match is None:
            return _parse_json_list(text)
        try:
            items.append(ast.literal_eval(match[1] or match[2]))
        except (SyntaxError, ValueError):  # an escape that is none
            return _parse_json_list(text)
        place = match.end()
    return items


def _parse_angles(text: str) -> list[Any] | None:
    tags, place = [], 0
    while place < len(text):
        match = _ANGLES.match(text, place)
        if match is None:
            return None
        tags.append(match.group(1))
        place = match.end()
    return tags


NOTATIONS: dict[str, Callable[[str], list[Any] | None]] = {
    "json": _parse_json_list,
    "python": _parse_python_list,
    "<>": _parse_angles,
}
