"""Attacks, load and faults: what the service and the files promise in SECURITY.md, tried and counted.

``python -m benchmarks.faults`` starts servers on loopback, runs the list below, each bounded in count and time, and
prints a table. No other address is ever asked, and every process that it starts is ended.

    load       good requests mixed with malformed, oversized, slow and aborted ones (``--minutes``), two workers
    malformed  bodies that are costly to check, heads without end, one after the other
    crowd      64 of them at once
    slow       heads and bodies that arrive byte by byte
    unread     clients that ask for large answers and do not read them
    killed     kill -9 of a review server while four people decide (``--kills``)
    full       a disk on which the file of reviews cannot grow
    locked     another program that holds the file of reviews
    replaced   a model that is loaded while another process replaces it and is killed (``--kills``)
    starts     first starts with ``--data`` that answer (``--starts``)
    files      generated hostile files of models and data (``--files``), each in a process with limits

``--only load,killed`` runs some of them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import numpy as np

from benchmarks import hostile_files
from benchmarks.common import show
from benchmarks.mixed_load import MixedLoad
from benchmarks.probed_server import Probe, Server, serve
from labelgap import LEML, BinaryRelevance, load
from labelgap.datasets import make_low_rank

HEAD = "POST /v1/models/rows/{route} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
WORDS = ["oven", "cake", "flour", "bacon", "grill", "broth", "bowl", "salt", "pepper", "sugar", "butter", "yeast"]
PEOPLE = ("Anna", "Ben", "Carla", "Dora")
MB = 1 << 20


class Row(NamedTuple):
    """A line of the table: what was tried, how often, what went wrong, and what it cost the server."""

    name: str
    tried: int
    wrong: int
    stall: float | None = None
    memory: float | None = None
    note: str = ""


# --- models and data ------------------------------------------------------------------------------------------------


def make_files(folder: Path) -> dict[str, Path]:
    """Write a model of rows, a model of texts and its table; return their paths."""
    data = make_low_rank(400, 50, 300, rank=5, random_state=0)
    LEML(5, max_iter=2, random_state=0).fit(data.X, data.Y).save(folder / "rows")
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(WORDS, 6)) for _ in range(400)]
    lines = [[text, " ".join(word for word in WORDS[:6] if word in text and rng.random() > 0.3)] for text in texts]
    table = folder / "posts.csv"
    table.write_text("text,tags\n" + "".join(f"{text},{tags}\n" for text, tags in lines))
    command = ["fit", str(table), "--text", "text", "--tags", "tags", "--output", str(folder / "posts"), "--quiet"]
    subprocess.run([sys.executable, "-m", "labelgap", *command], check=True, capture_output=True)
    return {"rows": folder / "rows", "posts": folder / "posts", "table": table}


# --- requests -------------------------------------------------------------------------------------------------------


def request(route: str, body: bytes) -> bytes:
    """Return a whole request to a route of the model of rows."""
    return f"{HEAD.format(route=route)}Content-Length: {len(body)}\r\n\r\n".encode() + body


def costly_requests() -> dict[str, bytes]:
    """Return requests within the limits of size that cost as much as possible."""
    wide = 7 * MB
    return {
        "objects as labels": request("audit", b'{"rows":[{}],"labels":[[' + b"{}," * (wide // 3) + b"{}]]}"),
        "numbers as texts": request("predict", b'{"texts":[' + b"1," * (wide // 2) + b"1]}"),
        "lists as rows": request("predict", b'{"rows":[' + b"[]," * (wide // 3) + b"[]]}"),
        "one long row": request("predict", b'{"rows":[{' + b'"ab":1,' * (wide // 7) + b'"b":1}]}'),
        "unknown keys": request("predict", b"{" + b",".join(b'"k%d":1' % i for i in range(600_000)) + b"}"),
        "deep lists": request("predict", b"[" * wide),
        "brackets in a text": request("predict", b'{"texts":["' + b"[" * wide + b'"]}'),
        "short strings": request("predict", b'{"texts":[' + b'"ab",' * (wide // 5) + b'"a"]}'),
        "dense rows": request("predict", b'{"dense":[[' + b"0.5," * (wide // 4) + b"1]]}"),
        "escapes": request("predict", b'{"texts":["' + b"\\u0041" * (wide // 6) + b'"]}'),
        "unknown labels": request("check-labels", b'{"rows":[{}],"labels":[[' + b'"zz",' * (wide // 5) + b'"z"]]}'),
        "verdict with a million keys": b"POST /review/verdicts HTTP/1.1\r\nHost: localhost\r\n"
        b"Content-Type: application/json\r\nContent-Length: 7000002\r\n\r\n{" + b" " * 7_000_000 + b"}",
        "endless head": b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + b"a: bcdefgh\r\n" * (wide // 4),
        "long header": b"GET /health HTTP/1.1\r\nHost: localhost\r\nx: " + b"b" * 8 * wide,
        "long address": b"GET /" + b"b" * 8 * wide,
    }


async def exchange(port: int, content: bytes, seconds: float = 60.0) -> int:
    """Send bytes as fast as the server takes them; return the status, or 0 if it cuts the connection."""

    async def run() -> int:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        answer = asyncio.create_task(reader.readline())
        try:
            with suppress(ConnectionError):
                for start in range(0, len(content), 1 << 16):
                    if answer.done():
                        break
                    writer.write(content[start : start + (1 << 16)])
                    await writer.drain()
            words = (await answer).split()
            return int(words[1]) if len(words) > 1 else 0
        except ConnectionError:
            return 0
        finally:
            answer.cancel()
            writer.transport.abort()

    try:
        return await asyncio.wait_for(run(), seconds)
    except TimeoutError:
        return -1


# --- attacks on the service -----------------------------------------------------------------------------------------


def attack_with_malformed(files: dict[str, Path], options: Any) -> list[Row]:
    """Send each costly request alone; one row for all, and the worst of them by name."""
    rows, statuses = [], Counter()
    with serve(str(files["rows"])) as server:
        asyncio.run(exchange(server.port, request("predict", b'{"rows":[{"0":1}]}')))
        for name, content in costly_requests().items():
            with Probe(server) as probe:
                status = asyncio.run(exchange(server.port, content))
                time.sleep(0.1)
            statuses[status] += 1
            rows.append(
                Row(f"malformed: {name}", 1, status >= 500 or status < 0, probe.longest, probe.memory, str(status))
            )
    return rows


def attack_with_crowd(files: dict[str, Path], options: Any) -> list[Row]:
    """Send 64 costly requests at once."""
    contents = list(costly_requests().values())

    async def send_all(port: int) -> list[int]:
        return await asyncio.gather(*(exchange(port, contents[i % len(contents)]) for i in range(64)))

    with serve(str(files["rows"])) as server:
        with Probe(server) as probe:
            statuses = Counter(asyncio.run(send_all(server.port)))
        wrong = sum(count for status, count in statuses.items() if status == 500 or status < 0)
        return [Row("crowd: 64 at once", 64, wrong, probe.longest, probe.memory, str(dict(sorted(statuses.items()))))]


def attack_slowly(files: dict[str, Path], options: Any) -> list[Row]:
    """Open 64 connections that send a byte now and then; all must be gone within 40 s."""
    body = b'{"rows":[{"0":1}],"top":1}'
    whole = request("predict", body)

    async def trickle(port: int, first: int) -> float:
        start = time.monotonic()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        ended = asyncio.create_task(reader.read())
        writer.write(whole[:first])
        for place in range(first, first + 80):
            if ended.done():
                break
            with suppress(ConnectionError):
                writer.write(whole[place : place + 1])
            await asyncio.sleep(0.5)
        writer.transport.abort()
        ended.cancel()
        return time.monotonic() - start

    async def run(port: int) -> list[float]:
        heads = [trickle(port, 5) for _ in range(32)]
        bodies = [trickle(port, len(whole) - len(body)) for _ in range(32)]
        return await asyncio.gather(*heads, *bodies)

    with serve(str(files["rows"])) as server, Probe(server) as probe:
        times = asyncio.run(run(server.port))
    return [
        Row(
            "slow: heads and bodies",
            64,
            sum(t > 38 for t in times),
            probe.longest,
            probe.memory,
            f"{max(times):.0f} s",
        )
    ]


def attack_unread(files: dict[str, Path], options: Any) -> list[Row]:
    """Ask for large answers on 30 connections, four on each, and never read; all must be cut within 60 s."""
    body = json.dumps({"rows": [{"0": 1.0}] * 600, "top": 300}).encode()

    async def ask(port: int) -> bool:
        _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 12)
        writer.transport.pause_reading()
        writer.write(request("predict", body) * 4)
        for _ in range(120):
            await asyncio.sleep(0.5)
            with suppress(ConnectionError):
                writer.write(b" ")
            if writer.transport.is_closing():
                return True
        writer.transport.abort()
        return False

    async def run(port: int) -> list[bool]:
        return await asyncio.gather(*(ask(port) for _ in range(30)))

    with serve(str(files["rows"])) as server, Probe(server) as probe:
        cut = asyncio.run(run(server.port))
    return [Row("unread: 30 clients", 30, cut.count(False), probe.longest, probe.memory)]


def apply_load(files: dict[str, Path], options: Any) -> list[Row]:
    """Mix good and bad requests with two workers; every good answer is compared with the library's."""
    model = load(files["rows"])
    X = np.asarray(make_low_rank(400, 50, 300, rank=5, random_state=0).X)
    with serve(str(files["rows"]), "--workers", "2") as server:
        mix = MixedLoad(server.port, X, model.decision_function(X), "/v1/models/rows/predict")
        asyncio.run(mix.run(20.0))  # warm
        before, mix.met = server.memory(), Counter()
        with Probe(server) as probe:
            asyncio.run(mix.run(60 * options.minutes))
        growth = server.memory() / before - 1
    note = f"{options.minutes:g} min, memory {growth:+.1%}, 5xx {sum(n for k, n in mix.met.items() if ': 5' in k)}"
    return [Row("load: two workers", sum(mix.met.values()), len(mix.wrong), probe.longest, None, note)]


