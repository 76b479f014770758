"""SQ-wSQ and implicit's ALS on generated positives of the shape of MovieLens 20M: time and nDCG@5.

    python -m benchmarks.many_positives [--share 1] [--ranks 64 256]

It runs in an environment that also has implicit. At ``--share 1`` there are 138,000 users, 27,000 items and about 12
million positives. Users and items belong to 32 groups; half of a user's positives are items of its group, drawn by
popularity. Both methods minimise the same function: implicit's weight of a positive 5 and penalty 30 are our weight
1/5 of an unlabelled cell and penalty 6. A tenth of the positives is held out; nDCG@5 is the mean over 5,000 users.
The penalty of each method, and whether ours starts from singular vectors or at random as implicit does, are those
with the best nDCG@5 on another, smaller generated set. The first fit of each method, which compiles, is not timed.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from benchmarks.common import show
from benchmarks.field_methods import Ranked
from labelgap import OneClassMF
from labelgap.metrics import ndcg_at_k
from labelgap.observations import hold_out_positives

USERS, ITEMS, POSITIVES = 138_000, 27_000, 12_000_000
GROUPS, DEPTH, JUDGED = 32, 5, 5_000
WEIGHT, PENALTIES = 5.0, (15.0, 30.0, 60.0, 120.0)  # as implicit takes them
CHOOSING_SHARE = 0.05  # of the full numbers of users and items, of the set on which penalties are chosen


def generate(share: float, seed: int = 0) -> sp.csr_array:
    """Return positives of users and items whose numbers have the given share of the full ones."""
    rng = np.random.default_rng(seed)
    n, m = round(USERS * share), round(ITEMS * share)
    activity = rng.lognormal(0.0, 1.0, n)
    counts = np.clip(activity / activity.sum() * POSITIVES * share * 1.18, 5, m // 3).astype(int)
    popularity = rng.permutation(1 / (np.arange(m) + 20.0))
    of_user, of_item = rng.integers(0, GROUPS, n), rng.integers(0, GROUPS, m)
    users = np.repeat(np.arange(n), counts)
    own, items = rng.random(len(users)) < 0.5, np.empty(len(users), np.int64)
    parts = [(np.arange(m), ~own)]
    parts += [(np.flatnonzero(of_item == group), own & (of_user[users] == group)) for group in range(GROUPS)]
    for members, drawn in parts:
        chances = popularity[members] / popularity[members].sum()
        items[drawn] = rng.choice(members, int(drawn.sum()), p=chances)
    Y = sp.csr_array((np.ones(len(users), np.float32), (users, items)), shape=(n, m))
    Y.data[:] = 1
    return Y


class Fit(NamedTuple):
    """The best items of some users, the seconds and processor seconds of training, and the number of iterations."""

    best: NDArray
    seconds: float
    processor_seconds: float
    n_iter: int


def measure(train: Callable[[], Any]) -> tuple[float, float]:
    """Return the seconds and the processor seconds of a training."""
    start, processor = time.perf_counter(), time.process_time()
    train()
    return time.perf_counter() - start, time.process_time() - processor


def recommend_ours(Y: sp.csr_array, rank: int, penalty: float, users: NDArray, init: str = "svd") -> Fit:
    """Fit SQ-wSQ and return the best items of some users."""
    weights = {"weight_unlabelled": 1 / WEIGHT, "alpha": penalty / WEIGHT}
    model = OneClassMF(rank, loss="squared", negative_target=0.0, tol=5e-3, init=init, random_state=0, **weights)
    times = measure(lambda: model.fit(None, Y))
    return Fit(model.recommend(users, DEPTH)[0], *times, model.n_iter_)


def recommend_by_implicit(Y: sp.csr_array, rank: int, penalty: float, users: NDArray) -> Fit:
    """Fit implicit's ALS and return the best items of some users."""
    from implicit.cpu.als import AlternatingLeastSquares

    cells = sp.csr_matrix(Y, dtype=np.float32)
    with threadpool_limits(1, "blas"):  # the package has its own threads
        model = AlternatingLeastSquares(factors=rank, regularization=penalty, alpha=WEIGHT, random_state=0)
        times = measure(lambda: model.fit(cells, show_progress=False))
        best, _ = model.recommend(users, cells[users], N=DEPTH)
    return Fit(best.astype(np.int64), *times, model.iterations)


METHODS: dict[str, Callable[..., Fit]] = {"SQ-wSQ": recommend_ours, "implicit": recommend_by_implicit}


class Split(NamedTuple):
    """Training positives, held-out positives, and the users that are judged by them."""

    train: sp.csr_array
    test: sp.csr_array
    users: NDArray

    @classmethod
    def draw(cls, share: float, seed: int) -> Split:
        """Generate positives and hold out a tenth of them."""
        train, test = hold_out_positives(generate(share, seed), 0.1, random_state=seed)
        judged = min(JUDGED, train.shape[0])
        return cls(train, test, np.random.default_rng(seed + 1).choice(train.shape[0], judged, replace=False))

    def ndcg(self, fit: Fit) -> float:
        """Return nDCG@5 in percent."""
        return 100 * ndcg_at_k(self.test[self.users], Ranked(fit.best, fit.seconds).scores(), DEPTH)


def choose_settings(
    recommend: Callable[..., Fit], choices: list[dict[str, Any]], split: Split, rank: int
) -> dict[str, Any]:
    """Return the settings of the best nDCG@5."""
    return max(choices, key=lambda settings: split.ndcg(recommend(split.train, rank, users=split.users, **settings)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--share", type=float, default=1.0)
    parser.add_argument("--ranks", type=int, nargs="+", default=[64, 256])
    parser.add_argument("--penalties", type=float, nargs="+", default=PENALTIES)
    parser.add_argument("--inits", nargs="+", default=["svd", "random"], help="the starts of ours to choose from")
    options = parser.parse_args()
    split, small, rows = Split.draw(options.share, 0), Split.draw(CHOOSING_SHARE, 1), []
    for rank in options.ranks:
        fits: dict[str, tuple[dict[str, Any], Fit]] = {}
        for name, recommend in METHODS.items():
            choices: list[dict[str, Any]] = [{"penalty": penalty} for penalty in options.penalties]
            if name == "SQ-wSQ":  # implicit always starts at random
                choices = [choice | {"init": init} for choice in choices for init in options.inits]
            settings = choose_settings(recommend, choices, small, rank)  # the first fit compiles
            fits[name] = settings, recommend(split.train, rank, users=split.users, **settings)
        theirs = fits["implicit"][1]
        for name, (settings, fit) in fits.items():
            ratios = fit.seconds / theirs.seconds, fit.processor_seconds / theirs.processor_seconds
            figures = (fit.seconds, fit.processor_seconds, *ratios, split.ndcg(fit))
            rows.append(
                [
                    rank,
                    name,
                    " ".join(map(str, settings.values())),
                    fit.n_iter,
                    *(f"{value:.2f}" for value in figures),
                ]
            )
            print(rows[-1], flush=True)
    n_users, n_items = split.train.shape
    title = f"{n_users:,} users, {n_items:,} items, {split.train.nnz:,} training positives"
    columns = [
        "rank",
        "method",
        "settings",
        "iterations",
        "train s",
        "processor s",
        "relative",
        "processor, relative",
    ]
    show(title, [*columns, "nDCG@5"], rows)


if __name__ == "__main__":
    main()
