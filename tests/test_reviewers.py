"""Several people on one table: both verdicts stay, disagreement is a conflict, and storage errors tell the truth."""

from __future__ import annotations

import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from labelgap.serve.reviews import store as store_module
from labelgap.serve.reviews.store import OtherReviewer, Store, StoreBusy, Suggestion, SuggestionQuery

IDENTITY = {"data file": "a"}
CELLS = [Suggestion(row, label, "missing", 0.5) for row in range(2) for label in "ab"]

VERSION_1 = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE suggestion (
    id INTEGER PRIMARY KEY, row INTEGER NOT NULL, label TEXT NOT NULL, kind TEXT NOT NULL,
    probability REAL NOT NULL, UNIQUE (row, label)
);
CREATE INDEX suggestion_by_probability ON suggestion (kind, probability);
CREATE INDEX suggestion_by_label ON suggestion (label, kind, probability);
CREATE TABLE review (
    id INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL UNIQUE, made_at TEXT NOT NULL, row INTEGER NOT NULL,
    label TEXT NOT NULL, kind TEXT NOT NULL, probability REAL NOT NULL,
    verdict TEXT NOT NULL CHECK (verdict IN ('accept', 'reject', 'skip', 'undo')),
    undoes INTEGER UNIQUE REFERENCES review (id), CHECK ((verdict = 'undo') = (undoes IS NOT NULL))
);
CREATE INDEX review_by_cell ON review (row, label);
CREATE VIEW standing AS
    SELECT * FROM review AS r WHERE verdict <> 'undo' AND NOT EXISTS (SELECT 1 FROM review WHERE undoes = r.id);
CREATE VIEW present AS
    SELECT * FROM standing AS s WHERE NOT EXISTS (
        SELECT 1 FROM standing AS later WHERE later.row = s.row AND later.label = s.label AND later.id > s.id);
"""


@pytest.fixture
def store(tmp_path):
    store = Store(tmp_path / "reviews.sqlite", IDENTITY)
    store.replace_suggestions(CELLS)
    yield store
    store.close()


def holds(store, cell=CELLS[0]):
    return {(review.row, review.label): review.verdict for review in store.current_reviews()}.get(cell[:2])


def test_two_people_who_disagree_are_in_conflict_until_one_settles_it(store):
    store.add("key-1", CELLS[0], "accept", "Anna")
    store.add("key-2", CELLS[0], "reject", "Ben")
    assert holds(store) == "conflict"
    assert [(one.reviewer, one.verdict) for one in store.opinions(0, "a")] == [("Anna", "accept"), ("Ben", "reject")]
    assert SuggestionQuery(status="conflict").page(store, 10) == CELLS[:1]
    store.add("key-3", CELLS[0], "skip", "Carla")  # no opinion
    assert holds(store) == "conflict"
    store.add("key-4", CELLS[0], "reject", "Carla", settle=True)
    assert holds(store) == "reject"
    assert SuggestionQuery(status="conflict").page(store, 10) == []
    store.add("key-5", CELLS[0], "accept", "Anna")  # she insists
    assert holds(store) == "conflict"
    store.undo("key-6", "key-5", "Anna")
    assert holds(store) == "reject"
    store.undo("key-7", "key-4", "Carla")  # the settlement is taken back, and so is what it replaced
    assert holds(store) == "conflict"
    log = [(entry.reviewer, entry.verdict) for entry in store.log()]
    assert log[:2] == [("Anna", "accept"), ("Ben", "reject")]
    assert len(log) == 7
    assert all(datetime.fromisoformat(entry.made_at) for entry in store.log())


def test_people_who_agree_or_change_their_own_mind_are_in_no_conflict(store):
    store.add("key-1", CELLS[0], "accept", "Anna")
    store.add("key-2", CELLS[0], "accept", "Ben")
    assert holds(store) == "accept"
    store.add("key-3", CELLS[0], "reject", "Ben")
    assert holds(store) == "conflict"
    store.add("key-4", CELLS[0], "reject", "Anna")
    assert holds(store) == "reject"


def test_the_same_verdict_on_opposite_questions_is_a_conflict(store):
    store.add("key-1", CELLS[0], "accept", "Anna")
    store.add("key-2", CELLS[0]._replace(kind="doubtful"), "accept", "Ben")
    assert holds(store) == "conflict"


def test_nobody_undoes_the_verdict_of_another(store):
    store.add("key-1", CELLS[0], "accept", "Anna")
    with pytest.raises(OtherReviewer, match="is by Anna"):
        store.undo("key-2", "key-1", "Ben")
    assert store.undo("key-3", reviewer="Ben") is None
    assert holds(store) == "accept"


def test_a_file_of_version_1_is_migrated_with_its_verdicts(tmp_path):
    path = tmp_path / "old.sqlite"
    connection = sqlite3.connect(path)
    connection.executescript(VERSION_1)
    connection.execute(f"PRAGMA application_id = {store_module.APPLICATION_ID}")
    connection.execute("PRAGMA user_version = 1")
    connection.executemany("INSERT INTO meta VALUES (?, ?)", IDENTITY.items())
    entries = [
        (1, "key-0001", "2026-01-01T00:00:00.000+00:00", 0, "a", "missing", 0.5, "accept", None),
        (2, "key-0002", "2026-01-01T00:00:01.000+00:00", 0, "a", "missing", 0.5, "reject", None),
        (3, "key-0003", "2026-01-01T00:00:02.000+00:00", 1, "b", "missing", 0.5, "skip", None),
        (4, "key-0004", "2026-01-01T00:00:03.000+00:00", 1, "b", "missing", 0.5, "undo", 3),
    ]
    connection.executemany("INSERT INTO review VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", entries)
    connection.execute("INSERT INTO suggestion VALUES (1, 2, 'c', 'missing', 0.4)")
    connection.commit()
    connection.close()
    for _ in range(2):  # migrated once
        store = Store(path, IDENTITY)
        assert [tuple(entry)[:9] for entry in store.log()] == entries
        assert {entry.reviewer for entry in store.log()} == {""}
        assert store.stated_suggestions() == [Suggestion(2, "c", "missing", 0.4, 1.0)]
        assert [(one.label, one.verdict) for one in store.current_reviews()] == [("a", "reject")]
        store.close()
    store = Store(path, IDENTITY)
    store.add("key-0005", CELLS[0], "accept", "Anna")
    assert holds(store) == "conflict"
    store.close()


def test_a_clock_that_steps_back_changes_nothing(store, monkeypatch):
    class Clock:
        times = iter(["2030-01-01", "1999-01-01", "2015-01-01"])

        @classmethod
        def now(cls, zone):
            return datetime.fromisoformat(next(cls.times)).replace(tzinfo=zone)

    monkeypatch.setattr(store_module, "datetime", Clock)
    for number, verdict in enumerate(["accept", "reject", "skip"]):
        store.add(f"key-{number}", CELLS[0], verdict)
        assert holds(store) == verdict
    assert [entry.verdict for entry in store.log()] == ["accept", "reject", "skip"]


# --- storage errors -------------------------------------------------------------------------------------------------


def locked(path):
    """Return a connection that has locked a file for writing."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    connection.execute("BEGIN IMMEDIATE")
    return connection


