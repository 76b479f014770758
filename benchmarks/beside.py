"""Table rows that compare a labelgap model with other packages."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from benchmarks.field import PEERS, Peer
from benchmarks.field_methods import Task, timed
from labelgap.metrics import PrecisionAtK


class Measured(NamedTuple):
    """A method, its P@1, P@3 and P@5 in percent, training seconds, ms to rank a row, and MB of the model."""

    name: str
    p1: float
    p3: float
    p5: float
    seconds: float
    ms_a_row: float
    megabytes: float = float("nan")


def measure(name: str, model: Any, data: tuple[Any, Any, Any], test: Any) -> Measured:
    """Fit a model on (X, Y) of ``data`` = (X, Y, X_new), and measure the ranking of X_new."""
    X, Y, X_new = data
    fitted, seconds = timed(lambda: model.fit(X, Y))
    fitted.predict_topk(X_new[:100], 5)  # compiles
    ranking, ranking_seconds = timed(lambda: fitted.predict_topk(X_new, 5))
    return Measured(
        name, *precision(test, ranking), seconds, 1000 * ranking_seconds / X_new.shape[0], megabytes(fitted)
    )


def measure_peers(
    data: tuple[Any, Any, Any], test: Any, skip: Collection[str] = (), peers: Collection[Peer] = PEERS
) -> Iterator[Measured]:
    """Measure other packages; print the name of each one that is skipped or not available, and why."""
    for peer in peers:
        reason = "skipped" if peer.name in skip else peer.unavailable()
        if reason is not None:
            print(f"{peer.name}: {reason}")
            continue
        ranked = peer.rank(Task(*data, 5))[0]
        name, ms = f"{peer.name} ({peer.version()})", 1000 * ranked.ranking_seconds / data[2].shape[0]
        yield Measured(name, *precision(test, ranked.scores()), ranked.seconds, ms, ranked.model_megabytes)


def precision(test: Any, ranking: Any) -> tuple[float, float, float]:
    """Return P@1, P@3 and P@5 in percent."""
    p1, p3, p5 = (100 * PrecisionAtK(k).update(test, ranking).compute() for k in (1, 3, 5))
    return p1, p3, p5


def megabytes(model: Any) -> float:
    """Return the size of a model file in megabytes."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "model")
        model.save(path)
        return path.stat().st_size / 1e6
