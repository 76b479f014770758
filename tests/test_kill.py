"""Commands that are killed at any moment and run again: nothing is lost, broken or left behind."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from labelgap import load
from labelgap.datasets import read_records, write_records

KILLS = 10
LIMIT = 120  # seconds that nothing here should take
WORDS = np.array(
    ["oven", "cake", "flour", "bacon", "steak", "grill", "broth", "stock", "ladle", "salt", "sugar", "rice"]
)
NAMES = ["baking", "meat", "soup", "sweet", "quick", "cheap"]
COLUMNS = ["--text", "text", "--labels", ",".join(NAMES)]
# Many alternations that each cost little: there is something to kill for as long as a process takes to start.
METHOD = ["--method", "LEML", "--n-components", 4, "--loss", "logistic", "--alpha", 0.001, "--dtype", "float64"]
METHOD += ["--tol", 0, "--max-iter"]

# Children are forked from a process that has imported the commands: they start at once, and are killed for real.
MAKER = multiprocessing.get_context("forkserver")
PRELOADED = ["labelgap.cli", "labelgap.commands.training", "labelgap.commands.gap_commands"]
MAKER.set_forkserver_preload([*PRELOADED, "labelgap_papers.reproduce_command"])
CHILD = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
log = os.open({log!r}, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
os.dup2(log, 1), os.dup2(log, 2)
os.chdir({folder!r})
sys.stdout.reconfigure(line_buffering=True)
{before}
from labelgap.cli import app
app({arguments!r})
"""


@pytest.fixture(autouse=True)
def hears_ctrl_c():
    """Hear of Ctrl-C, and let children hear of it: a shell that runs tests in the background takes that away."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def labelgap(tmp_path):
    """Return a function that starts a command in a folder of its own."""
    log = tmp_path / "log.txt"
    begun = []

    def start(*arguments, before=""):
        given = list(map(str, arguments))
        code = CHILD.format(log=str(log), folder=str(tmp_path), arguments=given, before=before)
        process = MAKER.Process(target=exec, args=(code, {}))
        process.start()
        begun.append(process)
        return process

    def run(*arguments):
        process = start(*arguments)
        process.join(LIMIT)
        assert process.exitcode == 0, log.read_text()

    start.run = run
    yield start
    for process in begun:
        process.kill()
        process.join()


@pytest.fixture
def table(tmp_path):
    """Return the name of a table of texts with some blanks among the labels."""
    rng = np.random.default_rng(0)
    truth = rng.standard_normal((len(WORDS), len(NAMES)))
    rows = []
    for _ in range(150):
        words = rng.choice(len(WORDS), 5)
        states = (truth[words].sum(axis=0) > 0).astype(int)
        rows.append([" ".join(WORDS[words]), *(str(s) if rng.random() < 0.8 else "" for s in states)])
    write_records(tmp_path / "posts.csv", ["text", *NAMES], rows)
    return "posts.csv"


def stamp(folder):
    """Return what changes whenever a piece is written."""
    return {path.name: path.stat().st_mtime_ns for path in folder.glob("*.piece")} if folder.is_dir() else {}


def wait_for_pieces(process, folder, count):
    """Wait until pieces were written so many times, or the process has ended."""
    seen, deadline = stamp(folder), time.monotonic() + LIMIT
    while count and process.is_alive():
        assert time.monotonic() < deadline
        time.sleep(0.002)
        try:
            now = stamp(folder)
        except FileNotFoundError:  # renamed or removed while we looked
            continue
        if now != seen:
            seen, count = now, count - 1


def kill_until_done(start, arguments, folder, output, check):
    """Kill a command at ten moments, then let it end; one that ends before is begun again. Check all it wrote."""
    rng, kills = np.random.default_rng(0), 0
    while True:
        process, last = start(*arguments), kills == KILLS
        if not last:
            wait_for_pieces(process, folder, int(rng.integers(0, 4)))
            time.sleep(float(rng.uniform(0, 0.1)))
            process.kill()
        process.join(LIMIT)
        assert process.exitcode in (0, -signal.SIGKILL)
        if output.exists():
            check(output)
        if process.exitcode == 0:
            assert not folder.exists()
            output.unlink()
            if last:
                return
        else:
            kills += 1


def scores_of(path):
    model = load(path)
    texts = [" ".join(WORDS[[i, j]]) for i in range(len(WORDS)) for j in range(i)]
    return model.decision_function(texts)


def numbers_of(path):
    return np.array([[float(row[name]) for name in NAMES] for row in read_records(path)])


def close_to(expected, read):
    return lambda path: np.testing.assert_allclose(read(path), expected, atol=1e-6)


def test_fit(labelgap, table, tmp_path):
    fit = ["fit", table, *COLUMNS, *METHOD, 150, "--checkpoint", "kept", "--output"]
    labelgap.run(*fit, "whole")
    check = close_to(scores_of(tmp_path / "whole"), scores_of)
    kill_until_done(labelgap, [*fit, "model"], tmp_path / "kept", tmp_path / "model", check)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log.txt", table, "whole"]


def test_complete(labelgap, table, tmp_path):
    labelgap.run("fit", table, *COLUMNS, *METHOD, 10, "--output", "model")
    complete = ["complete", table, "--model", "model", "--folds", 3, "--checkpoint", "kept", "--output"]
    labelgap.run(*complete, "whole.csv")
    check = close_to(numbers_of(tmp_path / "whole.csv"), numbers_of)
    kill_until_done(labelgap, [*complete, "filled.csv"], tmp_path / "kept", tmp_path / "filled.csv", check)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log.txt", "model", table, "whole.csv"]


# 24 cells of a few hundredths of a second.
REPRODUCE = ["reproduce", "mc/table-1", "--all", "--methods", "Zero+SVM", "--seeds", 1, "--folder", "results"]


def test_reproduce(labelgap, tmp_path):
    """Kill a table at two moments: no finished cell is lost or made again, and the last call makes the others."""
    (tmp_path / "results").mkdir()
    journal, rng, cells = tmp_path / "results" / "measurements.jsonl", np.random.default_rng(0), []

    def read_cells():
        lines = journal.read_bytes().split(b"\n") if journal.exists() else [b""]
        return [line for line in lines[:-1] if line.endswith(b"}")]  # a killed process may leave part of a line

    for _ in range(2):
        process, deadline = labelgap(*REPRODUCE), time.monotonic() + LIMIT
        while len(read_cells()) <= len(cells) and process.is_alive():
            assert time.monotonic() < deadline
            time.sleep(0.002)
        time.sleep(float(rng.uniform(0, 0.05)))
        process.kill()
        process.join(LIMIT)
        assert process.exitcode == -signal.SIGKILL
        kept, cells = cells, read_cells()
        assert cells[: len(kept)] == kept
        assert len(cells) > len(kept)
    labelgap.run(*REPRODUCE)
    made = read_cells()
    assert made[: len(cells)] == cells
    keys = [(record["dataset"], record["observed"]) for record in map(json.loads, made)]
    assert len(keys) == len(set(keys)) == 24
    assert "| mc/table-1 " in (tmp_path / "results" / "README.md").read_text()


DIE = """
import signal
from pathlib import Path
step = os.{step}
def dying(*arguments, **options):
    meant = any(Path(argument).name == {name!r} for argument in arguments if not isinstance(argument, int))
    if meant and {when!r} == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    step(*arguments, **options)
    if meant and {when!r} == "after":
        os.kill(os.getpid(), signal.SIGKILL)
