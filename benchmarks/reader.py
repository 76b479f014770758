"""Reading Eurlex from text: our parser against scikit-learn's.

Run as ``python -m benchmarks.reader`` with LABELGAP_DATA set. Both read an uncompressed file from the page cache; for
scikit-learn the header is dropped. Both results are compared before anything is timed.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from rich.console import Console
from rich.table import Table
from sklearn.datasets import load_svmlight_file
from sklearn.preprocessing import MultiLabelBinarizer

from benchmarks.common import best_of
from labelgap.datasets import read_xmc
from labelgap.datasets.files import read_bytes
from labelgap.runtime import n_threads, threads

SOURCE = ("eurlex", "eurlex_train.txt.xz")


def unpack(folder: Path) -> tuple[Path, Path]:
    """Write the training file with and without its header."""
    content = read_bytes(Path(os.environ["LABELGAP_DATA"], *SOURCE)).tobytes()
    with_header, without = folder / "with_header.txt", folder / "without_header.txt"
    with_header.write_bytes(content)
    without.write_bytes(content[content.index(b"\n") + 1 :])
    return with_header, without


def check_equal(ours: tuple[Any, Any], theirs: tuple[Any, Any]) -> None:
    """Refuse to time two readers that do not read the same."""
    classes = np.arange(ours[1].shape[1])
    labels = MultiLabelBinarizer(classes=classes, sparse_output=True).fit_transform(theirs[1])
    for mine, other in ((ours[0], theirs[0]), (ours[1], labels)):
        if mine.shape != other.shape or (sp.csr_array(mine) != sp.csr_array(other)).nnz:
            raise AssertionError("the two readers disagree")


def main() -> None:
    if "LABELGAP_DATA" not in os.environ:
        raise SystemExit("Set LABELGAP_DATA to the folder with the data sets.")
    with tempfile.TemporaryDirectory() as folder:
        with_header, without = unpack(Path(folder))

        def ours(n_jobs: int | None = None) -> Any:
            with threads(n_jobs):
                return read_xmc(with_header)

        def theirs() -> Any:
            return load_svmlight_file(without, n_features=5000, multilabel=True, zero_based=True, dtype=np.float32)

        check_equal(ours(), theirs())
        seconds = {
            "scikit-learn": best_of(theirs),
            "labelgap, 1 thread": best_of(lambda: ours(1)),
            f"labelgap, {n_threads()} threads": best_of(ours),
        }
        size = with_header.stat().st_size / 1e6
    table = Table("reader", "seconds", "MB/s", "ratio", title=f"Eurlex train, {size:.0f} MB of text")
    for name, second in seconds.items():
        table.add_row(name, f"{second:.3f}", f"{size / second:.0f}", f"{seconds['scikit-learn'] / second:.1f}")
    Console().print(table)


if __name__ == "__main__":
    main()
