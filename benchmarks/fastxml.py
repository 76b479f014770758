"""FastXML compared with omikuji's Parabel, and its precision by the number of trees.

Run as ``python -m benchmarks.fastxml [compare] [trees] [--sets SET …]``; rows of omikuji are left out if it is not
installed.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

import numpy as np

from benchmarks.beside import measure, measure_peers, precision
from benchmarks.common import normalised, show
from benchmarks.field import PEERS
from labelgap import FastXML
from labelgap.observations import as_labels

SETS = ("eurlex", "mediamill")
PARABEL = [peer for peer in PEERS if peer.name == "omikuji Parabel"]
COUNTS = (1, 2, 5, 10, 20, 50)


def warm_up() -> None:
    """Compile the kernels, or load compiled ones, so that no measured time includes it."""
    X = np.random.default_rng(0).random((50, 3))
    FastXML(2).fit(X, X > 0.5).predict_topk(X, 1)


def compare(sets: Sequence[str] = SETS) -> None:
    """Print P@k and the times of both methods, each on all cores, and their ratio."""
    warm_up()
    for name in sets:
        data, X, X_new = normalised(name)
        data_split, test = (X, data.Y_train, X_new), as_labels(data.Y_test)
        rows = [
            *measure_peers(data_split, test, peers=PARABEL),
            measure("FastXML", FastXML(random_state=0), data_split, test),
        ]
        first = rows[0]
        show(
            f"{name}, every label known",
            ("method", "P@1", "P@3", "P@5", "training, s", "ratio", "prediction, ms per row", "ratio", "model, MB"),
            [
                (*row[:5], row.seconds / first.seconds, row.ms_a_row, row.ms_a_row / first.ms_a_row, row.megabytes)
                for row in rows
            ],
        )


def trees(sets: Sequence[str] = SETS) -> None:
    """Print P@k of the first trees of a forest, for several numbers of trees."""
    for name in sets:
        data, X, X_new = normalised(name)
        test, model = as_labels(data.Y_test), FastXML(COUNTS[-1], random_state=0).fit(X, data.Y_train)
        roots, rows = model.roots_, []
        for count in COUNTS:
            model.roots_ = roots[:count]
            rows.append((count, *precision(test, model.predict_topk(X_new, 5))))
        show(f"{name}, FastXML", ("trees", "P@1", "P@3", "P@5"), rows)


PARTS: dict[str, Callable[..., None]] = {"compare": compare, "trees": trees}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], help="parts to run (default: all)")
    parser.add_argument("--sets", nargs="+", default=SETS)
    args = parser.parse_args()
    for name in args.parts or PARTS:
        PARTS[name](args.sets)


if __name__ == "__main__":
    main()
