"""Generated hostile files: models with changed members and headers, tables and sparse files that nobody should write.

Each file is read in a forked process with 1 GB of memory above its start and 10 s; it must be read, or raise an error
that the command line prints as one line.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import random
import resource
import signal
import sys
import tempfile
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from labelgap import LEML, OneClassMF, Tagger, explain, load
from labelgap.datasets import read, read_documents
from labelgap.datasets.formats import write

GIGABYTE = 1 << 30
SECONDS = 10
READ, REFUSED, FAILED = 0, 1, 3
EXPECTED = (ValueError, OSError, ImportError, TypeError)  # the command line prints these as one line


def judge(read_file: Callable[[Path], Any], path: Path) -> str:
    """Read a file in a process with limits; return "read", "refused", or what went wrong."""
    pid = os.fork()
    if pid == 0:
        code = FAILED
        try:
            sys.stderr = io.StringIO()
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            limit = pages * resource.getpagesize() + GIGABYTE
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
            signal.alarm(SECONDS)
            read_file(path)
            code = READ
        except EXPECTED:
            code = REFUSED
        except BaseException as error:
            os.write(1, f"{path.name}: {type(error).__name__}: {str(error)[:200]}\n".encode())
        finally:
            os._exit(code)
    status = os.waitpid(pid, 0)[1]
    if os.WIFSIGNALED(status):
        return "hang" if os.WTERMSIG(status) == signal.SIGALRM else f"signal {os.WTERMSIG(status)}"
    return {READ: "read", REFUSED: "refused"}.get(os.waitstatus_to_exitcode(status), "traceback")


# --- models ---------------------------------------------------------------------------------------------------------


def members_of(path: Path) -> dict[str, bytes]:
    """Return the members of a model file."""
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def write_members(path: Path, members: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> None:
    """Write a model file with the right checksums."""
    known = {name: hashlib.sha256(part).hexdigest() for name, part in members.items() if name != "checksums.json"}
    members = {**members, "checksums.json": json.dumps(known).encode()}
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, part in members.items():
            archive.writestr(name, part)


def mutate_array(content: bytes, rng: random.Random) -> bytes:
    """Return an array with other values, another shape or another type."""
    array = np.load(io.BytesIO(content))
    flat = array.ravel().copy()
    kind = rng.randrange(6)
    if kind == 0 and flat.size:
        flat[rng.randrange(flat.size)] = rng.choice(
            [0, 1, -1, 127] if flat.dtype.kind in "iub" else [np.nan, np.inf, -1e30]
        )
        array = flat.reshape(array.shape)
    elif kind == 1 and flat.size and flat.dtype.kind in "iu":
        flat[rng.randrange(flat.size)] = np.iinfo(flat.dtype).max - rng.randrange(3)
        array = flat.reshape(array.shape)
    elif kind == 2:
        array = flat[: rng.randrange(flat.size + 1)]
    elif kind == 3:
        array = array.astype(rng.choice([np.float16, np.complex64, np.int8, np.bool_]))
    elif kind == 4:
        array = np.broadcast_to(array, (2, *array.shape))
    else:
        array = array.T
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def mutate_json(value: Any, rng: random.Random) -> Any:
    """Return JSON with one value somewhere replaced, removed or repeated."""
    if isinstance(value, dict) and value and rng.random() < 0.85:
        key = rng.choice(list(value))
        if rng.random() < 0.1:
            return {name: entry for name, entry in value.items() if name != key}
        return {**value, key: mutate_json(value[key], rng)}
    if isinstance(value, list) and value and rng.random() < 0.8:
        place = rng.randrange(len(value))
        return [*value[:place], mutate_json(value[place], rng), *value[place + 1 :]]
    return rng.choice(
        [None, True, -1, 0, 10**9, 2**63, 1e308, "", "x" * 1000, [], {}, [[[]]], {"kind": "csr"}, "nan"]
    )


def make_models(folder: Path, posts: Path) -> dict[str, Path]:
    """Save a model of rows, of texts and of items."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30, 6))
    Y = (rng.random((30, 5)) > 0.5).astype(int)
    LEML(2, random_state=0).fit(X, Y).save(folder / "rows")
    OneClassMF(2, random_state=0).fit(None, Y).save(folder / "items")
    return {"model of rows": folder / "rows", "recommender": folder / "items", "model of texts": posts}


