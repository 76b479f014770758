"""Low-rank models that take up further rows and further labels without learning from nothing."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from numbers import Integral
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from labelgap.estimators.low_rank import LowRankEstimator, moves
from labelgap.estimators.memory import CAREFULLY, blank_label, curvature, mean
from labelgap.estimators.parameters import check_number
from labelgap.objectives import LowRank
from labelgap.objectives.anchor import Anchor
from labelgap.objectives.base import Ridge, Sum, Through, merge
from labelgap.objectives.cells import AllCellsSquared, Cells
from labelgap.objectives.features import Identity
from labelgap.observations import Labels
from labelgap.observations.joining import columns_by_name, stacked, widened, with_columns
from labelgap.runtime import threads
from labelgap.solvers import Alternation, NewtonCG, Solver, Status
from labelgap.solvers.base import Kronecker, inner

ALTERNATIONS = 3
PRODUCTS = 4  # of a half step: the factors are near where they will be
STEPS = 3
PROMISE = 3.0  # times tol: by how much further rows must have lowered F for more to be left to gain


class Rows(NamedTuple):
    """Validated rows, None where they have no features, and their labels."""

    X: Any
    labels: Labels


class GrowingEstimator(LowRankEstimator):
    """A low-rank model that goes on from where it is; a subclass says what rows and labels mean.

    Of rows that it learned from and that are gone it remembers, for each label, a quadratic around the label's
    factors: their curvature w_j M, one k×k matrix and a weight for each label, and the factors of a label that no row
    had, which is where a new label starts.
    """

    if TYPE_CHECKING:  # what a class declares, every model file must have; older ones have no memory
        memory_: dict[str, NDArray]

    @abstractmethod
    def _problem_with(self, rows: Rows, **side: Any) -> tuple[LowRank, Cells | None]:
        """Return the problem of validated rows and of the graphs and weights that belong to them.

        With it come the cells of one label that none of the rows has; None if they would not be known.
        """

    @abstractmethod
    def _store_all(self, problem: LowRank, state: Alternation, labels: Labels, **side: Any) -> None:
        """Keep factors, and what belongs to the rows they are learned from."""

    def _store_further(self, B: NDArray, labels: Labels, **side: Any) -> None:
        """Keep what belongs to further rows; by default nothing."""

    def _all_alike(self, **side: Any) -> bool:
        """Tell whether rows differ in nothing but features and labels, so that some can stand for others."""
        return True

    def _fold_in_further(self, problem: LowRank, labels: Labels, H: NDArray, **side: Any) -> NDArray:
        """Return the factors of further rows given H, for a model without features, which knows rows by number."""
        raise NotImplementedError

    def _kept_past(self) -> Rows | None:
        """Return the rows learned from before, where the model itself knows them."""
        return None

    def _check_further(self, X: Any) -> Any:
        """Return validated features of further rows."""
        return self._check_rows(X)

    def partial_fit(
        self, X: Any, Y: Any, observed: Any = None, *, past: Any = None, alternations: int = ALTERNATIONS
    ) -> Self:
        """Learn from further rows, which may have further labels, without learning from nothing.

        With the rows of before as ``past``, W first learns from the further rows, which stand for the others in what
        it costs to change it, and H from all rows. Where that lowered F by more than a few ``tol``, alternations over
        all rows follow, each half step by a few products: with enough of them the result is that of a fit.

        Without them W stays and H alone learns, from the new rows and from what is remembered of the old ones:

            min over h_j of Σ over new rows of ℓ(Y_ij, b_i·h) + ½ (h − h_j)ᵀ (w_j M + α) (h − h_j)

        With squared loss and every label known w_j M = BᵀB, the Gram matrix of all rows before, and this is the
        recursive form of ridge regression on all of them: exact for this W, as far as the H of the fit was. With
        gaps and with other losses w_j M stands for a curvature that each label has of its own. A new label starts
        as one that no old row has or, with ``absent="unknown"``, as one of which they say nothing.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
            Further rows.
        Y : array-like, sparse matrix or Labels of shape (n, L)
            Their labels: those of before first, then new ones. A data frame's columns are matched by name.
        observed : array-like or sparse matrix of shape (n, L), optional
            True where Y is known.
        past : pair of X and Y, optional
            Rows learned from before, all or some. Its Y has the labels of before, or the new ones as well; those it
            does not have are negative there or unknown, as ``absent`` says.
        alternations : int, default=3
            The most alternations with ``past``, the first one included; ``tol`` ends them sooner.

        Returns
        -------
        self

        Examples
        --------
        A third label comes with the third and fourth row:

        >>> from labelgap import LEML
        >>> model = LEML(n_components=2, alpha=0.01, random_state=0)
        >>> model = model.fit([[1.0, 0.0], [0.0, 1.0]], [[1, 0], [0, 1]])
        >>> model.partial_fit([[1.0, 0.1], [0.1, 1.0]], [[1, 0, 0], [0, 1, 1]]).n_labels_
        3
        """
        return self._grow(X, Y, observed, past, alternations)

    def _grow(self, X: Any, Y: Any, observed: Any, past: Any, alternations: int, **side: Any) -> Self:
        if not hasattr(self, "label_factors_"):
            if past is not None:
                raise ValueError("past= goes with a fitted model, and this one is not; call fit with all rows.")
            return self.fit(X, Y, observed, **side)
        self._check_parameters()
        check_number("alternations", alternations, Integral, least=1)
        with self._unchanged_on_error(), threads(self.n_jobs):
            names = getattr(self, "label_names_in_", None)
            rows, names = self._check_more(X, Y, observed, names)
            before = self._kept_past() if past is None else self._check_past(past, rows.labels.shape[1], names)
            interrupt = None
            with self._numbers_in_range():
                if before is None:
                    self._learn_on(rows, **side)
                else:
                    interrupt = self._learn_all(before, rows, int(alternations), **side)
            self.n_labels_ = rows.labels.shape[1]
            if names is not None:
                self.label_names_in_ = names
        if interrupt is not None:
            raise interrupt
        return self

    def _check_more(
        self, X: Any, Y: Any, observed: Any, names: NDArray | None, what: str = "Y"
    ) -> tuple[Rows, NDArray | None]:
        """Return further rows with labels in the order of the model, and the names of all labels if they have any."""
        X = self._check_further(X)
        labels = self._check_labels(
            Y,
            observed,
            X,
            missing=f"{what} is None; pass the labels of the rows, those of before first.",
            empty=f"{what} has shape {{shape}}; pass at least one row and the labels of before.",
        )
        given = self.__dict__.pop("label_names_in_", None)
        if names is not None and given is not None:
            order = columns_by_name(what, names, given)
            labels, given = with_columns(labels, order), given[order]
        L, known = labels.shape[1], self.n_labels_
        if known > L:
            raise ValueError(
                f"{what} has {L} labels and {type(self).__name__} knows {known}; pass a column for each of them, in "
                "their order, then the new ones."
            )
        if names is not None and given is None and len(names) < L:
            raise ValueError(
                f"{what} has {L - len(names)} labels without a name, and {type(self).__name__} knows its labels by "
                "name; pass a data frame."
            )
        return Rows(X, labels), names if given is None else given

    def _check_past(self, past: Any, n_labels: int, names: NDArray | None) -> Rows:
        """Return the rows of before, or say what is wrong with them."""
        if not isinstance(past, tuple | list) or len(past) != 2:
            raise ValueError("past is no pair; pass past=(X, Y), the rows learned from before and their labels.")
        own = None if names is None else names[: self.n_labels_]
        X, Y = past
        rows, found = self._check_more(X, Y, None, own, "the Y of past")
        L = rows.labels.shape[1]
        if L not in (self.n_labels_, n_labels) or (own is not None and list(found) != list(names[:L])):  # type: ignore
            raise ValueError(
                f"The Y of past has {L} labels; pass the {self.n_labels_} of before, or the {n_labels} of Y in the "
                "same order."
            )
        return rows

    def _learn_on(self, rows: Rows, **side: Any) -> None:
        """Learn from further rows alone: W is held, and H is drawn to where it is as strongly as older rows do."""
        if not hasattr(self, "memory_"):
            raise ValueError(
                f"This {type(self).__name__} remembers nothing of the rows it learned from (it has label features, "
                "or its file is older than partial_fit); pass past=(X, Y), or fit it again."
            )
        problem, blank_cells = self._problem_with(rows, **side)
        W, H = self._grown_factors(problem, rows.labels.shape[1])
        B = _in_range(problem.left.times(W))
        extra = len(H) - self.n_labels_
        weights = np.append(self.memory_["weights"], np.repeat(self.memory_["blank_weight"], extra))
        M, ridge = self.memory_["curvature"], problem.penalty_right.alpha
        anchor = Anchor(H, M, weights[:, None], ridge)
        data = problem.cells.T.given(B)
        H = CAREFULLY.minimize(Sum([data, anchor]), H).x
        blank = Anchor(self.memory_["blank"][None], M, self.memory_["blank_weight"].reshape(1, 1), mean(ridge))
        self._keep_memory(merge(anchor.hessian, curvature(data, H)), blank_label(blank_cells, B, blank))
        self._store_history(Alternation(W, H, status=Status.CONVERGED))
        self.label_factors_ = H
        self._store_further(B, rows.labels, **side)

    def _learn_all(self, before: Rows, rows: Rows, alternations: int, **side: Any) -> KeyboardInterrupt | None:
        """Alternate over all rows from the factors at hand; the first W is that of the further rows."""
        absent: Any = self.absent
        labels = stacked(widened(before.labels, rows.labels.shape[1], absent), rows.labels)
        problem, blank_cells = self._problem_with(Rows(_below(before.X, rows.X), labels), **side)
        problem.for_few_steps()
        state, gain = self._turn(problem, rows, labels.shape, **side)
        if gain <= PROMISE * self.tol * abs(state.history[0]):
            state.status, alternations = Status.CONVERGED, 1
        interrupt = self._run(problem, state, self._hasty(problem), max_iter=alternations)
        self._store_history(state)
        self._store_all(problem, state, labels, **side)
        self._remember(problem, blank_cells, state)
        return interrupt

    def _turn(self, problem: LowRank, rows: Rows, shape: tuple[int, int], **side: Any) -> tuple[Alternation, float]:
        """Return the first alternation, and by how much W lowered the objective of the further rows.

        W learns from them alone, which costs next to nothing, and H from all rows. Without features W has rows of its
        own for them, which are found first, and learns from all rows as well.
        """
        W, H = self._grown_factors(problem, shape[1])
        gain, anew = np.inf, not moves(W, H)
        if anew:
            start = self._fresh_start(problem, H.shape[1])
            W, H = start.W, start.H
        elif isinstance(problem.left, Identity):
            W[-len(rows.labels) :] = self._fold_in_further(problem, rows.labels, H, **side)
        if anew or isinstance(problem.left, Identity):
            W = self._hasty(problem).minimize(problem.given_right(H), W).x
        elif self._all_alike(**side):
            W, gain = self._learn_left(rows, W, H, shape[0] - len(rows.labels))
        found = self._hasty(problem).minimize(problem.given_left(W), H)
        return Alternation(W, found.x, [found.value]), gain

    def _hasty(self, problem: LowRank) -> Solver:
        return hastened(self._choose_solver(problem), problem.cells)

    def _learn_left(self, rows: Rows, W: NDArray, H: NDArray, before: int) -> tuple[NDArray, float]:
        """Return W after a step by the further rows alone, and by how much that lowered their objective.

        Those before were content with W, and their features are taken to be like those of these: where W moves the
        scores of these rows, it moves so many others as well, and they object.
        """
        problem, _ = self._problem_with(rows)
        problem.for_few_steps()
        B, data = _in_range(problem.left.times(W)), problem.cells.given(H)
        form = curvature(data, B)
        others = Anchor(B, form.M, np.full((len(B), 1), before / len(B) * mean(form.weights)), 0.0)
        objective = Sum([Through(problem.left, Sum([data, others])), Ridge(problem.penalty_left.alpha, at=W)])
        found = hastened(NewtonCG(), problem.cells).minimize(objective, W)
        return found.x, data.value(B) - found.value  # the other terms are 0 at W

    def _grown_factors(self, problem: LowRank, n_labels: int) -> tuple[NDArray, NDArray]:
        """Return copies of W and H with a row for each new row or label that has no features."""
        dtype = np.dtype(self.dtype).type
        W, H = (factor.astype(dtype) for factor in self._previous_factors())
        if isinstance(problem.left, Identity):
            W = np.vstack([W, np.zeros((problem.left.shape[0] - len(W), W.shape[1]), dtype)])
        if isinstance(problem.right, Identity):
            blank = self.memory_["blank"] if hasattr(self, "memory_") else np.zeros(H.shape[1])
            H = np.vstack([H, np.tile(blank.astype(dtype), (n_labels - len(H), 1))])
        return W, H

    def _remember(self, problem: LowRank, blank_cells: Cells | None, state: Alternation) -> None:
        """Keep what further rows will ask about these: the curvature around H, and a label that none of them has.

        A model without features knows its rows, and one with label features has no factors of its own for a label.
        """
        self.__dict__.pop("memory_", None)
        if isinstance(problem.left, Identity) or not isinstance(problem.right, Identity):
            return
        B, k = problem.left.times(state.W), state.W.shape[1]
        ridge = mean(problem.penalty_right.alpha)
        nothing = Anchor(np.zeros((1, k), B.dtype), np.zeros((k, k)), np.ones((1, 1)), ridge)
        self._keep_memory(curvature(problem.cells.T.given(B), state.H), blank_label(blank_cells, B, nothing))

    def _check_memory(self) -> None:
        """Raise ValueError if a memory that came from a file does not fit the factors."""
        if not hasattr(self, "memory_"):
            return
        L, k = self.label_factors_.shape
        wanted = {"curvature": (k, k), "weights": (L,), "blank": (k,), "blank_weight": ()}
        shapes = {name: np.shape(part) for name, part in self.memory_.items()}
        if shapes != wanted:
            raise ValueError(f"memory_ has parts of shapes {shapes}, expected {wanted}")

    def _keep_memory(self, form: Kronecker, blank: Anchor) -> None:
        size = np.trace(form.M)
        self.memory_ = {
            "curvature": np.asarray(form.M),
            "weights": np.array(np.broadcast_to(np.ravel(form.weights), form.features.shape[0]), float),  # type: ignore
            "blank": blank.at[0],
            "blank_weight": np.asarray(np.trace(blank.M) / size if size > 0 else 0.0),
        }


def _in_range(B: NDArray) -> NDArray:
    if not np.isfinite(inner(B, B)):
        raise FloatingPointError("the squares of the rows' factors became infinite")
    return B


def hastened(solver: Solver, cells: Cells) -> Solver:
    """Return a solver of which a half step takes but a few products.

    Where all cells have squares, which may outnumber others by far, one Newton step leads most of the way.
    """
    if isinstance(solver, NewtonCG):
        squares = any(isinstance(part, AllCellsSquared) for part in getattr(cells, "parts", [cells]))
        return replace(solver, max_iter=1 if squares else STEPS, cg_iter=PRODUCTS)
    return replace(solver, max_iter=PRODUCTS)  # type: ignore[type-var]


def _below(first: Any, second: Any) -> Any:
    """Return the rows of the first, then those of the second; None where they have no features."""
    if first is None:
        return None
    if sp.issparse(first) or sp.issparse(second):
        return sp.csr_array(sp.vstack([first, second]))
    return np.vstack([first, second])
