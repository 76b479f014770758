"""Experiments behind the reasons for published numbers that are not reached (docs/results/README.md).

Run as ``python -m benchmarks.paper_misses [PART …]``. Everything is chosen and measured on held-out parts of the
training data, except the last columns of ``frequency``, ``yeast`` and ``missing``, and ``ceiling``, ``draws`` and
``errors``, which choose nothing.

``frequency``: ml-100k with penalties α (count / mean count)^ν of users and items, as Rendle et al. 2022 propose.
``ceiling``: ml-100k, the best that any point of a coarser grid and any alternation give on the test part itself.
``grid``: ml-100k, every point of the paper's grid on two held-out parts and the best ones on five, beside the search.
``splits``: random splits with the parameters of the given one: Eurlex with the paper's sizes too, and Delicious.
``nystroem``: Delicious with Nyström features: lengths of rows, widths of the kernel, landmarks and penalties.
``yeast``: MC-1 and MC-b with μ chosen by label error and by imputation error, one draw of known cells.
``errors``: emotions and yeast, both errors of MC-1 and MC-b at the hidden cells for each μ, one draw.
``draws``: mean and EM imputation of generated data, over 200 draws.
``missing``: Bibtex with few known cells: BR and LEML with α chosen by all metrics of the paper's tables and by P@1.
``neighbors``: kNN on Delicious and Eurlex: rows as they are, with idf, of length one; votes by similarity or equal.
``fastxml``: Bibtex: the penalty of the separators, with rows of length one and as they are.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.impute import SimpleImputer
from sklearn.model_selection import KFold, train_test_split
from sklearn.pipeline import Pipeline

from benchmarks.common import normalised, show
from labelgap import MC1, FastXML, LabelKNN, MCb, OneClassMF, load_dataset
from labelgap.datasets import load_interactions
from labelgap.estimators import EMImputer, KMeansNystroem
from labelgap.metrics import evaluate, imputation_error, standard_metrics
from labelgap.model_selection import MC1CV, MCbCV, score_batches
from labelgap.model_selection.one_class_cv import ALPHAS as ALL_ALPHAS
from labelgap.observations import as_labels, hold_out_positives
from labelgap_papers import RunOptions, Setting, list_experiments
from labelgap_papers.journal import Journal, Key
from labelgap_papers.mc_tables import PUBLISHED_EM, PUBLISHED_LOOP
from labelgap_papers.one_class_tables import FORMS, MAX_ALTERNATIONS
from labelgap_papers.paper_methods import Task
from labelgap_papers.study import Study, normalize_setting
from labelgap_papers.trials import CELL_SOURCES, format_synthetic_name

DEPTHS = (1, 3, 5)
N_SEEDS = 2
FREQUENCY_POWERS = (0.0, 0.5, 1.0)
WEIGHTS, ALPHAS, ALTERNATIONS = (1.0, 0.25, 0.0625, 0.015625), (32.0, 16.0, 8.0, 4.0, 2.0), (1, 3, 8)
LENGTH_POWERS = {"length one": 1.0, "√length": 0.5, "as they are": 0.0}
# Factor of the width, landmarks, penalty, alternations.
KERNELS = [(0.5, 500, 2.0, 1), (1.0, 500, 2.0, 1), (2.0, 500, 2.0, 1), (4.0, 500, 2.0, 1), (8.0, 500, 2.0, 1)]
FURTHER_KERNELS = [(2.0, 500, 0.5, 1), (4.0, 1000, 1.0, 1), (4.0, 1000, 0.5, 2), (4.0, 2000, 2.0, 1)]


def measure(batches: Any) -> list[float]:
    """Return P@1, P@3 and P@5 in percent."""
    values = evaluate(standard_metrics(DEPTHS), batches)
    return [100 * values[f"P@{k}"] for k in DEPTHS]


# --- penalties by frequency -----------------------------------------------------------------------------------------


def scale_by_count(positives: sp.csr_array, axis: int, weight: float, power: float) -> np.ndarray:
    """Return (count / mean count)^power of each row or column; a cell counts as much as it weighs."""
    counts = np.asarray((positives > 0).sum(axis)).ravel() + weight * positives.shape[axis]
    return (counts / counts.mean()) ** power


def recommend(train: Any, test: Any, weight: float, alpha: float, power: float, max_iter: int) -> list[float]:
    """Return the precision of SQ-wSQ with penalties by frequency."""
    penalties: dict[str, Any] = {
        name: alpha * scale_by_count(train, axis, weight, power) for name, axis in (("alpha", 1), ("alpha_labels", 0))
    }
    if power == 0:
        penalties = {"alpha": alpha}
    model = OneClassMF(64, loss="squared", weight_unlabelled=weight, max_iter=max_iter, tol=0.0, random_state=0)
    model.set_params(**penalties).fit(None, train)
    users = np.flatnonzero(np.diff(test.indptr))
    return measure([(as_labels(test[users]), model.recommend(users, max(DEPTHS), exclude_seen=True))])


def frequency() -> None:
    """Print the best point of each power on a fifth of the training positives, and its precision on the test part."""
    positives, rows = load_interactions("ml-100k").positives(), []
    for seed in range(N_SEEDS):
        train, test = hold_out_positives(positives, 0.1, random_state=seed)
        part, held_out = hold_out_positives(train, 0.2, random_state=seed)
        for power in FREQUENCY_POWERS:
            points = [(w, a, power, count) for w, a, count in product(WEIGHTS, ALPHAS, ALTERNATIONS)]
            scores = [np.exp(np.mean(np.log(recommend(part, held_out, *point)))) for point in points]
            best = points[int(np.argmax(scores))]
            rows.append((seed, power, *best[:2], best[3], max(scores), *recommend(train, test, *best)))
    names = ("seed", "ν", "weight", "α", "alternations", "mean P@k, held out", "test P@1", "P@3", "P@5")
    show("ml-100k, SQ-wSQ, penalties by frequency", names, rows)


# --- every point of a grid ------------------------------------------------------------------------------------------

N_BEST_POINTS = 5


def grid(methods: Sequence[str] = ("SQ-SQ", "SQ-wSQ", "LR-wSQ")) -> None:
    """Print what the search and the whole grid choose, the held-out score, and P@k on the test part."""
    positives, rows = load_interactions("ml-100k").positives(), []
    for seed, method in product(range(N_SEEDS), methods):
        form = FORMS[method]
        train, test = hold_out_positives(positives, 0.1, random_state=seed)
        search = form.make_search(
            Task(None, as_labels(train), 64, form.loss, seed, criteria=("P@1", "P@3", "P@5")), False
        )

        def find(point: dict[str, list[float]], n_splits: int, search: Any = search, train: Any = train) -> Any:
            return clone(search).set_params(n_splits=n_splits, **point).fit(None, train)

        found = {"search": clone(search).fit(None, train)}
        points = [{"weights": [w], "alphas": [a]} for w, a in product(form.weights, search.alphas or ())]
        points.sort(key=lambda point: -find(point, 2).best_score_)
        found["grid"] = max(
            (find(point, search.n_splits) for point in points[:N_BEST_POINTS]), key=attrgetter("best_score_")
        )
        users = np.flatnonzero(np.diff(test.indptr))
        for name, model in found.items():
            best = model.recommend(users, max(DEPTHS), exclude_seen=True)
            rows.append(
                (
                    method,
                    seed,
                    name,
                    *model.best_params_.values(),
                    model.best_score_,
                    *measure([(as_labels(test[users]), best)]),
                )
            )
            print(rows[-1], flush=True)
    names = ("method", "split", "chosen by", "weight", "α", "alternations", "held out", "P@1", "P@3", "P@5")
    show("ml-100k, the search and the whole grid", names, rows)


# --- the best of a grid on the test part ---------------------------------------------------------------------------

COARSE = slice(None, None, 2)  # of the powers of two
GRAPH_WEIGHTS = [2.0**power for power in (-6, -3, 0, 3, 6)]
CEILING_METHODS = ("SQ-wSQ", "LR-wSQ", "SQ-SQ (graph)", "SQ-wSQ (graph)", "LR-wSQ (graph)")


def find_ceiling(method: str, seed: int) -> NDArray:
    """Return the largest P@k and nDCG@k, k = 1, …, 5, on the test part, over points of the grid and alternations.

    It bounds what any choice of parameters gives on this split.
    """
    data, form = load_interactions("ml-100k"), FORMS[method.removesuffix(" (graph)")]
    train, test = hold_out_positives(data.positives(), 0.1, random_state=seed)
    users, seen, best = np.flatnonzero(np.diff(test.indptr)), train.toarray() > 0, np.zeros(10)

    def record(iteration: Any) -> None:
        scores = iteration.feature_factors[users] @ iteration.label_factors.T
        scores[seen[users]] = -np.inf
        values = evaluate(standard_metrics(range(1, 6)), [(as_labels(test[users]), scores)])
        best[:] = np.maximum(best, [100 * values[f"{name}@{k}"] for name in ("P", "nDCG") for k in range(1, 6)])

    graph_weights = [form.scale * weight for weight in GRAPH_WEIGHTS] if "graph" in method else [0.0]
    task = Task(None, as_labels(train), 64, form.loss, seed)
    for weight, alpha, gamma in product(form.weights[COARSE], ALL_ALPHAS[COARSE], graph_weights):
        params = form.fixed_params(task) | {"weight_unlabelled": weight, "alpha": form.scale * alpha}
        model = OneClassMF(**params, graph_alpha=gamma, max_iter=MAX_ALTERNATIONS, tol=0.0, callbacks=[record])
        model.fit(None, train, row_graph=data.row_graph if gamma else None)
    return best


def ceiling() -> None:
    """Print the ceiling of each method on each split, as it is found."""
    rows = []
    for seed, method in product(range(N_SEEDS), CEILING_METHODS):
        rows.append((method, seed, *find_ceiling(method, seed)))
        print(rows[-1], flush=True)
    show(
        "ml-100k, the best on the test part",
        ("method", "split", *(f"{n}@{k}" for n in ("P", "nDCG") for k in range(1, 6))),
        rows,
    )


# --- random splits with chosen parameters ---------------------------------------------------------------------------

RESULTS = Path("docs/results/measurements.jsonl")
# Training rows: those of the files at hand, and on Eurlex also those of the paper, 17,413 of 19,348.
SPLITS = [("eurlex", "SQ-wSQ", 15_539), ("eurlex", "SQ-wSQ", 17_413), ("delicious", "LR-LR (S)", 12_920)]


def splits() -> None:
    """Print P@k of one-class methods on random splits, with the parameters chosen on the given split."""
    numbers, journal, rows = list_experiments()["one_class/table-supp-3"].numbers, Journal(RESULTS), []
    for (name, method, size), seed in product(SPLITS, range(N_SEEDS)):
        setting = next(n.setting for n in numbers if (n.setting.dataset, n.setting.method) == (name, method))
        params = journal.entries[Key(normalize_setting(setting), 0)].measurements[0].params
        data, *features = normalised(name)
        X, Y = (sp.vstack(parts, format="csr") for parts in (features, (data.Y_train, data.Y_test)))
        train, test = np.split(np.random.RandomState(seed).permutation(X.shape[0]), [size])
        form = FORMS[method]
        fixed = form.fixed_params(Task(X[train], as_labels(Y[train]), setting.k or 0, form.loss, seed))
        model = OneClassMF(**fixed, **params, tol=0.0).fit(X[train], Y[train])
        rows.append(
            (name, method, size, seed, *measure(score_batches(model, X[test], as_labels(Y[test]), max(DEPTHS))))
        )
        print(rows[-1], flush=True)
    show("Random splits", ("data", "method", "training rows", "seed", "P@1", "P@3", "P@5"), rows)


# --- Nyström features -----------------------------------------------------------------------------------------------


def rescale(X: Any, power: float) -> Any:
    """Return rows divided by (length / mean length)^power · mean length."""
    lengths = np.sqrt(np.asarray(X.multiply(X).sum(1)).ravel())
    mean = lengths.mean()
    factors = (np.where(lengths > 0, lengths, 1) / mean) ** -power / mean
    return sp.csr_array(sp.diags_array(factors) @ X)


def nystroem() -> None:
    """Print P@k on a fifth of the training rows of Delicious, without and with Nyström features."""
    data, rows = load_dataset("delicious"), []
    train, test = train_test_split(np.arange(data.X_train.shape[0]), test_size=0.2, random_state=0)
    for name, power in LENGTH_POWERS.items():
        X = rescale(data.X_train, power)
        for kernel in [None, *KERNELS, *(FURTHER_KERNELS if power == 1 else ())]:
            _, _, alpha, max_iter = kernel or KERNELS[0]
            options = {"weight_unlabelled": 0.25, "alpha": alpha, "max_iter": max_iter, "tol": 0.0}
            model: Any = OneClassMF(300, loss="logistic", random_state=0, **options)
            if kernel is not None:
                features = KMeansNystroem(
                    kernel[1], append=True, gamma="median", gamma_factor=kernel[0], random_state=0
                )
                model = Pipeline([("features", features), ("model", model)])
            model.fit(X[train], data.Y_train[train])
            found = measure(score_batches(model, X[test], as_labels(data.Y_train[test]), max(DEPTHS)))
            rows.append((name, *(kernel or ("none", "", alpha, max_iter)), *found))
    names = ("rows", "width", "landmarks", "α", "alternations", "P@1", "P@3", "P@5")
    show("delicious, LR-wSQ with Nyström features, held-out training rows", names, rows)


# --- FastXML --------------------------------------------------------------------------------------------------------


def fastxml() -> None:
    """Print P@k of FastXML with 30 trees over three folds of the training rows of Bibtex."""
    data = load_dataset("bibtex")

    def score(X: Any, alpha: float) -> Iterator[list[float]]:
        for fold, (train, test) in enumerate(KFold(3, shuffle=True, random_state=0).split(X)):
            model = FastXML(30, alpha=alpha, random_state=fold).fit(X[train], data.Y_train[train])
            yield measure(score_batches(model, X[test], as_labels(data.Y_train[test]), max(DEPTHS)))

    settings = [("length one", 1.0, alpha) for alpha in (0.5, 0.25, 0.125)] + [("as they are", 0.0, 1.0)]
    rows = []
    for name, power, alpha in settings:
        X = rescale(data.X_train, 1.0) if power else sp.csr_array(data.X_train)
        rows.append((name, alpha, *np.mean(list(score(X, alpha)), axis=0)))
    show("bibtex, FastXML, three folds", ("rows", "α", "P@1", "P@3", "P@5"), rows)


# --- yeast ----------------------------------------------------------------------------------------------------------


def yeast() -> None:
    """Print both errors of MC-1 and MC-b at the hidden cells, with μ chosen by either on known cells."""
    rows = []
    for observed, search in product((0.4, 0.6, 0.8), (MC1CV, MCbCV)):
        setting = Setting("yeast", search.__name__, "logistic", observed)
        cells = CELL_SOURCES["yeast"]().trial(observed, 0)
        for criterion in ("label_error", "imputation_error"):
            model = search(label_weights=[1.0], criterion=criterion, random_state=0, **PUBLISHED_LOOP)
            model.fit(cells.X, cells.Y)
            errors = cells.measure(model, setting)
            rows.append((search.__name__, observed, criterion, model.best_params_["mu"], *errors.values()))
            print(rows[-1], flush=True)
    names = ("search", "known", "μ chosen by", "μ", "imputation error", "label error, %")
    show("yeast, one draw", names, rows)


def errors(methods: Sequence[type] = (MC1, MCb)) -> None:
    """Print both errors at the hidden cells for each μ of the path: what any choice of μ could give."""
    rows = []
    for (name, shares), method in product({"emotions": (0.4, 0.8), "yeast": (0.4, 0.6, 0.8)}.items(), methods):
        for observed in shares:
            setting, cells = (
                Setting(name, method.__name__, "logistic", observed),
                CELL_SOURCES[name]().trial(observed, 0),
            )
            model = method(**PUBLISHED_LOOP).fit(cells.X, cells.Y)
            for mu in [stage["mu"] for stage in model.path_]:
                values = cells.measure(model.set_params(mu=mu).fit(cells.X, cells.Y), setting)
                rows.append((name, method.__name__, observed, mu, *values.values()))
                print(rows[-1], flush=True)
    names = ("data", "method", "known", "μ", "imputation error", "label error, %")
    show("Errors by μ, one draw", names, rows)


# --- imputers on generated data -------------------------------------------------------------------------------------

N_DRAWS = 200
IMPUTERS: dict[str, Any] = {"Mean": SimpleImputer(keep_empty_features=True)}
IMPUTERS |= {"EM1, as published": EMImputer(1, **PUBLISHED_EM), "EM1": EMImputer(1)}


def draws() -> None:
    """Print the mean and the standard deviation of an imputer's error over many draws of 100 rows, 10 % known."""
    rows = []
    for (name, imputer), rank in product(IMPUTERS.items(), (2, 4)):
        source, found = CELL_SOURCES[format_synthetic_name(100, rank, 0.01)](), []
        for seed in range(N_DRAWS):
            cells = source.trial(0.1, seed)
            filled = clone(imputer).fit_transform(cells.X)
            found.append(imputation_error(cells.X_true, filled, np.isnan(cells.X)))
        rows.append((name, rank, np.mean(found), np.std(found, ddof=1)))
    show(f"Imputation error, {N_DRAWS} draws", ("imputer", "rank", "mean", "standard deviation"), rows)