os.{step} = dying
"""
STEPS = [
    ("mkdir", "after", "kept"),
    ("replace", "before", "checkpoint.json"),
    ("replace", "before", "model"),
    ("replace", "after", "model"),
    ("unlink", "before", "checkpoint.json"),
    ("rmdir", "before", "kept"),
]


def test_every_step_on_the_disk(labelgap, table, tmp_path):
    """Killed just before or after a folder is made, a file takes its name, or a file is removed."""
    fit = ["fit", table, *COLUMNS, "--no-calibrate", *METHOD, 2, "--output"]
    labelgap.run(*fit, "whole")
    check = close_to(scores_of(tmp_path / "whole"), scores_of)
    for step, when, name in STEPS:
        process = labelgap(*fit, "model", "--checkpoint", "kept", before=DIE.format(step=step, when=when, name=name))
        process.join(LIMIT)
        assert process.exitcode == -signal.SIGKILL, (step, when, name)
        assert (tmp_path / "kept").is_dir()
        if (tmp_path / "model").exists():
            check(tmp_path / "model")
    labelgap.run(*fit, "model", "--checkpoint", "kept")
    check(tmp_path / "model")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log.txt", "model", table, "whole"]


# --- Ctrl-C --------------------------------------------------------------------------------------------------------


def wait_for(condition):
    deadline = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_ctrl_c_writes_nothing(labelgap, table, tmp_path):
    process = labelgap("fit", table, *COLUMNS, *METHOD, 10_000, "--verbose", 2, "--output", "model")
    log = tmp_path / "log.txt"
    wait_for(lambda: log.is_file() and "LEML 2/10000" in log.read_text())
    os.kill(process.pid, signal.SIGINT)
    process.join(LIMIT)
    assert process.exitcode == 130
    assert "labelgap: stopped; nothing was written." in log.read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log.txt", table]


def read_terminal(terminal, shown):
    with contextlib.suppress(OSError), open(terminal, "rb", buffering=0) as stream:  # the error is how it ends
        while part := stream.read(1 << 16):
            shown.append(part)


def test_ctrl_c_in_a_terminal_and_on_again(labelgap, table, tmp_path):
    """The terminal shows bars with what goes on; after Ctrl-C the same command ends at the same model."""
    fit = ["fit", table, *COLUMNS, *METHOD, 150, "--checkpoint", "kept", "--output"]
    labelgap.run(*fit, "whole")
    terminal, end = os.openpty()
    command = [sys.executable, "-m", "labelgap", *map(str, fit), "model"]
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "100"}
    process = subprocess.Popen(command, cwd=tmp_path, stderr=end, stdout=subprocess.DEVNULL, env=environment)
    os.close(end)
    shown = []
    reader = threading.Thread(target=read_terminal, args=(terminal, shown))
    reader.start()  # or the process would wait for someone to read
    try:
        wait_for(lambda: stamp(tmp_path / "kept") and b"LEML: F = " in b"".join(shown))
        process.send_signal(signal.SIGINT)
        process.wait(LIMIT)
    finally:
        process.kill()
        reader.join()
    assert process.returncode == 130
    for text in ("Learning …", "Reading posts.csv", "LEML: F = ", "stopped; the same command resumes from kept."):
        assert text in b"".join(shown).decode()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept", "log.txt", table, "whole"]
    labelgap.run(*fit, "model")
    close_to(scores_of(tmp_path / "whole"), scores_of)(tmp_path / "model")
