"""The methods of :mod:`benchmarks.field`, labelgap's and other packages', each behind one function.

    python benchmarks/field_methods.py METHOD DATA.npz OUT.npz

runs one method in a process of its own, so that memory is that of the method, and so that other packages can have an
environment of their own (``make peers``): the script needs NumPy, SciPy and the package, and labelgap only for its
own methods. Parameters are the defaults of each package unless DATA holds others. A classifier gets (X, Y, T, k),
with T the rows to rank labels for; a recommender gets (Y, k) and ranks what a row does not have yet.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray


class Task(NamedTuple):
    """Training rows X and labels Y, rows T to rank k labels for, and what some methods need besides.

    ``known`` marks the known cells of Y, and is None if absent labels look like any other; ``propensities`` are
    estimates from the counts in Y.
    """

    X: Any
    Y: Any
    T: Any
    k: int
    known: Any = None
    propensities: NDArray | None = None


class Ranked(NamedTuple):
    """The k best labels of each row, best first, −1 where there are fewer, and what it cost to find them.

    Seconds are those of training and of ranking; ``cpu_seconds`` sums those of all threads of training, and
    ``model_megabytes`` is the size of the saved model.
    """

    best: NDArray[np.int64]
    seconds: float
    ranking_seconds: float = float("nan")
    cpu_seconds: float = float("nan")
    megabytes: float = float("nan")
    model_megabytes: float = float("nan")
    notes: str = ""

    def scores(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return the ranking as labelgap's metrics take it."""
        return self.best, np.tile(-np.arange(self.best.shape[1], dtype=float), (len(self.best), 1))


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """Return the result of a function and its seconds."""
    start = time.perf_counter()
    result = work()
    return result, time.perf_counter() - start


class Costs(NamedTuple):
    """Seconds, processor seconds and added peak memory (MB) of training."""

    seconds: float
    cpu_seconds: float
    megabytes: float


def train(work: Callable[[], Any]) -> tuple[Any, Costs]:
    """Return the result of a training function and what it cost."""
    memory, cpu = _peak_megabytes(), time.process_time()
    result, seconds = timed(work)
    return result, Costs(seconds, time.process_time() - cpu, _peak_megabytes() - memory)


def _peak_megabytes() -> float:
    """Return the peak memory of this program; ``getrusage`` would include that of the one that started it."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def folder_megabytes(path: str | Path) -> float:
    """Return the size of a file, or of all files in a folder, in MB."""
    path = Path(path)
    files = [path] if path.is_file() else [part for part in path.rglob("*") if part.is_file()]
    return sum(part.stat().st_size for part in files) / 1e6


@contextmanager
def quiet() -> Iterator[None]:
    """Discard what compiled code writes to the terminal: thousands of progress lines that would hide the results."""
    sys.stdout.flush()
    sys.stderr.flush()
    saved_descriptors = [os.dup(1), os.dup(2)]
    with open(os.devnull, "w") as sink:
        os.dup2(sink.fileno(), 1)
        os.dup2(sink.fileno(), 2)
    try:
        yield
    finally:
        for descriptor, copy in zip((1, 2), saved_descriptors, strict=True):
            os.dup2(copy, descriptor)
            os.close(copy)


def pad_rows(rows: Sequence[Sequence[int]], k: int) -> NDArray[np.int64]:
    """Return rows of at most k labels as one array, padded with −1."""
    best = np.full((len(rows), k), -1, np.int64)
    for target, row in zip(best, rows, strict=True):
        target[: len(row)] = row[:k]
    return best


def best_stored(scores: Any, k: int) -> NDArray[np.int64]:
    """Return the columns of the k largest stored scores of each row."""
    scores = sp.csr_matrix(scores)
    bounds = zip(scores.indptr[:-1], scores.indptr[1:], strict=True)
    return pad_rows([scores.indices[a:b][np.argsort(-scores.data[a:b], kind="stable")] for a, b in bounds], k)


# --- classifiers of other packages ----------------------------------------------------------------------------------


def rank_by_omikuji(task: Task, **settings: Any) -> Ranked:
    """Train omikuji's trees on a text file and rank row by row, as its Python interface requires."""
    import omikuji

    parameters = omikuji.Model.default_hyper_param()
    for name, value in settings.items():
        setattr(parameters, name, value)
    with TemporaryDirectory() as folder:
        path = Path(folder, "train.txt")
        write_rows(path, task.X, task.Y)
        with quiet():
            model, costs = train(lambda: omikuji.Model.train_on_data(str(path), parameters))
            model.save(str(Path(folder, "model")))
        size = folder_megabytes(Path(folder, "model"))
    rows = list(_pairs(task.T))
    best, seconds = timed(lambda: [[label for label, _ in model.predict(row, top_k=task.k)] for row in rows])
    return Ranked(pad_rows(best, task.k), costs.seconds, seconds, *costs[1:], size)


