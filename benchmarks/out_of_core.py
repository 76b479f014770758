"""Memory and time of LEML on a folder of shards whose features are larger than the memory that the fit takes.

``python -m benchmarks.out_of_core --rows 2000000 --features 1000000 --labels 500000 --k 100 --memory 4096``
generates shards (random columns, no signal: only time and memory mean something), fits ``--alternations``
alternations of LEML within ``--memory`` megabytes and predicts 1,000 rows. It prints the bytes of X, the peak of
anonymous memory (mapped files do not count) above that before the fit, and the seconds of an alternation.
``--compare`` also fits the same rows in memory, and once more from shards whose pages are dropped before every
product, as on a machine without memory to cache them; and it reads the files of X once.
"""

from __future__ import annotations

import argparse
import mmap
import os
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from labelgap import LEML
from labelgap.datasets import Table, read_shards, write_shards
from labelgap.kernels import cpu
from labelgap.runtime import limit_memory

ROWS_PER_SHARD = 1 << 16
LABELS_PER_ROW = 5
MADV_PAGEOUT = 21  # Linux 5.4: write dirty pages of a mapping to its file, and drop all of them


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


class Products:
    """The number of products with X or its transpose in a block; ``cold`` drops their pages before each."""

    def __init__(self, X, cold):
        self.count, self.nnz, self.cold, self.dropping = 0, X.nnz, cold, 0.0

    def __enter__(self):
        self._spmm = cpu.spmm

        def spmm(A, B):
            if A.nnz == self.nnz:
                self.count += 1
                if self.cold:
                    start = time.perf_counter()
                    drop_pages(A.data)
                    drop_pages(A.indices)
                    self.dropping += time.perf_counter() - start
            return self._spmm(A, B)

        cpu.spmm = spmm
        return self

    def __exit__(self, *error):
        cpu.spmm = self._spmm


def drop_pages(array):
    """Drop the pages of a mapped array, so that its next use reads the file."""
    while isinstance(array, np.ndarray):
        array = array.base
    if isinstance(array, mmap.mmap):
        array.madvise(MADV_PAGEOUT)


def read_once(folder):
    """Return the seconds to read the files of X from the disk, without the page cache."""
    paths = sorted(folder.glob("X.*.npy"))
    for path in paths:
        with open(path, "rb") as stream:
            os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    start = time.perf_counter()
    for path in paths:
        with open(path, "rb", buffering=0) as stream:
            while stream.read(1 << 24):
                pass
    return time.perf_counter() - start


def measure(name, X, Y, options, *, cold=False):
    """Fit and predict; print peak and seconds."""
    before, moments = anonymous_bytes(), []
    model = LEML(
        options.k,
        init="random",
        device="cpu",
        max_iter=options.alternations,
        tol=0.0,
        random_state=0,
        callbacks=[lambda iteration: moments.append((time.perf_counter(), time.process_time()))],
    )
    moments.append((time.perf_counter(), time.process_time()))
    with Peak() as peak, Products(X, cold) as products, limit_memory(options.memory * 10**6 or None):
        model.fit(X, Y)
        moments.append((time.perf_counter(), time.process_time()))
        model.predict_topk(X[:1000], 5)
    factors = model.feature_factors_.nbytes + model.label_factors_.nbytes
    (fit, fit_cpu), (last, last_cpu) = (np.subtract(moments[-1], moments[0]), np.subtract(moments[-2], moments[-3]))
    predict = time.perf_counter() - moments[-1][0]
    print(
        f"{name}: peak of anonymous memory {(peak.bytes - before) / 1e6:,.0f} MB, of which factors "
        f"{factors / 1e6:,.0f} MB; fit {fit:.1f} s ({fit_cpu:.1f} s of processor time), last alternation "
        f"{last:.1f} s ({last_cpu:.1f} s), 1,000 rows predicted in {predict:.1f} s; {products.count} products, "
        f"{products.dropping:.1f} s to drop their pages; F {model.objective_[-1]:.8g}",
        flush=True,
    )


def main():
    """Generate, fit, predict and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, value in (("rows", 300_000), ("features", 100_000), ("labels", 2_000), ("nnz", 100), ("k", 10)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--alternations", type=int, default=2)
    parser.add_argument("--memory", type=int, default=0, help="megabytes for intermediate results")
    parser.add_argument("--compare", action="store_true")
    parser.add_argument("--folder", type=Path, help="where shards are kept; a temporary folder by default")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary) / "shards"
        if not folder.exists():
            write_shards(folder, draw_shards(options.rows, options.features, options.labels, options.nnz))
            os.sync()
        table = read_shards(folder)
        features = sum(part.nbytes for part in (table.X.data, table.X.indices, table.X.indptr))
        print(
            f"X {table.X.shape}, Y {table.Y.shape}, {features / 1e6:,.0f} MB of X mapped; k = {options.k}", flush=True
        )
        if options.compare:
            with limit_memory(options.memory * 10**6 or None):  # compile the loops before the first measurement
                LEML(options.k, init="random", device="cpu", max_iter=1).fit(table.X[:4000], table.Y[:4000])
            seconds = read_once(folder)
            print(f"the files of X are read in {seconds:.2f} s")
            measure("shards, no page cached", table.X, table.Y, options, cold=True)
        measure("shards", table.X, table.Y, options)
        if options.compare:
            measure("memory", sp.csr_array(table.X, copy=True), table.Y, options)


if __name__ == "__main__":
    main()
