"""The store of reviews, what is derived from it, and the addresses under /review."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import httpx
import numpy as np
import pytest
import uvicorn

from labelgap import Tagger
from labelgap.cli import _announce
from labelgap.datasets import read_records, write_records
from labelgap.gaps import Argument, audit, learn
from labelgap.inputs import TableColumns, clone_with_seed
from labelgap.observations import Labels
from labelgap.runtime import progress
from labelgap.serve import Settings, create_app
from labelgap.serve.jobs import Job
from labelgap.serve.reviews import add_page, make_extension, statistics
from labelgap.serve.reviews.learning import Shares
from labelgap.serve.reviews.retraining import retrain, save_next_to
from labelgap.serve.reviews.review_data import ReviewData, clean_text, export_labels, split_by_weight
from labelgap.serve.reviews.session import LEARN_EVERY, ReviewSession, open_session
from labelgap.serve.reviews.store import EntryConflict, Review, Store, StoreUnavailable, Suggestion, SuggestionQuery

IDENTITY = {"data file": "a"}
NOISE = ["the", "how", "can", "my", "why", "with", "when", "does", "it", "question"]
HOSTILE = "<img src=x onerror=window.hit=1>"
WORDS = {
    "baking": "oven dough flour cake bread rise crust",
    "meat": "bacon beef grill steak roast smoke lamb",
    "fish": "salmon tuna fillet scales sea bones",
    "wine": "grape bottle cork red cellar vintage",
    "cheese": "milk rind curd brie cheddar mold",
    "coffee": "beans espresso roastery crema grinder brew",
    "spices": "pepper cumin saffron clove paprika",
    "soup": "broth stock ladle simmer bowl noodle",
    "fruit": "apple pear berry peel juice ripe",
    HOSTILE: "script tag markup angle bracket escape",
}


def write_posts(path, n=300, forgotten=0.25, seed=0):
    """Write a table of texts with two or three of ten labels, a quarter of them forgotten; return the true labels."""
    rng = np.random.default_rng(seed)
    names = list(WORDS)
    truth, rows = [], []
    for i in range(n):
        mine = rng.choice(names, size=rng.integers(1, 4), replace=False).tolist()
        words = [word for name in mine for word in rng.choice(WORDS[name].split(), 4)]
        noise = rng.choice(NOISE, 8).tolist()
        body = " ".join(rng.permutation(words + noise))
        kept = [name for name in mine if rng.random() > forgotten]
        extra = (
            "<script>window.hit=1</script><b>bold</b> &lt;script&gt;window.hit=2&lt;/script&gt; "
            if i % 3 == 0
            else ""
        )
        rows.append([i, f"Post {i} on {mine[0].split()[0]}", f"<p>{extra}{body}</p>", "|".join(kept)])
        truth.append(set(mine))
    with open(path, "w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(["id", "title", "content", "tags"])
        writer.writerows(rows)
    return truth


def cell(row, label="a", kind="missing", probability=0.5):
    return Suggestion(row, label, kind, probability)


def review(number, row, label, verdict, kind="missing", probability=0.5):
    return Review(number, f"key{number}", "2026-01-01", row, label, kind, probability, verdict, None)


@pytest.fixture
def store(tmp_path):
    found = Store(tmp_path / "a.sqlite", IDENTITY)
    yield found
    found.close()


# --- store ----------------------------------------------------------------------------------------------------------


def test_the_newest_verdict_that_nobody_took_back_holds(store):
    store.add("k1", cell(0), "accept")
    store.add("k2", cell(1), "reject")
    store.add("k3", cell(0), "skip")
    assert [(one.row, one.verdict) for one in store.current_reviews()] == [(1, "reject"), (0, "skip")]
    assert store.undo("k4").undoes == 3
    assert [(one.row, one.verdict) for one in store.current_reviews()] == [(0, "accept"), (1, "reject")]
    assert store.undo("k5", of="k1").row == 0
    assert store.undo("k6", of="k1") is None  # it is taken back already
    assert store.undo("k7").undoes == 2
    assert store.undo("k8") is None
    assert store.current_reviews() == []
    assert [one.verdict for one in store.log()] == ["accept", "reject", "skip", "undo", "undo", "undo"]
    assert [one.undoes for one in store.log()] == [None, None, None, 3, 1, 2]


def test_what_is_sent_twice_is_written_once(store):
    first = store.add("k1", cell(0), "accept")
    assert store.add("k1", cell(0), "accept") == first
    store.add("k2", cell(1), "accept")
    undone = store.undo("k3")
    assert store.undo("k3") == undone
    assert [one.row for one in store.current_reviews()] == [0]


def test_a_key_stands_for_one_entry(store):
    store.add("k1", cell(0), "accept")
    store.add("k2", cell(1), "accept")
    store.undo("k3", of="k1")
    log = store.log()
    for other, verdict in ((cell(0), "reject"), (cell(2), "accept"), (cell(0, "b"), "accept")):
        with pytest.raises(EntryConflict, match=r"The key 'k1' belongs to another entry \(accept: 'a' of row 0\)"):
            store.add("k1", other, verdict)
    with pytest.raises(EntryConflict, match="'k3'"):
        store.add("k3", cell(0), "accept")
    for key, of in (("k2", None), ("k2", "k1"), ("k3", "k2"), ("k3", "k9")):
        with pytest.raises(EntryConflict, match=key):
            store.undo(key, of)
    assert store.undo("k3", of="k1") == store.undo("k3") == log[2]
    assert store.add("k1", cell(0, probability=0.7), "accept") == log[0]  # an audit may have changed that
    assert store.log() == log


def test_reviews_survive_closing_and_keep_their_suggestion(store):
    store.replace_suggestions([cell(0, probability=0.9)])
    store.add("k1", store.suggestion(0, "a"), "accept")
    store.replace_suggestions([cell(7)])
    store.close()
    again = Store(store.path, IDENTITY)
    assert [(one.row, one.probability) for one in again.current_reviews()] == [(0, 0.9)]
    assert again.suggestion(0, "a").probability == 0.9  # an undo opens it again
    again.close()


def test_replacing_suggestions_keeps_those_of_reviewed_cells(store):
    store.replace_suggestions([cell(0, probability=0.9), cell(1, probability=0.8), cell(2, probability=0.7)])
    store.add("k1", store.suggestion(0, "a"), "accept")
    store.add("k2", store.suggestion(1, "a"), "skip")
    store.replace_suggestions([cell(1, probability=0.3), cell(7)])
    store.undo("k3", of="k1")
    assert SuggestionQuery().page(store, 10) == [cell(0, probability=0.9), cell(7)]
    assert SuggestionQuery(status="skipped").page(store, 10) == [cell(1, probability=0.3)]
    with pytest.raises(KeyError):
        store.suggestion(2, "a")


def test_of_a_cell_that_comes_twice_the_likeliest_is_kept(store):
    store.replace_suggestions([cell(2, probability=0.4), cell(2, "a", "doubtful", 0.6), cell(2, probability=0.5)])
    assert store.suggestion(2, "a") == cell(2, "a", "doubtful", 0.6)
    assert store.select("SELECT count(*) FROM suggestion") == [(1,)]


def test_replacing_suggestions_is_all_or_nothing(store):
    store.replace_suggestions([cell(0), cell(1)])
    with pytest.raises(sqlite3.IntegrityError):
        store.replace_suggestions([cell(2), cell(3, kind=None)], expected="[]")
    assert store.suggestion(1, "a").row == 1
    assert store.meta("expected") is None


def test_threads_share_a_store(store):
    def work(name):
        for i in range(25):
            store.add(f"{name}-{i}", cell(i, label=name), "accept")
            if i % 5 == 4:
                store.undo(f"{name}-undo-{i}", of=f"{name}-{i}")

    threads = [threading.Thread(target=work, args=(f"t{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(store.log()) == 4 * 30
    assert len(store.current_reviews()) == 4 * 20


def test_another_data_file_is_refused(store):
    store.close()
    with pytest.raises(
        ValueError,
        match=r"holds reviews of another data file; restore that data file; another --reviews FILE starts with no",
    ):
        Store(store.path, {"data file": "b"})


def test_files_that_are_no_reviews_are_refused(tmp_path):
    (tmp_path / "text").write_text("no database, and long enough to have a head " * 10)
    with pytest.raises(ValueError, match="is not a SQLite file"):
        Store(tmp_path / "text", IDENTITY)
    with sqlite3.connect(tmp_path / "other") as other:
        other.execute("CREATE TABLE t (x)")
    other.close()
    with pytest.raises(ValueError, match="is not a file of reviews of this version"):
        Store(tmp_path / "other", IDENTITY)
    with pytest.raises(OSError, match="cannot be opened"):
        Store(tmp_path / "nowhere" / "a", IDENTITY)


def test_a_file_with_the_former_views_is_read(store):
    store.add("k1", cell(0), "accept")
    store.close()
    former = sqlite3.connect(store.path)
    former.executescript(
        "DROP VIEW current_review; DROP VIEW not_revoked; CREATE VIEW standing AS SELECT * FROM review; "
        "CREATE VIEW present AS SELECT * FROM standing"
    )
    former.close()
    again = Store(store.path, IDENTITY)
    assert [one.entry_id for one in again.current_reviews()] == ["k1"]
    assert not again.is_new
    assert again.select("SELECT name FROM sqlite_master WHERE type = 'view' ORDER BY 1") == [
        ("current_review",),
        ("not_revoked",),
        ("opinion",),
    ]
    again.close()


def test_reviews_in_memory_are_refused():
    with pytest.raises(ValueError, match=r"--reviews :memory: would lose the verdicts"):
        Store(":memory:", IDENTITY)


@pytest.mark.parametrize(("name", "ending"), [("a", ""), ("a", "-wal"), ("link", ""), ("link", "-wal")])
def test_a_verdict_is_not_acknowledged_when_its_file_is_gone(tmp_path, name, ending):
    (tmp_path / "link").symlink_to(tmp_path / "a")
    store = Store(tmp_path / name, IDENTITY)
    store.add("k1", cell(0), "accept")
    path = tmp_path / ("a-wal" if ending else name)
    path.rename(f"{path}.moved")
    for _ in range(2):  # what is sent again is not acknowledged either
        with pytest.raises(StoreUnavailable, match=f"The file {path.name} of the reviews was deleted, moved or"):
            store.add("k2", cell(1), "accept")
    path.write_bytes(b"another file")
    with pytest.raises(StoreUnavailable):
        store.undo("k3", of="k1")
    Path(f"{path}.moved").rename(path)
    assert store.add("k2", cell(1), "accept").id == 2
    assert store.undo("k3", of="k1").undoes == 1
    store.close()


WRITER = """
import sys
from labelgap.serve.reviews.store import Store, Suggestion
store = Store(sys.argv[1], {"data file": "a"})
number = 0
while True:
    key = f"key-{number}"
    if number % 7 == 6:
        store.undo(key)
    else:
        store.add(key, Suggestion(number, "a", "missing", 0.5), ("accept", "reject", "skip")[number % 3])
    print(key, flush=True)  # only now it is acknowledged
    number += 1