def write_rows(path: Path, X: Any, Y: Any) -> None:
    """Write rows in the text format of the extreme classification repository."""
    with path.open("w") as file:
        print(*X.shape, Y.shape[1], file=file)
        labels = np.split(Y.indices, Y.indptr[1:-1])
        for own, pairs in zip(labels, _pairs(X), strict=True):
            print(",".join(map(str, np.sort(own))), *(f"{j}:{value:.9g}" for j, value in pairs), file=file)


def _pairs(X: Any) -> Iterator[list[tuple[int, float]]]:
    """Yield each row as its pairs of feature and value."""
    for start, stop in zip(X.indptr[:-1], X.indptr[1:], strict=True):
        yield list(zip(X.indices[start:stop].tolist(), X.data[start:stop].tolist(), strict=True))


N_WEIGHTED = 200  # labels of a row that are ranked again by weighted probabilities


def rank_by_napkinxc(task: Task, *, model: str, weighted: bool = False, **settings: Any) -> Ranked:
    """Train one of napkinXC's models; ``weighted`` ranks by probabilities times inverse propensities."""
    from napkinxc import models

    with TemporaryDirectory() as folder:
        fitted = getattr(models, model)(folder, **settings)
        _, costs = train(lambda: fitted.fit(task.X, task.Y))
        size = folder_megabytes(folder)

        def rank() -> Any:
            if not weighted:
                return fitted.predict(task.T, top_k=task.k)
            # Its own labels_weights crash with trees (0.7.2): the best labels are weighted here.
            lists = fitted.predict_proba(task.T, top_k=max(N_WEIGHTED, task.k))
            by_weight = [sorted(((-p / task.propensities[j], j) for j, p in row)) for row in lists]
            return [[j for _, j in row[: task.k]] for row in by_weight]

        best, seconds = timed(rank)
        return Ranked(pad_rows(best, task.k), costs.seconds, seconds, *costs[1:], size)


def rank_by_pecos(task: Task) -> Ranked:
    """Train XR-Linear on PECOS's default tree over labels; the tree is part of training."""
    from pecos.xmc import Indexer, LabelEmbeddingFactory
    from pecos.xmc.xlinear.model import XLinearModel

    X, Y, T = (sp.csr_matrix(A, dtype=np.float32) for A in (task.X, task.Y, task.T))
    for matrix in (X, Y, T):
        matrix.sort_indices()

    def fit() -> Any:
        tree = Indexer.gen(LabelEmbeddingFactory.create(Y, X, method="pifa"))
        return XLinearModel.train(X, Y.tocsc(), C=tree)

    model, costs = train(fit)
    scores, seconds = timed(lambda: model.predict(T, only_topk=task.k))
    with TemporaryDirectory() as folder:
        model.save(folder)
        return Ranked(best_stored(scores, task.k), costs.seconds, seconds, *costs[1:], folder_megabytes(folder))


def rank_by_libmultilabel(task: Task) -> Ranked:
    """Train LibMultiLabel's linear one-vs-rest."""
    from libmultilabel import linear

    with quiet():
        model, costs = train(lambda: linear.train_1vsrest(task.Y, task.X))
        scores, seconds = timed(lambda: linear.predict_values(model, task.T))
    best = np.argsort(-np.asarray(scores), axis=1, kind="stable")[:, : task.k]
    return Ranked(best, costs.seconds, seconds, *costs[1:], len(pickle.dumps(model)) / 1e6)


def rank_by_sklearn(task: Task, *, weighted: bool = False) -> Ranked:
    """Train logistic regressions one-vs-rest; ``weighted`` gives a positive of label j the weight 1/p_j."""
    from sklearn.linear_model import LogisticRegression

    columns = sp.csc_matrix(task.Y)

    def fit() -> tuple[NDArray, NDArray]:
        coefficients = np.zeros((columns.shape[1], task.X.shape[1]), np.float32)
        intercepts = np.full(columns.shape[1], -np.inf)
        for j in range(columns.shape[1]):
            y = np.zeros(columns.shape[0], bool)
            y[columns.indices[columns.indptr[j] : columns.indptr[j + 1]]] = True
            if not 0 < y.sum() < len(y):
                intercepts[j] = np.inf if y.all() else -np.inf
                continue
            weights = np.where(y, 1 / task.propensities[j], 1.0) if weighted else None
            model = LogisticRegression(C=10.0, solver="liblinear").fit(task.X, y, weights)
            coefficients[j], intercepts[j] = model.coef_[0], model.intercept_[0]
        return coefficients, intercepts

    (coefficients, intercepts), costs = train(fit)
    scores, seconds = timed(lambda: task.T @ coefficients.T + intercepts)
    best = np.argsort(-scores, axis=1, kind="stable")[:, : task.k]
    return Ranked(best, costs.seconds, seconds, *costs[1:], coefficients.nbytes / 1e6)


