"""Checkpoints: what is kept is what was done, damage does no harm, and a stopped fit ends at the same model."""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp
from typer.testing import CliRunner

from labelgap import LEML, LPSR, SLEEC, WSABIE, BinaryRelevance, FastXML, LocalLEML, OneClassMF, Tagger, load
from labelgap import audit as run_audit
from labelgap import complete as run_complete
from labelgap.checkpoints import (
    MANIFEST,
    Checkpoint,
    CheckpointError,
    checkpoint_call,
    checkpoint_calls,
    checkpointing,
    pack_values,
    slot,
    unpack_values,
)
from labelgap.cli import app
from labelgap.datasets import read, write
from labelgap.gaps.filling import HeldOutCells
from labelgap.runtime import progress, report_progress, run_parallel, scope, threads, write_atomically

RUN = {"data": "abc", "seed": 0}


def opened(folder, **options):
    return checkpointing(folder, RUN, **{"interval": 0.0} | options)


def left_open(folder, work):
    """Run work in a checkpoint that is interrupted after it."""
    with suppress(KeyboardInterrupt), opened(folder):
        work()
        raise KeyboardInterrupt


def pieces(folder):
    return sorted(folder.glob("*.piece"))


# --- slots ---------------------------------------------------------------------------------------------------------


def test_outside_nothing_is_kept():
    piece = slot("a")
    piece.keep({"x": np.ones(2)})
    assert not piece.active
    assert piece.recall() is None


def test_what_is_kept_comes_back(tmp_path):
    given = {
        "a": np.arange(6.0).reshape(2, 3).T,
        "b": np.float32(1.5),
        "file": np.array(["é", "ab"]),
        "none": np.empty(0),
    }
    left_open(tmp_path / "c", lambda: slot("x").keep(given))
    assert not list((tmp_path / "c").glob(".*"))
    with opened(tmp_path / "c"):
        found = slot("x").recall()
    assert found.keys() == given.keys()
    for name, value in given.items():
        np.testing.assert_array_equal(found[name], value)
        assert found[name].dtype == np.asarray(value).dtype
    assert not (tmp_path / "c").exists()


def test_places_and_repetitions_do_not_collide(tmp_path):
    def work(check):
        for fold in range(2):
            with scope(f"fold {fold}"):
                for time in range(2):
                    check(slot("LEML"), 10 * fold + time)
        check(slot("LEML"), 99)

    left_open(tmp_path / "c", lambda: work(lambda piece, number: piece.keep({"number": number})))
    assert len(pieces(tmp_path / "c")) == 5
    seen = []
    left_open(
        tmp_path / "c", lambda: work(lambda piece, number: seen.append((int(piece.recall()["number"]), number)))
    )
    assert [found for found, _ in seen] == [wanted for _, wanted in seen] == [0, 1, 10, 11, 99]


@pytest.mark.parametrize("n_jobs", [1, 3])
def test_tasks_have_places_of_their_own(tmp_path, n_jobs):
    def task(number):
        slot("inner").keep({"number": number})
        return HeldOutCells(*(np.array([number]) for _ in range(4)))

    def again(number):
        return int(slot("inner").recall()["number"])

    def run(task):
        with threads(n_jobs):
            return list(run_parallel([partial(task, number) for number in range(7)]))

    left_open(tmp_path / "c", lambda: run(task))
    with opened(tmp_path / "c"):
        assert run(again) == list(range(7))


def test_values_of_every_kind_come_back():
    csr = sp.csr_array(np.eye(3))
    found = unpack_values(
        pack_values({"a": csr, "b": {"c": np.arange(2), "d": None}, "e": (1, "x"), "f": np.int64(3)})
    )
    assert (found["a"] != csr).nnz == 0
    assert found["b"]["c"].tolist() == [0, 1]
    assert (found["b"]["d"], found["e"], found["f"]) == (None, [1, "x"], 3)


def test_objects_are_refused(tmp_path):
    with pytest.raises(TypeError, match="x holds Python objects"), opened(tmp_path / "c"):
        slot("a").keep({"x": np.array([{}])})


# --- when pieces are written ---------------------------------------------------------------------------------------


def test_writing_is_rare_and_the_last_state_is_not_lost(tmp_path):
    folder = tmp_path / "c"
    with suppress(KeyboardInterrupt), opened(folder, interval=1e9, share=0.0):
        kept = slot("state")
        kept.keep({"n": 1})
        (first,) = pieces(folder)
        before = first.read_bytes()
        for n in range(2, 50):
            kept.keep({"n": n})
            slot("other").keep({"n": n})
        assert pieces(folder) == [first]
        assert first.read_bytes() == before
        assert int(kept.recall()["n"]) == 49
        raise KeyboardInterrupt
    assert len(pieces(folder)) == 49
    with opened(folder):
        assert int(slot("state").recall()["n"]) == 49