"""


def test_a_killed_writer_loses_nothing_that_it_acknowledged(tmp_path):
    path = tmp_path / "a.sqlite"
    for wanted in (20, 31):
        store = Store(path, IDENTITY)
        known = len(store.log())
        store.close()
        code = WRITER.replace("number = 0", f"number = {known}")
        writer = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True)
        acknowledged = [writer.stdout.readline().strip() for _ in range(wanted)]
        os.kill(writer.pid, signal.SIGKILL)
        acknowledged += writer.stdout.read().split()  # what it wrote before it died
        assert writer.wait() == -signal.SIGKILL
        writer.stdout.close()
        store = Store(path, IDENTITY)
        keys = [one.entry_id for one in store.log()]
        assert keys[known : known + len(acknowledged)] == acknowledged
        assert len(keys) - known - len(acknowledged) in (0, 1)  # one may be written and not yet said
        assert store.select("PRAGMA integrity_check") == [("ok",)]
        store.close()


# --- queue ----------------------------------------------------------------------------------------------------------


def test_suggestions_come_in_the_order_that_was_chosen(store):
    store.replace_suggestions(
        [
            cell(0, "a", probability=0.9),
            cell(1, "b", probability=0.8),
            cell(2, "b", probability=0.55),
            cell(1, "a", probability=0.3),
            cell(3, "c", "doubtful", 0.7),
            cell(4, "a", probability=0.05),
        ]
    )

    def order(**choice):
        return [(one.row, one.label) for one in SuggestionQuery(**choice).page(store, 10)]

    assert order() == [(0, "a"), (1, "b"), (2, "b"), (1, "a")]
    assert order(order="uncertainty") == [(2, "b"), (1, "a"), (1, "b"), (0, "a")]
    assert order(group="label") == [(1, "b"), (2, "b"), (0, "a"), (1, "a")]  # 1.35 against 1.2
    assert order(group="document") == [(1, "b"), (1, "a"), (0, "a"), (2, "b")]  # 1.1, 0.9, 0.55
    assert order(kind="doubtful") == [(3, "c")]
    assert order(label="a", least=0.01) == [(0, "a"), (1, "a"), (4, "a")]
    assert order(row=1) == [(1, "b"), (1, "a")]
    assert [one.row for one in SuggestionQuery().page(store, 2, after=(0, "a"))] == [1, 2]
    assert SuggestionQuery().page(store, 2, after=(9, "a")) == []
    store.add("k1", cell(1, "b"), "accept")
    store.add("k2", cell(2, "b"), "skip")
    assert order(group="label") == [(0, "a"), (1, "a")]
    assert order(status="skipped") == [(2, "b")]
    assert SuggestionQuery().count(store) == (2, pytest.approx(1.2))
    assert SuggestionQuery().labels(store) == [("a", 2, pytest.approx(1.2))]
    store.undo("k3")
    assert order(group="label") == [(2, "b"), (0, "a"), (1, "a")]


@pytest.mark.parametrize("group", ["none", "label", "document"])
@pytest.mark.parametrize("order", ["probability", "uncertainty", "mixed"])
def test_pages_that_follow_each_other_make_the_whole_list(store, group, order):
    rng = np.random.default_rng(0)  # few values, so that many are equally likely
    cells = [cell(row, label, probability=rng.integers(2, 9) / 10) for row in range(8) for label in "abcde"]
    store.replace_suggestions(cells)
    choice = SuggestionQuery(group=group, order=order)
    whole = choice.page(store, 100)
    assert sorted(whole) == sorted(cells)
    found, after = [], None
    while page := choice.page(store, 7, after):
        found += page
        after = page[-1][:2]
        for one in page:  # what is decided behind us moves nothing
            store.add(f"{one.row}-{one.label}", one, "accept" if one.row % 2 else "skip")
    assert found == whole


def test_a_random_sample_is_mixed_into_the_queue(store):
    store.replace_suggestions([cell(row, "a", probability=1 - row / 1000) for row in range(900)])
    mixed = [one.row for one in SuggestionQuery(order="mixed").page(store, 60)]
    sample = [one.row for one in SuggestionQuery().at_random(store)]
    assert sorted(sample) == list(range(900))
    assert set(mixed[:4]) == {0, 1, 2, 3}
    assert set(sample[:8]) <= set(mixed)
    assert len(set(mixed) & set(range(60))) > 45
    assert abs(np.mean(sample[:30]) - 450) < 60  # of all probabilities


# --- statistics -----------------------------------------------------------------------------------------------------


def test_a_random_sample_says_how_many_suggestions_are_right(store):
    rng = np.random.default_rng(0)
    held = 0
    for _ in range(50):
        cells = [cell(row, "a", probability=p) for row, p in enumerate(np.sort(rng.uniform(0.1, 1, 600))[::-1])]
        store.replace_suggestions(cells)
        sample = SuggestionQuery().at_random(store)
        right = rng.random(600) < 0.5 * np.array([one.probability for one in sample])  # half of what was stated
        said = ["accept" if yes else "reject" for yes in right[:80]]
        made = [review(i, one.row, "a", said[i], probability=one.probability) for i, one in enumerate(sample[:80])]
        others = [review(100 + i, one.row, "a", "reject", probability=0.9) for i, one in enumerate(cells[:20])]
        found = statistics.estimate_right(
            sample, [*made, *(one for one in others if one.row not in {m.row for m in made})]
        )
        held += found["low"] <= right.sum() <= found["high"]
        assert found["sampled"] >= 80
    assert held >= 43
    assert statistics.estimate_right(sample, made[1:]) is None


def test_statistics_by_hand():
    made = [
        review(1, 0, "a", "accept", probability=0.9),
        review(2, 1, "a", "reject", probability=0.85),
        review(3, 2, "b", "skip", probability=0.8),
        review(4, 3, "b", "accept", probability=0.3),
        review(5, 4, "b", "accept", kind="doubtful", probability=0.6),
    ]
    missing = [one for one in made if one.kind == "missing"]
    assert statistics.count_verdicts(missing) == {"accepted": 2, "rejected": 1, "skipped": 1, "conflicts": 0}
    found = statistics.compute_precision(missing)
    assert found["precision"] == pytest.approx(2 / 3)
    assert found["expected"] == pytest.approx((0.9 + 0.85 + 0.3) / 3)
    z2 = 1.959964**2  # the ends solve (p − x)² = z² x (1 − x) / n
    for end in ("low", "high"):
        assert (2 / 3 - found[end]) ** 2 == pytest.approx(z2 * found[end] * (1 - found[end]) / 3)
    assert [point["precision"] for point in statistics.compute_precision_curve(missing)] == pytest.approx(
        [1, 1 / 2, 2 / 3]
    )
    assert [point["expected"] for point in statistics.compute_precision_curve(missing)] == pytest.approx(
        [0.9, 0.875, 2.05 / 3]
    )
    bins = statistics.compute_calibration(missing)
    assert [one["predicted"] for one in bins] == pytest.approx([0.3, 0.85, 0.9])
    assert [one["accepted"] for one in bins] == [1, 0, 1]
    assert [one["reviewed"] for one in bins] == [1, 1, 1]
    table = statistics.count_labels(["a", "b"], [10, 4], [13.0, 4.2], made)
    assert table[0] == {"label": "a", "written": 10, "added": 1, "removed": 0, "missing": 2.0}
    assert table[1] == {"label": "b", "written": 4, "added": 1, "removed": 1, "missing": pytest.approx(0.2)}
    assert statistics.compute_precision([])["precision"] is None
    assert statistics.compute_precision_curve([]) == statistics.compute_calibration([]) == []
    assert statistics.count_added(made) == 2
    assert statistics.count_next([cell(i, probability=0.9) for i in range(10)]) == 9


def test_a_long_curve_is_thinned_and_keeps_its_ends():
    points = statistics.compute_precision_curve([review(i, i, "a", "accept") for i in range(1000)])
    assert len(points) == 200
    assert (points[0]["reviewed"], points[-1]["reviewed"]) == (1, 1000)


# --- documents ------------------------------------------------------------------------------------------------------


def test_words_are_cut_as_the_tagger_cuts_them():
    text = "Node.js and C++: İstanbul, node"
    pieces = split_by_weight(text, [Argument("node", 1.0), Argument("c++", -2.0), Argument("and c++", 3.0)])
    assert "".join(piece.text for piece in pieces) == text
    assert [tuple(piece) for piece in pieces if piece.weight] == [("and C++", 3.0), ("node", 1.0)]
    assert split_by_weight("", []) == []


def test_markup_is_taken_out_of_texts():
    assert clean_text("<p>one</p>\n\n\n<pre>two  three</pre>&lt;b&gt;") == "one\n\ntwo three <b>"


# --- export ---------------------------------------------------------------------------------------------------------


def material_of(path, names, columns):
    """Return the documents of a table beside a model that only knows its labels."""
    model = Tagger(label_names=names)
    model.label_names_in_ = np.array(names, object)
    return ReviewData(path, model, columns)


ACCEPTED = [
    review(1, 0, "b", "accept"),
    review(2, 1, "a", "accept", kind="doubtful"),
    review(3, 2, "a", "reject"),
    review(4, 2, "b", "skip"),
    review(5, 3, "a", "accept"),
]


@pytest.mark.parametrize(
    ("joint", "changed"), [(" ", "rare a b"), (",", "rare,a,b"), (", ", "rare, a, b"), ("|", "rare|a|b")]
)
def test_an_export_changes_accepted_tags_alone(tmp_path, joint, changed):
    path = tmp_path / "posts.csv"
    before = [["1", 'x "y", z', joint.join(["rare", "a"])], ["2", "=1+1", joint.join(["a", "b"])]]
    before += [["3", "line\nbreak", joint.join(["b", "c", "d"])], ["4", "é", ""]]
    with open(path, "w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([["id", "text", "tags"], *before])
    name, content = export_labels(material_of(path, ["a", "b"], TableColumns("text", "tags")), ACCEPTED)
    assert name == "posts-reviewed.csv"
    after = list(csv.reader(io.StringIO(content.decode(), newline="")))
    assert after[0] == ["id", "text", "tags"]
    assert [row[:2] for row in after[1:]] == [row[:2] for row in before]
    assert [row[2] for row in after[1:]] == [changed, "b", before[2][2], "a"]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("ending", [".csv", ".tsv", ".csv.gz"])
def test_an_export_keeps_the_ends_of_lines(tmp_path, end, ending):
    mark = "\t" if ending == ".tsv" else ","
    lines = [["text", "tags"], ['"say ""x\ny"""', "a"], ['"one\r\ntwo"', "b"], ["z", ""]]
    path = tmp_path / f"posts{ending}"
    opened = gzip.open if ending.endswith("gz") else open
    with opened(path, "wb") as stream:
        stream.write("".join(mark.join(line) + end for line in lines).encode())
    name, content = export_labels(
        material_of(path, ["a", "b"], TableColumns("text", "tags")), [review(1, 2, "a", "accept")]
    )
    (tmp_path / name).write_bytes(content)
    with opened(tmp_path / name, "rb") as stream:
        assert stream.read().decode() == "".join(mark.join(line) + end for line in [*lines[:3], ["z", "a"]])