# --- faults of the reviews ------------------------------------------------------------------------------------------


def review_arguments(files: dict[str, Path], database: Path) -> list[str]:
    """Return the arguments of a server with reviews."""
    return [str(files["posts"]), "--data", str(files["table"]), "--reviews", str(database)]


def wait_for_audit(server: Server) -> list[dict[str, Any]]:
    """Wait until the first audit is done; return suggestions."""
    end = time.monotonic() + 180
    while not httpx.get(f"{server.url}/review/state", timeout=30).json()["audited"]:
        if time.monotonic() > end:
            raise TimeoutError("the audit takes too long")
        time.sleep(0.2)
    query = {"least": 0.0, "limit": 100}
    return httpx.get(f"{server.url}/review/queue", params=query, timeout=30).json()["suggestions"]


def decide(url: str, who: str, cards: Sequence[dict[str, Any]], stop: threading.Event, stored: list[str]) -> None:
    """Decide suggestions one after the other until told to stop; keep the keys that the server acknowledged."""
    rng = random.Random(who)
    with httpx.Client(base_url=url, timeout=20) as client:
        while not stop.is_set():
            card, key = rng.choice(cards), f"{who}-{rng.getrandbits(64):016x}"
            body = {"key": key, "row": card["row"], "label": card["label"], "reviewer": who}
            with suppress(httpx.HTTPError):
                verdict = rng.choice(["accept", "reject", "skip"])
                if client.post("/review/verdicts", json={**body, "verdict": verdict}).status_code == 200:
                    stored.append(key)


