"""Training with 80 % of the positives missing: labelgap compared with other packages.

Run as ``python -m benchmarks.missing_positives`` with LABELGAP_DATA set. Each positive of the training set is kept
with probability 0.2, for several random masks; all methods get the same masks and rows of unit length. Test labels
are complete; test rows without labels are left out. Differences are paired by mask, and ± is the standard error over
the masks. Peers that need other versions of NumPy or SciPy can run in their own environment: ``--cache FILE`` stores
results, and a later run adds only those that are missing.

A mask removes all labels of some rows. Peers would learn that such a row has no label, and most of them are better
without these rows (omikuji's trees by far), so they train on the rows that still have a label; with ``--rows all``
they train on all rows. labelgap always trains on all rows.
"""

from __future__ import annotations

import argparse
import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import normalised, show
from benchmarks.paired import Result, describe, figures, lead, values
from benchmarks.peers import CLASSIFIERS, Peer, Ranked, timed
from labelgap.datasets.file_io import write_compressed
from labelgap.metrics import precision_at_k
from labelgap.observations import hide_positives

# The factors that the one-class paper uses on each set (its tables Supp-2 and Supp-3).
N_COMPONENTS = {"bibtex": 150, "delicious": 300, "mediamill": 100, "eurlex": 500}
N_SPLITS = {"eurlex": 1}  # where a fit takes a minute, parameters are chosen on one split
DEPTHS = (1, 3, 5)
MEASURES = [f"P@{k}" for k in DEPTHS]
OURS = "labelgap OneClassMFCV"


@dataclass
class Cache:
    """Results by data set, mask and method, stored in a JSON file, or only in memory without a path."""

    path: Path | None = None
    results: dict[str, Result] = field(default_factory=dict)

    @classmethod
    def at(cls, path: Path | None) -> Cache:
        """Return the cache stored in a file, or an empty one if the file does not exist."""
        return cls(path, json.loads(path.read_text()) if path is not None and path.exists() else {})

    def put(self, key: str, result: Result) -> None:
        """Store a result and write the file."""
        self.results[key] = result
        if self.path is not None:
            with write_compressed(self.path) as stream:
                stream.write(json.dumps(self.results, indent=1, sort_keys=True).encode())


@dataclass(frozen=True)
class Task:
    """A data set under one mask."""

    name: str
    keep: float
    seed: int
    rows: str
    X_train: Any
    Y_train: Any
    X_test: Any
    Y_test: Any

    def key(self, method: str) -> str:
        """Return the key of a result; its checksum changes if a generator draws another mask."""
        mask = zlib.crc32(self.Y_train.indices.astype(np.int64).tobytes())
        return f"{self.name}, {self.keep:g} kept, seed {self.seed}, mask {mask:08x}, {self.rows} rows: {method}"

    def for_peers(self) -> tuple[Any, Any]:
        """Return the training rows and labels of the peers."""
        if self.rows == "all":
            return self.X_train, self.Y_train
        labelled = np.diff(self.Y_train.indptr) > 0
        return self.X_train[labelled], self.Y_train[labelled]

    def evaluate(self, ranked: Ranked) -> Result:
        """Return P@k in percent, and the seconds of training."""
        precisions = [100 * precision_at_k(self.Y_test, ranked.scores(), k) for k in DEPTHS]
        return {**dict(zip(MEASURES, precisions, strict=True)), "seconds": ranked.seconds}


def tasks(name: str, keep: float, n_seeds: int, rows: str) -> list[Task]:
    data, X_train, X_test = normalised(name)
    masks = [hide_positives(data.Y_train, keep, random_state=seed) for seed in range(n_seeds)]
    return [Task(name, keep, seed, rows, X_train, Y, X_test, data.Y_test) for seed, Y in enumerate(masks)]


def rank_by_ours(task: Task) -> Ranked:
    """Train OneClassMFCV; the seconds include the choice of its parameters on held-out training data."""
    from labelgap import OneClassMFCV

    splits = {"n_splits": N_SPLITS[task.name]} if task.name in N_SPLITS else {}
    model = OneClassMFCV(N_COMPONENTS.get(task.name, 100), random_state=task.seed, **splits)
    _, seconds = timed(lambda: model.fit(task.X_train, task.Y_train))
    return Ranked(model.predict_topk(task.X_test, max(DEPTHS))[0], seconds)


def result_of_peer(peer: Peer, task: Task, cache: Cache) -> Result | None:
    """Return the result of a peer from the cache or from a run; None if the peer cannot run."""
    key = task.key(peer.name)
    if key not in cache.results:
        if peer.unavailable():
            return None
        ranked = peer.rank(*task.for_peers(), task.X_test, max(DEPTHS))
        cache.put(key, {**task.evaluate(ranked), "version": peer.version()})
        print(f"{key}: {describe(cache.results[key], MEASURES)}", flush=True)
    return cache.results[key]


def result_of_ours(task: Task, cache: Cache) -> Result:
    """Return the result of labelgap from the cache or from a run; it does not depend on ``--rows``."""
    key = replace(task, rows="all").key(OURS)
    if key not in cache.results:
        cache.put(key, task.evaluate(rank_by_ours(task)))
        print(f"{key}: {describe(cache.results[key], MEASURES)}", flush=True)
    return cache.results[key]


def collect(name: str, options: argparse.Namespace, cache: Cache) -> dict[str, list[Result]]:
    """Return the results of all methods that have a result for each mask."""
    results_by_method: dict[str, list[Result]] = {}
    for task in tasks(name, options.keep, options.seeds, options.rows):
        for peer in options.peers:
            result = result_of_peer(peer, task, cache)
            if result is not None:
                results_by_method.setdefault(peer.name, []).append(result)
        if options.ours:
            results_by_method.setdefault(OURS, []).append(result_of_ours(task, cache))
    return {method: results for method, results in results_by_method.items() if len(results) == options.seeds}


def row(method: str, results: list[Result], ours: list[Result] | None) -> list[str]:
    """Return a table row: the figures of a method, then the lead of labelgap over it."""
    leads = [] if ours is None or ours is results else lead(ours, results, MEASURES)
    return [method, f"{values(results, 'seconds').mean():.1f}", *figures(results, MEASURES), *leads]


def report(name: str, results_by_method: dict[str, list[Result]], options: argparse.Namespace) -> None:
    lines = [row(method, results, results_by_method.get(OURS)) for method, results in results_by_method.items()]
    lines += [[peer.name, peer.unavailable()] for peer in options.peers if peer.name not in results_by_method]
    header = ["method", "train s", *MEASURES, *(f"labelgap − method, {measure}" for measure in MEASURES)]
    show(f"{name}, {options.keep:.0%} of the positives kept, mean of {options.seeds} masks", header, lines)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", nargs="+", default=list(N_COMPONENTS), metavar="NAME")
    parser.add_argument("--keep", type=float, default=0.2, help="share of positives that are kept")
    parser.add_argument("--seeds", type=int, default=3, help="number of masks")
    parser.add_argument("--rows", choices=("labelled", "all"), default="labelled", help="training rows of the peers")
    names = [peer.name for peer in CLASSIFIERS]
    parser.add_argument("--peers", nargs="*", default=names, choices=names, metavar="NAME", help=", ".join(names))
    parser.add_argument("--ours", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--cache", type=Path, help="JSON file that stores results")
    options = parser.parse_args(arguments)
    options.peers = [peer for peer in CLASSIFIERS if peer.name in options.peers]
    return options


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    cache = Cache.at(options.cache)
    for name in options.datasets:
        report(name, collect(name, options, cache), options)


if __name__ == "__main__":
    main()