def test_an_export_of_json_lines_keeps_their_ends(tmp_path):
    path = tmp_path / "posts.jsonl"
    path.write_bytes(b'{"text": "x \\" y\\n", "tags": "a"}\r\n{"text": "z", "tags": ""}\r\n')
    _, content = export_labels(material_of(path, ["a"], TableColumns("text", "tags")), [review(1, 1, "a", "accept")])
    assert content == path.read_bytes().replace(b'"tags": ""', b'"tags": "a"')


def test_an_export_of_lists_has_lists(tmp_path):
    path = tmp_path / "posts.jsonl"
    rows = [{"text": "x", "tags": ["a"]}, {"text": "y", "tags": ["a", "b c"]}, {"text": "z", "tags": []}]
    path.write_text("\n".join(map(json.dumps, rows)))
    accepted = [review(1, 0, "b c", "accept"), review(2, 1, "a", "accept", kind="doubtful")]
    name, content = export_labels(material_of(path, ["a", "b c"], TableColumns("text", "tags")), accepted)
    assert name == "posts-reviewed.jsonl"
    assert [json.loads(line)["tags"] for line in content.decode().splitlines()] == [["a", "b c"], ["b c"], []]


def test_an_export_of_lists_written_as_json_has_such_lists(tmp_path):
    path = tmp_path / "posts.csv"
    write_records(path, ["text", "tags"], iter([["x", '["a, b", "é"]'], ["y", "[]"], ["z", ""]]))
    accepted = [review(number, number, "a, b", "accept") for number in (1, 2)]
    name, content = export_labels(material_of(path, ["a, b", "é"], TableColumns("text", "tags")), accepted)
    (tmp_path / name).write_bytes(content)
    tags = [record["tags"] for record in read_records(tmp_path / name)]
    assert tags == ['["a, b", "é"]', '["a, b"]', '["a, b"]']


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_an_export_writes_lists_where_a_row_among_lists_has_none(tmp_path, ending):
    path = tmp_path / f"posts.{ending}"
    write_records(path, ["text", "tags"], iter([["x", ["a", "b c"]], ["y", None], ["z", None]]))
    material = material_of(path, ["a", "b c"], TableColumns("text", "tags"))
    name, content = export_labels(material, [review(1, 1, "b c", "accept"), review(2, 1, "a", "accept")])
    (tmp_path / name).write_bytes(content)
    after = [record["tags"] for record in read_records(tmp_path / name)]
    assert [tags if tags is None else list(tags) for tags in after] == [["a", "b c"], ["b c", "a"], None]