# --- damage --------------------------------------------------------------------------------------------------------


def torn(data):
    return data[: len(data) // 2]


def flipped(data):
    at = data.index(np.arange(100, 200).tobytes()) + 8
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@pytest.mark.parametrize("damage", [torn, flipped, lambda data: b"", lambda data: b"no zip"])
def test_a_damaged_piece_is_computed_again(tmp_path, damage):
    folder = tmp_path / "c"

    def work():
        return int(
            checkpoint_call("sum", lambda: HeldOutCells(*[np.arange(100, 200)] * 4), HeldOutCells).labels.sum()
        )

    left_open(folder, work)
    (path,) = pieces(folder)
    path.write_bytes(damage(path.read_bytes()))
    with opened(folder):
        assert slot("sum").recall() is None
    left_open(folder, work)
    (path,) = pieces(folder)
    path.write_bytes(damage(path.read_bytes()))
    with opened(folder):
        assert work() == np.arange(100, 200).sum()


def test_a_piece_of_other_content_is_not_taken(tmp_path):
    """A whole zip whose arrays are not those of its checksum."""
    folder = tmp_path / "c"
    left_open(folder, lambda: slot("a").keep({"x": np.ones(3)}))
    (path,) = pieces(folder)
    with np.load(path) as kept:
        changed = dict(kept) | {"array.x": np.zeros(3)}
    with open(path, "wb") as stream:
        np.savez(stream, **changed)
    with opened(folder):
        assert slot("a").recall() is None


def test_an_unreadable_manifest_is_written_anew(tmp_path):
    folder = tmp_path / "c"
    left_open(folder, lambda: slot("a").keep({"x": 1}))
    (folder / MANIFEST).write_text("{")
    with opened(folder):
        assert slot("a").recall()["x"] == 1
        assert json.loads((folder / MANIFEST).read_text())["fingerprint"] == RUN


def test_a_run_writes_over_what_it_left_unfinished(tmp_path):
    """As a process that is killed while it writes: neither its file nor anything beside it remains."""
    folder, output = tmp_path / "c", tmp_path / "out"

    def die():
        slot("a").keep({"x": 1})
        writing = write_atomically(output)
        stream = writing.__enter__()
        stream.write(b"half")
        stream.flush()
        never_left.append(writing)

    never_left = []  # nobody cleans up after a kill
    left_open(folder, die)
    assert len(list(tmp_path.glob(".out.*.part"))) == 1
    with opened(folder), write_atomically(output) as stream:
        stream.write(b"whole")
    assert output.read_bytes() == b"whole"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


# --- whose folder it is --------------------------------------------------------------------------------------------


def test_another_run_is_an_error_that_helps(tmp_path):
    folder = tmp_path / "c"
    left_open(folder, lambda: slot("a").keep({"x": 1}))
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    message = "c is the checkpoint of another run, which differs in --alpha, seed; remove that folder"
    with pytest.raises(CheckpointError, match=message), checkpointing(folder, RUN | {"seed": 1, "--alpha": 2}):
        pytest.fail("it began")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_foreign_folder_is_left_alone(tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.png").write_bytes(b"cat")
    with pytest.raises(
        CheckpointError, match=r"not a checkpoint and not empty \(it holds cat.png\); pass a new folder"
    ):
        opened(tmp_path / "photos").__enter__()
    assert [path.name for path in (tmp_path / "photos").iterdir()] == ["cat.png"]
    with pytest.raises(CheckpointError, match="is a file"):
        opened(tmp_path / "photos" / "cat.png").__enter__()
    with pytest.raises(FileNotFoundError, match="create it first"):
        opened(tmp_path / "no" / "where").__enter__()


def test_only_our_files_are_removed(tmp_path):
    (tmp_path / "c").mkdir()
    with opened(tmp_path / "c"):
        slot("a").keep({"x": 1})
        (tmp_path / "c" / "notes.txt").write_text("mine")
    assert [path.name for path in (tmp_path / "c").iterdir()] == ["notes.txt"]


def test_an_error_before_any_piece_leaves_no_folder(tmp_path):
    with pytest.raises(ValueError, match="wrong"), opened(tmp_path / "c"):
        raise ValueError("wrong")
    assert not (tmp_path / "c").exists()


# --- estimators that are stopped and go on -------------------------------------------------------------------------


def planted(n=60, d=8, L=6, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    return X, (X @ rng.standard_normal((d, 3)) @ rng.standard_normal((3, L)) > 0.4).astype(float)


def gappy(**options):
    X, Y = planted(**options)
    return X, np.where(np.random.default_rng(1).random(Y.shape) < 0.7, Y, np.nan)


MANY = {"n": 40, "L": 150}
ESTIMATORS = {
    "LEML": (LEML(3, tol=1e-4, random_state=0), gappy),
    "LEML, direct": (LEML(3, tol=1e-3, random_state=0), planted),
    "LEML, at most so many": (
        LEML(3, loss="logistic", max_iter=300, tol=1e-4, dtype="float64", random_state=0),
        gappy,
    ),
    "OneClassMF": (OneClassMF(3, tol=1e-3, random_state=0), planted),
    "OneClassMF, sampled": (OneClassMF(3, tol=1e-3, negatives="subsampled", random_state=0), planted),
    "WSABIE": (WSABIE(3, max_iter=6, random_state=0), gappy),
    "WSABIE, rows held out": (WSABIE(3, max_iter=8, validation_share=0.3, patience=2, random_state=0), planted),
    "WSABIE, neighbours": (WSABIE(3, max_iter=3, predict_by="neighbors", random_state=0), planted),
    "BinaryRelevance": (BinaryRelevance(0.1), partial(planted, **MANY)),
    "BinaryRelevance, sparse": (BinaryRelevance(0.1, loss="logistic", l1=0.5), partial(gappy, **MANY)),
    "LPSR": (LPSR(n_clusters=3, n_candidates=4, random_state=0), partial(planted, **MANY)),
    "FastXML": (FastXML(4, random_state=0), planted),
    "SLEEC": (SLEEC(3, n_clusters=2, n_learners=2, n_neighbors=5, random_state=0), planted),
    "LocalLEML": (LocalLEML(2, n_clusters=2, n_learners=2, max_iter=200, random_state=0), planted),
}


@pytest.fixture
def stop_after(monkeypatch):
    """Return a function that makes the j-th piece from now on the last one; it returns the list of pieces kept."""
    keep = Checkpoint.keep

    def stop(last):
        kept = []

        def counted(self, path, arrays):
            keep(self, path, arrays)
            kept.append(path)
            if len(kept) == last:
                raise KeyboardInterrupt

        monkeypatch.setattr(Checkpoint, "keep", counted)
        return kept

    return stop


def resumed_at_pieces(folder, work, stop_after, moments=6):
    """Yield what work returns, after it was stopped at one of its pieces and gone on with; from first to last."""
    all_kept = stop_after(None)
    with opened(folder):
        work()
    total = len(all_kept)
    assert total > 1
    for last in np.unique(np.linspace(1, total, moments).astype(int)):
        stop_after(last)
        with pytest.raises(KeyboardInterrupt), opened(folder):
            work()
        again = stop_after(None)
        with opened(folder):
            yield work()
        assert len(again) == total - last, "what was done is not done again"
        assert not folder.exists()


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_stopped_fit_ends_at_the_same_model(name, tmp_path, stop_after):
    estimator, make = ESTIMATORS[name]
    X, Y = make()
    estimator.set_params(n_jobs=1)
    expected = estimator.fit(X, Y).decision_function(X)
    status = getattr(estimator, "status_", None)

    def work():
        estimator.fit(X, Y)
        return estimator.decision_function(X), getattr(estimator, "status_", None)

    for scores, ended in resumed_at_pieces(tmp_path / "c", work, stop_after):
        np.testing.assert_array_equal(scores, expected)
        assert ended == status


def test_a_stopped_fit_on_many_features_goes_on_from_its_last_step(tmp_path, stop_after):
    rng = np.random.default_rng(0)
    X = sp.random_array((1_100, 1_200), density=0.02, format="csr", rng=rng)
    scores = X @ rng.normal(size=(1_200, 20))
    Y = (scores > np.quantile(scores, 0.9)).astype(float)
    Y[rng.random(Y.shape) < 0.2] = np.nan
    estimator = LEML(4, loss="logistic", max_iter=5, tol=0.0, dtype="float64", random_state=0, n_jobs=1)

    def work():
        return estimator.fit(X, Y).decision_function(X), estimator.objective_

    expected, history = work()
    assert len(history) == 5
    for found, again in resumed_at_pieces(tmp_path / "c", work, stop_after, moments=3):
        np.testing.assert_allclose(again, history, rtol=1e-9)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_a_stopped_tagger(tmp_path, stop_after):
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(list("abcdefgh"), 4) + "x") for _ in range(60)]
    Y = np.array([[letter + "x" in text for letter in "abcdefgh"] * 20 for text in texts]).astype(int)
    tagger = Tagger(n_jobs=1)
    expected = tagger.fit(texts, Y).decision_function(texts)
    work = partial(lambda: tagger.fit(texts, Y).decision_function(texts))
    for scores in resumed_at_pieces(tmp_path / "c", work, stop_after):
        np.testing.assert_array_equal(scores, expected)


@pytest.mark.parametrize("n_jobs", [2, 3])
def test_threads_change_nothing(n_jobs, tmp_path, stop_after):
    X, Y = planted()
    model = LocalLEML(2, n_clusters=3, n_learners=2, max_iter=200, random_state=0)
    expected = model.fit(X, Y).decision_function(X)
    stop_after(4)
    with pytest.raises(KeyboardInterrupt), opened(tmp_path / "c"):
        model.set_params(n_jobs=n_jobs).fit(X, Y)
    again = stop_after(None)
    with opened(tmp_path / "c"):
        found = model.fit(X, Y).decision_function(X)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert len(again) > 0


def test_callbacks_are_told_of_every_alternation(tmp_path, stop_after):
    X, Y = gappy()
    told = []
    model = LEML(
        3, tol=1e-4, random_state=0, callbacks=[lambda iteration: told.append(iteration.number) or len(told) == 2]
    )
    with suppress(KeyboardInterrupt), opened(tmp_path / "c"):
        model.fit(X, Y)
        raise KeyboardInterrupt
    model.set_params(callbacks=[lambda iteration: told.append(iteration.number)])
    with opened(tmp_path / "c"):
        model.fit(X, Y)
    assert told == [1, 2, *range(1, model.n_iter_ + 1)]


@pytest.mark.parametrize("which", ["audit", "complete"])
def test_gaps_go_on_at_the_fold(which, tmp_path, stop_after):
    X, Y = gappy(n=50, L=4)
    model = LEML(2, tol=1e-2, random_state=0, n_jobs=1)
    run = {"audit": run_audit, "complete": run_complete}[which]

    def work():
        found = run(X, Y, model, n_folds=3, random_state=0)
        return found.missing.probabilities if which == "audit" else found.probabilities

    expected = work()
    for found in resumed_at_pieces(tmp_path / "c", work, stop_after, moments=3):
        np.testing.assert_array_equal(found, expected)


# --- commands ------------------------------------------------------------------------------------------------------


def labelgap(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)), env={"COLUMNS": "160"})


