"""Other packages on stored features: fit, probabilities of test rows, seconds; run by ``benchmarks.front_door``.

    python benchmarks/front_door_peers.py {napkinXC,omikuji,scikit-learn} DATA.npz OUT.npz

DATA holds the arrays of CSR matrices X, Y and T, the test rows. OUT gets dense scores in [0, 1], and the seconds and
the peak memory (MB) of the fit. The script needs NumPy, SciPy and the package, but not labelgap.
"""

from __future__ import annotations

import resource
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import scipy.sparse as sp


def run_napkinxc(X: Any, Y: Any, T: Any, folder: Path) -> Any:
    """Fit a probabilistic label tree of napkinXC with its defaults; return a function of rows."""
    from napkinxc.models import PLT

    model = PLT(str(folder / "plt"), seed=0, verbose=False)
    model.fit(X, [row.tolist() for row in np.split(Y.indices, Y.indptr[1:-1])])
    return lambda rows: model.predict_proba(rows, top_k=50)


def run_omikuji(X: Any, Y: Any, T: Any, folder: Path) -> Any:
    """Fit omikuji's trees with their defaults; return a function of rows."""
    import omikuji

    path = folder / "train.txt"
    with path.open("w") as file:
        print(X.shape[0], X.shape[1], Y.shape[1], file=file)
        for i in range(X.shape[0]):
            labels = ",".join(map(str, Y.indices[Y.indptr[i] : Y.indptr[i + 1]]))
            part = slice(X.indptr[i], X.indptr[i + 1])
            cells = " ".join(f"{j}:{v:.6g}" for j, v in zip(X.indices[part], X.data[part], strict=True))
            print(labels, cells, file=file)
    model = omikuji.Model.train_on_data(str(path), omikuji.Model.default_hyper_param())

    def predict(rows: Any) -> list[list[tuple[int, float]]]:
        parts = (slice(rows.indptr[i], rows.indptr[i + 1]) for i in range(rows.shape[0]))
        pairs = (list(zip(rows.indices[p].tolist(), rows.data[p].tolist(), strict=True)) for p in parts)
        return [model.predict(row, top_k=50) for row in pairs]

    return predict


def run_sklearn(X: Any, Y: Any, T: Any, folder: Path) -> Any:
    """Fit calibrated linear support vector machines one-vs-rest; return a function of rows."""
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.svm import LinearSVC

    models: list[Any] = []
    columns = sp.csc_array(Y)
    for j in range(Y.shape[1]):
        y = columns[:, [j]].toarray().ravel() > 0
        folds = min(3, int(y.sum()), int((~y).sum()))
        if folds < 2:  # too few positives for a calibration: their share
            models.append(float(y.mean()))
            continue
        models.append(CalibratedClassifierCV(LinearSVC(), cv=folds).fit(X, y))

    def predict(rows: Any) -> Any:
        scores = [m if isinstance(m, float) else m.predict_proba(rows)[:, 1] for m in models]
        return np.column_stack([np.broadcast_to(s, rows.shape[0]) for s in scores])

    return predict


PEERS = {"napkinXC": run_napkinxc, "omikuji": run_omikuji, "scikit-learn": run_sklearn}


def main() -> None:
    name, source, target = sys.argv[1:]
    with np.load(source) as data:
        X, Y, T = (
            sp.csr_matrix((data[f"{k}_data"], data[f"{k}_indices"], data[f"{k}_indptr"]), tuple(data[f"{k}_shape"]))
            for k in "XYT"
        )
    with TemporaryDirectory() as folder:
        start = time.perf_counter()
        predict = PEERS[name](X, Y, T, Path(folder))
        seconds = time.perf_counter() - start
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        answer = predict(T)
    if not isinstance(answer, np.ndarray):
        scores = np.zeros((T.shape[0], Y.shape[1]))
        for i, row in enumerate(answer):
            for label, score in row:
                scores[i, label] = score
        answer = scores
    np.savez_compressed(target, scores=answer.astype(np.float32), seconds=seconds, megabytes=memory)


if __name__ == "__main__":
    main()
