"""Published numbers beside ours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from labelgap.reproduce.records import Experiment, Row
from labelgap.reproduce.registry import Published
from labelgap.reproduce.study import Study


def beside(
    numbers: Sequence[Published],
    name: str,
    citation: str,
    title: str,
    *,
    x: str | None = None,
    notes: tuple[str, ...] = (),
) -> Experiment:
    """Return the experiment that fits each published number's setting and sets the two side by side."""

    def run(study: Study) -> Iterator[Row]:
        for number in numbers:
            if study.options.keeps(number.setting) and (row := study.compare(name, number)) is not None:
                yield row

    return Experiment(name, citation, title, run, lambda: [number.setting for number in numbers], x, notes)
