"""Comparison of the results and times of two source trees of labelgap; every estimator, on Bibtex.

Run as ``python -m benchmarks.same_results --output FILE`` with ``PYTHONPATH=<tree>/src``, once for each tree, then as
``python -m benchmarks.same_results --compare OLD NEW``, which prints relative differences and exits with 1 if one is
above 1e-6. The figures of a case are the final objective, P@1, P@3 and P@5 on the test rows, a norm of the scores of
the first test rows, and the held-out score of a search. The seconds are those of one fit without warm-up and are not
compared. A case that fails is a row with an error. All fits have ``random_state=0`` and one thread; slow fits use the
first rows only. Models without features are scored on held-out positives, and matrix completion on the training rows,
whose labels were mostly hidden.

``--pairs OTHER_SRC`` times fits of the imported labelgap ("new") and of another tree ("old"), each in its own process
after a fit to warm up. The two alternate; the result is the median of the ratios. CPU seconds are those of all
threads; other processes change them less than the elapsed time.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.neighbors import kneighbors_graph

import labelgap
from benchmarks.common import normalised
from benchmarks.house import estimators, markdown
from labelgap import LEML, OneClassMF
from labelgap.metrics import precision_at_k

DEPTHS = (1, 3, 5)
LOSSES = ("squared", "logistic", "squared_hinge")
SCORED = 200  # number of test rows whose scores are compared
TOLERANCE = 1e-6
FIGURES = ("objective", *(f"P@{k}" for k in DEPTHS), "scores", "held-out score")
Result = dict[str, Any]


@dataclass(frozen=True)
class Data:
    """Training and test data; for a model without features X is None, and Y_test are positives held out from Y."""

    X: Any
    Y: Any
    X_test: Any
    Y_test: Any

    def first(self, n: int) -> Data:
        """Return the first rows of each."""
        return Data(self.X[:n], self.Y[:n], self.X_test[:n], self.Y_test[:n])

    def featureless(self) -> Data:
        """Return labels without features, with a fifth of the positives held out."""
        train, held_out = labelgap.hold_out_positives(self.Y, 0.2, random_state=0)
        return Data(None, train, None, held_out)

    def frequent(self) -> Data:
        """Return the most frequent features and labels; the test rows are the training rows."""
        X, Y = (matrix[:, np.argsort(-matrix.count_nonzero(axis=0), kind="stable")] for matrix in (self.X, self.Y))
        X, Y = X[:, :200], Y[:, :20]
        return Data(X, Y, X, Y)

    def texts(self) -> Data:
        """Return the rows as texts with a word for each nonzero feature."""
        return replace(self, X=_texts(self.X), X_test=_texts(self.X_test))


def _texts(X: Any) -> list[str]:
    return [" ".join(f"word{column}" for column in row) for row in np.split(X.indices, X.indptr[1:-1])]


def _fit(model: Any, data: Data) -> Any:
    return model.fit(data.X, data.Y)


@dataclass(frozen=True)
class Case:
    """A model, its parameters, the number of rows (None: all), a change of the data, and the fit to time.

    ``before`` is a fit before it that is not timed.
    """

    of: type
    parameters: dict[str, Any] = field(default_factory=dict)
    rows: int | None = None
    data: Callable[[Data], Data] = lambda data: data
    fit: Callable[[Any, Data], Any] = _fit
    before: Callable[[Any, Data], Any] | None = None

    def make(self) -> Any:
        """Return the model; common parameters that its class does not have are left out."""
        parameters = {"random_state": 0, "n_jobs": 1} | self.parameters
        own = self.of().get_params()
        return self.of(
            **{name: value for name, value in parameters.items() if name in own or name in self.parameters}
        )


# --- cases ----------------------------------------------------------------------------------------------------------


def with_gaps(model: Any, data: Data) -> Any:
    """Fit with 80 % of the cells hidden."""
    return model.fit(data.X, labelgap.hide_cells(data.Y, 0.2, random_state=0))


def with_row_graph(model: Any, data: Data) -> Any:
    """Fit with a graph of the rows' five nearest neighbours."""
    graph = kneighbors_graph(data.X, 5)
    return model.fit(data.X, data.Y, row_graph=sp.csr_array(graph.maximum(graph.T)))


