"""A row of a table for a model of ours, and one for each package that a user would install instead."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from benchmarks.peers import CLASSIFIERS, Peer, timed
from labelgap.metrics import PrecisionAtK


class Measured(NamedTuple):
    """A method, its P@1, P@3 and P@5 in percent, the seconds of training, ms to rank a row, and MB of the model."""

    name: str
    p1: float
    p3: float
    p5: float
    seconds: float
    ms_a_row: float
    megabytes: float = float("nan")


def measure(name: str, model: Any, data: tuple[Any, Any, Any], test: Any) -> Measured:
    """Fit a model on (X, Y, X_new), and rank the rows of X_new."""
    X, Y, X_new = data
    fitted, seconds = timed(lambda: model.fit(X, Y))
    fitted.predict_topk(X_new[:100], 5)  # compiles
    found, asked = timed(lambda: fitted.predict_topk(X_new, 5))
    return Measured(name, *precision(test, found), seconds, 1000 * asked / X_new.shape[0], megabytes(fitted))


def measure_peers(
    data: tuple[Any, Any, Any], test: Any, skip: Collection[str] = (), peers: Collection[Peer] = CLASSIFIERS
) -> Iterator[Measured]:
    """Do the same with packages; one that is not there, or not wanted, is named and left out."""
    for peer in peers:
        reason = "left out" if peer.name in skip else peer.unavailable()
        if reason is not None:
            print(f"{peer.name}: {reason}")
            continue
        found = peer.rank(*data, 5)
        name, ms = f"{peer.name} ({peer.version()})", 1000 * found.asked / data[2].shape[0]
        yield Measured(name, *precision(test, found.scores()), found.seconds, ms)


def precision(test: Any, found: Any) -> tuple[float, float, float]:
    """Return P@1, P@3 and P@5 in percent."""
    p1, p3, p5 = (100 * PrecisionAtK(k).update(test, found).compute() for k in (1, 3, 5))
    return p1, p3, p5


def megabytes(model: Any) -> float:
    """Return the size of a model's file."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "model")
        model.save(path)
        return path.stat().st_size / 1e6
