"""Suggestions and verdicts in one SQLite file: a review that was acknowledged survives whatever happens next.

The log of reviews only grows. An undo is a further entry that names the one it takes back, and what holds now is
derived: of each cell the newest entry that nobody took back.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

VERSION = 1
APPLICATION = 0x6C676170  # "lgap", in the head of the file

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
CREATE VIEW standing AS
    SELECT * FROM review AS r WHERE verdict <> 'undo' AND NOT EXISTS (SELECT 1 FROM review WHERE undoes = r.id);
CREATE VIEW present AS
    SELECT * FROM standing AS s WHERE NOT EXISTS (
        SELECT 1 FROM standing AS later WHERE later.row = s.row AND later.label = s.label AND later.id > s.id);
"""
_REVIEW = "id, key, made_at, row, label, kind, probability, verdict, undoes"


class KeyTaken(ValueError):
    """A key that was sent again stands for another entry."""


class Suggestion(NamedTuple):
    """A cell to look at: the label is "missing" or "doubtful" with this probability."""

    row: int
    label: str
    kind: str
    probability: float


class Review(NamedTuple):
    """An entry of the log; ``undoes`` is the number of the entry that an undo takes back."""

    id: int
    key: str
    made_at: str
    row: int
    label: str
    kind: str
    probability: float
    verdict: str
    undoes: int | None