def with_label_graph(model: Any, data: Data) -> Any:
    """Fit with a graph of labels that occur together."""
    together = sp.csr_array(data.Y.T @ data.Y)
    return model.fit(data.X, data.Y, label_graph=together - sp.diags_array(together.diagonal()))


def with_label_features(model: Any, data: Data) -> Any:
    """Fit with random features of the labels."""
    return model.fit(data.X, data.Y, label_features=np.random.default_rng(0).standard_normal((data.Y.shape[1], 60)))


def with_row_weights(model: Any, data: Data) -> Any:
    """Fit with a random weight for each row."""
    return model.fit(data.X, data.Y, row_weights=np.random.default_rng(0).uniform(0.5, 1.5, data.Y.shape[0]))


def with_pairs_of_weights(model: Any, data: Data) -> Any:
    """Fit with a weight of the unlabelled cells for each row and for each label."""
    rng = np.random.default_rng(0)
    pair = tuple(rng.uniform(0.2, 0.5, size) for size in data.Y.shape)
    return model.set_params(weight_unlabelled=pair).fit(data.X, data.Y)


def fit_first(model: Any, data: Data) -> Any:
    """Fit nine tenths of the rows without the last labels."""
    n, L = (round(0.9 * size) for size in data.Y.shape)
    return model.fit(None if data.X is None else data.X[:n], data.Y[:n, :L])


def fit_further(model: Any, data: Data, past: bool = False) -> Any:
    """Update with the other rows and all labels."""
    n, X = round(0.9 * data.Y.shape[0]), data.X
    further = None if X is None else X[n:]
    return model.partial_fit(further, data.Y[n:], **({"past": (X[:n], data.Y[:n])} if past else {}))


def low_rank_cases(dtype: str) -> Iterator[tuple[str, Case]]:
    """Yield the cases that LEML and OneClassMF share."""
    growing = {"LEML": (LEML, {"n_components": 50}), "OneClassMF": (OneClassMF, {"n_components": 50})}
    for name, (of, parameters) in growing.items():
        case = Case(of, parameters | {"dtype": dtype})
        for loss in LOSSES:
            few = {"logistic": 1500, "squared_hinge": 500}.get(loss) if name == "LEML" else None
            yield f"{name} {loss}", replace(case, parameters=case.parameters | {"loss": loss}, rows=few)
        yield f"{name} random start", replace(case, parameters=case.parameters | {"init": "random"})
        yield f"{name} tron", replace(case, parameters=case.parameters | {"solver": "tron"}, rows=1500)
        yield f"{name} partial_fit", replace(case, before=fit_first, fit=fit_further)
        yield f"{name} partial_fit, past", replace(case, before=fit_first, fit=partial(fit_further, past=True))


def leml_cases(dtype: str) -> Iterator[tuple[str, Case]]:
    """Yield the cases of LEML only."""
    case = Case(LEML, {"n_components": 50, "dtype": dtype})
    for loss in LOSSES:
        own, few = case.parameters | {"loss": loss}, 1000 if loss == "squared_hinge" else None
        yield f"LEML {loss}, gaps", replace(case, parameters=own, fit=with_gaps, rows=few)
    yield "LEML cg", replace(case, parameters=case.parameters | {"solver": "cg"}, rows=1500)
    yield "LEML rbf", replace(case, parameters=case.parameters | {"kernel": "rbf", "alpha": 0.1}, rows=1000)
    yield "LEML two penalties", replace(case, parameters=case.parameters | {"alpha_labels": 0.1})


