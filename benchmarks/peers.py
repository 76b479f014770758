"""Other packages for the same task, each behind one function.

A classifier takes (X_train, Y_train, X_test, k), a recommender (Y_train, k, user_features, item_features); both
return :class:`Ranked`. Parameters are the package's defaults unless the caller sets them. Seconds are those of
training; for omikuji, which takes no arrays, they include reading a text file. Packages are imported when they are
called. None of them is a requirement of labelgap; a missing one is skipped with the reason.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module, metadata
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from labelgap.datasets import write_xmc


class Ranked(NamedTuple):
    """The k best labels of each row, shape (n, k), best first, −1 where there are fewer.

    ``seconds`` is the training time, ``ranking_seconds`` the time of the ranking if it could be measured alone.
    """

    best: NDArray[np.int64]
    seconds: float
    ranking_seconds: float = float("nan")

    def scores(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return the ranking as labelgap's metrics take it."""
        return self.best, np.tile(-np.arange(self.best.shape[1], dtype=float), (len(self.best), 1))


@dataclass(frozen=True)
class Peer:
    """A method of another package: its name, module and distribution, and the function that runs it."""

    name: str
    module: str
    distribution: str
    rank: Callable[..., Ranked]

    def unavailable(self) -> str | None:
        """Return the reason why it cannot run, or None."""
        try:
            metadata.version(self.distribution)
        except metadata.PackageNotFoundError:
            return "not installed"
        try:
            import_module(self.module)
        except Exception as error:  # a package built for other versions fails in many ways
            return f"installed, but does not import ({type(error).__name__}: {error})"
        return None

    def version(self) -> str:
        """Return the version of its distribution."""
        return f"{self.distribution} {metadata.version(self.distribution)}"


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """Return the result of a function and its seconds."""
    start = time.perf_counter()
    result = work()
    return result, time.perf_counter() - start


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


# --- classifiers ----------------------------------------------------------------------------------------------------


def rank_by_omikuji(X_train: Any, Y_train: Any, X_test: Any, k: int, **settings: Any) -> Ranked:
    """Train omikuji's trees on a text file and rank row by row, as its Python interface requires."""
    import omikuji

    parameters = omikuji.Model.default_hyper_param()
    for name, value in settings.items():
        setattr(parameters, name, value)
    with TemporaryDirectory() as folder:
        path = Path(folder, "train.txt")
        write_xmc(path, X_train, Y_train)
        with quiet():
            model, seconds = timed(lambda: omikuji.Model.train_on_data(str(path), parameters))
    rows = list(_pairs(X_test))
    best, ranking_seconds = timed(lambda: [[label for label, _ in model.predict(row, top_k=k)] for row in rows])
    return Ranked(pad_rows(best, k), seconds, ranking_seconds)


def _pairs(X: Any) -> Iterator[list[tuple[int, float]]]:
    """Yield each row as its pairs of feature and value."""
    X = sp.csr_array(X)
    for start, stop in zip(X.indptr[:-1], X.indptr[1:], strict=True):
        yield list(zip(X.indices[start:stop].tolist(), X.data[start:stop].tolist(), strict=True))


def rank_by_napkinxc(X_train: Any, Y_train: Any, X_test: Any, k: int, *, model: str, **settings: Any) -> Ranked:
    """Train one of napkinXC's models, which stores its weights in a folder."""
    from napkinxc import models

    X, Y, X_new = (sp.csr_matrix(A) for A in (X_train, Y_train, X_test))
    with TemporaryDirectory() as folder:
        fitted = getattr(models, model)(folder, **settings)
        _, seconds = timed(lambda: fitted.fit(X, Y))
        best, ranking_seconds = timed(lambda: fitted.predict(X_new, top_k=k))
        return Ranked(pad_rows(best, k), seconds, ranking_seconds)


def rank_by_pecos(X_train: Any, Y_train: Any, X_test: Any, k: int) -> Ranked:
    """Train XR-Linear on PECOS's default tree over labels; the tree is part of training."""
    from pecos.xmc import Indexer, LabelEmbeddingFactory
    from pecos.xmc.xlinear.model import XLinearModel

    X, X_new = (sp.csr_matrix(A, dtype=np.float32) for A in (X_train, X_test))
    Y = sp.csr_matrix(Y_train, dtype=np.float32)

    def train() -> Any:
        tree = Indexer.gen(LabelEmbeddingFactory.create(Y, X, method="pifa"))
        return XLinearModel.train(X, Y.tocsc(), C=tree)

    model, seconds = timed(train)
    scores, ranking_seconds = timed(lambda: model.predict(X_new, only_topk=k))
    return Ranked(_best_stored(scores, k), seconds, ranking_seconds)