def lost_or_doubled(database: Path, stored: Sequence[str]) -> int:
    """Return how many acknowledged verdicts the log does not have exactly once."""
    connection = sqlite3.connect(database)
    counts = Counter(key for (key,) in connection.execute("SELECT key FROM review"))
    connection.close()
    return sum(counts[key] != 1 for key in stored)


def kill_reviewing(files: dict[str, Path], options: Any) -> list[Row]:
    """Kill a review server again and again while four people decide."""
    with tempfile.TemporaryDirectory() as folder:
        database, stored, rng = Path(folder) / "reviews.sqlite", [], random.Random(0)
        with serve(*review_arguments(files, database)) as server:
            cards = wait_for_audit(server)
        for _ in range(options.kills):
            server, stop = Server(*review_arguments(files, database)), threading.Event()
            server.wait_until_ready()
            people = [threading.Thread(target=decide, args=(server.url, who, cards, stop, stored)) for who in PEOPLE]
            for person in people:
                person.start()
            time.sleep(0.5 + rng.random())
            server.process.kill()
            server.process.wait()
            stop.set()
            for person in people:
                person.join()
        return [
            Row(f"killed: kill -9 × {options.kills}, four people", len(stored), lost_or_doubled(database, stored))
        ]


def fill_disk(files: dict[str, Path], options: Any) -> list[Row]:
    """Let the file of reviews not grow; errors must be JSON with the status 507, and nothing acknowledged is lost."""
    with tempfile.TemporaryDirectory() as folder:
        database, stored, wrong, full = Path(folder) / "reviews.sqlite", [], 0, 0
        with serve(*review_arguments(files, database)) as server:
            cards = wait_for_audit(server)
        with serve(*review_arguments(files, database), file_limit=300_000) as server, Probe(server) as probe:
            for number in range(1500):
                card = cards[number % len(cards)]
                body = {"key": f"key-{number:08}", "row": card["row"], "label": card["label"], "verdict": "skip"}
                answer = httpx.post(f"{server.url}/review/verdicts", json=body, timeout=30)
                if answer.status_code == 200:
                    stored.append(body["key"])
                else:
                    full += 1
                    wrong += answer.status_code != 507 or "error" not in answer.json()
                    wrong += httpx.get(f"{server.url}/review/state", timeout=30).status_code != 200
                if full == 20:
                    break
        lost = lost_or_doubled(database, stored)
        note = f"{len(stored)} stored, {full} answers 507, {lost} lost"
        return [
            Row(
                "full: no space for reviews",
                len(stored) + full,
                wrong + lost + (full == 0),
                probe.longest,
                None,
                note,
            )
        ]