def test_an_export_writes_text_where_a_row_among_texts_has_none(tmp_path):
    path = tmp_path / "posts.jsonl"
    path.write_text('{"text": "x", "tags": "a|b c"}\n{"text": "y", "tags": null}\n')
    accepted = [review(1, 1, "b c", "accept"), review(2, 1, "a", "accept")]
    _, content = export_labels(material_of(path, ["a", "b c"], TableColumns("text", "tags")), accepted)
    assert [json.loads(line)["tags"] for line in content.decode().splitlines()] == ["a|b c", "b c|a"]


def test_an_export_of_label_columns_uses_their_words(tmp_path):
    path = tmp_path / "posts.csv"
    path.write_text("text,a,b\nx,yes,no\ny,yes,yes\nz,,no\nw,no,\n")
    material = material_of(path, ["a", "b"], TableColumns("text", labels="a,b"))
    _, content = export_labels(material, [*ACCEPTED[:2], review(5, 3, "a", "accept")])
    assert content.decode() == "text,a,b\nx,yes,yes\ny,no,yes\nz,,no\nw,yes,\n"


def test_a_label_that_the_column_cannot_hold_is_named(tmp_path):
    path = tmp_path / "posts.csv"
    path.write_text("text,tags\nx,a b\ny,b\n")
    with pytest.raises(ValueError, match="The label 'red wine' cannot be written"):
        export_labels(
            material_of(path, ["a", "red wine"], TableColumns("text", "tags")), [review(1, 0, "red wine", "accept")]
        )


# --- jobs and retraining --------------------------------------------------------------------------------------------


def test_a_job_stops_at_its_next_report_and_says_what_failed():
    job, gate, steps = Job("test"), threading.Event(), []

    def work():
        with progress(5, "Steps", 0) as advance:
            for number in range(5):
                steps.append(number)
                gate.wait(10)
                advance(f"step {number}")

    assert job.start(work)
    assert not job.start(work)
    job.stop()
    gate.set()
    assert job.wait(10).state == "stopped"
    assert steps in ([], [0])
    assert job.start(lambda: 1 / 0)
    assert job.wait(10)[::3] == ("failed", "division by zero")
    assert job.start(lambda: 7)
    assert (job.wait(10), job.result) == (("done", 0, 0, ""), 7)


def test_a_job_counts_the_outermost_steps_and_names_all_tasks():
    job, seen = Job("test"), []

    def work():
        with progress(None, "All", 0), progress(2, "Folds", 0) as advance:
            for number in range(2):
                with progress(3, "Sweeps", 0, done=1) as sweep:
                    sweep("a sweep")
                    seen.append(job.progress)
                advance(f"fold {number}")
        seen.append(job.progress)

    assert job.start(work)
    assert job.wait(10) == ("done", 2, 2, "")
    assert seen == [
        ("running", 0, 2, "All · Folds: 1 of 2 · Sweeps: 3 of 3"),
        ("running", 1, 2, "All · Folds: 2 of 2 · Sweeps: 3 of 3"),
        ("running", 2, 2, "All · Folds: 2 of 2"),
    ]


class Frequencies:
    """Scores every text with how often its training rows had each label; remembers what it was fitted on."""

    fits: ClassVar[list] = []

    def get_params(self, deep=True):
        return {}

    def set_params(self):
        return self

    def __sklearn_clone__(self):
        return Frequencies()

    def fit(self, texts, labels):
        self.rates = labels.rates
        self.fits.append((texts, labels.toarray().sum(axis=0)))
        return self

    def decision_function(self, texts):
        return np.tile(self.rates - 0.5, (len(texts), 1))