def _best_stored(scores: Any, k: int) -> NDArray[np.int64]:
    """Return the columns of the k largest stored scores of each row."""
    scores = sp.csr_array(scores)
    bounds = zip(scores.indptr[:-1], scores.indptr[1:], strict=True)
    rows = [scores.indices[a:b][np.argsort(-scores.data[a:b], kind="stable")] for a, b in bounds]
    return pad_rows(rows, k)


CLASSIFIERS = (
    Peer("omikuji Parabel", "omikuji", "omikuji", rank_by_omikuji),
    Peer(
        "omikuji Bonsai",
        "omikuji",
        "omikuji",
        # The settings that its README calls Bonsai: unbalanced trees of at most three levels with up to 100 children.
        partial(rank_by_omikuji, cluster_balanced=False, cluster_k=100, max_depth=3),
    ),
    Peer("napkinXC PLT", "napkinxc.models", "napkinxc", partial(rank_by_napkinxc, model="PLT", seed=0)),
    Peer("napkinXC OVR", "napkinxc.models", "napkinxc", partial(rank_by_napkinxc, model="OVR")),
    Peer("PECOS XR-Linear", "pecos.xmc.xlinear.model", "libpecos", rank_by_pecos),
)


# --- recommenders ---------------------------------------------------------------------------------------------------


def recommend_by_implicit(
    Y_train: Any,
    k: int,
    user_features: Any = None,
    item_features: Any = None,
    *,
    random_state: int = 0,
    **settings: Any,
) -> Ranked:
    """Train implicit's ALS, which does not use features, and rank the items that a user has not seen."""
    from implicit.cpu.als import AlternatingLeastSquares

    Y = sp.csr_matrix(Y_train, dtype=np.float32)
    # The package has its own threads and recommends a single BLAS thread.
    with threadpool_limits(1, "blas"):
        model = AlternatingLeastSquares(random_state=random_state, **settings)
        _, seconds = timed(lambda: model.fit(Y, show_progress=False))
        best, scores = model.recommend(np.arange(Y.shape[0]), Y, N=k)
    # Seen items that fill up a short list have the lowest possible score.
    return Ranked(np.where(scores > np.finfo(np.float32).min, best, -1).astype(np.int64), seconds)


def recommend_by_cmfrec(
    Y_train: Any,
    k: int,
    user_features: Any = None,
    item_features: Any = None,
    *,
    factors: int = 50,
    feature_weight: float = 10.0,
    random_state: int = 1,
    **settings: Any,
) -> Ranked:
    """Train cmfrec's CMF_implicit with features of both sides, and rank the items that a user has not seen."""
    from cmfrec import CMF_implicit

    Y, U, V = sp.coo_matrix(Y_train, dtype=np.float32), _dense(user_features), _dense(item_features)
    weights = {"w_user": feature_weight, "w_item": feature_weight}
    model = CMF_implicit(factors, random_state=random_state, verbose=False, **weights, **settings)
    _, seconds = timed(lambda: model.fit(Y, U, V))
    return Ranked(best_unseen(model.A_ @ model.B_.T, Y_train, k), seconds)


def _dense(features: Any) -> NDArray | None:
    return None if features is None else sp.csr_array(features).toarray()


def best_unseen(scores: NDArray, seen: Any, k: int) -> NDArray[np.int64]:
    """Return the k best items of each user among those without a training positive, −1 where there are fewer.

    >>> best_unseen(np.array([[3.0, 2.0, 1.0]]), np.array([[1, 0, 0]]), 3).tolist()
    [[1, 2, -1]]
    """
    scores = np.where(sp.csr_array(seen).toarray() != 0, -np.inf, scores)
    best = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return np.where(np.isneginf(np.take_along_axis(scores, best, axis=1)), -1, best)


IMPLICIT_ALS = Peer("implicit ALS", "implicit.cpu.als", "implicit", recommend_by_implicit)
CMFREC = Peer("cmfrec CMF_implicit", "cmfrec", "cmfrec", recommend_by_cmfrec)
