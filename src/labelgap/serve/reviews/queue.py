"""What to look at next: suggestions in order, by label, by document, or one by one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from labelgap.serve.reviews.store import Store, Suggestion

Kind = Literal["missing", "doubtful"]
Group = Literal["none", "label", "document"]
Order = Literal["probability", "uncertainty"]
Status = Literal["open", "skipped"]
LEAST = 0.1  # suggestions that are less likely than this are not asked about unless somebody wants them

Cell = tuple[int, str]

_GROUPS = {"label": "label", "document": "row"}
_ORDERS = {"probability": "probability DESC", "uncertainty": "abs(probability - 0.5)"}
_STATUSES = {
    "open": "NOT EXISTS (SELECT 1 FROM standing AS s WHERE s.row = kept.row AND s.label = kept.label)",
    "skipped": "(SELECT verdict FROM present AS s WHERE s.row = kept.row AND s.label = kept.label) = 'skip'",
}


@dataclass(frozen=True)
class Choice:
    """Which suggestions to show, and in which order.

    Groups come by the sum of their probabilities, over all that were suggested and not only the open ones, so that
    the order does not change while somebody works through it.
    """

    kind: Kind = "missing"
    group: Group = "none"
    order: Order = "probability"
    status: Status = "open"
    label: str | None = None
    row: int | None = None
    least: float = LEAST

    def page(self, store: Store, limit: int, after: Cell | None = None) -> list[Suggestion]:
        """Return some suggestions in order: the first ones, or those that follow the cell ``after``.

        That cell may be decided by now: its place does not depend on verdicts. Nothing follows a cell that is not
        suggested.
        """
        by = _GROUPS.get(self.group)
        kept, values = self._kept("" if by is None else f", sum(probability) OVER (PARTITION BY {by}) AS weight")
        order = [*([] if by is None else ["weight DESC", by]), _ORDERS[self.order], "id"]
        keys = ", ".join(map(_ascending, order))
        place = f"SELECT {keys} FROM {'suggestion' if by is None else 'kept'} WHERE row = ? AND label = ?"
        follows = "" if after is None else f"({keys}) > ({place}) AND "
        statement = f"{kept} SELECT row, label, kind, probability FROM kept WHERE {follows}{_STATUSES[self.status]}"
        found = store.select(f"{statement} ORDER BY {', '.join(order)} LIMIT ?", *values, *(after or ()), limit)
        return [Suggestion(*row) for row in found]

    def count(self, store: Store) -> tuple[int, float]:
        """Return how many there are, and how many of them are expected to be right."""
        kept, values = self._kept("")
        found = store.select(
            f"{kept} SELECT count(*), total(probability) FROM kept WHERE {_STATUSES[self.status]}", *values
        )
        return found[0][0], found[0][1]

    def labels(self, store: Store) -> list[tuple[str, int, float]]:
        """Return each label with how many suggestions it has and how many are expected to be right, most first."""
        kept, values = self._kept("")
        return store.select(
            f"{kept} SELECT label, count(*), sum(probability) FROM kept WHERE {_STATUSES[self.status]} "
            "GROUP BY label ORDER BY 3 DESC, 1",
            *values,
        )

    def _kept(self, further: str) -> tuple[str, list[Any]]:
        """Return the head of a query that holds what the filters leave, and its values."""
        filters: list[tuple[str, Any]] = [("kind = ?", self.kind), ("probability >= ?", self.least)]
        filters += [("label = ?", self.label)] if self.label is not None else []
        filters += [("row = ?", self.row)] if self.row is not None else []
        where = " AND ".join(condition for condition, _ in filters)
        return (
            f"WITH kept AS (SELECT id, row, label, kind, probability{further} FROM suggestion WHERE {where})",
            [value for _, value in filters],
        )


def _ascending(column: str) -> str:
    """Return what grows along a column of an order.

    >>> _ascending("weight DESC"), _ascending("id")
    ('-weight', 'id')
    """
    return f"-{column.removesuffix(' DESC')}" if column.endswith(" DESC") else column
