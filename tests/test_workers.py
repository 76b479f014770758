"""Work shared among threads: every piece once, results in order, errors where the caller sees them."""

from __future__ import annotations

import threading
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp

from labelgap.kernels import cpu
from labelgap.runtime import in_ranges, threads

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
            assert in_ranges(work, BOUNDS) == list(pairwise(BOUNDS))
            assert seen == Counter(BOUNDS[:-1])


def test_threads_work_at_the_same_time():
    meet = threading.Barrier(3)  # nobody passes it alone
    with threads(3):
        places = in_ranges(lambda start, stop: (meet.wait(30), threading.get_ident())[1], [0, 1, 2, 3])
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
            in_ranges(work, range(10_001))
        assert len(done) < 10_000  # what nobody has begun is left


def test_pieces_may_share_work_themselves():
    def outer(start, stop):
        return sum(in_ranges(lambda a, b: b - a, [start, (start + stop) // 2, stop]))

    with threads(4):
        assert in_ranges(outer, BOUNDS) == [4] * 100


def test_nobody_waits_for_threads_that_are_busy_elsewhere():
    free, begun = threading.Event(), threading.Semaphore(0)

    def occupy():
        with threads(2):
            in_ranges(lambda start, stop: (begun.release(), free.wait(30)), [0, 1, 2])

    other = threading.Thread(target=occupy)
    other.start()
    try:
        begun.acquire(), begun.acquire()
        with threads(2):
            assert in_ranges(lambda start, stop: stop, [0, 1, 2]) == [1, 2]  # by the calling thread alone
    finally:
        free.set()
        other.join()


def test_ranges_of_a_matrix_depend_on_the_threads_of_the_moment():
    rng = np.random.default_rng(0)
    A = cpu.prepare(sp.random_array((4000, 300), density=0.1, rng=rng), np.float64)
    B = rng.standard_normal((300, 20))
    with threads(1):
        alone = cpu.spmm(A, B)
    for n_jobs in (2, 3, 2):
        with threads(n_jobs):
            np.testing.assert_array_equal(cpu.spmm(A, B), alone)
    assert [len(A.cuts(4 * n_jobs)) - 1 for n_jobs in (2, 3)] == [8, 12]