def test_retraining_judges_both_models_on_rows_that_neither_has_seen():
    # Label a is written in 5 of 12 rows and b in 6; reviews add a to four rows and refuse b in two.
    Y = np.zeros((12, 2))
    Y[:5, 0] = 1
    Y[6:, 1] = 1
    reviews = [review(i, row, "a", "accept") for i, row in enumerate((6, 7, 8, 9))]
    reviews += [review(9, row, "b", "reject") for row in (0, 1)]
    names = [f"text {i}" for i in range(12)]
    material = SimpleNamespace(model=Frequencies(), labels=Labels(Y), texts=names, label_numbers={"a": 0, "b": 1})
    material.apply_reviews = lambda kept: ReviewData.apply_reviews(material, kept)
    Frequencies.fits.clear()
    job = Job("retrain")
    assert job.start(lambda: retrain(material, reviews, n_folds=3))
    assert job.wait(60) == ("done", 7, 7, "")
    found = job.result
    assert len(Frequencies.fits) == 7
    folds = [set(names) - set(texts) for texts, _ in Frequencies.fits[:6]]
    assert folds[0::2] == folds[1::2]
    assert sorted(name for fold in folds[0::2] for name in fold) == sorted(names)
    assert all(len(fold & {"text 6", "text 7", "text 8", "text 9", "text 0", "text 1"}) == 2 for fold in folds)
    assert Frequencies.fits[6][1].tolist() == [9, 6]
    after = Y.copy()
    after[6:10, 0] = 1
    expected = [[], []]
    for fold in folds[0::2]:
        held = [i for i, name in enumerate(names) if name in fold]
        rest = [i for i in range(12) if i not in held]
        for side, labels in enumerate((Y, after)):
            best = int(np.argmax(labels[rest].mean(axis=0)))
            expected[side] += [after[i, best] for i in held if after[i].any()]
    judged = {one.name: one for one in found.comparisons}
    assert judged["P@1 on held-out documents"].before == pytest.approx(np.mean(expected[0]))
    assert judged["P@1 on held-out documents"].after == pytest.approx(np.mean(expected[1]))
    pairs = [(bool(a), bool(b)) for a, b in zip(*expected, strict=True)]
    at_one = judged["P@1 on held-out documents"]
    assert (at_one.better, at_one.worse) == (pairs.count((False, True)), pairs.count((True, False)))
    assert at_one.judged == len(pairs)
    assert judged["AUC on reviewed cells"].after is None  # two refused ones are too few
    assert (found.accepted, found.rejected) == (4, 2)


def test_a_new_model_never_overwrites_one(tmp_path):
    (tmp_path / "model.labelgap").write_text("old")
    (tmp_path / "model-reviewed-1.labelgap").write_text("older")
    model = SimpleNamespace(save=lambda path: path.write_text("new"))
    assert save_next_to(model, tmp_path / "model.labelgap").name == "model-reviewed-2.labelgap"
    assert (tmp_path / "model.labelgap").read_text() == "old"
    assert (tmp_path / "model-reviewed-1.labelgap").read_text() == "older"


# --- the addresses --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def posts(tmp_path_factory):
    """Return a table of posts, its true labels, and a model of it that knows its columns."""
    path = tmp_path_factory.mktemp("posts") / "posts.csv"
    truth = write_posts(path)
    columns = TableColumns("title,content", "tags", separator="|")
    rows = material_of(path, list(WORDS), columns)
    model = Tagger(label_names=list(WORDS)).fit(rows.texts, rows.labels)
    model.columns_ = {"text": columns.text, "tags": columns.tags, "labels": ""}
    return SimpleNamespace(path=path, truth=truth, model=model, columns=columns)


