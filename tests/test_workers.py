"""Work shared among threads: every piece once, results in order, errors where the caller sees them."""

from __future__ import annotations

import threading
import time
import warnings
from collections import Counter
from contextvars import ContextVar
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

from labelgap import LEML
from labelgap.kernels import cpu
from labelgap.runtime import map_ranges, run_parallel, threads

BOUNDS = list(range(0, 401, 4))


@pytest.mark.parametrize("n_jobs", [1, 2, 5])
def test_every_piece_is_done_once_and_results_are_in_order(n_jobs):
    seen = Counter()

    def work(start, stop):
        seen[start] += 1
        return start, stop

    with threads(n_jobs):
        for _ in range(20):
            seen.clear()
            assert map_ranges(work, BOUNDS) == list(pairwise(BOUNDS))
            assert seen == Counter(BOUNDS[:-1])


def test_threads_work_at_the_same_time():
    meet = threading.Barrier(3)  # nobody passes it alone
    with threads(3):
        places = map_ranges(lambda start, stop: (meet.wait(30), threading.get_ident())[1], [0, 1, 2, 3])
    assert len(set(places)) == 3
    assert threading.get_ident() in places


@pytest.mark.parametrize("error", [IndexError, ValueError, KeyboardInterrupt])
def test_an_error_of_the_calling_thread_or_of_another_reaches_the_caller(error):
    caller = threading.get_ident()
    for ours in (True, False):
        meet, done = threading.Barrier(2), []

        def work(start, stop, ours=ours, meet=meet, done=done):
            if start < 2:
                meet.wait(30)
                if (threading.get_ident() == caller) == ours:
                    raise error("wrong")
            done.append(start)

        with threads(2), pytest.raises(error, match="wrong"):
            map_ranges(work, range(10_001))
        assert len(done) < 10_000  # what nobody has begun is left


def test_pieces_may_share_work_themselves():
    def outer(start, stop):
        return sum(map_ranges(lambda a, b: b - a, [start, (start + stop) // 2, stop]))

    with threads(4):
        assert map_ranges(outer, BOUNDS) == [4] * 100


def test_nobody_waits_for_threads_that_are_busy_elsewhere():
    free, begun = threading.Event(), threading.Semaphore(0)

    def occupy():
        with threads(2):
            map_ranges(lambda start, stop: (begun.release(), free.wait(30)), [0, 1, 2])

    other = threading.Thread(target=occupy)
    other.start()
    try:
        begun.acquire(), begun.acquire()
        with threads(2):
            assert map_ranges(lambda start, stop: stop, [0, 1, 2]) == [1, 2]  # by the calling thread alone
    finally:
        free.set()
        other.join()


@pytest.mark.filterwarnings("error")
def test_what_holds_for_the_caller_holds_for_all():
    seen, meet = ContextVar("seen", default=0), threading.Barrier(2)
    seen.set(7)
    large = np.full((4096, 64), 1e30, np.float32)
    with threads(2), np.errstate(over="ignore", invalid="ignore"):
        assert map_ranges(lambda start, stop: (meet.wait(30), seen.get())[1], [0, 1, 2]) == [7, 7]
        assert np.isinf(cpu.matmul(large, large[:64])).all()


def test_rounding_does_not_depend_on_threads():
    rng = np.random.default_rng(0)
    X, Y = (
        rng.standard_normal((3000, 60)),
        np.where(rng.random((3000, 80)) < 0.5, rng.random((3000, 80)) < 0.3, np.nan),
    )
    for loss in ("squared", "logistic"):
        found = [LEML(20, loss=loss, max_iter=2, n_jobs=n_jobs, random_state=0) for n_jobs in (1, 2, 3)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            values = [model.fit(X, Y).objective_ for model in found]
        assert values[0] == values[1] == values[2]


def test_sums_of_many_non_zeros_keep_their_digits():
    rng = np.random.default_rng(0)
    values = rng.random((200_000, 3)).astype(np.float32)
    ones = cpu.prepare(sp.csr_array(np.ones((1, len(values)))), np.float32)
    for n in (1, 5, 63, 64, 65, 200_000):
        row = cpu.prepare(ones.matrix()[:, :n], np.float32)
        np.testing.assert_allclose(cpu.spmm(row, values[:n])[0], values[:n].sum(0, dtype=float), rtol=5e-7)


def test_tasks_wait_while_results_are_not_taken():
    begun = []
    with threads(2):
        results = run_parallel([partial(begun.append, number) for number in range(40)])
        next(results)
        time.sleep(0.2)
        assert len(begun) <= 4
        assert len(list(results)) == 39
    assert sorted(begun) == list(range(40))