class Store:
    """The suggestions of an audit and the log of reviews, in a SQLite file.

    Each review is a transaction of its own that is on the disk before :meth:`add` returns. Any thread may call.

    Parameters
    ----------
    path : path
        The file; made where there is none.
    identity : dict of str
        What the reviews are of, such as {"data file": fingerprint}. A file of another identity is refused.

    Examples
    --------
    >>> store = Store(":memory:", {"data": "a"})
    >>> store.replace_suggestions([Suggestion(0, "baking", "missing", 0.9)])
    >>> store.add("first", store.suggestion(0, "baking"), "accept").verdict
    'accept'
    >>> store.undo("second").undoes, store.present()
    (1, [])
    """

    def __init__(self, path: Path | str, identity: dict[str, str]) -> None:
        self.path = path
        self._lock = threading.RLock()
        self._connection = _open(path)
        try:
            self._prepare(identity)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()

    # --- what the file is of ----------------------------------------------------------------------------------------

    def _prepare(self, identity: dict[str, str]) -> None:
        with self._transaction():
            version = self._value("PRAGMA user_version")
            if version == 0 and not self._value("SELECT count(*) FROM sqlite_master"):
                self._create(identity)
            elif version != VERSION or self._value("PRAGMA application_id") != APPLICATION:
                raise ValueError(f"{self.path} is no file of reviews of this version; pass another --reviews FILE.")
        for name, value in identity.items():
            if self.meta(name) != value:
                raise ValueError(
                    f"{self.path} holds reviews of another {name}; pass that one, or another --reviews FILE."
                )

    def _create(self, identity: dict[str, str]) -> None:
        for statement in SCHEMA.split(";\n"):
            self._connection.execute(statement)
        self._connection.execute(f"PRAGMA user_version = {VERSION}")
        self._connection.execute(f"PRAGMA application_id = {APPLICATION}")
        self._connection.executemany("INSERT INTO meta VALUES (?, ?)", identity.items())

    def meta(self, name: str) -> str | None:
        """Return a value that is kept beside the tables."""
        return self._value("SELECT value FROM meta WHERE name = ?", name)

    # --- suggestions ------------------------------------------------------------------------------------------------

    def replace_suggestions(self, found: Iterable[Suggestion], **meta: str) -> None:
        """Keep the suggestions of an audit instead of the earlier ones, and values beside them: all or nothing.

        Of a cell that comes twice the likeliest is kept. A cell that has reviews keeps its earlier suggestion where
        no new one comes, since an undo may open it again.
        """
        likeliest = _likeliest(found)
        with self._transaction() as run:
            run(
                "DELETE FROM suggestion WHERE NOT EXISTS "
                "(SELECT 1 FROM review AS r WHERE r.row = suggestion.row AND r.label = suggestion.label)"
            )
            self._connection.executemany(
                "INSERT OR REPLACE INTO suggestion (row, label, kind, probability) VALUES (?, ?, ?, ?)", likeliest
            )
            self._connection.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", meta.items())

    def suggestion(self, row: int, label: str) -> Suggestion:
        """Return the suggestion of a cell; KeyError where there is none."""
        found = self.select(
            "SELECT row, label, kind, probability FROM suggestion WHERE row = ? AND label = ?", row, label
        )
        if not found:
            raise KeyError(f"There is no suggestion of the label {label!r} for row {row}.")
        return Suggestion(*found[0])

    # --- reviews ----------------------------------------------------------------------------------------------------

    def add(self, key: str, cell: Suggestion, verdict: str) -> Review:
        """Write a verdict; ``key`` is the caller's name of it, so that sending it twice writes it once.

        KeyTaken where the key is that of another entry.
        """
        with self._transaction():
            known = self._by_key(key)
            if known is None:
                return self._append(key, cell, verdict, None)
        if (known.row, known.label, known.verdict) != (cell.row, cell.label, verdict):
            raise _taken(known)
        return known

    def undo(self, key: str, of: str | None = None) -> Review | None:
        """Take back the entry with the key ``of``, by default the newest that stands; None where there is none.

        KeyTaken where ``key`` is that of a verdict, or of an undo of something else.
        """
        with self._transaction():
            known = self._by_key(key)
            if known is None:
                last = self.newest(of)
                return None if last is None else self._append(key, Suggestion(*last[3:7]), "undo", last.id)
        if known.undoes is None or of not in (None, self.review(known.undoes).key):
            raise _taken(known)
        return known

    def newest(self, key: str | None = None) -> Review | None:
        """Return the newest entry that stands, or the one with a key if it stands; None where there is none."""
        where, values = ("key = ?", (key,)) if key is not None else ("1", ())
        return self._one(f"FROM standing WHERE {where} ORDER BY id DESC LIMIT 1", *values)

    def holding(self, row: int, label: str) -> Review | None:
        """Return what holds for a cell now; None where it is open."""
        return self._one("FROM present WHERE row = ? AND label = ?", row, label)

    def _append(self, key: str, cell: Suggestion, verdict: str, undoes: int | None) -> Review:
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        with self._transaction() as run:
            run(
                "INSERT INTO review (key, made_at, row, label, kind, probability, verdict, undoes) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (key, now, *cell, verdict, undoes),
            )
            found = self._by_key(key)
        assert found is not None
        return found

    def review(self, number: int) -> Review:
        """Return an entry of the log by its number."""
        found = self._one("FROM review WHERE id = ?", number)
        assert found is not None
        return found

    def present(self) -> list[Review]:
        """Return what holds now: of each cell the newest entry that nobody took back, in the order they were made."""
        return [Review(*row) for row in self.select(f"SELECT {_REVIEW} FROM present ORDER BY id")]

    def log(self) -> list[Review]:
        """Return every entry, undone ones and undos too."""
        return [Review(*row) for row in self.select(f"SELECT {_REVIEW} FROM review ORDER BY id")]

    def _by_key(self, key: str) -> Review | None:
        return self._one("FROM review WHERE key = ?", key)

    def _one(self, source: str, *values: Any) -> Review | None:
        found = self.select(f"SELECT {_REVIEW} {source}", *values)
        return Review(*found[0]) if found else None

    # --- SQL --------------------------------------------------------------------------------------------------------

    def select(self, statement: str, *values: Any) -> list[tuple]:
        """Return the rows of a query."""
        with self._lock:
            return self._connection.execute(statement, values).fetchall()

    def _value(self, statement: str, *values: Any) -> Any:
        found = self.select(statement, *values)
        return found[0][0] if found else None

    @contextmanager
    def _transaction(self) -> Iterator[Any]:
        """Run a block as one transaction, which is on the disk when the outermost block ends."""
        with self._lock:
            if self._connection.in_transaction:
                yield self._connection.execute
                return
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection.execute
                self._connection.execute("COMMIT")
            except BaseException:
                self._connection.rollback()
                raise


def _taken(known: Review) -> KeyTaken:
    return KeyTaken(
        f"The key {known.key!r} is that of another entry ({known.verdict}: {known.label!r} of row {known.row}); "
        "give each entry a key of its own."
    )


def _likeliest(found: Iterable[Suggestion]) -> list[Suggestion]:
    """Return each cell once, in the order in which cells come first.

    >>> [one.probability for one in _likeliest([Suggestion(0, "a", "missing", p) for p in (0.2, 0.9, 0.5)])]
    [0.9]
    """
    kept: dict[tuple[int, str], Suggestion] = {}
    for one in found:
        known = kept.setdefault((one.row, one.label), one)
        if one.probability > known.probability:
            kept[one.row, one.label] = one
    return list(kept.values())


def _open(path: Path | str) -> sqlite3.Connection:
    try:
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=10.0)
    except sqlite3.OperationalError as error:
        raise OSError(f"--reviews {path} cannot be opened ({error}); check that its folder exists.") from error
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")  # a commit waits for the disk
        connection.execute("PRAGMA foreign_keys = ON")
    except sqlite3.DatabaseError as error:
        connection.close()
        raise ValueError(f"{path} is no SQLite file ({error}); pass another --reviews FILE.") from error
    return connection