@pytest.fixture
def matrix(tmp_path):
    X, Y = planted(n=80)
    write(tmp_path / "train.npz", X, Y)
    return tmp_path / "train.npz"


def fit_of(matrix, *more):
    options = "--method", "leml", "--no-calibrate", "--n-components", 3, "--output", matrix.parent / "model"
    return "fit", matrix, *options, "--checkpoint", matrix.parent / "kept", *more


def test_a_command_that_is_stopped_goes_on(matrix, stop_after):
    assert labelgap(*fit_of(matrix)).exit_code == 0
    model = load(matrix.parent / "model")
    assert model.random_state == 0, "what goes on must draw the same numbers"
    X, _, _, _ = read(matrix)
    (matrix.parent / "model").unlink()
    stop_after(2)
    shown = labelgap(*fit_of(matrix))
    assert shown.exit_code == 130
    assert f"stopped; the same command resumes from {matrix.parent / 'kept'}." in shown.output
    assert sorted(path.name for path in matrix.parent.iterdir()) == ["kept", "train.npz"]
    again = stop_after(None)
    assert labelgap(*fit_of(matrix, "--jobs", 1)).exit_code == 0, "the number of threads may change"
    assert len(again) == model.n_iter_ - 2
    np.testing.assert_allclose(
        load(matrix.parent / "model").decision_function(X), model.decision_function(X), atol=1e-6
    )
    assert sorted(path.name for path in matrix.parent.iterdir()) == ["model", "train.npz"]


