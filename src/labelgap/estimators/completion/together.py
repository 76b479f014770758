"""The published loop for several problems of one shape at once, such as the folds of a cross-validation.

A step of a small problem takes less time than the calls that make it. Here each call is for all problems that are not
done yet, and what it costs is shared. Problems do not touch each other: each has the steps, and the solutions, that
:func:`solve_path` with ``solver="fpc"`` gives it alone, to rounding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from labelgap.objectives.completion import Completion
from labelgap.regularizers import nuclear_norm
from labelgap.regularizers.singular import GRAM_SHARE, beside
from labelgap.solvers import Status
from labelgap.solvers.fpc import Point, Stage

MOST_COLUMNS = 128  # beyond it the calls of one problem are no longer what takes the time


def solve_paths(
    problems: Sequence[Completion],
    mus: Sequence[float],
    *,
    constant: bool,
    tol: float = 1e-5,
    max_iter: int = 1000,
) -> Iterator[tuple[int, Stage]]:
    """Yield the number of a problem with its solution for one μ, as they are found; each problem has all μ's in turn.

    ``mus`` are falling μ's, the same for all, and the problems have one shape. :func:`solve_path` says the rest.
    """
    runs = [_Run.of(number, problem, mus[0], constant) for number, problem in enumerate(problems)]
    while runs:
        stack = _Stack(runs, constant)
        while all(run.place < len(mus) for run in runs):
            values, ranks = stack.step()
            for run, value, penalty, rank in zip(runs, values, stack.penalties, ranks, strict=True):
                if run.advance(float(value + run.mu * penalty), int(rank), tol, max_iter):
                    yield run.number, run.finish(stack.point(run), float(penalty))
                    run.go_on(mus, float(value), float(penalty))
                    stack.thresholds[run.row] = run.threshold
        for run in runs:
            run.keep(stack.point(run))
        runs = [run for run in runs if run.place < len(mus)]


class _Run:
    """How far one problem is."""

    def __init__(self, number: int, problem: Completion, point: Point, mu: float, value: float) -> None:
        self.number, self.problem, self.point = number, problem, point
        self.place, self.row, self.mu, self.previous = 0, 0, mu, value
        self.history: list[float] = []
        self.rank, self.status = 0, Status.MAX_ITER

    @classmethod
    def of(cls, number: int, problem: Completion, mu: float, constant: bool) -> _Run:
        point = problem.start()[0]
        penalty = nuclear_norm(beside(point.Z, np.ones(problem.n)) if constant else point.Z)
        return cls(number, problem, point, mu, problem.value(point) + mu * penalty)

    @property
    def threshold(self) -> float:
        return self.problem.steps.Z * self.mu

    def advance(self, value: float, rank: int, tol: float, max_iter: int) -> bool:
        """Note a step; tell whether it is the last one for this μ."""
        done = abs(self.previous - value) <= tol * abs(self.previous)
        self.status = Status.CONVERGED if done else Status.MAX_ITER
        self.previous, self.rank = value, rank
        self.history.append(value)
        return done or len(self.history) == max_iter

    def finish(self, point: Point, penalty: float) -> Stage:
        return Stage(self.mu, point, penalty, self.rank, self.history, self.status, len(self.history))

    def go_on(self, mus: Sequence[float], value: float, penalty: float) -> None:
        """Turn to the next μ, where there is one."""
        self.place, self.history = self.place + 1, []
        if self.place < len(mus):
            self.mu = mus[self.place]
            self.previous = value + self.mu * penalty

    def keep(self, point: Point) -> None:
        self.point = point


class _Cells(NamedTuple):
    """Known cells of all problems: their places in the stack, what they hold, their problem, step and weight in f."""

    places: NDArray
    targets: NDArray
    owners: NDArray
    steps: NDArray  # the step of Z times the weight
    weights: NDArray

    def sums(self, values: NDArray, count: int) -> NDArray:
        """Return the weighted sum over the cells of each problem."""
        return np.bincount(self.owners, self.weights * values, count)


class _Stack:
    """The matrices of several problems, one after the other, and a step of all of them.

    With a constant, each has a last column of ones.
    """

    def __init__(self, runs: Sequence[_Run], constant: bool) -> None:
        first = runs[0].problem
        self.n, self.t, self.constant = first.n, first.t, constant
        self.loss = first.loss.functions(np)
        self.Z = np.ones((len(runs), first.n, first.width + constant), first.dtype)
        self.b = np.stack([run.point.b for run in runs])
        for row, run in enumerate(runs):
            run.row, self.Z[row, :, : first.width] = row, run.point.Z
        self.thresholds = np.array([run.threshold for run in runs])
        self.penalties = np.zeros(len(runs))
        self._bind([run.problem for run in runs])
        self._look()

    def _bind(self, problems: list[Completion]) -> None:
        n, width, t = self.Z.shape[1], self.Z.shape[2], self.t
        labels, features, biases = [], [], []
        for row, problem in enumerate(problems):
            shift = row * n * width
            labels.append(shift + problem.labels.cells // max(1, t) * width + problem.label_of)
            features.append(shift + problem.features.cells // max(1, problem.d) * width + t + problem.feature_of)
            biases.append(row * t + problem.label_of)
        self.bias_of = np.concatenate(biases)
        self.bias_steps = np.array([[problem.steps.b] for problem in problems])
        self.labels = _cells(problems, labels, [p.targets for p in problems], [p.label_share for p in problems])
        self.features = _cells(problems, features, [p.values for p in problems], [p.feature_share for p in problems])

    def point(self, run: _Run) -> Point:
        """Return a copy of where a problem is."""
        width = self.Z.shape[2] - self.constant
        return Point(self.Z[run.row, :, :width].copy(), self.b[run.row].copy())

    def step(self) -> tuple[NDArray, NDArray]:
        """Go along −∇f and shrink singular values, in every problem; return f and the ranks there."""
        flat, pull = self.Z.reshape(-1), self.loss.gradient(self.labels.targets, self.scores)
        flat[self.labels.places] -= self.labels.steps * pull
        flat[self.features.places] -= self.features.steps * self.residuals
        if self.b.size:
            slope = np.bincount(self.bias_of, self.labels.weights * pull, self.b.size).reshape(self.b.shape)
            self.b -= self.bias_steps * slope
        ranks = self._shrink()
        return self._look(), ranks

    def _look(self) -> NDArray:
        """Take what f depends on from the matrices, and return f."""
        flat = self.Z.reshape(-1)
        self.scores, self.residuals = flat[self.labels.places], flat[self.features.places]
        self.residuals -= self.features.targets
        if self.b.size:
            self.scores += self.b.reshape(-1)[self.bias_of]
        losses = self.loss.value(self.labels.targets, self.scores)
        squares, count = np.square(self.residuals), len(self.Z)
        return self.labels.sums(losses, count) + 0.5 * self.features.sums(squares, count)

    def _shrink(self) -> NDArray:
        """Shrink, set the constant to 1 again, note the nuclear norms, and return the ranks.

        U max(σ − θ, 0) Vᵀ of Z = U σ Vᵀ is Z V max(1 − θ/σ, 0) Vᵀ: the left vectors are not needed.
        """
        gram = self.Z.transpose(0, 2, 1) @ self.Z
        squares, vectors = self._eigenvectors(gram)
        thresholds = self.thresholds[:, None]
        kept = squares > thresholds**2
        ranks = kept.sum(1)
        most = slice(squares.shape[1] - int(ranks.max()), None)  # eigenvalues rise
        vectors, values = vectors[:, :, most], np.sqrt(np.where(kept, squares, thresholds**2)[:, most])
        left = values - thresholds
        self.Z = self.Z @ ((vectors * (left / values)[:, None]) @ vectors.transpose(0, 2, 1))
        self.penalties = left.sum(1)
        if self.constant:
            self.Z[:, :, -1] = 1
            inside = (gram[:, None, -1] @ vectors)[:, 0] / values
            self.penalties = _norms_with_ones(left, vectors, inside, self.n)
        return ranks

    def _eigenvectors(self, gram: NDArray) -> tuple[NDArray, NDArray]:
        squares, vectors = np.linalg.eigh(gram)
        rough = self.thresholds**2 <= GRAM_SHARE**2 * np.trace(gram, axis1=1, axis2=2)
        for row in np.flatnonzero(rough):
            squares[row], vectors[row] = _from_matrix(self.Z[row])
        return squares, vectors


def _cells(problems: list[Completion], places: list[Any], targets: list[Any], shares: list[Any]) -> _Cells:
    owners = np.repeat(np.arange(len(problems)), [len(part) for part in places])
    weights = np.array(shares, float)
    steps = np.array([problem.steps.Z for problem in problems]) * weights
    return _Cells(np.concatenate(places), np.concatenate(targets), owners, steps[owners], weights[owners])


def _from_matrix(Z: NDArray) -> tuple[NDArray, NDArray]:
    """Return the eigenvalues of ZᵀZ, rising, and its eigenvectors, without the rounding of a Gram matrix."""
    square = np.zeros((Z.shape[1], Z.shape[1]), Z.dtype)
    R = np.linalg.qr(Z, mode="r")
    square[: len(R)] = R
    _, values, right = np.linalg.svd(square)
    return values[::-1] ** 2, right[::-1].T


def _norms_with_ones(values: NDArray, V: NDArray, inside: NDArray, n: int) -> NDArray:
    """Return ‖[A, 1]‖_* for each [A, a] = U S Vᵀ, from S, V, Uᵀ1 and n.

    In the basis of U and of what U leaves of 1 it is a small matrix: S Vᵀ with Uᵀ1 in place of its last column, over
    a row of zeros with √(n − ‖Uᵀ1‖²) at its end.

    >>> _norms_with_ones(np.array([[3.0]]), np.array([[[1.0], [0.0]]]), np.array([[0.0]]), 4)
    array([5.])
    """
    count, width, k = V.shape
    small = np.zeros((count, k + 1, width), V.dtype)
    small[:, :k] = (V * values[:, None]).transpose(0, 2, 1)
    small[:, :k, -1] = inside
    small[:, k, -1] = np.sqrt(np.maximum(n - np.square(inside).sum(1), 0))
    return np.linalg.svd(small, compute_uv=False).sum(1)
