"""Published numbers beside ours."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from labelgap.reproduce.records import Experiment, Row
from labelgap.reproduce.registry import Published
from labelgap.reproduce.study import Study


def beside(
    numbers: Sequence[Published],
    name: str,
    citation: str,
    title: str,
    *,
    x: str | tuple[str, ...] | None = None,
    notes: tuple[str, ...] = (),
    baseline: Callable[[Published], Published] | None = None,
) -> Experiment:
    """Return the experiment that fits each published number's setting and sets the two side by side.

    With ``baseline``, which gives the number that another is measured against, both sides are gains in percent.
    """

    def row_of(study: Study, number: Published) -> Row | None:
        row = study.compare(name, number)
        if baseline is None or row is None:
            return row
        base = study.compare(name, baseline(number))
        return None if base is None else gain(row, base)

    def run(study: Study) -> Iterator[Row]:
        for number in numbers:
            if study.options.keeps(number.setting) and (row := row_of(study, number)) is not None:
                yield row

    settings = [number.setting for number in numbers]
    return Experiment(name, citation, title, run, lambda: settings, x, notes, numbers=numbers)


def gain(row: Row, base: Row) -> Row:
    """Return by how many percent a row exceeds another, seed by seed.

    >>> from labelgap.reproduce.records import Setting
    >>> found = gain(
    ...     Row("x", Setting("a", "LR-wSQ", "logistic"), "P@5", 33.0, (44.0,)),
    ...     Row("x", Setting("a", "SQ-SQ", "squared"), "P@5", 30.0, (40.0,)),
    ... )
    >>> found.metric, round(found.paper, 9), round(found.ours, 9)
    ('gain in P@5, %', 10.0, 10.0)
    """
    return replace(
        row,
        metric=f"gain in {row.metric}, %",
        paper=None if row.paper is None or base.paper is None else _percent(row.paper, base.paper),
        values=tuple(map(_percent, row.values, base.values)),
        seconds=row.seconds + base.seconds,
    )


def _percent(value: float, base: float) -> float:
    return 100 * (value / base - 1)
