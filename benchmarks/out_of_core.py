"""Memory and time of LEML on a folder of shards whose features are larger than the memory that the fit takes.

``python -m benchmarks.out_of_core --rows 2000000 --features 1000000 --labels 500000 --folder BIG`` generates shards
(random columns, no signal: only time and memory mean something), fits ``--alternations`` alternations of LEML and
predicts 1,000 rows. It prints the bytes of X, the peak of anonymous memory (mapped files do not count) above that
before the fit, and the seconds of an alternation.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from labelgap import LEML
from labelgap.datasets import Table, read_shards, write_shards

ROWS_PER_SHARD = 1 << 16
LABELS_PER_ROW = 5


def draw_shards(n, d, L, nnz):
    """Yield shards of random rows."""
    for start in range(0, n, ROWS_PER_SHARD):
        rng, rows = np.random.default_rng(start), min(ROWS_PER_SHARD, n - start)
        yield f"shard {start}", Table(_draw(rng, rows, d, nnz), _draw(rng, rows, L, LABELS_PER_ROW, ones=True))


def _draw(rng, n, width, per_row, *, ones=False):
    """Return a matrix whose rows have at most ``per_row`` different columns."""
    indices = np.sort(rng.integers(width, size=(n, per_row), dtype=np.int32), axis=1).ravel()
    data = np.ones(n * per_row, np.float32) if ones else rng.random(n * per_row, np.float32)
    matrix = sp.csr_array((data, indices, np.arange(n + 1, dtype=np.int32) * per_row), shape=(n, width))
    matrix.sum_duplicates()
    if ones:
        matrix.data[:] = 1
    return matrix


def anonymous_bytes():
    """Return the anonymous memory of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith("RssAnon")))


class Peak:
    """The peak of anonymous memory in a block, looked at fifty times a second."""

    def __enter__(self):
        self.bytes, self._end = 0, threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def _watch(self):
        while not self._end.wait(0.02):
            self.bytes = max(self.bytes, anonymous_bytes())

    def __exit__(self, *error):
        self._end.set()
        self._thread.join()


def main():
    """Generate, fit, predict and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, value in (("rows", 300_000), ("features", 100_000), ("labels", 2_000), ("nnz", 100), ("k", 10)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--alternations", type=int, default=2)
    parser.add_argument("--folder", type=Path, help="where shards are kept; a temporary folder by default")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary) / "shards"
        if not folder.exists():
            write_shards(folder, draw_shards(options.rows, options.features, options.labels, options.nnz))
        table, before, moments = read_shards(folder), anonymous_bytes(), []
        model = LEML(
            options.k,
            init="random",
            max_iter=options.alternations,
            tol=0.0,
            random_state=0,
            callbacks=[lambda iteration: moments.append(time.perf_counter())],
        )
        start = time.perf_counter()
        with Peak() as peak:
            model.fit(table.X, table.Y)
            seconds = time.perf_counter() - start
            model.predict_topk(table.X[:1000], 5)
        features = sum(part.nbytes for part in (table.X.data, table.X.indices, table.X.indptr))
        print(f"X {table.X.shape}, {features / 1e6:,.0f} MB mapped; k = {options.k}")
        print(f"peak of anonymous memory above that before the fit: {(peak.bytes - before) / 1e6:,.0f} MB")
        print(f"fit {seconds:.1f} s; last alternation {moments[-1] - ([start, *moments])[-2]:.1f} s")


if __name__ == "__main__":
    main()