@contextmanager
def serving(app):
    """Serve an application on a thread, and yield a client of it."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        with httpx.Client(base_url=f"http://127.0.0.1:{listening.getsockname()[1]}", timeout=30) as client:
            yield client
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="module")
def audited(posts, tmp_path_factory):
    """Return a file of reviews whose audit is done."""
    path = tmp_path_factory.mktemp("audited") / "a.sqlite"
    session = open_session(path, ReviewData(posts.path, posts.model, TableColumns()), folds=2)
    assert session.audit_job.progress.state == "idle"  # it begins when the server has loaded everything
    session.start_first_audit()
    assert session.audit_job.wait(60).state == "done"
    session.close()
    return path


@pytest.fixture
def client(posts, audited, tmp_path):
    """Return a client of a server whose audit is done."""
    database = shutil.copy(audited, tmp_path)
    extension = make_extension(database, posts.path, model_path=tmp_path / "model", folds=2)
    with serving(create_app({"posts": posts.model}, extensions=[extension, add_page])) as found:
        yield found


def wait_for(ready, seconds=60):
    end = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.05)


def judge(client, number, card, verdict):
    sent = {"key": f"key-{number:05}", "row": card["row"], "label": card["label"], "verdict": verdict}
    return client.post("/review/verdicts", json=sent)


def test_from_the_audit_to_the_export(client, posts):
    cards = client.get("/review/queue", params={"limit": 30}).json()["suggestions"]
    assert len(cards) == 30
    right = [card["label"] in posts.truth[card["row"]] for card in cards]
    assert np.mean(right) > 0.8
    for number, (card, yes) in enumerate(zip(cards, right, strict=True)):
        assert judge(client, number, card, "accept" if yes else "reject").status_code == 200
    again = client.get("/review/queue", params={"limit": 100}).json()["suggestions"]
    assert not {(c["row"], c["label"]) for c in again} & {(c["row"], c["label"]) for c in cards}
    state = client.get("/review/state").json()["counts"]
    assert (state["accepted"], state["rejected"]) == (sum(right), 30 - sum(right))
    exported = list(csv.DictReader(io.StringIO(client.get("/review/export/labels").text, newline="")))
    original = list(csv.DictReader(io.StringIO(posts.path.read_text(encoding="utf-8"), newline="")))
    for row, (old, new) in enumerate(zip(original, exported, strict=True)):
        added = [c["label"] for c, yes in zip(cards, right, strict=True) if c["row"] == row and yes]
        assert new == old | {"tags": "|".join([*filter(None, old["tags"].split("|")), *added])}
    log = [json.loads(line) for line in client.get("/review/export/log?format=jsonl").text.splitlines()]
    assert [(one["row"], one["label"]) for one in log] == [(c["row"], c["label"]) for c in cards]
    stats = client.get("/review/stats").json()
    assert stats["precision"]["precision"] == pytest.approx(np.mean(right))
    assert stats["precision"]["expected"] == pytest.approx(np.mean([one["probability"] for one in log]))


def test_a_verdict_changes_a_document_and_an_undo_changes_it_back(client):
    card = client.get("/review/queue", params={"limit": 1}).json()["suggestions"][0]
    before = client.get(f"/review/documents/{card['row']}").json()
    assert card["label"] not in before["labels"]
    assert card["label"] in judge(client, 1, card, "accept").json()["labels"]
    shown = client.get(f"/review/documents/{card['row']}").json()
    assert [one["verdict"] for one in shown["suggestions"] if one["label"] == card["label"]] == ["accept"]
    undone = client.post("/review/undo", json={"key": "undo-0001", "of": "key-00001"}).json()
    assert (undone["undone_key"], undone["labels"]) == ("key-00001", before["labels"])
    assert client.get(f"/review/documents/{card['row']}").json() == before
    nothing = client.post("/review/undo", json={"key": "undo-0002"})
    assert (nothing.status_code, nothing.json()["error"]["message"]) == (404, "There is nothing to undo.")


def test_a_key_that_comes_again_with_something_else_is_a_conflict(client):
    one, other = client.get("/review/queue", params={"limit": 2}).json()["suggestions"]
    first = judge(client, 1, one, "accept").json()
    assert judge(client, 1, one, "accept").json() == first
    for answer in (judge(client, 1, one, "reject"), judge(client, 1, other, "accept")):
        assert (answer.status_code, answer.json()["error"]["code"]) == (409, "conflict")
        assert "'key-00001' belongs to another entry" in answer.json()["error"]["message"]
    judge(client, 2, other, "accept")
    undone = client.post("/review/undo", json={"key": "undo-0001", "of": "key-00001"})
    assert client.post("/review/undo", json={"key": "undo-0001", "of": "key-00001"}).json() == undone.json()
    assert client.post("/review/undo", json={"key": "undo-0001", "of": "key-00002"}).status_code == 409
    assert client.post("/review/undo", json={"key": "key-00002"}).status_code == 409
    assert len(client.get("/review/export/log?format=jsonl").text.splitlines()) == 3


def test_an_answer_says_what_holds_for_the_cell(client):
    assert client.get("/review/newest").status_code == 404
    card = client.get("/review/queue", params={"limit": 1}).json()["suggestions"][0]
    assert judge(client, 1, card, "accept").json()["current"] == "accept"
    second = judge(client, 2, card, "reject").json()
    assert client.get("/review/newest").json() == second
    undone = client.post("/review/undo", json={"key": "undo-0001", "of": "key-00002"}).json()
    assert (undone["current"], card["label"] in undone["labels"]) == ("accept", True)
    assert client.get("/review/newest").json()["key"] == "key-00001"
    assert client.post("/review/undo", json={"key": "undo-0002"}).json()["current"] is None


def test_a_verdict_on_other_data_is_not_stored(client, posts, caplog):
    card = client.get("/review/queue", params={"limit": 1}).json()["suggestions"][0]
    document = client.get(f"/review/documents/{card['row']}").json()
    assert document["data_id"] == client.get("/review/state").json()["data_id"]
    body = {"key": "key-00001", "row": card["row"], "label": card["label"], "verdict": "accept"}
    answer = client.post("/review/verdicts", json=body | {"data_id": "0" * 16})
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "other_data")
    assert f"row {card['row']} is about other data than posts.csv" in answer.json()["error"]["message"]
    assert client.get("/review/newest").status_code == 404
    assert client.post("/review/verdicts", json=body | {"data_id": document["data_id"]}).status_code == 200
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert caplog.records[0].getMessage().startswith("POST /review/verdicts was refused with 409: ")


def test_data_ids_differ_by_file_columns_and_labels(tmp_path):
    path = tmp_path / "posts.csv"
    path.write_text("text,title,tags\nx,y,a\n")
    ids = [material_of(path, ["a"], TableColumns(columns, "tags")).data_id for columns in ("text", "text", "title")]
    ids.append(material_of(path, ["a", "b"], TableColumns("text", "tags")).data_id)
    path.write_text("text,title,tags\nz,y,a\n")
    ids.append(material_of(path, ["a"], TableColumns("text", "tags")).data_id)
    assert ids[0] == ids[1]
    assert len(set(ids)) == 4


def test_a_missing_file_is_an_error_of_the_server(client, tmp_path):
    one, other = client.get("/review/queue", params={"limit": 2}).json()["suggestions"]
    assert judge(client, 1, one, "accept").status_code == 200
    (tmp_path / "a.sqlite").unlink()
    for answer in (judge(client, 2, other, "accept"), client.post("/review/undo", json={"key": "undo-0001"})):
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "reviews_unavailable")
        assert "a.sqlite of the reviews was deleted" in answer.json()["error"]["message"]


def test_refusals_are_told_from_missing_routes_and_logged(client, caplog):
    none_such = {"row": 0, "label": "none such"}
    assert judge(client, 1, none_such, "accept").json()["error"]["code"] == "no_suggestion"
    undone = client.post("/review/undo", json={"key": "undo-0001", "of": "key-00009"})
    assert (undone.status_code, undone.json()["error"]["code"]) == (404, "nothing_to_undo")
    assert judge(client, 1, none_such | {"row": -1}, "accept").status_code == 422
    assert client.post("/review/verdict", json={}).json()["error"]["code"] == "not_found"
    lines = [record.getMessage() for record in caplog.records]
    assert [line.partition(":")[0] for line in lines] == [
        "POST /review/verdicts was refused with 404",
        "POST /review/undo was refused with 404",
        "POST /review/verdicts was refused with 422",
    ]
    assert "'none such' for row 0" in lines[0].replace("\\", "")


def test_an_undo_of_an_unknown_verdict_undoes_nothing_else(client):
    card = client.get("/review/queue", params={"limit": 1}).json()["suggestions"][0]
    stored = judge(client, 1, card, "accept").json()
    assert client.post("/review/undo", json={"key": "undo-0001", "of": "key-00009"}).status_code == 404
    assert client.get("/review/newest").json() == stored


def test_the_file_of_the_reviews_is_named(client, posts, audited, tmp_path, capsys):
    assert client.get("/review/state").json()["reviews"] == "a.sqlite"
    data = ReviewData(posts.path, posts.model, TableColumns())
    address = {"url": "http://a", "models": ["m"]}
    for path, expected in ((tmp_path / "b.sqlite", "new, without verdicts"), (tmp_path / "a.sqlite", "1 verdict")):
        session = ReviewSession(data, Store(path, data.identity))
        _announce(address | {"reviews": session.describe_file()}, json=False)
        assert capsys.readouterr().out.splitlines()[1] == f"Reviews: {path} ({expected})"
        card = client.get("/review/queue", params={"limit": 1}).json()["suggestions"][0]
        judge(client, 1, card, "accept")
        session.close()


def test_two_people_see_their_conflict_and_settle_it(client):
    card = client.get("/review/queue").json()["suggestions"][0]
    cell = {"row": card["row"], "label": card["label"]}
    document = f"/review/documents/{card['row']}"

    def say(number, who, verdict, **more):
        body = {"key": f"key-{number:05}", "verdict": verdict, "reviewer": who, **cell, **more}
        return client.post("/review/verdicts", json=body).json()

    assert say(1, "  Anna ", "accept")["current"] == "accept"
    answer = say(2, "Ben", "reject")
    assert answer["current"] == "conflict"
    assert [(one["reviewer"], one["verdict"]) for one in answer["opinions"]] == [
        ("Anna", "accept"),
        ("Ben", "reject"),
    ]
    assert card["label"] not in answer["labels"]
    assert client.get("/review/state").json()["counts"]["conflicts"] == 1
    assert client.get("/review/queue", params={"status": "conflict"}).json()["suggestions"] == [card]
    shown = [one for one in client.get(document).json()["suggestions"] if one["label"] == card["label"]]
    assert (shown[0]["verdict"], len(shown[0]["opinions"])) == ("conflict", 2)
    undo = client.post("/review/undo", json={"key": "key-00003", "of": "key-00001", "reviewer": "Ben"})
    assert undo.status_code == 409
    assert "by Anna" in undo.json()["error"]["message"]
    assert say(4, "Carla", "accept", settle=True)["current"] == "accept"
    assert client.get("/review/state").json()["counts"]["conflicts"] == 0
    log = client.get("/review/export/log", params={"format": "jsonl"}).text
    entries = [json.loads(line) for line in log.splitlines()]
    assert [(one["reviewer"], one["verdict"]) for one in entries] == [
        ("Anna", "accept"), ("Ben", "reject"), ("Carla", "accept"),
    ]  # fmt: skip


def test_a_token_names_its_person(posts, audited, tmp_path):
    extension = make_extension(shutil.copy(audited, tmp_path), posts.path, folds=2)
    settings = Settings(tokens=(("Anna", "s1"), ("Ben", "s2")))
    with serving(create_app({"posts": posts.model}, settings=settings, extensions=[extension])) as client:
        cards = client.get("/review/queue", headers={"Authorization": "Bearer s1"}).json()["suggestions"]
        for token, name in (("s1", "Anna"), ("s2", "Ben")):
            headers = {"Authorization": f"Bearer {token}"}
            assert client.get("/review/state", headers=headers).json()["reviewer"] == name
            body = {"key": f"key-of-{name}", "row": cards[0]["row"], "label": cards[0]["label"], "verdict": "accept"}
            answer = client.post("/review/verdicts", json={**body, "reviewer": "Zoe"}, headers=headers).json()
            assert answer["reviewer"] == name
        assert client.get("/review/state", headers={"Authorization": "Bearer s3"}).status_code == 401


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (sqlite3.SQLITE_BUSY, 503),
        (sqlite3.SQLITE_FULL, 507),
        (sqlite3.SQLITE_READONLY, 507),
        (sqlite3.SQLITE_CORRUPT, 500),
    ],
)
def test_a_storage_error_is_json_and_other_routes_go_on(posts, audited, tmp_path, monkeypatch, code, status):
    extension = make_extension(shutil.copy(audited, tmp_path), posts.path, folds=2)
    app = create_app({"posts": posts.model}, extensions=[extension, add_page])
    store = app.state.review_session.store

    def fail(*_, **__):
        error = sqlite3.OperationalError("it went wrong")
        error.sqlite_errorcode = code
        raise error

    with serving(app) as client:
        card = client.get("/review/queue").json()["suggestions"][0]
        monkeypatch.setattr(store, "_append", fail)
        answer = judge(client, 1, card, "accept")
        assert answer.status_code == status
        assert answer.json()["error"]["message"]
        assert client.get("/review/state").status_code == 200
        assert client.get("/health").status_code == 200
        assert len(store.log()) == 0
        monkeypatch.undo()
        assert judge(client, 1, card, "accept").status_code == 200


def test_a_deleted_data_file_does_not_stop_the_export(posts, audited, tmp_path):
    data = Path(shutil.copy(posts.path, tmp_path))
    extension = make_extension(shutil.copy(audited, tmp_path), data, folds=2)
    with serving(create_app({"posts": posts.model}, extensions=[extension])) as client:
        data.unlink()
        assert client.get("/review/export/labels").status_code == 200


def test_what_is_no_json_is_refused_as_documented(client):
    paths = client.get("/openapi.json").json()["paths"]
    posts = {path: found["post"] for path, found in paths.items() if path.startswith("/review") and "post" in found}
    assert len(posts) == 5
    for path, documented in posts.items():
        answer = client.post(path, content=b'{"key":', headers={"Content-Type": "application/json"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "no_json")
        assert "400" in documented["responses"]
    assert not any("400" in found["get"]["responses"] for path, found in paths.items() if "get" in found)


def test_reasons_are_words_of_the_text(client):
    card = client.get("/review/queue", params={"limit": 1}).json()["suggestions"][0]
    path = f"/review/documents/{card['row']}"
    found = client.get(f"{path}/reasons", params={"label": card["label"]}).json()
    parts = client.get(path).json()["parts"]
    assert ["".join(piece["text"] for piece in part) for part in found["parts"]] == [part["text"] for part in parts]
    marked = {piece["text"].lower() for part in found["parts"] for piece in part if piece["weight"]}
    assert marked == {word["name"] for word in found["words"]}
    assert marked & set(WORDS[card["label"]].split())
    assert client.get(f"{path}/reasons", params={"label": "none such"}).status_code == 404


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("verdicts", {"key": "key-00001", "row": 0, "label": "none such", "verdict": "accept"}, 404),
        ("verdicts", {"key": "key-00001", "row": 0, "label": "meat", "verdict": "maybe"}, 422),
        ("verdicts", {"key": "'; DROP TABLE review; --", "row": 0, "label": "meat", "verdict": "skip"}, 422),
        ("verdicts", {"key": "key-00001", "row": -1, "label": "meat", "verdict": "skip"}, 422),
        ("verdicts", {"key": "key-00001", "row": 2**70, "label": "meat", "verdict": "skip"}, 422),
        ("undo", {"key": "key-00001", "further": 1}, 422),
        ("audit", {"action": "explode"}, 422),
        ("retrain", {"action": "start"}, 409),
        ("retrain/save", {}, 409),
    ],
)
def test_what_makes_no_sense_is_refused(client, path, body, status):
    answer = client.post(f"/review/{path}", json=body)
    assert answer.status_code == status
    assert set(answer.json()["error"]) == {"code", "message"}


def test_limits_and_types(client):
    assert client.get("/review/queue", params={"limit": 101}).status_code == 422
    assert client.get("/review/queue", params={"order": "id; DROP TABLE review"}).status_code == 422
    for path in ("300", "300/reasons?label=meat", "9000000000000000"):
        answer = client.get(f"/review/documents/{path}")
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")
    assert client.get("/review/documents/-1").status_code == 422
    half = client.get("/review/queue", params={"after_row": 3})
    assert (half.status_code, half.json()["error"]["code"]) == (422, "unusable")
    assert "after_row and after_label" in half.json()["error"]["message"]
    body = b'{"key":"key-00001"}'
    for kind in ("text/plain", "application/x-www-form-urlencoded"):
        assert client.post("/review/undo", content=body, headers={"Content-Type": kind}).status_code == 415
    assert client.post("/review/undo", content=body, headers={"Content-Type": ""}).status_code == 415
    assert client.get("/review/undo").status_code == 405


def test_the_page_and_its_parts_are_served(client):
    page = client.get("/")
    assert page.headers["content-type"].startswith("text/html")
    assert "default-src 'self'" in page.headers["content-security-policy"]
    for name, kind in (("page.js", "javascript"), ("page.css", "css"), ("icon.svg", "svg")):
        part = client.get(f"/page/{name}")
        assert kind in part.headers["content-type"]
        again = client.get(f"/page/{name}", headers={"If-None-Match": part.headers["etag"]})
        assert again.status_code == 304
        assert page.headers["cache-control"] == part.headers["cache-control"] == again.headers["cache-control"]
    assert page.headers["cache-control"] == "no-cache"
    assert client.get("/page/../routes.py").status_code == 404
    assert client.get("/page/%2e%2e/routes.py").status_code == 404


def test_retraining_gains_on_held_out_documents_and_is_saved_beside(client, tmp_path, posts):
    cards = client.get("/review/queue", params={"limit": 100}).json()["suggestions"]
    for number, card in enumerate(cards):
        judge(client, number, card, "accept" if card["label"] in posts.truth[card["row"]] else "reject")
    assert client.post("/review/retrain", json={"action": "start"}).status_code == 200
    wait_for(lambda: client.get("/review/retrain").json()["job"]["state"] != "running")
    found = client.get("/review/retrain").json()
    assert found["job"]["state"] == "done", found["job"]["message"]
    right = next(one for one in found["comparisons"] if one["name"] == "Reviewed cells decided right")
    assert right["judged"] == len(cards)
    assert right["after"] > right["before"]
    name = client.post("/review/retrain/save", json={}).json()["path"]
    assert (tmp_path / name).exists()
    assert client.post("/review/retrain/save", json={}).json()["path"] != name


def test_a_second_audit_leaves_decided_cells_alone(client):
    cards = client.get("/review/queue", params={"limit": 20}).json()["suggestions"]
    verdicts = ["accept", "reject"] * 10  # an audit would suggest again what is refused, since nothing is written
    for number, (card, verdict) in enumerate(zip(cards, verdicts, strict=True)):
        judge(client, number, card, verdict)
    untouched = client.get("/review/queue", params={"limit": 20}).json()["suggestions"]
    assert client.post("/review/audit", json={"action": "start"}).status_code == 200
    wait_for(lambda: client.get("/review/state").json()["audit"]["state"] == "done")
    assert client.get("/review/queue", params={"limit": 20}).json()["suggestions"] != untouched  # it did look again
    for card, verdict in zip(cards, verdicts, strict=True):
        shown = client.get(f"/review/documents/{card['row']}").json()["suggestions"]
        kept = {"label": card["label"], "kind": "missing", "probability": card["probability"], "verdict": verdict}
        kept["opinions"] = []
        assert [one for one in shown if one["label"] == card["label"]] == [kept]
    counts = client.get("/review/state").json()["counts"]
    assert (counts["accepted"], counts["rejected"]) == (10, 10)


def test_the_queue_learns_from_verdicts(client, posts):
    """Every suggestion of the most suggested label is refused, every other one accepted."""

    def queue():
        return client.get("/review/queue", params={"limit": 100, "least": 0}).json()["suggestions"]

    def stats():
        return client.get("/review/stats").json()

    before, cards = stats(), queue()
    assert client.get("/review/state").json()["learned"] == 0
    names = [card["label"] for card in cards]
    refused = max(set(names), key=names.count)
    for number, card in enumerate(cards[:40]):
        answer = judge(client, number, card, "reject" if card["label"] == refused else "accept")
        assert answer.status_code == 200
        if number == LEARN_EVERY - 2:
            assert answer.json()["learned"] == 0
            unchanged = [one for one in queue() if one in cards]
            assert unchanged == cards[number + 1 :]
    wait_for(lambda: client.get("/review/state").json()["learned"] > 40 - LEARN_EVERY)
    stated = {(card["row"], card["label"]): card["probability"] for card in cards}
    changes = {True: [], False: []}
    for card in queue():
        if (card["row"], card["label"]) in stated:
            change = card["probability"] - stated[card["row"], card["label"]]
            changes[card["label"] == refused].append(change)
    assert len(changes[True]) > 5
    assert max(changes[True]) < min(changes[False])
    after = stats()
    open_now = client.get("/review/queue", params={"limit": 100}).json()["suggestions"]
    assert after["next_hundred"] == pytest.approx(sum(card["probability"] for card in open_now), abs=0.01)
    assert client.get("/review/state").json()["counts"]["missing"]["next_hundred"] == after["next_hundred"]
    was, now = before["still_missing"], after["still_missing"]
    assert now["low"] <= now["number"] <= now["high"]
    assert now["high"] - now["low"] < was["high"] - was["low"]
    assert was["share_low"] <= 0.25 <= was["share_high"]
    assert now["text"].startswith("about " if now["low"] > 0 else "at most ")


def test_learning_is_that_of_the_command(posts, audited, tmp_path):
    session = open_session(
        shutil.copy(audited, tmp_path), ReviewData(posts.path, posts.model, TableColumns()), folds=2
    )
    stated = session.store.stated_suggestions()
    for number, suggestion in enumerate(stated[:25]):
        session.store.add(f"key-{number:05}", suggestion, "reject" if number % 3 else "accept")
    session.run_learning()
    found = audit(session.data.texts, session.data.labels, clone_with_seed(posts.model, 0), n_folds=2, random_state=0)
    numbers, first = session.data.label_numbers, stated[:25]
    cells = [one.row for one in first], [numbers[one.label] for one in first], [i % 3 == 0 for i in range(25)]
    wanted = learn(found, *cells)
    names = session.data.label_names
    said = {(row, label): p for row, label, _, p in wanted.records(names)}
    queue = SuggestionQuery(least=0).page(session.store, 1000)
    assert len(queue) > 200
    assert [one.probability for one in queue] == pytest.approx([said[one.row, one.label] for one in queue], abs=1e-6)
    shares = Shares.of_json(session.store.meta("shares"))
    assert (shares.low, shares.high) == pytest.approx((wanted.share.low, wanted.share.high), rel=0.02)
    for number in range(25):
        session.store.undo(f"undo-{number:05}", of=f"key-{number:05}")
    session.run_learning()
    assert [one.probability for one in SuggestionQuery(least=0).page(session.store, 1000)] == pytest.approx(
        [one.probability for one in stated if one.kind == "missing"]
    )
    session.close()


def test_what_is_undone_after_a_second_audit_can_be_decided_again(client):
    card = client.get("/review/queue", params={"limit": 1}).json()["suggestions"][0]
    judge(client, 1, card, "accept")
    assert client.post("/review/audit", json={"action": "start"}).status_code == 200
    wait_for(lambda: client.get("/review/state").json()["audit"]["state"] == "done")
    assert client.post("/review/undo", json={"key": "undo-0001"}).status_code == 200
    only = {"row": card["row"], "label": card["label"]}
    assert client.get("/review/queue", params=only).json()["suggestions"] == [card]
    assert judge(client, 2, card, "reject").json()["verdict"] == "reject"


def test_an_audit_can_be_stopped_and_begun_again(posts, tmp_path):
    session = ReviewSession(
        ReviewData(posts.path, posts.model, TableColumns()), Store(tmp_path / "a.sqlite", IDENTITY), folds=2
    )
    session.audit_job.start(lambda: (session.audit_job.stop(), session.run_audit()))
    assert session.audit_job.wait(60).state == "stopped"
    assert not session.audited
    assert session.start_audit()
    assert session.audit_job.wait(60).state == "done"
    assert session.audited
    session.store.close()


def test_a_file_without_texts_is_refused(tmp_path, posts):
    path = tmp_path / "a.txt"
    path.write_text("1 2 2\n0 1:1\n")
    with pytest.raises(ValueError, match="takes texts"):
        ReviewData(path, posts.model, TableColumns())
