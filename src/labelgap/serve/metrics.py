"""Counts and times in Prometheus' text format."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Histogram:
    """How many values are at most as large as each bound, and their sum.

    >>> sizes = Histogram((1, 2))
    >>> for value in (1, 2, 5):
    ...     sizes.add(value)
    >>> list(sizes.lines("rows", {"model": "a"}))[1]
    'rows_bucket{model="a",le="2"} 2'
    """

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def add(self, value: float) -> None:
        """Count a value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def lines(self, name: str, labels: Mapping[str, str]) -> Iterator[str]:
        """Yield it in the text format."""
        total = 0
        for bound, count in zip((*map(str, self._bounds), "+Inf"), self._counts, strict=True):
            total += count
            yield f"{name}_bucket{marks({**labels, 'le': bound})} {total}"
        yield f"{name}_sum{marks(labels)} {self._sum!r}"
        yield f"{name}_count{marks(labels)} {total}"


class Metrics:
    """What one process has answered, how quickly, and in which batches."""

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._seconds: defaultdict[str, Histogram] = defaultdict(lambda: Histogram(SECONDS))
        self._rows: defaultdict[str, Histogram] = defaultdict(lambda: Histogram(ROWS))
        self._queues: dict[str, Callable[[], int]] = {}

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request; a status of 0 is one that nobody waited for."""
        self._requests[method, route, status] += 1
        self._seconds[route].add(seconds)

    def watch(self, model: str, waiting: Callable[[], int]) -> Callable[[int], None]:
        """Ask ``waiting`` for the length of a model's queue; return what is to be told the rows of each batch."""
        self._queues[model] = waiting
        return self._rows[model].add

    def text(self) -> str:
        """Return everything in the text format."""
        return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        yield "# TYPE labelgap_requests_total counter"
        for (method, route, status), count in sorted(self._requests.items()):
            yield f"labelgap_requests_total{marks({'method': method, 'route': route, 'status': str(status)})} {count}"
        yield "# TYPE labelgap_request_seconds histogram"
        for route, seconds in sorted(self._seconds.items()):
            yield from seconds.lines("labelgap_request_seconds", {"route": route})
        yield "# TYPE labelgap_batch_rows histogram"
        for model, rows in sorted(self._rows.items()):
            yield from rows.lines("labelgap_batch_rows", {"model": model})
        yield "# TYPE labelgap_rows_waiting gauge"
        for model, waiting in sorted(self._queues.items()):
            yield f"labelgap_rows_waiting{marks({'model': model})} {waiting()}"


def marks(labels: Mapping[str, str]) -> str:
    r"""Return labels in braces, escaped.

    >>> marks({"model": 'a"b\n'})
    '{model="a\\"b\\n"}'
    """
    escaped = (
        (name, value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")) for name, value in labels.items()
    )
    return "{" + ",".join(f'{name}="{value}"' for name, value in escaped) + "}"
