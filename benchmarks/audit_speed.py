"""Time of an audit of texts: this version of labelgap and another one, in turns.

30 % of the tags of the Stack Exchange cooking set are removed; each version audits the texts with its default
``Tagger`` in a process of its own. The table shows the precision of the first 500 suggestions (only removed tags are
hits), processor seconds, which another busy process changes less than seconds, and their ratio.

    python -m benchmarks.audit_speed --against OTHER/src [--repeats 1] [--rows 15404]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import show

HEADER = ("version", "P@500", "seconds", "processor seconds", "share of the other's processor seconds")


def measure(rows: int, seed: int) -> dict[str, float]:
    """Run one audit and return its precision and times."""
    import scipy.sparse as sp

    from labelgap import Tagger, audit, hide_positives
    from labelgap.datasets import read_documents

    path = Path(os.environ["LABELGAP_DATA"]) / "stackexchange-text" / "cooking.csv.zip"
    documents = read_documents(path, ["title", "content"], tags="tags", least=5)
    texts, Y = documents.texts[:rows], sp.csr_array(documents.Y)[:rows]
    written = hide_positives(Y, 0.7, random_state=seed)
    Tagger().fit(texts[:200], written[:200])  # compiles the loops
    start, start_processor = time.perf_counter(), time.process_time()
    missing = audit(texts, written, Tagger(), random_state=seed).missing.first(500)
    seconds, processor = time.perf_counter() - start, time.process_time() - start_processor
    precision = float(np.mean(Y.toarray()[missing.rows, missing.labels]))
    return {"precision": precision, "seconds": seconds, "processor": processor}


def run(source: Path, rows: int, seed: int) -> dict[str, Any]:
    """Measure the version whose code is in a folder, in a new process."""
    here = Path(__file__).parents[1]
    code = f"import json; from benchmarks.audit_speed import measure; print(json.dumps(measure({rows}, {seed})))"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(source), str(here)])}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", type=Path, required=True)
    parser.add_argument("--rows", type=int, default=1 << 30)
    parser.add_argument("--repeats", type=int, default=1)
    options = parser.parse_args()
    versions = {"this": Path(__file__).parents[1] / "src", "other": options.against}
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in versions}
    for seed in range(options.repeats):
        for name, source in versions.items():
            results[name].append(run(source, options.rows, seed))
    means = {
        name: {field: float(np.mean([result[field] for result in parts])) for field in parts[0]}
        for name, parts in results.items()
    }
    rows = [(name, *mean.values(), mean["processor"] / means["other"]["processor"]) for name, mean in means.items()]
    show("Audit of cooking, 30 % of the tags removed", HEADER, rows)


if __name__ == "__main__":
    main()
