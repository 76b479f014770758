"""Reading text: our parsers against those of other libraries.

Run as ``python -m benchmarks.reader``. The XMC part needs LABELGAP_DATA. ARFF is compared with scipy.io.arff, which
rejects sparse rows, and with liac-arff if it is installed. All readers read
an uncompressed file from the page cache, and their results are compared before anything is timed.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io.arff
import scipy.sparse as sp
from rich.console import Console
from rich.table import Table
from sklearn.datasets import load_svmlight_file
from sklearn.preprocessing import MultiLabelBinarizer

from benchmarks.common import best_of
from labelgap.datasets import read_arff, read_xmc, write_arff
from labelgap.datasets.file_io import read_bytes
from labelgap.runtime import n_threads, threads

EURLEX = ("eurlex", "eurlex_train.txt.xz")
ARFF_ROWS, ARFF_FEATURES, ARFF_LABELS, ARFF_DENSITY = 2000, 500, 20, 0.05


def unpack(folder: Path) -> tuple[Path, Path]:
    """Write the training file with and without its header."""
    content = read_bytes(Path(os.environ["LABELGAP_DATA"], *EURLEX)).tobytes()
    with_header, without = folder / "with_header.txt", folder / "without_header.txt"
    with_header.write_bytes(content)
    without.write_bytes(content[content.index(b"\n") + 1 :])
    return with_header, without


def check_equal(*pairs: tuple[Any, Any]) -> None:
    """Raise AssertionError if two readers disagree."""
    for ours, theirs in pairs:
        if ours.shape != theirs.shape or (sp.csr_array(ours) != sp.csr_array(theirs)).nnz:
            raise AssertionError("the two readers disagree")


def time_xmc(folder: Path) -> None:
    """Compare with scikit-learn's reader of svmlight, which reads the file without its header."""
    with_header, without = unpack(folder)

    def ours(n_jobs: int | None = None) -> Any:
        with threads(n_jobs):
            return read_xmc(with_header)

    def theirs() -> Any:
        return load_svmlight_file(without, n_features=5000, multilabel=True, zero_based=True, dtype=np.float32)

    (X, Y), (their_X, labels) = ours(), theirs()
    binarizer = MultiLabelBinarizer(classes=np.arange(Y.shape[1]), sparse_output=True)
    check_equal((X, their_X), (Y, binarizer.fit_transform(labels)))
    seconds = {
        "scikit-learn": best_of(theirs),
        "labelgap, 1 thread": best_of(lambda: ours(1)),
        f"labelgap, {n_threads()} threads": best_of(ours),
    }
    print_ratios("Eurlex train", with_header, seconds)


def read_scipy_arff(path: Path) -> sp.csr_array:
    """Read dense rows by SciPy; nominal values are bytes."""
    rows, _ = scipy.io.arff.loadarff(path)
    return sp.csr_array(np.column_stack([rows[name].astype(np.float32) for name in rows.dtype.names]))


def read_liac_arff(path: Path, sparse: bool) -> sp.csr_array:
    """Read rows by liac-arff."""
    import arff

    with open(path, encoding="utf-8") as stream:
        content = arff.load(stream, encode_nominal=True, return_type=arff.COO if sparse else arff.DENSE)
    width = len(content["attributes"])
    if not sparse:
        return sp.csr_array(np.array(content["data"], np.float32))
    values, rows, columns = content["data"]
    return sp.csr_array((np.array(values, np.float32), (rows, columns)), shape=(ARFF_ROWS, width))


def time_arff(folder: Path) -> None:
    """Compare on generated dense and sparse rows."""
    random = sp.random_array((ARFF_ROWS, ARFF_FEATURES), density=ARFF_DENSITY, rng=np.random.default_rng(0))
    X = sp.csr_array(random, dtype=np.float32)
    Y = sp.csr_array(np.random.default_rng(1).random((ARFF_ROWS, ARFF_LABELS)) < 0.1, dtype=np.float32)
    for sparse in (False, True):
        path = folder / f"{'sparse' if sparse else 'dense'}.arff"
        write_arff(path, X if sparse else X.toarray(), Y)
        readers: dict[str, Callable[[], Any]] = {}
        if not sparse:
            readers["scipy.io.arff"] = lambda path=path: read_scipy_arff(path)
        if find_spec("arff") is not None:
            readers["liac-arff"] = lambda path=path, sparse=sparse: read_liac_arff(path, sparse)
        ours = read_arff(path)
        for reader in readers.values():
            check_equal((sp.hstack([sp.csr_array(ours.X), ours.Y], "csr"), reader()))
        seconds = {name: best_of(reader) for name, reader in readers.items()}
        seconds["labelgap"] = best_of(lambda path=path: read_arff(path))
        print_ratios(f"ARFF, {'sparse' if sparse else 'dense'} rows", path, seconds)


def print_ratios(title: str, path: Path, seconds: dict[str, float]) -> None:
    """Print how many times faster than the first reader each one is."""
    size, first = path.stat().st_size / 1e6, next(iter(seconds.values()))
    table = Table("reader", "seconds", "MB/s", "ratio", title=f"{title}, {size:.1f} MB of text")
    for name, second in seconds.items():
        table.add_row(name, f"{second:.3f}", f"{size / second:.1f}", f"{first / second:.1f}")
    Console().print(table)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        time_arff(Path(folder))
        if "LABELGAP_DATA" not in os.environ:
            raise SystemExit("Set LABELGAP_DATA to the folder with the datasets to time Eurlex too.")
        time_xmc(Path(folder))


if __name__ == "__main__":
    main()
