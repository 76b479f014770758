"""FastXML beside omikuji's Parabel, and what more trees bring.

Run as ``python -m benchmarks.fastxml [beside] [trees] [--sets SET …]``; without omikuji its rows are left out.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

import numpy as np

from benchmarks.beside import measure, measure_peers, precision
from benchmarks.common import normalised, show
from benchmarks.peers import CLASSIFIERS
from labelgap import FastXML
from labelgap.observations import as_labels

SETS = ("eurlex", "mediamill")
PARABEL = [peer for peer in CLASSIFIERS if peer.name == "omikuji Parabel"]
COUNTS = (1, 2, 5, 10, 20, 50)


def warm_up() -> None:
    """Compile, or load what was compiled before, so that no time below is that of it."""
    X = np.random.default_rng(0).random((50, 3))
    FastXML(2).fit(X, X > 0.5).predict_topk(X, 1)


def beside(sets: Sequence[str] = SETS) -> None:
    """Print P@k, the times of both and their ratio, each on all cores, one after the other."""
    warm_up()
    for name in sets:
        data, X, X_new = normalised(name)
        given, test = (X, data.Y_train, X_new), as_labels(data.Y_test)
        rows = [*measure_peers(given, test, peers=PARABEL), measure("FastXML", FastXML(random_state=0), given, test)]
        first = rows[0]
        show(
            f"{name}, every label known",
            ("method", "P@1", "P@3", "P@5", "training, s", "ratio", "prediction, ms a row", "ratio", "model, MB"),
            [
                (*row[:5], row.seconds / first.seconds, row.ms_a_row, row.ms_a_row / first.ms_a_row, row.megabytes)
                for row in rows
            ],
        )


def trees(sets: Sequence[str] = SETS) -> None:
    """Print P@k of the first trees of a forest."""
    for name in sets:
        data, X, X_new = normalised(name)
        test, model = as_labels(data.Y_test), FastXML(COUNTS[-1], random_state=0).fit(X, data.Y_train)
        roots, rows = model.roots_, []
        for count in COUNTS:
            model.roots_ = roots[:count]
            rows.append((count, *precision(test, model.predict_topk(X_new, 5))))
        show(f"{name}, FastXML", ("trees", "P@1", "P@3", "P@5"), rows)


PARTS: dict[str, Callable[..., None]] = {"beside": beside, "trees": trees}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], help="all of them by default")
    parser.add_argument("--sets", nargs="+", default=SETS)
    given = parser.parse_args()
    for name in given.parts or PARTS:
        PARTS[name](given.sets)


if __name__ == "__main__":
    main()
