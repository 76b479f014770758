"""SQLite store of suggestions and verdicts. All SQL of the reviews is in this file.

The log of reviews is append-only. An undo is a further entry that names the entry it revokes. The current verdict on
a cell is derived from each person's newest verdict that was not revoked: if two people disagree, it is "conflict",
until one of them settles it by an entry that replaces all before it. An entry has a number in the log (column ``id``)
and an entry id chosen by its sender (column ``key``), so that an entry which arrives twice is stored once.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple

SCHEMA_VERSION = 3
MAX_WAITING_WRITERS = 8  # further ones are turned away at once, and do not take the threads of other requests
UPDATED_AT_ONCE = 5_000  # suggestions, in one transaction
BUSY_SECONDS = 5.0  # that a writer waits for another process
APPLICATION_ID = 0x6C676170  # "lgap", in the header of the file

SCHEMA = """
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
"""
# What version 2 adds to a file of version 1: who made an entry, and whether it settles a conflict.
REVIEWERS = """
ALTER TABLE review ADD COLUMN reviewer TEXT NOT NULL DEFAULT '';
ALTER TABLE review ADD COLUMN settles INTEGER NOT NULL DEFAULT 0;
"""
# What version 3 adds: what the audit said before it learned from verdicts, and for missing labels the share of
# written cells with a higher score (``Audit.places``; 1 for other suggestions).
STATED = """
ALTER TABLE suggestion ADD COLUMN stated REAL NOT NULL DEFAULT 0;
ALTER TABLE suggestion ADD COLUMN place REAL NOT NULL DEFAULT 1;
UPDATE suggestion SET stated = probability;
"""
UPGRADES = {1: REVIEWERS, 2: STATED}  # from a version to the next
# The verdicts that were not revoked; of these each person's newest on a cell since a settlement; and the verdict on
# each cell. Files of version 1 have other views, some of them under other names.
VIEWS = """
DROP VIEW IF EXISTS present;
DROP VIEW IF EXISTS standing;
DROP VIEW IF EXISTS current_review;
DROP VIEW IF EXISTS opinion;
DROP VIEW IF EXISTS not_revoked;
CREATE VIEW not_revoked AS
    SELECT * FROM review AS r WHERE verdict <> 'undo' AND NOT EXISTS (SELECT 1 FROM review WHERE undoes = r.id);
CREATE VIEW opinion AS
    SELECT *, (verdict = 'accept') = (kind = 'missing') AS is_positive FROM not_revoked AS r WHERE NOT EXISTS (
        SELECT 1 FROM not_revoked AS later WHERE later.row = r.row AND later.label = r.label AND later.id > r.id
        AND (later.settles OR later.reviewer = r.reviewer));
CREATE VIEW current_review AS
    SELECT id, key, made_at, row, label, kind, probability,
        CASE WHEN verdict <> 'skip' AND EXISTS (
            SELECT 1 FROM opinion AS other WHERE other.row = o.row AND other.label = o.label
            AND other.verdict <> 'skip' AND other.is_positive <> o.is_positive
        ) THEN 'conflict' ELSE verdict END AS verdict, undoes, reviewer, settles
    FROM opinion AS o WHERE NOT EXISTS (
        SELECT 1 FROM opinion AS better WHERE better.row = o.row AND better.label = o.label
        AND (better.verdict <> 'skip', better.id) > (o.verdict <> 'skip', o.id));
