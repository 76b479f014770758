"""SQ-wSQ and implicit's ALS on generated positives of the shape of MovieLens 20M: time and nDCG@5.

    python -m benchmarks.many_positives [--share 1] [--ranks 64 256]

At ``--share 1`` there are 138,000 users, 27,000 items and about 12 million positives. Users and items belong to 32
groups; half of a user's positives are items of its group, drawn by popularity. Both methods minimise the same
function: implicit's weight of a positive 5 and penalty 30 are our weight 1/5 of an unlabelled cell and penalty 6. A
tenth of the positives is held out; nDCG@5 is the mean over 5,000 users. The first fit of each method, on few users,
is not timed.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from benchmarks.common import show
from benchmarks.peers import Ranked
from labelgap import OneClassMF
from labelgap.metrics import ndcg_at_k
from labelgap.observations import hold_out_positives

USERS, ITEMS, POSITIVES = 138_000, 27_000, 12_000_000
GROUPS, DEPTH, JUDGED = 32, 5, 5_000
WEIGHT, PENALTY = 5.0, 30.0


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


def measure(train: Callable[[], Any]) -> tuple[float, float]:
    """Return the seconds and the processor seconds of a training."""
    start, processor = time.perf_counter(), time.process_time()
    train()
    return time.perf_counter() - start, time.process_time() - processor


def recommend_ours(Y: sp.csr_array, rank: int, users: NDArray) -> tuple[NDArray, float, float, int]:
    """Return the best items of some users, the times of training, and the number of alternations."""
    weights = {"weight_unlabelled": 1 / WEIGHT, "alpha": PENALTY / WEIGHT}
    model = OneClassMF(rank, loss="squared", negative_target=0.0, tol=5e-3, random_state=0, **weights)
    times = measure(lambda: model.fit(None, Y))
    return model.recommend(users, DEPTH)[0], *times, model.n_iter_


def recommend_by_implicit(Y: sp.csr_array, rank: int, users: NDArray) -> tuple[NDArray, float, float]:
    """Return the best items of some users and the times of training."""
    from implicit.cpu.als import AlternatingLeastSquares

    cells = sp.csr_matrix(Y, dtype=np.float32)
    with threadpool_limits(1, "blas"):  # the package has its own threads
        model = AlternatingLeastSquares(factors=rank, regularization=PENALTY, alpha=WEIGHT, random_state=0)
        times = measure(lambda: model.fit(cells, show_progress=False))
        best, _ = model.recommend(users, cells[users], N=DEPTH)
    return best.astype(np.int64), *times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--share", type=float, default=1.0)
    parser.add_argument("--ranks", type=int, nargs="+", default=[64, 256])
    options = parser.parse_args()
    train, test = hold_out_positives(generate(options.share), 0.1, random_state=0)
    users = np.random.default_rng(1).choice(train.shape[0], min(JUDGED, train.shape[0]), replace=False)
    rows = []
    for rank in options.ranks:
        few = train[: 10 * rank]
        recommend_ours(few, rank, np.arange(1))
        recommend_by_implicit(few, rank, np.arange(1))
        *ours, alternations = recommend_ours(train, rank, users)
        theirs = recommend_by_implicit(train, rank, users)
        names = f"SQ-wSQ, {alternations} alternations", "implicit, 15 iterations"
        for name, (best, seconds, work) in zip(names, (ours, theirs), strict=True):
            quality = 100 * ndcg_at_k(test[users], Ranked(best, seconds).scores(), DEPTH)
            figures = (f"{value:.2f}" for value in (seconds, work, seconds / theirs[1], work / theirs[2], quality))
            rows.append([rank, name, *figures])
            print(rows[-1], flush=True)
    title = f"{train.shape[0]:,} users, {train.shape[1]:,} items, {train.nnz:,} training positives"
    show(title, ["rank", "method", "train s", "processor s", "relative", "processor, relative", "nDCG@5"], rows)


if __name__ == "__main__":
    main()