def lock_reviews(files: dict[str, Path], options: Any) -> list[Row]:
    """Hold the file of reviews for 8 s: verdicts get a 503 as JSON, and other routes do not wait."""
    with tempfile.TemporaryDirectory() as folder:
        database = Path(folder) / "reviews.sqlite"
        with serve(*review_arguments(files, database)) as server:
            card = wait_for_audit(server)[0]
            other = sqlite3.connect(database, isolation_level=None)
            other.execute("BEGIN IMMEDIATE")
            body = {"key": "key-00000001", "row": card["row"], "label": card["label"], "verdict": "skip"}
            answers: list[httpx.Response] = []
            ask = lambda: answers.append(httpx.post(f"{server.url}/review/verdicts", json=body, timeout=30))  # noqa: E731
            people = [threading.Thread(target=ask) for _ in range(50)]
            for person in people:
                person.start()
            slowest = 0.0
            for _ in range(20):
                start = time.perf_counter()
                httpx.get(f"{server.url}/review/state", timeout=30).raise_for_status()
                slowest = max(slowest, time.perf_counter() - start)
                time.sleep(0.1)
            for person in people:
                person.join()
            other.execute("ROLLBACK")
            wrong = sum(answer.status_code != 503 or "error" not in answer.json() for answer in answers)
            wrong += httpx.post(f"{server.url}/review/verdicts", json=body, timeout=30).status_code != 200
    return [Row("locked: 50 verdicts", 51, wrong, slowest, None, "stall of /review/state")]


# --- faults of files and starts -------------------------------------------------------------------------------------

