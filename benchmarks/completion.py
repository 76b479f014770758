"""MC-b against the published loop with a full SVD in each step, features against SoftImpute, and a large matrix.

Run as ``python -m benchmarks.completion [naive] [features] [large]``. Times are ratios within one run; fancyimpute is
left out with the reason where it is not installed. The large matrix is completed in a process of its own, so that the
peak of the memory is its own too.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_array
from threadpoolctl import threadpool_limits

from benchmarks.common import best_of, show
from benchmarks.field_methods import timed
from labelgap import MC1, FPCImputer, MCb, make_completion
from labelgap.datasets.synthetic import CompletionData
from labelgap.metrics import imputation_error, label_error
from labelgap.runtime import available_cores

ROWS, FEATURES, LABELS, RANK = 2_000, 480, 20, 10
LABEL_WEIGHT, MU, DECAY, TOL = 0.1, 2e-5, 0.25, 1e-5
LARGE = (100_000, 9_900, 100, 5)  # rows, features, labels, rank
KNOWN_SHARE = 0.01


class Loop(NamedTuple):
    """What the published loop came to."""

    Z: NDArray
    b: NDArray
    objective: float
    steps: int


def naive_loop(X: NDArray, Y: NDArray) -> Loop:
    """Minimise MC-b's objective as published (003, Algorithm 1): every step a full SVD, the stop of the paper."""
    known_X, known_Y = ~np.isnan(X), ~np.isnan(Y)
    n, t = Y.shape
    data = np.concatenate([np.nan_to_num(2 * Y - 1), np.nan_to_num(X)], axis=1)
    labels, size_X, size_Y = data[:, :t], known_X.sum(), known_Y.sum()
    step = min(3.8 * size_Y / LABEL_WEIGHT, size_X)
    step_b = 3.8 * size_Y / (LABEL_WEIGHT * n)
    U, values, Vt = np.linalg.svd(data, full_matrices=False)
    Z, b, mu, steps = values[0] * np.outer(U[:, 0], Vt[0]), np.zeros(t), DECAY * values[0], 0
    norm = values[0]

    def smooth() -> float:
        margins = labels * (Z[:, :t] + b)
        fit = np.logaddexp(0, -margins)[known_Y].sum() * LABEL_WEIGHT / size_Y
        return fit + 0.5 * np.square(Z[:, t:] - data[:, t:])[known_X].sum() / size_X

    while True:
        previous = smooth() + mu * norm
        while True:
            pull = -labels * expit(-labels * (Z[:, :t] + b)) * known_Y * LABEL_WEIGHT / size_Y
            slope = np.concatenate([pull, (Z[:, t:] - data[:, t:]) * known_X / size_X], axis=1)
            b = b - step_b * pull.sum(axis=0)
            U, values, Vt = np.linalg.svd(Z - step * slope, full_matrices=False)
            values = np.maximum(values - step * mu, 0)
            Z, norm, steps = (U * values) @ Vt, values.sum(), steps + 1
            objective = smooth() + mu * norm
            if abs(previous - objective) <= TOL * abs(previous):
                break
            previous = objective
        if mu == MU:
            return Loop(Z, b, objective, steps)
        mu = max(DECAY * mu, MU)


@contextmanager
def fastest_blas(shape: tuple[int, int]) -> Iterator[None]:
    """Run the block with one thread of BLAS or with all, whichever decomposes a matrix of that shape sooner.

    Threads of BLAS wait for each other in a busy loop: on cores that others use too, more of them can take many times
    as long, and a ratio to that would say nothing.
    """
    A = np.random.default_rng(0).standard_normal(shape)
    seconds = {}
    for count in (1, available_cores()):
        with threadpool_limits(count, user_api="blas"):
            seconds[count] = best_of(lambda: np.linalg.svd(A, full_matrices=False), 3)
    count = min(seconds, key=lambda number: seconds[number])
    print(f"BLAS of the others: {count} threads, {seconds[count]:.3g} s for an SVD")
    with threadpool_limits(count, user_api="blas"):
        yield


def naive() -> None:
    """Print time and objective of MC-b's solvers beside the naive loop's."""
    options: dict[str, Any] = {"mu": MU, "label_weight": LABEL_WEIGHT, "decay": DECAY, "tol": TOL}
    for observed in (0.2, 0.4):
        data = make_completion(ROWS, FEATURES, LABELS, rank=RANK, observed=observed, random_state=0)
        with fastest_blas((ROWS, FEATURES + LABELS)):
            loop, base = timed(lambda: naive_loop(data.X, data.Y))  # noqa: B023, called at once
        rows = [("full SVD", loop.steps, "", base, 1.0, loop.objective, 0.0, *_errors(data, loop.Z, loop.b))]
        for solver in ("fpc", "accelerated"):
            model, seconds = timed(lambda: MCb(solver=solver, **options).fit(data.X, data.Y))  # noqa: B023
            objective = model.objective_[-1]
            reached = objective / loop.objective - 1
            errors = _errors(data, np.concatenate([model.decision_, model.features_], axis=1), np.zeros(LABELS))
            rows.append((solver, model.n_iter_, model.rank_, seconds, base / seconds, objective, reached, *errors))
        show(
            f"MC-b, {ROWS} × {FEATURES + LABELS}, rank {RANK}, {observed:.0%} known, μ = {MU:g}",
            (
                "solver",
                "steps",
                "rank",
                "seconds",
                "times faster",
                "objective",
                "relative",
                "label error",
                "imputation",
            ),
            rows,
        )