def one_class_cases(dtype: str) -> Iterator[tuple[str, Case]]:
    """Yield the cases of OneClassMF only."""
    case = Case(OneClassMF, {"n_components": 50, "dtype": dtype})
    alone = replace(case, data=Data.featureless)
    for loss in LOSSES:
        own = case.parameters | {"loss": loss}
        yield f"OneClassMF {loss}, no features", replace(alone, parameters=own)
    yield "OneClassMF no features, partial_fit", replace(alone, before=fit_first, fit=fit_further)
    for fit in (with_row_graph, with_label_graph, with_label_features, with_row_weights, with_pairs_of_weights):
        few = 2500 if fit is with_row_graph else None
        yield f"OneClassMF {fit.__name__.replace('_', ' ')}", replace(case, fit=fit, rows=few)
    further: dict[str, tuple[dict[str, Any], int | None]] = {
        "subsampled": ({"negatives": "subsampled"}, None),
        "gd": ({"solver": "gd"}, 1000),
        "direct": ({"loss": "squared", "weight_unlabelled": 1.0}, None),
        "loss_unlabelled logistic": ({"loss_unlabelled": "logistic"}, 1000),
        "precompute": ({"precompute": True}, None),
    }
    for name, (own, rows) in further.items():
        yield f"OneClassMF {name}", replace(case, parameters=case.parameters | own, rows=rows)


def completion_cases() -> Iterator[tuple[str, Case]]:
    """Yield the cases of matrix completion, with gaps in the labels of all rows."""
    mu, searching = {"mu": 1e-4}, {"mu": 1e-4, "label_weights": [0.1, 1.0], "n_folds": 2}
    case = Case(labelgap.MC1, mu, 300, data=Data.frequent, fit=with_gaps)
    yield "MC1", case
    yield "MC1, factored", replace(case, parameters=mu | {"solver": "factored"})
    yield "MC1, fpc", replace(case, parameters=mu | {"solver": "fpc"})
    yield "MCb", replace(case, of=labelgap.MCb)
    yield "MC1CV", replace(case, of=labelgap.MC1CV, parameters=searching)
    yield "MCbCV", replace(case, of=labelgap.MCbCV, parameters=searching)


def other_cases() -> Iterator[tuple[str, Case]]:
    """Yield the cases of all other estimators, with their default dtype."""
    grids = {"weights": [2.0**-5, 2.0**-3], "alphas": [0.25, 1.0, 4.0], "n_splits": 1, "max_iter": 5}
    table: list[tuple[str, dict[str, Any], int | None]] = [
        ("OneClassMFCV", grids | {"n_components": 32}, 2000),
        ("SLEEC", {"n_components": 50, "n_learners": 2}, None),
        ("SLEEC", {"n_components": 30, "n_learners": 1, "embedding": "als"}, 1000),
        ("SLEEC", {"n_components": 30, "n_learners": 1, "regressor": "admm", "l1": 0.1}, 1000),
        ("LocalLEML", {"n_components": 30, "n_learners": 2, "n_clusters": 2}, None),
        *(("BinaryRelevance", {"loss": loss}, None) for loss in LOSSES),
        ("BinaryRelevance", {"l1": 0.1, "threshold": 0.01}, 1500),
        ("LabelwiseSVM", {}, 1000),
        ("LabelKNN", {}, None),
        ("PLST", {"n_components": 50}, None),
        ("CPLST", {"n_components": 50}, None),
        ("CSSP", {"n_components": 50}, None),
        *(
            ("CompressedSensing", {"n_components": 80, "recovery": recovery}, 1000)
            for recovery in ("omp", "cosamp", "lasso")
        ),
        ("BayesianCS", {"n_components": 50}, 500),
        ("FastXML", {"n_estimators": 3}, 2000),
        ("WSABIE", {"n_components": 30, "max_iter": 5}, None),
        *(("NaiveBayes", {"model": model}, None) for model in ("multinomial", "bernoulli")),
        ("LPSR", {}, 1500),
    ]
    for name, own, rows in table:
        marks = [f"{value}" for value in own.values() if isinstance(value, str)] + ["l1"] * ("l1" in own)
        yield ", ".join([name, *marks]), Case(getattr(labelgap, name), own, rows)
    tagging = LEML(30, random_state=0, n_jobs=1)
    yield "Tagger", Case(labelgap.Tagger, {"estimator": tagging}, 1500, data=Data.texts)
    alone = grids | {"n_components": 32}
    yield "OneClassMFCV, no features", Case(labelgap.OneClassMFCV, alone, 2000, data=Data.featureless)
    yield (
        "OneClassMFCV, row graph",
        Case(labelgap.OneClassMFCV, alone | {"graph_alphas": [1.0]}, 2000, fit=with_row_graph),
    )