SAVE_FOREVER = """
import sys, labelgap
models = [labelgap.load(path) for path in sys.argv[3:]]
print("ready", flush=True)
while True:
    for model in models:
        model.save(sys.argv[1], folder=sys.argv[2] == "folder")
"""


def replace_models(files: dict[str, Path], options: Any) -> list[Row]:
    """Load a model while another process replaces it, and is killed at random moments."""
    rows = []
    for kind in ("zip", "folder"):
        with tempfile.TemporaryDirectory() as name:
            folder, loads, failed, rng = Path(name), 0, 0, random.Random(0)
            first = load(files["rows"])
            other = BinaryRelevance(loss="squared").fit(np.eye(50), np.eye(50, 300))
            first.save(folder / "a")
            other.save(folder / "b")
            first.save(folder / "model", folder=kind == "folder")
            for _ in range(options.kills):
                command = [
                    sys.executable,
                    "-c",
                    SAVE_FOREVER,
                    *map(str, (folder / "model", kind, folder / "a", folder / "b")),
                ]
                writer = subprocess.Popen(command, stdout=subprocess.PIPE)
                assert writer.stdout is not None
                writer.stdout.readline()
                end = time.monotonic() + 0.2 + 0.3 * rng.random()
                while time.monotonic() < end:
                    loads, failed = loads + 1, failed + (not is_loaded(folder / "model", mmap=loads % 2 == 0))
                writer.kill()
                writer.communicate()
                loads, failed = loads + 1, failed + (not is_loaded(folder / "model", mmap=False))
            rows.append(Row(f"replaced: {kind}, kill -9 × {options.kills}", loads, failed, note="loads"))
    return rows


def is_loaded(path: Path, *, mmap: bool) -> bool:
    """Return whether a model can be loaded."""
    try:
        return load(path, mmap=mmap) is not None
    except Exception as error:
        print(f"{path}: {error}", flush=True)
        return False


def start_often(files: dict[str, Path], options: Any) -> list[Row]:
    """Start a server with reviews for the first time, again and again; each must answer within 60 s."""
    failed = 0
    for _ in range(options.starts):
        with tempfile.TemporaryDirectory() as folder:
            server = Server(*review_arguments(files, Path(folder) / "reviews.sqlite"))
            try:
                server.wait_until_ready(60)
                httpx.get(f"{server.url}/review/state", timeout=60).raise_for_status()
            except (TimeoutError, httpx.HTTPError):
                failed += 1
            finally:
                server.process.kill()
                server.process.wait()
    return [Row("starts: first, with --data", options.starts, failed)]


def try_files(files: dict[str, Path], options: Any) -> list[Row]:
    """Read generated hostile files in processes with limits of time and memory."""
    rows = []
    for kind, tried, wrong, note in hostile_files.run(files, options.files):
        rows.append(Row(f"files: {kind}", tried, wrong, note=note))
    return rows


CASES: dict[str, Callable[[dict[str, Path], Any], list[Row]]] = {
    "malformed": attack_with_malformed,
    "crowd": attack_with_crowd,
    "slow": attack_slowly,
    "unread": attack_unread,
    "killed": kill_reviewing,
    "full": fill_disk,
    "locked": lock_reviews,
    "replaced": replace_models,
    "starts": start_often,
    "files": try_files,
    "load": apply_load,
}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(CASES), help="cases, separated by commas")
    parser.add_argument("--minutes", type=float, default=1.0, help="of the load")
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--starts", type=int, default=10)
    parser.add_argument("--files", type=int, default=300)
    options = parser.parse_args(arguments)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        files = make_files(Path(folder))
        for name in options.only.split(","):
            start = time.monotonic()
            rows += CASES[name](files, options)
            print(f"{name}: {time.monotonic() - start:.0f} s", flush=True)
    shown = [["–" if value is None else value for value in row] for row in rows]
    show("Faults", ["what", "tried", "wrong", "longest stall, s", "memory above idle, MB", ""], shown)
    if any(row.wrong for row in rows):
        sys.exit(1)


if __name__ == "__main__":
    main()