# --- labelgap -------------------------------------------------------------------------------------------------------


def rank_by_labelgap(task: Task, *, estimator: str, weighted: bool = False, **settings: Any) -> Ranked:
    """Fit an estimator of labelgap; the seconds include the choice of parameters on training data."""
    import labelgap

    if weighted:
        settings["propensity"] = task.propensities
    model = getattr(labelgap, estimator)(random_state=0, **settings)
    labels = task.Y if task.known is None else labelgap.Labels(task.Y, observed=task.known)
    _, costs = train(lambda: model.fit(task.X, labels))
    model.predict_topk(task.T[:10], task.k)  # compiles
    (best, _), seconds = timed(lambda: model.predict_topk(task.T, task.k))
    with TemporaryDirectory() as folder:
        path = Path(folder, "model")
        model.save(path)
        size = folder_megabytes(path)
    notes = json.dumps(_describe(model), default=str)
    return Ranked(best, costs.seconds, seconds, *costs[1:], size, notes)


def _describe(model: Any) -> dict[str, Any]:
    """Return what a search has chosen."""
    names = ("report_", "members_", "rarity_", "best_params_", "best_score_")
    return {name: getattr(model, name) for name in names if hasattr(model, name)}


# --- recommenders ---------------------------------------------------------------------------------------------------


def recommend_by_implicit(task: Task, *, random_state: int = 0, **settings: Any) -> Ranked:
    """Train implicit's ALS, which does not use features, and rank the items that a user has not seen."""
    from implicit.cpu.als import AlternatingLeastSquares
    from threadpoolctl import threadpool_limits

    Y = sp.csr_matrix(task.Y, dtype=np.float32)
    with threadpool_limits(1, "blas"):  # the package has its own threads and recommends a single BLAS thread
        model = AlternatingLeastSquares(random_state=random_state, **settings)
        _, costs = train(lambda: model.fit(Y, show_progress=False))
        best, scores = model.recommend(np.arange(Y.shape[0]), Y, N=task.k)
    # Seen items that fill up a short list have the lowest possible score.
    best = np.where(scores > np.finfo(np.float32).min, best, -1).astype(np.int64)
    return Ranked(best, costs.seconds, float("nan"), *costs[1:])


def recommend_by_cmfrec(
    task: Task, *, factors: int = 50, feature_weight: float = 10.0, random_state: int = 1, **settings: Any
) -> Ranked:
    """Train cmfrec's CMF_implicit with features of both sides (X and T), and rank unseen items."""
    from cmfrec import CMF_implicit

    Y, U, V = sp.coo_matrix(task.Y, dtype=np.float32), task.X.toarray(), task.T.toarray()
    weights = {"w_user": feature_weight, "w_item": feature_weight}
    model = CMF_implicit(factors, random_state=random_state, verbose=False, **weights, **settings)
    _, costs = train(lambda: model.fit(Y, U, V))
    return Ranked(best_unseen(model.A_ @ model.B_.T, task.Y, task.k), costs.seconds, float("nan"), *costs[1:])


def recommend_by_irspack(task: Task, *, random_seed: int = 0, **settings: Any) -> Ranked:
    """Train irspack's implicit ALS, and rank unseen items."""
    from irspack import IALSRecommender

    Y = sp.csr_matrix(task.Y, dtype=np.float32)
    model = IALSRecommender(Y, random_seed=random_seed, **settings)
    _, costs = train(model.learn)
    scores = model.get_score(np.arange(Y.shape[0]))
    return Ranked(best_unseen(scores, task.Y, task.k), costs.seconds, float("nan"), *costs[1:])


def best_unseen(scores: NDArray, seen: Any, k: int) -> NDArray[np.int64]:
    """Return the k best items of each user among those without a training positive, −1 where there are fewer.

    >>> best_unseen(np.array([[3.0, 2.0, 1.0]]), np.array([[1, 0, 0]]), 3).tolist()
    [[1, 2, -1]]
    """
    scores = np.where(sp.csr_matrix(seen).toarray() != 0, -np.inf, scores)
    best = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return np.where(np.isneginf(np.take_along_axis(scores, best, axis=1)), -1, best)


# --- all of them ----------------------------------------------------------------------------------------------------


class Method(NamedTuple):
    """A method: the module and the distribution that it needs, and the function that runs it."""

    module: str
    distribution: str
    rank: Callable[..., Ranked]