def use_model(path: Path) -> None:
    """Load a model both ways and use it."""
    for mmap in (False, True):
        model = load(path, mmap=mmap)
        if isinstance(model, Tagger):
            model.predict_topk(["oven cake", ""], 1)
            explain(model, "oven cake", 0)
            if hasattr(model, "calibration_"):
                model.predict_proba(["oven cake"])
        elif model.n_features_in_:
            model.predict_topk(np.ones((2, int(model.n_features_in_))), 1)
        else:
            model.recommend([0, 1], 2)
            model.similar_labels([0], 2)
            model.fold_in_rows(np.ones((1, int(model.n_labels_))))


def hostile_models(source: Path, folder: Path, n: int, rng: random.Random) -> Iterator[Path]:
    """Write mutants of a model, one after the other."""
    members = members_of(source)
    arrays = [name for name in members if name.endswith(".npy")]
    for number in range(n):
        path, kind = folder / f"mutant-{number}", rng.randrange(5)
        if kind == 0:
            content = bytearray(source.read_bytes())
            for _ in range(rng.randrange(1, 20)):
                content[rng.randrange(len(content))] = rng.randrange(256)
            path.write_bytes(content[: rng.choice([len(content), rng.randrange(len(content))])])
        elif kind == 1 and arrays:
            name = rng.choice(arrays)
            write_members(path, {**members, name: mutate_array(members[name], rng)})
        elif kind == 2:
            name = rng.choice(list(members))
            write_members(path, {other: part for other, part in members.items() if other != name})
        else:
            header = mutate_json(json.loads(members["model.json"]), rng)
            write_members(path, {**members, "model.json": json.dumps(header).encode()})
        yield path
    blanks = members["model.json"] + b" " * (300 << 20)
    write_members(folder / "bomb", {**members, "model.json": blanks}, zipfile.ZIP_DEFLATED)
    yield folder / "bomb"
    write_members(folder / "lists", {**members, "model.json": b"[" + b"[]," * 30_000_000 + b"[]]"})
    yield folder / "lists"


# --- data -----------------------------------------------------------------------------------------------------------


def read_table(path: Path) -> None:
    """Read a table of texts and tags."""
    read_documents(path, ["text"], tags="tags")


def special_files(folder: Path) -> Iterator[tuple[Path, Callable[[Path], Any]]]:
    """Write files made by hand, each with the function that reads it."""
    sparse = {
        "feature.svm": b"1 2000000000:1\n",
        "label.svm": b"1000000000 1:1\n",
        "labels.txt": b"1 5 1000000000\n0 1:1\n",
        "rows.txt": b"1000000000 5 3\n0 1:1\n",
        "features.txt": b"1 1000000000000 3\n0 1:1\n",
        "negative.txt": b"-1 5 3\n0 1:1\n",
        "nan.svm": b"1 1:nan\n",
        "huge.svm": b"1 1:" + b"9" * 400_000 + b"\n",
        "nest.arff": b"@relation x\n@attribute a {" + b"x," * 200_000 + b"y}\n@data\nx\n",
        "sparse.arff": b"@relation x\n@attribute a numeric\n@data\n{99999999999 1}\n",
        "many.arff": b"@relation x\n" + b"@attribute a numeric\n" * 200_000 + b"@data\n",
        "quote.arff": b"@relation 'x\n@attribute 'a numeric\n@data\n'\n",
        "zero.npz": b"PK\x03\x04" + bytes(100),
    }
    tables = {
        "deep.jsonl": b'{"text": "a", "tags": ' + b"[" * 200_000 + b"]" * 200_000 + b"}\n",
        "surrogate.jsonl": b'{"text": "a", "tags": ["\\ud800"]}\n{"text": "b", "tags": ["x"]}\n',
        "columns.csv": b"text,tags," + ",".join(map(str, range(1_000_000))).encode() + b"\na,b" + b",1" * 1_000_000,
        "quote.csv": b'text,tags\n"' + b"a" * 5_000_000,
        "nul.csv": b"text,tags\n\0\0\0,\0\n",
        "bom.csv": b"\xff\xfet\0e\0x\0t\0",
        "number.jsonl": b'{"text": "a", "tags": ' + b"9" * 100_000 + b"}\n",
        "bomb.csv.gz": gzip.compress(b"text,tags\n" + b"a" * (400 << 20), 1),
    }
    for contents, reader in ((sparse, read), (tables, read_table)):
        for name, content in contents.items():
            (folder / name).write_bytes(content)
            yield folder / name, reader