# --- few known cells ------------------------------------------------------------------------------------------------

FEW_CELLS = [Setting("bibtex", "BR", "logistic", observed) for observed in (0.05, 0.1, 0.2)]
FEW_CELLS += [Setting("bibtex", "LEML", "logistic", 0.05, k_ratio=ratio) for ratio in (0.4, 0.6)]


def missing() -> None:
    """Print P@1 and AUC on the test part, with α chosen by P@3, Hamming loss and AUC together, and by P@1 alone."""
    rows, study = [], Study(RunOptions())
    for setting, seed in product(FEW_CELLS, range(N_SEEDS)):
        for criteria in (setting.criteria, ("P@1",)):
            found = study.measure(replace(setting, criteria=criteria), seed)
            values = found.metrics["P@1"], found.metrics.get("AUC", float("nan"))
            rows.append((setting.method, setting.observed, seed, ", ".join(criteria), found.params["alpha"], *values))
            print(rows[-1], flush=True)
    show("bibtex, logistic loss", ("method", "known", "mask", "α chosen by", "α", "P@1", "AUC"), rows)


# --- neighbours -----------------------------------------------------------------------------------------------------

NEIGHBORS = (5, 7, 10, 14, 20, 28, 40, 57)


def weigh_by_idf(X: Any) -> Any:
    """Return the rows with each feature times log(n / rows that have it)."""
    counts = np.asarray((X != 0).sum(0)).ravel()
    return sp.csr_array(X @ sp.diags_array(np.log(X.shape[0] / np.maximum(counts, 1))))