"""
REVIEW_COLUMNS = "id, key, made_at, row, label, kind, probability, verdict, undoes, reviewer, settles"


class EntryConflict(ValueError):
    """An entry id was sent again with a different entry."""


class StoreUnavailable(OSError):
    """The file of the reviews was deleted, moved or replaced while it was open."""


class OtherReviewer(ValueError):
    """An undo of a verdict that another person made."""


class StoreBusy(Exception):
    """Too many writers wait for the file."""


class Suggestion(NamedTuple):
    """A cell to review, and the probability that its label is "missing" or "doubtful".

    ``place``, which only the audit and what learns from verdicts use, is the share of written cells with a higher
    score than a missing label; 1 for others.
    """

    row: int
    label: str
    kind: str
    probability: float
    place: float = 1.0


class Review(NamedTuple):
    """An entry of the log.

    ``id`` is its number in the log, ``entry_id`` the random id chosen by the sender, ``undoes`` the number of the
    entry that an undo revokes, ``reviewer`` the name of the person (empty without one), and ``settles`` is 1 if the
    entry replaces those of everybody before it.
    """

    id: int
    entry_id: str
    made_at: str
    row: int
    label: str
    kind: str
    probability: float
    verdict: str
    undoes: int | None
    reviewer: str = ""
    settles: int = 0


class Store:
    """The suggestions of an audit and the log of reviews, in a SQLite file.

    Each review is a transaction of its own, which is on the disk before :meth:`add` returns. Any thread may call.
    While the file is open, and after a crash, a second file with the ending ``-wal`` holds its newest transactions.

    Parameters
    ----------
    path : path
        The file; created if it does not exist.
    identity : dict of str
        Fingerprints of what is reviewed, such as {"data file": fingerprint}. A file with other ones is an error.

    Attributes
    ----------
    is_new : bool
        Whether the file was created.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> store = Store(Path(folder.name) / "reviews.sqlite", {"data": "a"})
    >>> store.replace_suggestions([Suggestion(0, "baking", "missing", 0.9)])
    >>> store.add("first", store.suggestion(0, "baking"), "accept").verdict
    'accept'
    >>> store.undo("second").undoes, store.current_reviews()
    (1, [])
    >>> store.close()
    >>> folder.cleanup()
    """

    def __init__(self, path: Path | str, identity: dict[str, str]) -> None:
        if str(path) == ":memory:":
            raise ValueError("--reviews :memory: would lose the verdicts when the server stops; pass a file.")
        self.path = Path(path).absolute()
        self._lock, self._reading_lock = threading.RLock(), threading.RLock()
        self._writers = threading.BoundedSemaphore(MAX_WAITING_WRITERS)
        self._transaction_thread: int | None = None
        self._wal_path = f"{self.path.resolve()}-wal"  # SQLite follows a link before it names this file
        self._inodes: dict[str, int] = {}  # of both files
        self._connection = self._reader = _connect(path)
        try:
            self.is_new = self._check_or_create(identity)
            self._reader = _connect(path)  # so that nobody who reads waits for somebody who writes
        except sqlite3.Error as error:
            self.close()
            raise _cannot_use(path, error) from error
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the file."""
        with self._lock, self._reading_lock:
            self._connection.close()
            self._reader.close()

    # --- verdicts ---------------------------------------------------------------------------------------------------

    def add(
        self, entry_id: str, cell: Suggestion, verdict: str, reviewer: str = "", *, settle: bool = False
    ) -> Review:
        """Append a verdict to the log; with the same ``entry_id`` again, return the entry that is stored already.

        A verdict that differs from another person's is stored beside it, and the cell is in conflict; one that
        settles replaces those of everybody. Raise EntryConflict if the id belongs to another entry.
        """
        with self._transaction():
            existing = self._find("FROM review WHERE key = ?", entry_id)
            if existing is None:
                return self._append(entry_id, cell, verdict, None, reviewer, int(settle))
        same = (existing.row, existing.label, existing.verdict, existing.reviewer)
        if same != (cell.row, cell.label, verdict, reviewer):
            raise _entry_conflict(existing)
        return existing

    def undo(self, entry_id: str, of: str | None = None, reviewer: str = "") -> Review | None:
        """Revoke the verdict with the entry id ``of``, by default the person's newest one that was not revoked.

        Return the entry of the undo, whose own id is ``entry_id``; None if there is no such verdict or it was revoked
        already. Raise EntryConflict if ``entry_id`` belongs to a verdict, or to an undo of another one, and
        OtherReviewer if another person made the verdict.
        """
        with self._transaction():
            existing = self._find("FROM review WHERE key = ?", entry_id)
            if existing is None:
                revoked = self.newest(of, reviewer)
                if revoked is None:
                    return None
                if revoked.reviewer != reviewer:
                    maker = revoked.reviewer or "somebody without a name"
                    raise OtherReviewer(f"This verdict is by {maker}; make your own, or settle the conflict.")
                return self._append(entry_id, Suggestion(*revoked[3:7]), "undo", revoked.id, reviewer)
        if existing.undoes is None or of not in (None, self.review(existing.undoes).entry_id):
            raise _entry_conflict(existing)
        return existing

    def _append(
        self, entry_id: str, cell: Suggestion, verdict: str, undoes: int | None, reviewer: str, settles: int = 0
    ) -> Review:
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        cursor = self._connection.execute(
            "INSERT INTO review (key, made_at, row, label, kind, probability, verdict, undoes, reviewer, settles) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (entry_id, now, *cell[:4], verdict, undoes, reviewer, settles),
        )
        assert cursor.lastrowid is not None
        return Review(cursor.lastrowid, entry_id, now, *cell[:4], verdict, undoes, reviewer, settles)

    def newest(self, entry_id: str | None = None, reviewer: str = "") -> Review | None:
        """Return a person's newest verdict that was not revoked; with an entry id, that verdict, whoever made it.

        None if the log has no such verdict, or it was revoked.
        """
        condition, value = ("key = ?", entry_id) if entry_id is not None else ("reviewer = ?", reviewer)
        return self._find(f"FROM not_revoked WHERE {condition} ORDER BY id DESC LIMIT 1", value)

    def opinions(self, row: int, label: str) -> list[Review]:
        """Return each person's verdict on a cell, oldest first; a settlement hides those before it."""
        statement = f"SELECT {REVIEW_COLUMNS} FROM opinion WHERE row = ? AND label = ? ORDER BY id"
        return [Review(*entry) for entry in self.select(statement, row, label)]

    def review(self, number: int) -> Review:
        """Return the entry with a number in the log, ``Review.id``; it must exist."""
        review = self._find("FROM review WHERE id = ?", number)
        assert review is not None
        return review

    def current_reviews(self, row: int | None = None) -> list[Review]:
        """Return the current verdicts, of one row or of all: for each cell the newest one that was not revoked."""
        condition, values = ("row = ?", (row,)) if row is not None else ("1", ())
        statement = f"SELECT {REVIEW_COLUMNS} FROM current_review WHERE {condition} ORDER BY id"
        return [Review(*entry) for entry in self.select(statement, *values)]

    def newest_number(self) -> int:
        """Return the number of the newest entry of the log; 0 if there is none."""
        return self._value("SELECT ifnull(max(id), 0) FROM review")

    def count_since(self, number: int) -> int:
        """Return how many entries after that with a number change what is accepted or rejected."""
        return self._value("SELECT count(*) FROM review WHERE id > ? AND verdict <> 'skip'", number)

    def log(self) -> list[Review]:
        """Return all entries, including undos and revoked verdicts."""
        return [Review(*entry) for entry in self.select(f"SELECT {REVIEW_COLUMNS} FROM review ORDER BY id")]

    # --- suggestions ------------------------------------------------------------------------------------------------

    def replace_suggestions(self, suggestions: Iterable[Suggestion], **meta: str) -> None:
        """Replace the suggestions by those of a new audit, and store values next to them, in one transaction.

        A cell that is suggested twice keeps the more probable suggestion. A reviewed cell without a new suggestion
        keeps its old one, since an undo may open it again.
        """
        cells: dict[tuple[int, str], Suggestion] = {}
        for suggestion in suggestions:
            known = cells.setdefault((suggestion.row, suggestion.label), suggestion)
            if suggestion.probability > known.probability:
                cells[suggestion.row, suggestion.label] = suggestion
        with self._transaction():
            self._connection.execute(
                "DELETE FROM suggestion WHERE NOT EXISTS "
                "(SELECT 1 FROM review AS r WHERE r.row = suggestion.row AND r.label = suggestion.label)"
            )
            self._connection.execute("UPDATE suggestion SET place = 1")
            self._connection.executemany(
                "INSERT OR REPLACE INTO suggestion (row, label, kind, probability, place, stated) "
                "VALUES (?1, ?2, ?3, ?4, ?5, ?4)",
                cells.values(),
            )
            self._set_meta(meta)

    def stated_suggestions(self) -> list[Suggestion]:
        """Return all suggestions as the audit stated them, missing labels first, the most probable first."""
        statement = "SELECT row, label, kind, stated, place FROM suggestion ORDER BY kind DESC, stated DESC, id"
        return [Suggestion(*entry) for entry in self.select(statement)]

    def set_probabilities(self, suggestions: Iterable[Suggestion], **meta: str) -> None:
        """Set the probabilities of stored suggestions, and store values next to them afterwards.

        There are several transactions, so that a verdict does not wait for all.
        """
        cells = ((cell.probability, cell.row, cell.label) for cell in suggestions)
        while part := list(islice(cells, UPDATED_AT_ONCE)):
            with self._transaction():
                self._connection.executemany(
                    "UPDATE suggestion SET probability = ? WHERE row = ? AND label = ?", part
                )
        with self._transaction():
            self._set_meta(meta)

    def _set_meta(self, meta: dict[str, str]) -> None:
        self._connection.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", meta.items())

    def suggestion(self, row: int, label: str) -> Suggestion:
        """Return the suggestion for a cell; raise KeyError if there is none."""
        rows = self.select(
            "SELECT row, label, kind, probability FROM suggestion WHERE row = ? AND label = ?", row, label
        )
        if not rows:
            raise KeyError(f"There is no suggestion of the label {label!r} for row {row}.")
        return Suggestion(*rows[0])

    def suggestions_of(self, row: int) -> list[Suggestion]:
        """Return the suggestions for a row, most probable first."""
        statement = "SELECT row, label, kind, probability FROM suggestion WHERE row = ? ORDER BY probability DESC"
        return [Suggestion(*entry) for entry in self.select(statement, row)]

    def meta(self, name: str) -> str | None:
        """Return a value stored next to the tables."""
        return self._value("SELECT value FROM meta WHERE name = ?", name)

    # --- SQL --------------------------------------------------------------------------------------------------------

    def select(self, statement: str, *values: Any) -> list[tuple]:
        """Return the rows of a query; within a transaction, as it has left them."""
        if self._transaction_thread == threading.get_ident():
            return self._connection.execute(statement, values).fetchall()
        with self._reading_lock:
            return self._reader.execute(statement, values).fetchall()

    def _find(self, source: str, *values: Any) -> Review | None:
        rows = self.select(f"SELECT {REVIEW_COLUMNS} {source}", *values)
        return Review(*rows[0]) if rows else None

    def _value(self, statement: str, *values: Any) -> Any:
        rows = self.select(statement, *values)
        return rows[0][0] if rows else None

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Run a block as one transaction, which is on the disk when the block ends.

        Raise StoreUnavailable if the file has no name any more: its content vanishes when the connection closes.
        """
        if not self._writers.acquire(blocking=False):
            raise StoreBusy("Too many verdicts wait for the file of reviews; try again.")
        try:
            with self._locked_file():
                self._transaction_thread = threading.get_ident()
                try:
                    yield
                    self._connection.execute("COMMIT")
                except BaseException:
                    self._connection.rollback()
                    raise
                finally:
                    self._transaction_thread = None
                self._check_files()
        finally:
            self._writers.release()

    @contextmanager
    def _locked_file(self) -> Iterator[None]:
        """Begin a transaction; other threads and other processes together are waited for at most BUSY_SECONDS."""
        end = time.monotonic() + BUSY_SECONDS
        if not self._lock.acquire(timeout=BUSY_SECONDS):
            raise StoreBusy("Another program uses the file of reviews; nothing was stored.")
        try:
            left = max(0, int(1000 * (end - time.monotonic())))
            self._connection.execute(f"PRAGMA busy_timeout = {left}")
            self._connection.execute("BEGIN IMMEDIATE")
            yield
        finally:
            self._lock.release()

    def _check_files(self) -> None:
        """Raise StoreUnavailable if the file or its log has lost its name: its content vanishes when it is closed."""
        for name in (str(self.path), self._wal_path):
            try:
                inode = os.stat(name).st_ino
            except FileNotFoundError:
                inode = None
            known = self._inodes.get(name, inode)
            if known is not None:
                self._inodes[name] = known
            if inode != known:
                raise StoreUnavailable(
                    f"The file {Path(name).name} of the reviews was deleted, moved or replaced while the server was "
                    "running; move it back, or stop the server, restore the file and start again."
                )

    def _check_or_create(self, identity: dict[str, str]) -> bool:
        """Create the tables in an empty file, or check that the file is about the same data; return whether new."""
        with self._transaction():
            version = self._value("PRAGMA user_version")
            is_new = version == 0 and not self._value("SELECT count(*) FROM sqlite_master")
            if is_new:
                self._execute_all(SCHEMA)
                self._connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                self._connection.executemany("INSERT INTO meta VALUES (?, ?)", identity.items())
            elif version not in (*UPGRADES, SCHEMA_VERSION) or self._value("PRAGMA application_id") != APPLICATION_ID:
                raise ValueError(
                    f"{self.path} is not a file of reviews of this version; pass another --reviews FILE."
                )
            for former in range(max(version, 1), SCHEMA_VERSION):
                self._execute_all(UPGRADES[former])
            self._connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")  # fails for a file that is read-only
            for name, value in identity.items():
                if self.meta(name) != value:
                    raise ValueError(
                        f"{self.path} holds reviews of another {name}; restore that {name}; another --reviews FILE "
                        "starts with no verdicts."
                    )
            has_views = self._value("SELECT count(*) FROM sqlite_master WHERE name = 'current_review'")
            if version != SCHEMA_VERSION or not has_views:
                self._execute_all(VIEWS)
            damage = self._value("PRAGMA quick_check(1)")
            if damage != "ok":
                raise ValueError(
                    f"{self.path} is damaged ({damage}); restore a copy, or pass another --reviews FILE."
                )
        return is_new

    def _execute_all(self, script: str) -> None:
        for statement in script.split(";\n"):
            self._connection.execute(statement)


def _entry_conflict(existing: Review) -> EntryConflict:
    return EntryConflict(
        f"The key {existing.entry_id!r} belongs to another entry ({existing.verdict}: {existing.label!r} of row "
        f"{existing.row}); use a new key for each entry."
    )


def _cannot_use(path: Path | str, error: sqlite3.Error) -> OSError:
    return OSError(
        f"--reviews {path} cannot be used ({error}); check that you may write it, and that no other program has it."
    )


def _connect(path: Path | str) -> sqlite3.Connection:
    try:
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=BUSY_SECONDS)
    except sqlite3.OperationalError as error:
        raise OSError(f"--reviews {path} cannot be opened ({error}); check that its folder exists.") from error
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")  # a commit waits for the disk
        connection.execute("PRAGMA foreign_keys = ON")
    except sqlite3.OperationalError as error:
        connection.close()
        raise _cannot_use(path, error) from error
    except sqlite3.DatabaseError as error:
        connection.close()
        raise ValueError(f"{path} is not a SQLite file ({error}); pass another --reviews FILE.") from error
    return connection


# --- the queue of suggestions ---------------------------------------------------------------------------------------

Kind = Literal["missing", "doubtful"]
Group = Literal["none", "label", "document"]
Order = Literal["probability", "uncertainty", "mixed"]
Status = Literal["open", "skipped", "conflict"]
MIN_PROBABILITY = 0.1  # the queue leaves out less probable suggestions unless a smaller bound is passed

Cell = tuple[int, str]

_GROUPS = {"label": "label", "document": "row"}
_ORDERS = {"probability": "probability DESC", "uncertainty": "abs(probability - 0.5)", "mixed": "turn"}
# Ids follow the stated probability, and multiples of the golden ratio are spread evenly: each part of this order has
# suggestions of all probabilities.
_AT_RANDOM = "(id * 2654435761) % 4294967296"
_TURN = (
    ", min(5 * row_number() OVER (ORDER BY probability DESC, id), "
    f"25 * row_number() OVER (ORDER BY {_AT_RANDOM})) AS turn"
)
_SAME_CELL = "r.row = matching.row AND r.label = matching.label"
_STATUSES = {
    "open": f"NOT EXISTS (SELECT 1 FROM not_revoked AS r WHERE {_SAME_CELL})",
    "skipped": f"(SELECT verdict FROM current_review AS r WHERE {_SAME_CELL}) = 'skip'",
    "conflict": "(row, label) IN (SELECT row, label FROM current_review WHERE verdict = 'conflict')",
}


@dataclass(frozen=True)
class SuggestionQuery:
    """A query for suggestions: filters, grouping and order.

    Groups are ordered by the sum of the stated probabilities over all suggestions, not only the open ones, so that
    this order does not change during a review; within groups the order is that of what verdicts teach. The order
    "mixed" has one suggestion of a random sample after five of the most probable ones; the sample is of those that
    the audit stated to be probable enough, whatever it learns.
    """

    kind: Kind = "missing"
    group: Group = "none"
    order: Order = "probability"
    status: Status = "open"
    label: str | None = None
    row: int | None = None
    least: float = MIN_PROBABILITY

    def page(self, store: Store, limit: int, after: Cell | None = None) -> list[Suggestion]:
        """Return suggestions in order: the first ones, or those that follow the cell ``after``.

        The position of that cell does not depend on verdicts, so it may be decided by now. Nothing follows a cell
        without a suggestion.
        """
        by = _GROUPS.get(self.group)
        columns = "" if by is None else f", sum(stated) OVER (PARTITION BY {by}) AS weight"
        columns += _TURN if self.order == "mixed" else ""
        matching, values = self._matching(columns)
        order = [*([] if by is None else ["weight DESC", by]), _ORDERS[self.order], "id"]
        keys = ", ".join(map(_to_ascending, order))
        place = f"SELECT {keys} FROM {'matching' if columns else 'suggestion'} WHERE row = ? AND label = ?"
        follows = "" if after is None else f"({keys}) > ({place}) AND "
        rows = store.select(
            f"{matching} SELECT row, label, kind, probability FROM matching "
            f"WHERE {follows}{_STATUSES[self.status]} ORDER BY {', '.join(order)} LIMIT ?",
            *values,
            *(after or ()),
            limit,
        )
        return [Suggestion(*row) for row in rows]

    def count(self, store: Store) -> tuple[int, float]:
        """Return the number of suggestions, and how many of them are expected to be right."""
        matching, values = self._matching("")
        condition = _STATUSES[self.status]
        return store.select(
            f"{matching} SELECT count(*), total(probability) FROM matching WHERE {condition}", *values
        )[0]

    def at_random(self, store: Store) -> list[Suggestion]:
        """Return all matching suggestions, decided or not, in random order: the first ones are a random sample.

        They and their probabilities are those of the audit, before it learned from verdicts.
        """
        matching, values = replace(self, order="mixed")._matching(", stated")
        rows = store.select(
            f"{matching} SELECT row, label, kind, stated FROM matching ORDER BY {_AT_RANDOM}", *values
        )
        return [Suggestion(*row) for row in rows]

    def labels(self, store: Store) -> list[tuple[str, int, float]]:
        """Return for each label the number of suggestions and how many are expected to be right, most first."""
        matching, values = self._matching("")
        return store.select(
            f"{matching} SELECT label, count(*), sum(probability) FROM matching WHERE {_STATUSES[self.status]} "
            "GROUP BY label ORDER BY 3 DESC, 1",
            *values,
        )

    def _matching(self, columns: str) -> tuple[str, list[Any]]:
        """Return the WITH clause that selects the suggestions which match the filters, and its values."""
        bounded = "stated" if self.order == "mixed" else "probability"
        filters: list[tuple[str, Any]] = [("kind = ?", self.kind), (f"{bounded} >= ?", self.least)]
        filters += [("label = ?", self.label)] if self.label is not None else []
        filters += [("row = ?", self.row)] if self.row is not None else []
        conditions = " AND ".join(condition for condition, _ in filters)
        return (
            "WITH matching AS "
            f"(SELECT id, row, label, kind, probability{columns} FROM suggestion WHERE {conditions})",
            [value for _, value in filters],
        )


def _to_ascending(column: str) -> str:
    """Return an expression that increases along a column of an ORDER BY.

    >>> _to_ascending("weight DESC"), _to_ascending("id")
    ('-weight', 'id')
    """
    return f"-{column.removesuffix(' DESC')}" if column.endswith(" DESC") else column