@pytest.mark.parametrize(
    ("more", "changed"),
    [(["--alpha", 2], "--alpha"), (["--seed", 1], "--seed"), (["--min-count", 2], "--min-count"), ([], "data")],
)
def test_a_command_of_another_run(matrix, stop_after, more, changed):
    stop_after(1)
    assert labelgap(*fit_of(matrix)).exit_code == 130
    stop_after(None)
    if not more:
        X, Y = planted(n=80, seed=1)
        write(matrix, X, Y)
    shown = labelgap(*fit_of(matrix, *more))
    assert shown.exit_code == 1
    assert f"is the checkpoint of another run, which differs in {changed}; remove" in " ".join(shown.output.split())
    assert not (matrix.parent / "model").exists()


def test_an_audit_that_is_stopped_goes_on(matrix, stop_after):
    assert labelgap(*fit_of(matrix, "--random-state", "none")).exit_code == 0
    audit = "audit", matrix, "--model", matrix.parent / "model", "--folds", 2, "--output"
    assert labelgap(*audit, matrix.parent / "whole.csv").exit_code == 0
    again = *audit, matrix.parent / "audit.csv", "--checkpoint", matrix.parent / "kept"
    stop_after(5)
    assert labelgap(*again).exit_code == 130
    stop_after(None)
    assert labelgap(*again).exit_code == 0
    assert (matrix.parent / "audit.csv").read_bytes() == (matrix.parent / "whole.csv").read_bytes()
    assert not (matrix.parent / "kept").exists()