def test_readers_do_not_wait_for_a_locked_file_and_writers_do_not_pile_up(store, monkeypatch):
    store.add("key-1", CELLS[0], "accept")
    other = locked(store.path)
    with ThreadPoolExecutor(20) as pool:
        writers = [pool.submit(store.add, f"key-{n}", CELLS[1], "accept") for n in range(2, 20)]
        time.sleep(0.2)
        start = time.monotonic()
        assert len(store.current_reviews()) == 1
        assert time.monotonic() - start < 1.0
        busy = [future for future in writers if future.done() and isinstance(future.exception(), StoreBusy)]
        assert len(busy) == 18 - store_module.MAX_WAITING_WRITERS
        other.execute("ROLLBACK")
        other.close()
        stored = sum(future.exception() is None for future in writers)
    assert stored == store_module.MAX_WAITING_WRITERS
    assert len(store.log()) == 1 + stored


def test_a_locked_or_damaged_or_foreign_file_is_one_error_at_the_start(tmp_path, monkeypatch):
    monkeypatch.setattr(store_module, "BUSY_SECONDS", 0.1)
    path = tmp_path / "reviews.sqlite"
    store = Store(path, IDENTITY)
    store.replace_suggestions([Suggestion(i, "a" * 200, "missing", 0.5) for i in range(2000)])
    store.close()
    other = locked(path)
    with pytest.raises(OSError, match=r"cannot be used \(database is locked\)"):
        Store(path, IDENTITY)
    other.close()
    content = bytearray(path.read_bytes())
    for place in range(3 * 4096, len(content) - 4096, 4096):
        content[place : place + 100] = b"\xff" * 100
    path.write_bytes(content)
    with pytest.raises((OSError, ValueError), match=r"damaged|cannot be used|malformed"):
        Store(path, IDENTITY)


def test_writers_wait_for_a_locked_file_together(store, monkeypatch):
    monkeypatch.setattr(store_module, "BUSY_SECONDS", 0.5)
    other = locked(store.path)
    start = time.monotonic()
    with ThreadPoolExecutor(8) as pool:
        writers = [pool.submit(store.add, f"key-{n}", CELLS[1], "accept") for n in range(8)]
        errors = [writer.exception() for writer in writers]
    assert all(isinstance(error, StoreBusy | sqlite3.OperationalError) for error in errors)
    assert time.monotonic() - start < 2.5  # and not eight times 0.5 s and the time of the pool
    other.execute("ROLLBACK")
    other.close()
    store.add("key-9", CELLS[1], "accept")
    assert [entry.entry_id for entry in store.log()] == ["key-9"]


def test_a_file_that_is_read_only_is_refused_at_the_start(tmp_path, monkeypatch):
    path, connect = tmp_path / "reviews.sqlite", sqlite3.connect
    Store(path, IDENTITY).close()
    before = path.read_bytes()
    monkeypatch.setattr(
        sqlite3, "connect", lambda path, **options: connect(f"file:{path}?mode=ro", uri=True, **options)
    )
    with pytest.raises(OSError, match=r"readonly database.*check that you may write it"):
        Store(path, IDENTITY)
    assert path.read_bytes() == before


