"""Data files that nobody should write are read, or refused with one line and exit code 1."""

from __future__ import annotations

import gzip

import pytest
from typer.testing import CliRunner

from labelgap.cli import app
from labelgap.datasets import file_io, read_documents


def run(*words):
    return CliRunner().invoke(app, list(map(str, words)))


def test_deep_json_and_half_surrogate_pairs_are_named_by_their_line(tmp_path):
    path = tmp_path / "posts.jsonl"
    good = '{"text": "a", "tags": ["x"]}\n'
    path.write_text(good + '{"text": "a", "tags": ' + "[" * 100_000 + "]" * 100_000 + "}\n")
    with pytest.raises(ValueError, match="line 2 is not JSON"):
        read_documents(path, ["text"], tags="tags")
    path.write_text(good + '{"text": "a", "tags": ["\\ud800"]}\n')
    with pytest.raises(ValueError, match="line 2 is not JSON"):
        read_documents(path, ["text"], tags="tags")
    path.write_text(good + '{"text": "a", "tags": ["\\ud83d\\ude00"]}\n')
    assert "😀" in read_documents(path, ["text"], tags="tags").label_names


def test_a_compressed_bomb_is_refused_before_it_takes_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(file_io, "MIN_BOMB_BYTES", 1000)
    path = tmp_path / "posts.csv.gz"
    path.write_bytes(gzip.compress(b"text,tags\n" + b"a" * 10_000_000))
    shown = run("fit", path, "--text", "text", "--tags", "tags", "--output", tmp_path / "model")
    assert shown.exit_code == 1
    assert "compressed more than 100 times" in shown.output
    assert len(shown.output.splitlines()) == 1


@pytest.mark.parametrize(
    "error", [MemoryError("Unable to allocate 22.4 GiB"), RecursionError(), OverflowError("big")]
)
def test_what_is_too_large_is_one_line(tmp_path, monkeypatch, error):
    path = tmp_path / "rows.svm"
    path.write_text("1 1:1\n2 1:2\n")

    def fail(*_, **__):
        raise error

    monkeypatch.setattr("labelgap.commands.training.load_data", fail)
    shown = run("fit", path, "--output", tmp_path / "model")
    assert shown.exit_code == 1
    assert "too large for this computer" in shown.output
    assert len(shown.output.splitlines()) == 1