def cases() -> dict[str, Case]:
    """Return all cases by name."""
    low_rank = {
        f"{name}, {dtype}": case
        for dtype in ("float64", "float32")
        for make_cases in (low_rank_cases, leml_cases, one_class_cases)
        for name, case in make_cases(dtype)
    }
    return low_rank | dict(completion_cases()) | dict(other_cases())


def left_out(covered: dict[str, Case]) -> list[str]:
    """Return the exported label estimators without a case."""
    fitted = {case.of.__name__ for case in covered.values()}
    return [name for name, cls in estimators().items() if hasattr(cls, "decision_function") and name not in fitted]


# --- figures --------------------------------------------------------------------------------------------------------


def end(history: Any) -> float:
    """Return the final objective, summed over all parts of a model.

    >>> end([3.0, 2.0]), end([[3.0, 2.0], [4.0, 1.0]])
    (2.0, 3.0)
    """
    if len(history) and np.ndim(history[0]):
        return sum(map(end, history))
    return float(history[-1]) if len(history) else 0.0


def evaluate(model: Any, data: Data) -> Result:
    """Return the figures of a fitted model."""
    best = getattr(model, "best_estimator_", model)
    figures: Result = {}
    if getattr(best, "objective_", None):  # an update without past rows has no objective
        figures["objective"] = end(best.objective_)
    if data.X is None:
        ranking = model.recommend(np.arange(data.Y_test.shape[0]), max(DEPTHS))
        scores = ranking[1][:SCORED]
    else:
        ranking = model.predict_topk(data.X_test, max(DEPTHS))
        scores = model.decision_function(data.X_test[:SCORED])
    figures |= {f"P@{k}": 100 * precision_at_k(data.Y_test, ranking, k) for k in DEPTHS}
    figures["scores"] = fingerprint(np.asarray(scores, float))
    if hasattr(model, "best_score_"):
        figures["held-out score"] = float(model.best_score_)
    return figures


def fingerprint(scores: NDArray[np.float64]) -> float:
    """Return a norm of the centred scores with a random weight for each cell."""
    finite = np.where(np.isfinite(scores), scores, 0.0)
    return float(np.linalg.norm((finite - finite.mean()) * np.random.default_rng(0).uniform(0.5, 1.5, scores.shape)))