@pytest.mark.parametrize("limit", [50, 200])
def test_a_full_disk_loses_nothing_that_was_acknowledged(tmp_path, limit):
    path = tmp_path / "reviews.sqlite"
    store = Store(path, IDENTITY)
    store.replace_suggestions(CELLS)
    pages = store.select("PRAGMA page_count")[0][0]
    store._connection.execute(f"PRAGMA max_page_count = {pages + limit // 50}")
    acknowledged = []

    def fill():
        for number in range(10_000):
            acknowledged.append(store.add(f"key-{number:08}-{'x' * 40}", CELLS[0], "accept").entry_id)

    with pytest.raises(sqlite3.OperationalError, match="full"):
        fill()
    assert len(store.current_reviews()) == bool(acknowledged)
    store.close()
    again = Store(path, IDENTITY)
    assert [entry.entry_id for entry in again.log()] == acknowledged
    again.close()


# --- several people and kills, as a state machine -------------------------------------------------------------------

PEOPLE = ["", "Anna", "Ben", "Carla"]


class Reviewing(RuleBasedStateMachine):
    """Two servers on one file; a plain model of the log in Python says what must hold after each step."""

    @initialize()
    def begin(self):
        self.folder = store_module.Path(self.make_folder())
        self.stores = [Store(self.folder / "reviews.sqlite", IDENTITY) for _ in range(2)]
        self.stores[0].replace_suggestions(CELLS)
        self.log = []

    @staticmethod
    def make_folder():
        import tempfile

        return tempfile.mkdtemp()

    def teardown(self):
        import shutil

        for store in getattr(self, "stores", ()):
            store.close()
        if hasattr(self, "folder"):
            shutil.rmtree(self.folder)

    @rule(
        who=st.sampled_from(PEOPLE), cell=st.sampled_from(CELLS), server=st.integers(0, 1), settle=st.booleans(),
        verdict=st.sampled_from(["accept", "reject", "skip"]), again=st.booleans(),
    )  # fmt: skip
    def decide(self, who, cell, verdict, settle, server, again):
        key = f"key-{len(self.log)}"
        for store in self.stores if again else [self.stores[server]]:
            store.add(key, cell, verdict, who, settle=settle)
        self.log.append(
            {"key": key, "cell": cell[:2], "verdict": verdict, "who": who, "settles": settle, "undone": 0}
        )

    def append(self, key, who, verdict, cell=None, settles=False):
        self.log.append({"key": key, "cell": cell, "verdict": verdict, "who": who, "settles": settles, "undone": 0})

    @rule(who=st.sampled_from(PEOPLE), server=st.integers(0, 1))
    def undo(self, who, server):
        own = [
            entry for entry in self.log if entry["who"] == who and entry["verdict"] != "undo" and not entry["undone"]
        ]
        key = f"key-{len(self.log)}"
        review = self.stores[server].undo(key, reviewer=who)
        assert (review is None) == (not own)
        if own:
            own[-1]["undone"] = 1
            self.append(key, who, "undo")

    @rule(server=st.integers(0, 1))
    def restart(self, server):
        self.stores[server]._connection.close()  # without a farewell, as after a kill
        self.stores[server]._reader.close()
        self.stores[server] = Store(self.folder / "reviews.sqlite", IDENTITY)

    @invariant()
    def both_see_what_the_model_says(self):
        if not hasattr(self, "log"):
            return
        expected = {}
        for cell in CELLS:
            standing = [
                entry for entry in self.log
                if entry["cell"] == cell[:2] and entry["verdict"] != "undo" and not entry["undone"]
            ]  # fmt: skip
            last = max((place for place, entry in enumerate(standing) if entry["settles"]), default=0)
            newest = {entry["who"]: entry["verdict"] for entry in standing[last:]}
            decided = {verdict for verdict in newest.values() if verdict != "skip"}
            if newest:
                expected[cell[:2]] = "conflict" if len(decided) > 1 else next(iter(decided), "skip")
        for store in self.stores:
            assert {(one.row, one.label): one.verdict for one in store.current_reviews()} == expected
            assert [entry.entry_id for entry in store.log()] == [entry["key"] for entry in self.log]


TestReviewing = Reviewing.TestCase
TestReviewing.settings = settings(
    max_examples=8, stateful_step_count=12, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True
)


def test_four_people_at_once_lose_nothing(store):
    def work(who):
        for number in range(10):
            store.add(f"key-{who}-{number}", CELLS[number % 4], ["accept", "reject"][number % 2], who)

    people = [threading.Thread(target=work, args=(who,)) for who in ("Anna", "Ben", "Carla", "Dora")]
    for person in people:
        person.start()
    for person in people:
        person.join()
    assert len(store.log()) == len({entry.entry_id for entry in store.log()}) == 40
    assert all(review.verdict in ("accept", "reject") for review in store.current_reviews())