# The settings that omikuji's README calls Bonsai: unbalanced trees of at most three levels with up to 100 children.
BONSAI = {"cluster_balanced": False, "cluster_k": 100, "max_depth": 3}
PLT, OVR = partial(rank_by_napkinxc, model="PLT", seed=0), partial(rank_by_napkinxc, model="OVR")
CLASSIFIERS = {
    "omikuji Parabel": Method("omikuji", "omikuji", rank_by_omikuji),
    "omikuji Bonsai": Method("omikuji", "omikuji", partial(rank_by_omikuji, **BONSAI)),
    "napkinXC PLT": Method("napkinxc.models", "napkinxc", PLT),
    "napkinXC PLT, 1/p": Method("napkinxc.models", "napkinxc", partial(PLT, weighted=True)),
    "napkinXC OVR": Method("napkinxc.models", "napkinxc", OVR),
    "napkinXC OVR, 1/p": Method("napkinxc.models", "napkinxc", partial(OVR, weighted=True)),
    "PECOS XR-Linear": Method("pecos.xmc.xlinear.model", "libpecos", rank_by_pecos),
    "LibMultiLabel 1-vs-rest": Method("libmultilabel.linear", "libmultilabel", rank_by_libmultilabel),
    "scikit-learn OVR": Method("sklearn.linear_model", "scikit-learn", rank_by_sklearn),
    "scikit-learn OVR, 1/p": Method("sklearn.linear_model", "scikit-learn", partial(rank_by_sklearn, weighted=True)),
}
AUTO = partial(rank_by_labelgap, estimator="AutoLabeler")
OURS = {
    "labelgap AutoLabeler": Method("labelgap", "labelgap", AUTO),
    "labelgap AutoLabeler, 1/p": Method("labelgap", "labelgap", partial(AUTO, weighted=True)),
    "labelgap OneClassMFCV": Method("labelgap", "labelgap", partial(rank_by_labelgap, estimator="OneClassMFCV")),
}
RECOMMENDERS = {
    "implicit ALS": Method("implicit.cpu.als", "implicit", recommend_by_implicit),
    "cmfrec CMF_implicit": Method("cmfrec", "cmfrec", recommend_by_cmfrec),
    "irspack iALS": Method("irspack", "irspack", recommend_by_irspack),
}
METHODS = CLASSIFIERS | OURS | RECOMMENDERS


def find_version(method: Method) -> str:
    """Return the version of a method's distribution, which may be a source tree without metadata, or ""."""
    try:
        return metadata.version(method.distribution)
    except metadata.PackageNotFoundError:
        spec = find_spec(method.distribution)
        return "" if spec is None else str(getattr(import_module(method.distribution), "__version__", ""))


def check_method(name: str) -> str:
    """Return "" if a method can run here, else the reason."""
    method = METHODS[name]
    if not find_version(method):
        return "not installed"
    try:
        import_module(method.module)
    except Exception as error:  # a package built for other versions fails in many ways
        return f"installed, but does not import ({type(error).__name__})"
    return ""


def pack_matrices(**matrices: Any) -> dict[str, NDArray]:
    """Return the arrays of CSR matrices under names of their own."""
    arrays: dict[str, NDArray] = {}
    for name, matrix in matrices.items():
        if matrix is not None:
            matrix = sp.csr_matrix(matrix)
            parts = {"data": matrix.data, "indices": matrix.indices, "indptr": matrix.indptr, "shape": matrix.shape}
            arrays |= {f"{name}_{part}": np.asarray(value) for part, value in parts.items()}
    return arrays


def unpack_matrix(arrays: Any, name: str) -> Any:
    """Return the CSR matrix that ``pack_matrices`` stored under a name, or None."""
    if f"{name}_data" not in arrays:
        return None
    data, indices, indptr, shape = (arrays[f"{name}_{part}"] for part in ("data", "indices", "indptr", "shape"))
    return sp.csr_matrix((data, indices, indptr), tuple(shape))


def main() -> None:
    """Run a method with each of the settings, or say with ``check`` which ones can run."""
    if sys.argv[1] == "check":
        reasons = {name: reason for name in METHODS if (reason := check_method(name))}
        names = {name: method for name, method in METHODS.items() if name not in reasons}
        print(json.dumps([{name: f"{it.distribution} {find_version(it)}" for name, it in names.items()}, reasons]))
        return
    name, source, target = sys.argv[1:]
    with np.load(source) as arrays:
        X, Y, T, known = (unpack_matrix(arrays, part) for part in ("X", "Y", "T", "known"))
        propensities = arrays.get("propensities")
        task, settings = Task(X, Y, T, int(arrays["k"]), known, propensities), json.loads(str(arrays["settings"]))
    results = [METHODS[name].rank(task, **each) for each in settings]
    np.savez(target, **{field: np.array([each[i] for each in results]) for i, field in enumerate(Ranked._fields)})


if __name__ == "__main__":
    main()
