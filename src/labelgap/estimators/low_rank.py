"""Estimators whose two factors are found by alternating minimisation."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from labelgap.checkpoints import Arrays, slot
from labelgap.estimators.base import Outcome
from labelgap.estimators.factors import FactorEstimator, FeatureFactors
from labelgap.estimators.parameters import check_callbacks, check_choice, check_number
from labelgap.objectives import LowRank
from labelgap.runtime import progress
from labelgap.solvers import Alternation, Solver, Status, alternate

DEFAULT_COMPONENTS = 100


class Iteration(NamedTuple):
    """What a callback is told after each alternation; returning True from it ends the fit."""

    number: int
    objective: float
    feature_factors: NDArray
    label_factors: NDArray


def moves(W: NDArray, H: NDArray) -> bool:
    """Tell whether factors can be a start: those that a strong penalty has brought to 0 are stationary.

    >>> moves(np.zeros((2, 1)), np.ones((3, 1)))
    False
    """
    return bool(np.abs(W).max() * np.abs(H).max() > np.finfo(W.dtype).eps)


class LowRankEstimator(FeatureFactors, FactorEstimator):
    """Starts, alternates, stores and reports; a subclass says what is minimised."""

    n_components: int | None
    init: str
    max_iter: int
    tol: float
    warm_start: bool
    random_state: Any
    verbose: int
    callbacks: Sequence[Callable[[Iteration], Any]] | None

    @abstractmethod
    def _previous_factors(self) -> tuple[NDArray, NDArray]:
        """Return W and H of the last fit, as the problem has them."""

    def _check_shared(self) -> None:
        self._check_common()
        check_number("n_components", self.n_components, Integral, least=1, optional=True)
        check_number("tol", self.tol, Real, least=0)
        check_number("max_iter", self.max_iter, Integral, least=1)
        check_choice("init", self.init, ("svd", "random"))
        check_number("verbose", self.verbose, Integral, least=0)
        check_callbacks(self.callbacks)

    def _rank(self, n_features: int, n_labels: int, names: str = "features, labels") -> int:
        most = min(n_features, n_labels)
        if self.n_components is None:
            return min(DEFAULT_COMPONENTS, most)
        if self.n_components > most:
            raise ValueError(
                f"n_components={self.n_components} is above min({names}) = "
                f"min({n_features}, {n_labels}) = {most}; a rank beyond it changes nothing. Pass at most {most}."
            )
        return self.n_components

    def _start(self, problem: LowRank, k: int) -> Alternation:
        dtype = np.dtype(self.dtype).type
        shapes = (problem.left.shape[1], k), (problem.right.shape[1], k)
        if self.warm_start and hasattr(self, "label_factors_"):
            W, H = self._previous_factors()
            if (W.shape, H.shape) != shapes:
                raise ValueError(
                    f"warm_start=True, but the previous fit has factors of shapes {W.shape} and {H.shape} "
                    f"and this one needs {shapes[0]} and {shapes[1]}; clone the estimator to start anew."
                )
            if moves(W, H):
                return Alternation(W.astype(dtype), H.astype(dtype))
        return self._fresh_start(problem, k)

    def _fresh_start(self, problem: LowRank, k: int) -> Alternation:
        """Start from the data, or at random."""
        dtype = np.dtype(self.dtype).type
        shapes = (problem.left.shape[1], k), (problem.right.shape[1], k)
        rng = check_random_state(self.random_state)
        if self.init == "svd":
            with self._numbers_in_range():
                H = problem.svd_start(k, rng, dtype)
        else:
            H = (rng.standard_normal(shapes[1]) / np.sqrt(k)).astype(dtype)
        return Alternation(np.zeros(shapes[0], dtype), H)

    def _run(
        self, problem: LowRank, state: Alternation, solver: Solver, max_iter: int | None = None
    ) -> KeyboardInterrupt | None:
        """Alternate until done; an interrupt is handed back once there are factors to store first."""
        most = self.max_iter if max_iter is None else max_iter
        kept = slot(type(self).__name__)
        if not self.callbacks:  # which would not be told of what was done before
            _go_on(state, kept.recall())
        with progress(most, type(self).__name__, self.verbose, state.n_iter) as advance:

            def after(state: Alternation) -> bool:
                advance(f"F = {state.history[-1]:.6g}")
                if kept.active and not self.callbacks:
                    kept.keep({"W": state.W, "H": state.H, "history": state.history})
                told = Iteration(state.n_iter, state.history[-1], state.W, state.H)
                answers = [callback(told) for callback in self.callbacks or ()]
                return any(answers)

            try:
                with self._numbers_in_range():
                    alternate(problem, state, solver, solver, max_iter=most, tol=self.tol, stop=after)
            except KeyboardInterrupt as interrupt:
                if not state.history:
                    raise
                state.status = Status.STOPPED
                return interrupt
        return None

    def _store_history(self, state: Alternation) -> None:
        self.objective_, self.n_iter_, self.status_ = state.history, state.n_iter, state.status.value

    def _outcome(self, state: Alternation, interrupt: KeyboardInterrupt | None) -> Outcome:
        """Say how the fit ended."""
        name, message = type(self).__name__, None
        if state.status is Status.MAX_ITER:
            message = (
                f"{name} stopped after max_iter={self.max_iter} alternations while F still fell by more than "
                f"tol={self.tol:g} of itself; raise max_iter or tol."
            )
        if state.status is Status.STALLED:
            message = (
                f"{name} stopped after {state.n_iter} alternations because rounding made F rise; scale the features "
                "or pass dtype='float64'."
            )
        return Outcome(message, interrupt)


def _go_on(state: Alternation, kept: Arrays | None) -> None:
    """Take over the factors that a checkpoint kept."""
    if kept is not None:
        state.W, state.H, state.history = kept["W"], kept["H"], kept["history"].tolist()