def run(case: Case, data: Data) -> Result:
    """Return the figures and the seconds of a case, or its error."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model, own = case.make(), case.data(data if case.rows is None else data.first(case.rows))
            if case.before is not None:
                model = case.before(model, own)
            start = time.perf_counter()
            model = case.fit(model, own)
            seconds = time.perf_counter() - start
            with labelgap.threads(1):
                return evaluate(model, own) | {"seconds": seconds}
    except Exception as error:  # the other cases may succeed
        return {"error": f"{type(error).__name__}: {error}"}


def load(name: str) -> Data:
    """Return a data set with rows of unit length."""
    dataset, X, X_test = normalised(name)
    return Data(*map(sp.csr_array, (X, dataset.Y_train, X_test, dataset.Y_test)))


def run_all(output: Path, part: str) -> None:
    """Write the figures of all cases whose names contain ``part``, after each case."""
    all_cases, data, results = cases(), load("bibtex"), {}
    missing = left_out(all_cases)
    if missing:
        results["no case"] = {"error": f"{', '.join(missing)} must be added to the cases"}
    for name, case in all_cases.items():
        if part not in name:
            continue
        results[name] = run(case, data)
        output.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        print(f"{name}: {results[name].get('error') or describe(results[name])}", flush=True)


def describe(result: Result) -> str:
    """Return a result as one line of text."""
    return ", ".join(f"{name} {value:.7g}" for name, value in result.items())


# --- comparison -----------------------------------------------------------------------------------------------------


def difference(old: float, new: float) -> float:
    """Return the relative difference of two numbers.

    >>> difference(0.0, 0.0), difference(2.0, 1.0), difference(float("nan"), float("nan"))
    (0.0, 0.5, 0.0)
    """
    if old == new or (np.isnan(old) and np.isnan(new)):
        return 0.0
    relative = abs(old - new) / max(abs(old), abs(new))
    return float("inf") if np.isnan(relative) else relative


def differences(old: Result, new: Result) -> dict[str, float]:
    """Return the relative difference of each figure; infinity if only one result has it."""
    return {
        name: difference(old[name], new[name]) if name in old and name in new else float("inf")
        for name in FIGURES
        if name in old or name in new
    }


def compare(old: dict[str, Result], new: dict[str, Result]) -> int:
    """Print a table of differences; return 1 if there are errors or differences above the tolerance."""
    lines, wrong, most = [], [], 0.0
    for name in [*old, *(name for name in new if name not in old)]:
        pair = old.get(name, {"error": "missing"}), new.get(name, {"error": "missing"})
        errors = [f"{side}: {result['error']}" for side, result in zip(("old", "new"), pair) if "error" in result]
        if errors:
            wrong.append(f"{name}: {'; '.join(errors)}")
            lines.append((name, *[""] * len(FIGURES), "error", ""))
            continue
        relative = differences(*pair)
        largest = max(relative.values())
        most = max(most, largest)
        wrong += [
            f"{name}: {figure} {pair[0].get(figure)} → {pair[1].get(figure)} ({value:.2g})"
            for figure, value in relative.items()
            if value > TOLERANCE
        ]
        cells = (f"{relative[figure]:.2g}" if figure in relative else "" for figure in FIGURES)
        lines.append((name, *cells, f"{largest:.2g}", f"{pair[1]['seconds'] / pair[0]['seconds']:.2f}"))
    print(markdown(("case", *FIGURES, "largest", "seconds, new/old"), lines))
    print(f"\nThe largest difference is {most:.2g}; {len(wrong)} above {TOLERANCE:g} or errors.")
    for line in wrong:
        print(f"- {line}")
    return 1 if wrong else 0


# --- pairs of times -------------------------------------------------------------------------------------------------


TIMED: dict[str, tuple[str, Case]] = {
    "LEML, Bibtex": ("bibtex", Case(LEML, {"n_components": 100})),
    "LEML, Eurlex, k = 256": ("eurlex", Case(LEML, {"n_components": 256})),
    "LR-wSQ, Bibtex": ("bibtex", Case(OneClassMF, {"loss": "logistic", "weight_unlabelled": 2.0**-5})),
    "SQ-wSQ, Bibtex": ("bibtex", Case(OneClassMF, {"loss": "squared", "weight_unlabelled": 2.0**-5})),
    "SLEEC, Bibtex": ("bibtex", Case(labelgap.SLEEC)),
    "one-vs-all, Bibtex": ("bibtex", Case(labelgap.BinaryRelevance)),
}


def time_here(name: str, jobs: int) -> None:
    """Print the elapsed and the CPU seconds of a second fit, and the source that was imported."""
    dataset, case = TIMED[name]
    data, case = load(dataset), replace(case, parameters=case.parameters | {"n_jobs": jobs})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        case.fit(case.make(), data)
        model = case.make()
        start = time.perf_counter(), time.process_time()
        case.fit(model, data)
        seconds = time.perf_counter() - start[0], time.process_time() - start[1]
    print(json.dumps({"seconds": seconds, "source": labelgap.__file__}))


def time_there(source: Path, name: str, jobs: int) -> tuple[float, float]:
    """Return the seconds of :func:`time_here` in a new process that imports labelgap from a folder."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.same_results", "--time", name, "--jobs", str(jobs)],
        env=os.environ | {"PYTHONPATH": str(source)},
        cwd=Path(__file__).parents[1],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    measured = json.loads(done.stdout.splitlines()[-1])
    if not Path(measured["source"]).is_relative_to(source):
        raise RuntimeError(f"{measured['source']} was imported, which is not in {source}")
    return measured["seconds"]


