"""Answers to requests, written as JSON by the thread that computes them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from labelgap.runtime import threads
from labelgap.serve.errors import unusable
from labelgap.serve.models import Served
from labelgap.serve.rows import as_input
from labelgap.serve.settings import Settings

CELLS_PER_BLOCK = 1 << 22


class Rows(NamedTuple):
    """Rows of a request in the form that they came in, and how many labels of each are wanted."""

    form: str
    rows: list[Any]
    top: int | None


class Predictor:
    """Predicts the rows of many requests at once, and hands each its own.

    A request whose rows make no sense gets its error alone; the others are answered all the same.
    """

    def __init__(self, served: Served, settings: Settings) -> None:
        self._served, self._settings = served, settings

    def __call__(self, jobs: Sequence[Rows]) -> list[bytes | Exception]:
        """Return the body of the answer to each job, or its error."""
        answers: list[Any] = [None] * len(jobs)
        groups: dict[tuple[str, int | None], list[int]] = defaultdict(list)
        for place, job in enumerate(jobs):
            groups[job.form, job.top].append(place)
        with threads(self._settings.n_threads):
            for (form, top), places in groups.items():
                found = self._together(form, top, [jobs[place].rows for place in places])
                for place, one in zip(places, found, strict=True):
                    answers[place] = one
        return answers

    def _together(self, form: str, top: int | None, parts: Sequence[list[Any]]) -> list[Any]:
        try:
            rows = self._labels(as_input(form, list(chain.from_iterable(parts)), self._served.features), top)
        except Exception as error:
            if len(parts) > 1:
                # Halves, not one by one: a wrong request must not make slow what came with it.
                half = len(parts) // 2
                return self._together(form, top, parts[:half]) + self._together(form, top, parts[half:])
            wrong = isinstance(
                error, ValueError | TypeError
            )  # scikit-learn's words for rows that a model cannot take
            return [unusable(str(error)) if wrong else error]
        ends = list(accumulate(map(len, parts)))
        return [self._body(rows[end - len(part) : end]) for part, end in zip(parts, ends, strict=True)]

    def _labels(self, X: Any, top: int | None) -> list[str]:
        if top is None:
            return with_a_yes(self._served, X, self._settings.max_top)
        return written(self._served, *self._served.model.predict_topk(X, min(top, len(self._served.label_names))))

    def _body(self, rows: Sequence[str]) -> bytes:
        return answer(self._served, "predictions", (f'{{"labels":[{row}]}}' for row in rows))


def answer(served: Served, kind: str, parts: Iterable[str]) -> bytes:
    """Return the body of an answer with a part for each row."""
    return f'{{"model":"{served.name}","{kind}":[{",".join(parts)}]}}'.encode()


def with_a_yes(served: Served, X: Any, most: int) -> list[str]:
    """Return for each row the JSON of the labels whose decision is above 0, the best first."""
    found = []
    for scores in decision_blocks(served, X):
        found += [listed(served, row, row > 0, most) for row in scores]
    return found


def decision_blocks(served: Served, X: Any) -> Iterator[NDArray]:
    """Yield decision values some rows after the other, so that many labels need little memory."""
    n = len(X) if isinstance(X, list) else X.shape[0]
    rows = max(1, CELLS_PER_BLOCK // len(served.label_names))
    for start in range(0, n, rows):
        yield served.model.decision_function(X[start : start + rows])


def listed(served: Served, scores: NDArray, kept: NDArray, most: int | None, *, lowest: bool = False) -> str:
    """Return the JSON of the kept labels of a row, the best (or the lowest) first; ties go to the lower number."""
    places = np.flatnonzero(kept)
    order = np.argsort(scores[places] if lowest else -scores[places], kind="stable")[:most]
    chosen = places[order]
    return written(served, chosen[None], scores[chosen][None])[0]


def written(served: Served, indices: NDArray, scores: NDArray) -> list[str]:
    """Return the labels and scores of each row as what stands between the brackets of a JSON list."""
    beginnings = served.beginnings
    show: Callable[[float], str] = repr if np.isfinite(scores).all() else _finite
    return [
        ",".join([f"{beginnings[j]}{show(score)}}}" for j, score in zip(places, values, strict=True)])
        for places, values in zip(indices.tolist(), scores.tolist(), strict=True)
    ]


def _finite(score: float) -> str:
    return repr(score) if np.isfinite(score) else "null"