def test_a_missing_file_is_named(matrix):
    assert labelgap(*fit_of(matrix)).exit_code == 0
    shown = labelgap("audit", "no.npz", "--model", matrix.parent / "model", "--checkpoint", matrix.parent / "kept")
    assert shown.exit_code == 1
    assert "There is no file no.npz; check the path." in shown.output


# --- progress ------------------------------------------------------------------------------------------------------


class Watcher:
    """A display that notes what it is told."""

    def __init__(self):
        self.begun, self.steps = [], []

    def __call__(self, total, title, done):
        self.begun.append((title, total, done))
        return self._task(title)

    def _task(self, title):
        from contextlib import contextmanager

        @contextmanager
        def task():
            yield lambda message: self.steps.append(title)

        return task()


def test_who_watches_is_told_at_any_verbosity(capsys):
    watcher = Watcher()
    with report_progress(watcher):
        for verbose in range(3):
            with progress(2, "Work", verbose) as advance:
                advance("a")
    assert watcher.begun == [("Work", 2, 0)] * 3
    assert watcher.steps == ["Work"] * 3
    assert capsys.readouterr().out == "Work 1/2: a\n"
    with progress(2, "Work", 0) as advance:
        advance("a")
    assert len(watcher.steps) == 3


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_an_audit_tells_of_folds_and_of_the_fits_within(n_jobs):
    X, Y = planted(n=40)
    watcher = Watcher()
    with report_progress(watcher):
        run_audit(X, Y, LocalLEML(2, n_clusters=2, n_learners=1, max_iter=200, n_jobs=n_jobs), n_folds=2)
    titles = [title for title, _, _ in watcher.begun]
    assert titles.count("Folds") == 1
    assert titles.count("LocalLEML") == 2
    assert watcher.steps.count("Folds") == 2
    assert watcher.steps.count("LocalLEML") == 4
    assert any("LEML" in step for step in set(watcher.steps) - {"LocalLEML", "Folds", "LocalLEML: clusters"})


def test_a_fit_that_goes_on_says_how_far_it_was(tmp_path, stop_after):
    X, Y = gappy()
    model, watcher = LEML(3, tol=1e-4, random_state=0), Watcher()
    stop_after(2)
    with pytest.raises(KeyboardInterrupt), opened(tmp_path / "c"):
        model.fit(X, Y)
    stop_after(None)
    with opened(tmp_path / "c"), report_progress(watcher):
        model.fit(X, Y)
    assert ("LEML", 30, 2) in watcher.begun
    assert watcher.steps.count("LEML") == model.n_iter_ - 2


def test_results_come_in_order_and_once(tmp_path):
    def make(number):
        return HeldOutCells(*[np.array([number])] * 4)

    tasks = [partial(make, number) for number in range(5)]
    with threads(2):
        left_open(tmp_path / "c", lambda: list(checkpoint_calls("n", tasks[:3], HeldOutCells)))
        with opened(tmp_path / "c"):
            found = list(checkpoint_calls("n", tasks, HeldOutCells))
    assert [int(one.labels[0]) for one in found] == list(range(5))


def test_work_goes_on_where_nothing_can_be_kept(tmp_path):
    """As on a full disk, or when another process has removed the folder."""
    with checkpointing(tmp_path / "kept", {"seed": 0}, share=1.0):
        slot("first").keep({"a": np.arange(3)})
        shutil.rmtree(tmp_path / "kept")
        with pytest.warns(RuntimeWarning, match="the checkpoint cannot be written"):
            slot("second").keep({"a": np.arange(3)})
        slot("third").keep({"a": np.arange(3)})