def summary(name: str, seconds: NDArray[np.float64]) -> tuple[str, ...]:
    """Return a table row from an array of seconds of shape (pairs, old and new, elapsed and CPU)."""
    old, new = np.median(seconds[:, :, 0], axis=0)
    ratios = seconds[:, 1] / seconds[:, 0]
    least, low, middle, high, most = np.percentile(ratios[:, 0], (0, 25, 50, 75, 100))
    spread = f"{low:.3f} – {high:.3f}", f"{least:.3f} – {most:.3f}"
    return name, f"{old:.3f}", f"{new:.3f}", f"{middle:.3f}", *spread, f"{np.median(ratios[:, 1]):.3f}"


def run_pairs(other: Path, names: Sequence[str], number: int, jobs: int) -> None:
    """Print the ratios of the seconds of two trees; they take turns in running first."""
    trees, lines = (other.resolve(), Path(labelgap.__file__).resolve().parents[1]), []
    for name in names:
        seconds = np.empty((number, 2, 2))
        for pair in range(number):
            for tree in (0, 1) if pair % 2 == 0 else (1, 0):
                seconds[pair, tree] = time_there(trees[tree], name, jobs)
            old, new = seconds[pair, :, 0]
            print(f"{name}, pair {pair + 1}: {old:.3f} s → {new:.3f} s", flush=True)
        lines.append(summary(name, seconds))
    print(f"\nold: {trees[0]}\nnew: {trees[1]}\npairs: {number}, threads: {jobs}\n")
    header = (
        "fit",
        "old, s",
        "new, s",
        "median of new/old",
        "25 % – 75 %",
        "minimum – maximum",
        "median of CPU new/old",
    )
    print(markdown(header, lines))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--output", type=Path, help="fit all cases and write their figures to this file")
    action.add_argument("--compare", nargs=2, type=Path, metavar=("OLD", "NEW"), help="files written by --output")
    action.add_argument("--pairs", type=Path, metavar="OTHER_SRC", help="compare the times of another source tree")
    action.add_argument("--time", choices=tuple(TIMED), help="time one fit, as --pairs does in each tree")
    parser.add_argument("--only", default="", help="with --output or --pairs: cases whose names contain this text")
    parser.add_argument("--number", type=int, default=7, help="number of pairs")
    parser.add_argument("--jobs", type=int, default=1, help="number of threads of the timed fits")
    args = parser.parse_args()
    if args.compare:
        sys.exit(compare(*(json.loads(path.read_text(encoding="utf-8")) for path in args.compare)))
    if args.time:
        time_here(args.time, args.jobs)
    elif args.pairs:
        run_pairs(args.pairs, [name for name in TIMED if args.only in name], args.number, args.jobs)
    else:
        print(f"labelgap of {Path(labelgap.__file__).parent}")
        run_all(args.output, args.only)


if __name__ == "__main__":
    main()