def _errors(data: CompletionData, Z: NDArray, b: NDArray) -> tuple[float, float]:
    scores, features = Z[:, :LABELS] + b, Z[:, LABELS:]
    return (
        label_error(data.Y_true, scores, data.hidden_labels),
        imputation_error(data.X_true, features, data.hidden_features),
    )


def _soft_impute(X: NDArray, shrinkage: float) -> NDArray:
    from fancyimpute import SoftImpute, soft_impute, solver

    # fancyimpute 0.7 calls check_array with a name that scikit-learn 1.8 no longer has.
    for module in (soft_impute, solver):
        module.check_array = lambda X, force_all_finite=True: check_array(X, ensure_all_finite=force_all_finite)
    model = SoftImpute(shrinkage_value=shrinkage, convergence_threshold=1e-4, max_iters=1000, verbose=False)
    return model.fit_transform(X)


def features() -> None:
    """Print time and imputation error of features alone: FPCImputer, and SoftImpute with the same penalty."""
    data = make_completion(ROWS, FEATURES, LABELS, rank=RANK, observed=0.3, random_state=0)
    penalty = MU * float((~data.hidden_features).sum())
    makers: dict[str, Callable[[], NDArray]] = {
        f"FPCImputer, {solver}": lambda solver=solver: FPCImputer(mu=MU, solver=solver).fit_transform(data.X)
        for solver in ("fpc", "accelerated")
    }
    if find_spec("fancyimpute") is None:
        print("fancyimpute SoftImpute: not installed")
    else:
        makers["fancyimpute SoftImpute"] = lambda: _soft_impute(data.X, penalty)
    rows = []
    for name, make in makers.items():
        try:
            with nullcontext() if name.startswith("FPC") else fastest_blas((ROWS, FEATURES)):
                filled, seconds = timed(make)
        except Exception as error:  # a package built for other versions fails in many ways
            print(f"{name}: fails ({type(error).__name__}: {error})")
            continue
        rows.append((name, seconds, imputation_error(data.X_true, filled, data.hidden_features)))
    show(f"Features alone, {ROWS} × {FEATURES}, 30% known", ("imputer", "seconds", "imputation error"), rows)


def large() -> None:
    """Complete the large matrix in a process of its own."""
    subprocess.run([sys.executable, "-m", "benchmarks.completion", "large_alone"], check=True)


def large_alone() -> None:
    """Print time, errors and peak memory of the factored solver on a matrix of 10⁹ cells, one in a hundred known."""
    X, Y, truth = _large_data(np.random.default_rng(0))
    rows = [("data", "", "", "", _peak_gib(), "", "")]
    for kind in (MCb, MC1):
        model = kind(
            mu=1e-6,
            n_components=10,
            absent="unknown",
            absent_features="unknown",
            max_iter=10,
            tol=1e-4,
            random_state=0,
            dtype="float32",
        )
        fitted, seconds = timed(lambda: model.fit(X, Y))  # noqa: B023, called at once
        rows.append((kind.__name__, fitted.n_iter_, fitted.rank_, seconds, _peak_gib(), *truth(fitted)))
    title = f"{X.shape[0]:,} × {X.shape[1] + Y.shape[1]:,}, {X.nnz:,} features and {Y.nnz:,} labels known"
    show(title, ("step", "alternations", "rank", "seconds", "peak GiB", "imputation error", "label error, %"), rows)


def _large_data(rng: np.random.Generator) -> tuple[sp.csr_array, sp.csr_array, Callable[[Any], tuple[float, float]]]:
    """Return features and labels of low rank, and what measures a model at random cells."""
    n, d, t, rank = LARGE
    L, R, W = (rng.standard_normal((size, rank)).astype(np.float32) for size in (n, d, t))

    def cells(width: int, share: float) -> tuple[NDArray, NDArray]:
        count = max(1, round(share * width))
        numbers = np.repeat(np.arange(n) * width, count) + rng.integers(width, size=n * count)
        rows, columns = np.divmod(np.unique(numbers), width)  # a cell that is drawn twice counts once
        return rows.astype(np.int32), columns.astype(np.int32)

    def inner(right: NDArray, rows: NDArray, columns: NDArray) -> NDArray:
        return sum(L[rows, k] * right[columns, k] for k in range(rank))  # one factor at a time: little memory

    rows, columns = cells(d, KNOWN_SHARE)
    values = inner(R, rows, columns)
    values += 0.3 * rng.standard_normal(len(values), dtype=np.float32)
    X = sp.csr_array(sp.coo_array((values, (rows, columns)), shape=(n, d)))
    rows, columns = cells(t, KNOWN_SHARE)
    signs = np.where(inner(W, rows, columns) > 0.3, 1, -1).astype(np.int8)
    Y = sp.csr_array(sp.coo_array((signs, (rows, columns)), shape=(n, t)))

    def truth(model: Any) -> tuple[float, float]:
        some, of_d, of_t = (rng.integers(size, size=5_000) for size in (n, d, t))
        true = inner(R, some, of_d)
        found = np.einsum("ik,ik->i", model.row_factors_[some], model.feature_factors_[of_d])
        scores = np.einsum("ik,ik->i", model.row_factors_[some], model.label_factors_[of_t, :-1])
        scores += model.label_factors_[of_t, -1]
        wrong = (scores > 0) != (inner(W, some, of_t) > 0.3)
        return float(np.linalg.norm(found - true) / np.linalg.norm(true)), 100 * float(wrong.mean())

    return X, Y, truth


def _peak_gib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


PARTS = (naive, features, large)


def main(parts: tuple[str, ...] = ()) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for part in (*PARTS, large_alone):
            if part.__name__ in parts or (not parts and part in PARTS):
                part()


if __name__ == "__main__":
    main(tuple(sys.argv[1:]))