def mutate_text(content: bytes, rng: random.Random) -> bytes:
    """Return a text with bytes changed, and pieces removed, repeated or replaced by hostile ones."""
    pieces = [b"999999999999", b"-1", b"nan", b"1e999", b"\0", b'"', b"{", b"\xff", b":", b",", b"\n\n", b"'", b"%"]
    parts = bytearray(content)
    for _ in range(rng.randrange(1, 6)):
        place = rng.randrange(len(parts) + 1)
        length = rng.choice([0, 1, 5, 40])
        parts[place : place + length] = rng.choice([*pieces, parts[place : place + 60] * 3])
    return bytes(parts)


def hostile_data(
    folder: Path, table: Path, n: int, rng: random.Random
) -> Iterator[tuple[Path, Callable[[Path], Any]]]:
    """Write mutants of good files of each format, and those made by hand."""
    X, Y = np.round(np.random.default_rng(0).random((6, 4)), 2), np.eye(6, 3, dtype=int)
    sources = {}
    for name in ("good.txt", "good.svm", "good.arff"):
        write(folder / name, X, Y)
        sources[name] = (folder / name).read_bytes(), read
    sources["good.csv"] = b"\n".join(table.read_bytes().splitlines()[:20]), read_table
    lines = [json.dumps({"text": f"a b{i}", "tags": ["x", "y"][: i % 3]}) for i in range(10)]
    sources["good.jsonl"] = "\n".join(lines).encode(), read_table
    for number in range(n):
        name = rng.choice(list(sources))
        content, reader = sources[name]
        path = folder / f"mutant-{number}{Path(name).suffix}"
        path.write_bytes(mutate_text(content, rng))
        yield path, reader
    yield from special_files(folder)


# --- the run --------------------------------------------------------------------------------------------------------


def run(files: dict[str, Path], n: int, seed: int = 0) -> Iterator[tuple[str, int, int, str]]:
    """Yield for each kind of file how many were tried and went wrong, and what happened."""
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        models = make_models(folder, files["posts"])
        for path in models.values():
            use_model(path)  # compiles what the forked processes need
        for kind, source in models.items():
            outcomes: Counter[str] = Counter()
            for path in hostile_models(source, folder, n // 5, rng):
                outcomes[judge(use_model, path)] += 1
                path.unlink()
            yield kind, *summarize(outcomes)
        outcomes = Counter()
        for path, reader in hostile_data(folder, files["table"], 2 * n // 5, rng):
            outcomes[judge(reader, path)] += 1
            path.unlink()
        yield "data", *summarize(outcomes)


def summarize(outcomes: Counter[str]) -> tuple[int, int, str]:
    """Return the number of files, of those that went wrong, and the counts in words."""
    wrong = sum(count for outcome, count in outcomes.items() if outcome not in ("read", "refused"))
    return outcomes.total(), wrong, ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items()))