def neighbors() -> None:
    """Print the best number of neighbours and its P@k on a fifth of the training rows, for each kind of rows."""
    rows = []
    for name in ("delicious", "eurlex"):
        data = load_dataset(name)
        train, test = train_test_split(np.arange(data.X_train.shape[0]), test_size=0.2, random_state=0)
        kinds = {"as they are": sp.csr_array(data.X_train), "idf": weigh_by_idf(data.X_train)}
        for (kind, X), metric, weights in product(kinds.items(), ("cosine", "euclidean"), ("similarity", "uniform")):
            found = []
            for count in NEIGHBORS:
                model = LabelKNN(count, metric=metric, weights=weights).fit(X[train], data.Y_train[train])
                found.append(measure(score_batches(model, X[test], as_labels(data.Y_train[test]), max(DEPTHS))))
            best = max(range(len(found)), key=lambda i: np.prod(found[i]))
            rows.append((name, kind, metric, weights, NEIGHBORS[best], *found[best]))
            print(rows[-1], flush=True)
    show("kNN, held-out training rows", ("data", "rows", "metric", "votes", "k", "P@1", "P@3", "P@5"), rows)


PARTS: dict[str, Callable[[], None]] = {
    "frequency": frequency,
    "grid": grid,
    "ceiling": ceiling,
    "splits": splits,
    "nystroem": nystroem,
    "fastxml": fastxml,
    "yeast": yeast,
    "errors": errors,
    "draws": draws,
    "missing": missing,
    "neighbors": neighbors,
}


def main() -> None:
    """Run the parts that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], help="parts to run (default: all)")
    warnings.simplefilter("ignore")
    for part in parser.parse_args().parts or PARTS:
        PARTS[part]()


if __name__ == "__main__":
    main()
