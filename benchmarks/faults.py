"""Attacks, load and faults: what the service and the files promise in SECURITY.md, tried and counted.

``python -m benchmarks.faults`` starts servers on loopback, runs the list below, each bounded in count and time, and
prints a table. No other address is ever asked, and every process that it starts is ended.

    first      the first request to each route, which may load or compile something
    allowed    the most costly requests within the limits, one after the other
    audits     the largest audit jobs, until they are done
    reviews    a request to each route of the reviews, some of them about a hostile text
    malformed  bodies within the limits of size that are wrong, and costly to check
    oversized  heads and bodies above every limit
    crowd      64 of all these at once
    aborted    requests that end anywhere (``--aborted``)
    slow       heads and bodies that arrive byte by byte
    unread     clients that ask for large answers and do not read them
    killed     kill -9 of one of two servers on one file of reviews, while four people decide (``--kills``)
    full       a disk on which the file of reviews cannot grow
    locked     another program that holds the file of reviews
    replaced   a model that is loaded while another process replaces it and is killed (``--kills``)
    starts     first starts with ``--data`` that answer (``--starts``)
    files      generated hostile files of models and data (``--files``), each in a process with limits
    load       good requests mixed with bad ones, two workers (``--minutes``, ``--pause``)

``--only load,killed`` runs some of them.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import numpy as np
import scipy.sparse as sp

from benchmarks import hostile_files, hostile_requests
from benchmarks.common import show
from benchmarks.hostile_requests import ask, exchange
from benchmarks.mixed_load import MixedLoad
from benchmarks.probed_server import Probe, Server, serve
from labelgap import LEML, BinaryRelevance, load
from labelgap.datasets import make_low_rank

WORDS = ["oven", "cake", "flour", "bacon", "grill", "broth", "bowl", "salt", "pepper", "sugar", "butter", "yeast"]
N_WIDE = 50_000  # labels of the model with many
PEOPLE = ("Anna", "Ben", "Carla", "Dora")
CROWDED = ("largest answer", "all labels of each row", "one long row", "known labels")
PAUSE_SECONDS = 0.05  # of a person between two verdicts
MAX_STALL_SECONDS = 0.25  # of /health, by one request
MAX_ONE_MB, MAX_ALL_MB = 200, 1024  # of memory above idle, by one connection and by 64


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
    """Write a model of rows, one with many labels, a model of texts and its table; return their paths."""
    data = make_low_rank(400, 50, 300, rank=5, random_state=0)
    LEML(5, max_iter=2, random_state=0).fit(data.X, data.Y).save(folder / "rows")
    wide = sp.random_array((400, N_WIDE), density=1e-3, format="csr", rng=np.random.default_rng(0))
    LEML(5, max_iter=1, random_state=0).fit(data.X, (wide > 0).astype(np.float32)).save(folder / "wide")
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(WORDS, 6)) for _ in range(400)]
    lines = [[text, " ".join(word for word in WORDS[:6] if word in text and rng.random() > 0.3)] for text in texts]
    lines[0][0] += " <a" * 100_000  # a person who writes such a text has it shown as text
    table = folder / "posts.csv"
    table.write_text("text,tags\n" + "".join(f"{text},{tags}\n" for text, tags in lines))
    command = ["fit", str(table), "--text", "text", "--tags", "tags", "--output", str(folder / "posts"), "--quiet"]
    subprocess.run([sys.executable, "-m", "labelgap", *command], check=True, capture_output=True)
    return {"rows": folder / "rows", "wide": folder / "wide", "posts": folder / "posts", "table": table}


# --- attacks on the service -----------------------------------------------------------------------------------------


@contextmanager
def serve_models(files: dict[str, Path]) -> Iterator[Server]:
    """Run a server of all models."""
    with serve(*(str(files[name]) for name in ("rows", "wide", "posts"))) as server:
        yield server


def send_one_by_one(server: Server, name: str, requests: hostile_requests.Requests, statuses: Sequence[int]) -> Row:
    """Send each request alone, and return the worst stall and memory of any.

    Wrong is an answer with another status, a long stall, or much memory.
    """
    worst, wrong, details = (0.0, ""), 0, []
    for what, content in requests.items():
        with Probe(server) as probe:
            status = asyncio.run(exchange(server.port, content))
        details.append((probe.longest, probe.memory, status, what))
        worst = max(worst, (probe.longest, what))
        is_wrong = status not in statuses or probe.longest > MAX_STALL_SECONDS or probe.memory > MAX_ONE_MB
        wrong += is_wrong
        mark = "  wrong" if is_wrong else ""
        print(f"    {name}, {what}: {status}, {probe.longest:.3f} s, {probe.memory:.0f} MB{mark}", flush=True)
    memory = max(detail[1] for detail in details)
    return Row(f"{name}: one by one", len(details), wrong, worst[0], memory, f"longest: {worst[1]}")


def try_first(files: dict[str, Path], options: Any) -> list[Row]:
    """Send a small request to each route of a fresh server."""
    with serve_models(files) as server:
        return [send_one_by_one(server, "first", hostile_requests.first_requests(), [200])]


def try_allowed(files: dict[str, Path], options: Any) -> list[Row]:
    """Send the largest allowed requests."""
    with serve_models(files) as server:
        return [send_one_by_one(server, "allowed", hostile_requests.allowed_requests(), [200, 202, 413, 422])]


def try_reviews(files: dict[str, Path], options: Any) -> list[Row]:
    """Send a request to each route of the reviews."""
    with serve(*review_arguments(files, files["table"].with_name("first.sqlite"))) as server:
        wait_for_audit(server)
        return [send_one_by_one(server, "reviews", hostile_requests.review_requests(), [200, 404])]


def try_audits(files: dict[str, Path], options: Any) -> list[Row]:
    """Start an audit of as many rows as allowed with each model, and wait for it."""
    labels = [[i % 6] for i in range(1000)]
    bodies = {
        "rows": {"rows": [{str(j): (i + j) % 7 for j in range(50)} for i in range(1000)]},
        "wide": {"rows": [{str(j): (i + j) % 7 for j in range(50)} for i in range(500)]},
        "posts": {"texts": [f"{WORDS[i % 12]} {WORDS[i % 7]} " * 50 for i in range(1000)]},
    }
    rows = []
    with serve_models(files) as server, httpx.Client(base_url=server.url, timeout=120) as client:
        for name, body in bodies.items():
            with Probe(server) as probe:
                answer = client.post(
                    f"/v1/models/{name}/audit-jobs", json={**body, "labels": labels[: len(*body.values())]}
                )
                state, end = answer.json().get("state"), time.monotonic() + 100
                while state == "running" and time.monotonic() < end:
                    time.sleep(0.2)
                    state = client.get(answer.headers["Location"]).json()["state"]
            wrong = answer.status_code not in (202, 413) or state == "running"
            wrong += probe.longest > MAX_STALL_SECONDS or probe.memory > MAX_ONE_MB
            note = f"{answer.status_code}, {state}"
            rows.append(Row(f"audits: {name}", 1, wrong, probe.longest, probe.memory, note))
    return rows


def try_malformed(files: dict[str, Path], options: Any) -> list[Row]:
    """Send malformed bodies."""
    with serve_models(files) as server:
        return [send_one_by_one(server, "malformed", hostile_requests.malformed_requests(), [400, 413, 422])]


def try_oversized(files: dict[str, Path], options: Any) -> list[Row]:
    """Send what is larger than allowed; a connection may be cut."""
    with serve_models(files) as server:
        return [send_one_by_one(server, "oversized", hostile_requests.oversized_requests(), [0, 404, 413, 431])]


def try_crowd(files: dict[str, Path], options: Any) -> list[Row]:
    """Send 64 costly requests at once: of all kinds, and of each kind that takes the most memory."""
    kinds = (
        hostile_requests.allowed_requests,
        hostile_requests.malformed_requests,
        hostile_requests.oversized_requests,
    )
    contents = {name: content for kind in kinds for name, content in kind().items()}
    crowds = {"of all kinds": list(contents.values()), **{name: [contents[name]] for name in CROWDED}}
    rows = []
    for name, crowd in crowds.items():
        with serve_models(files) as server, Probe(server) as probe:
            statuses = Counter(asyncio.run(send_together(server.port, crowd)))
        wrong = sum(count for status, count in statuses.items() if status == 500 or status < 0)
        wrong += probe.memory > MAX_ALL_MB
        note = ", ".join(f"{count} × {status}" for status, count in sorted(statuses.items()))
        rows.append(Row(f"crowd: 64 at once, {name}", 64, wrong, probe.longest, probe.memory, note))
    return rows


async def send_together(port: int, contents: Sequence[bytes]) -> list[int]:
    """Send 64 requests at once; return their statuses."""
    return await asyncio.gather(*(exchange(port, contents[i % len(contents)], 90) for i in range(64)))


def try_aborted(files: dict[str, Path], options: Any) -> list[Row]:
    """End requests at any place, with a pause before some ends; the server must answer as before."""
    rng = random.Random(0)
    contents = [*hostile_requests.first_requests().values(), *hostile_requests.allowed_requests().values()]
    good = ask("predict", b'{"rows":[{"0":1}],"top":1}')

    async def abort_one(port: int) -> None:
        content = rng.choice(contents)
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        with suppress(ConnectionError):
            writer.write(content[: rng.choice([rng.randrange(len(content)), rng.randrange(300), len(content)])])
            await asyncio.wait_for(writer.drain(), 1)
            await asyncio.sleep(rng.choice([0, 0.01, 0.1]))
        writer.transport.abort()

    async def run(port: int) -> int:
        for _ in range(options.aborted // 8):
            await asyncio.gather(*(abort_one(port) for _ in range(8)), return_exceptions=True)
        await asyncio.sleep(5)
        return sum([await exchange(port, good) != 200 for _ in range(20)])

    with serve_models(files) as server, Probe(server) as probe:
        wrong = asyncio.run(run(server.port))
    wrong += probe.memory > MAX_ALL_MB
    return [Row("aborted: anywhere", options.aborted, wrong, probe.longest, probe.memory, "then 20 good requests")]


def try_slow(files: dict[str, Path], options: Any) -> list[Row]:
    """Open 64 connections that send a byte now and then; all must be gone within 40 s."""
    body = b'{"rows":[{"0":1}],' + b" " * 200 + b'"top":1}'
    whole = ask("predict", body)

    async def trickle(port: int, first: int) -> float:
        start = time.monotonic()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        ended = asyncio.create_task(reader.read())
        writer.write(whole[:first])
        for place in range(first, first + 90):
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
    wrong = sum(seconds > 40 for seconds in times)
    return [Row("slow: heads and bodies", 64, wrong, probe.longest, probe.memory, f"cut after {max(times):.0f} s")]


def try_unread(files: dict[str, Path], options: Any) -> list[Row]:
    """Ask for large answers on 30 connections, four on each, and never read; all must be cut within 60 s."""
    body = json.dumps({"rows": [{"0": 1.0}] * 600, "top": 300}).encode()

    async def ask_only(port: int) -> bool:
        _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 12)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(ask("predict", body) * 4)
        for _ in range(120):
            await asyncio.sleep(0.5)
            writer.write(b" ")
            if writer.transport.is_closing():
                return True
        writer.transport.abort()
        return False

    async def run(port: int) -> list[bool]:
        return await asyncio.gather(*(ask_only(port) for _ in range(30)))

    with serve(str(files["rows"])) as server, Probe(server) as probe:
        cut = asyncio.run(run(server.port))
    wrong = cut.count(False) + (probe.memory > MAX_ALL_MB)
    return [Row("unread: 30 clients", 30, wrong, probe.longest, probe.memory)]


def apply_load(files: dict[str, Path], options: Any) -> list[Row]:
    """Mix good and bad requests with two workers; every good answer is compared with the library's."""
    model = load(files["rows"])
    X = np.asarray(make_low_rank(400, 50, 300, rank=5, random_state=0).X)
    with serve(str(files["rows"]), "--workers", "2") as server:
        mix = MixedLoad(server.port, X, model.decision_function(X), "/v1/models/rows/predict", options.pause)
        asyncio.run(mix.run(min(60.0, 20.0 + 6 * options.minutes)))  # warm
        before, mix.met = server.memory(), Counter()
        with Probe(server) as probe:
            asyncio.run(mix.run(60 * options.minutes))
        growth = server.memory() / before - 1
    for problem in mix.wrong[:20]:
        print(f"    load: {problem}", flush=True)
    print(f"    load: {dict(sorted(mix.met.items()))}", flush=True)
    failed = sum(count for what, count in mix.met.items() if ": 5" in what)
    note = f"{options.minutes:g} min, good {mix.met['good: 200']}, 5xx {failed}, memory {growth:+.1%}"
    wrong = len(mix.wrong) + (growth > 0.05)
    return [Row("load: two workers", sum(mix.met.values()), wrong, probe.longest, None, note)]


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
    cards: list[dict[str, Any]] = []
    for _ in range(10):
        after = {"after_row": cards[-1]["row"], "after_label": cards[-1]["label"]} if cards else {}
        query = {"least": 0.0, "limit": 100, **after}
        cards += httpx.get(f"{server.url}/review/queue", params=query, timeout=30).json()["suggestions"]
    return cards


class Reviewer(threading.Thread):
    """A person who decides suggestions until told to stop, and sends a verdict again until a server stores it."""

    def __init__(self, name: str, cards: Sequence[dict[str, Any]], urls: list[str]) -> None:
        super().__init__(daemon=True)
        self.who, self.cards, self.urls, self.rng = name, cards, urls, random.Random(name)
        self.stored: list[str] = []
        self.statuses: Counter[int] = Counter()
        self.stop = threading.Event()

    def run(self) -> None:
        while not self.stop.is_set():
            card, key = self.rng.choice(self.cards), f"{self.who}-{self.rng.getrandbits(64):016x}"
            verdict = self.rng.choice(["accept", "reject", "skip"])
            body = {"key": key, "row": card["row"], "label": card["label"], "reviewer": self.who, "verdict": verdict}
            while not self.stop.is_set() and not self._send(body):
                time.sleep(0.02)
            time.sleep(PAUSE_SECONDS)

    def _send(self, body: dict[str, Any]) -> bool:
        try:
            answer = self._client(self.rng.choice(self.urls)).post("/review/verdicts", json=body)
        except httpx.HTTPError:
            return False
        self.statuses[answer.status_code] += 1
        if answer.status_code == 200:
            self.stored.append(body["key"])
        return answer.status_code == 200

    def _client(self, url: str) -> httpx.Client:
        clients = self.__dict__.setdefault("clients", {})
        if url not in clients:
            clients[url] = httpx.Client(base_url=url, timeout=20)
        return clients[url]


def lost_or_doubled(database: Path, stored: Sequence[str]) -> int:
    """Return how many acknowledged verdicts the log does not have exactly once."""
    connection = sqlite3.connect(database)
    counts = Counter(key for (key,) in connection.execute("SELECT key FROM review"))
    connection.close()
    return sum(counts[key] != 1 for key in stored)


def kill_reviewing(files: dict[str, Path], options: Any) -> list[Row]:
    """Kill one of two servers on one file again and again, while four people decide."""
    with tempfile.TemporaryDirectory() as folder:
        database, rng = Path(folder) / "reviews.sqlite", random.Random(0)
        first = Server(*review_arguments(files, database))
        first.wait_until_ready()
        cards, servers, urls = wait_for_audit(first), [first], [first.url]
        people = [Reviewer(name, cards, urls) for name in PEOPLE]
        for person in people:
            person.start()
        try:
            for number in itertools.count(1):
                servers.append(Server(*review_arguments(files, database)))
                servers[-1].wait_until_ready()
                urls.append(servers[-1].url)
                time.sleep(rng.random())
                if number > options.kills:
                    break
                del urls[0]
                servers.pop(0).kill()
        finally:
            for person in people:
                person.stop.set()
            for person in people:
                person.join(30)
            for server in servers:
                server.kill()
        stored = [key for person in people for key in person.stored]
        statuses = sum((person.statuses for person in people), Counter())
        wrong = lost_or_doubled(database, stored) + sum(
            n for status, n in statuses.items() if status not in (200, 503)
        )
    name = f"killed: kill -9 × {options.kills}, two servers, four people"
    return [Row(name, len(stored), wrong, note=f"acknowledged verdicts; statuses {dict(statuses)}")]


def fill_disk(files: dict[str, Path], options: Any) -> list[Row]:
    """Let the file of reviews not grow; errors must be JSON with the status 507, and nothing acknowledged is lost."""
    with tempfile.TemporaryDirectory() as folder:
        database, stored, wrong, full = Path(folder) / "reviews.sqlite", [], 0, 0
        with serve(*review_arguments(files, database)) as server:
            cards = wait_for_audit(server)
        limit = database.stat().st_size + 200_000
        with serve(*review_arguments(files, database), file_limit=limit) as server, Probe(server) as probe:
            for number in range(3000):
                card = cards[number % len(cards)]
                body = {"key": f"key-{number:08}", "row": card["row"], "label": card["label"], "verdict": "skip"}
                answer = httpx.post(f"{server.url}/review/verdicts", json=body, timeout=30)
                if answer.status_code == 200:
                    stored.append(body["key"])
                    continue
                full += 1
                wrong += answer.status_code != 507 or "error" not in answer.json()
                wrong += httpx.get(f"{server.url}/review/state", timeout=30).status_code != 200
                if full == 20:
                    break
        lost = lost_or_doubled(database, stored)
    note = f"{len(stored)} stored, {full} answers 507, {lost} lost"
    return [
        Row("full: no space for reviews", len(stored) + full, wrong + lost + (full == 0), probe.longest, None, note)
    ]


def lock_reviews(files: dict[str, Path], options: Any) -> list[Row]:
    """Hold the file of reviews: verdicts get a 503 as JSON, and other routes do not wait."""
    with tempfile.TemporaryDirectory() as folder:
        database = Path(folder) / "reviews.sqlite"
        with serve(*review_arguments(files, database)) as server:
            card = wait_for_audit(server)[0]
            body = {"key": "key-00000001", "row": card["row"], "label": card["label"], "verdict": "skip"}
            other = sqlite3.connect(database, isolation_level=None)
            other.execute("BEGIN IMMEDIATE")
            answers, slowest = send_while_locked(server, body)
            other.execute("ROLLBACK")
            other.close()
            wrong = sum(answer.status_code != 503 or "error" not in answer.json() for answer in answers)
            wrong += len(answers) != 50
            wrong += httpx.post(f"{server.url}/review/verdicts", json=body, timeout=30).status_code != 200
    wrong += slowest > MAX_STALL_SECONDS
    return [Row("locked: 50 verdicts", 51, wrong, slowest, None, "stall of /review/state")]


def send_while_locked(server: Server, body: dict[str, Any]) -> tuple[list[httpx.Response], float]:
    """Send a verdict 50 times at once; return the answers, and the longest time of /review/state meanwhile."""
    answers: list[httpx.Response] = []

    def send() -> None:
        answers.append(httpx.post(f"{server.url}/review/verdicts", json=body, timeout=30))

    people = [threading.Thread(target=send) for _ in range(50)]
    for person in people:
        person.start()
    slowest = 0.0
    with httpx.Client(base_url=server.url, timeout=30) as client:
        time.sleep(1)  # until all are sent
        for _ in range(20):
            start = time.perf_counter()
            client.get("/review/state").raise_for_status()
            slowest = max(slowest, time.perf_counter() - start)
            time.sleep(0.1)
    for person in people:
        person.join()
    return answers, slowest


# --- faults of files and starts -------------------------------------------------------------------------------------


def replace_models(files: dict[str, Path], options: Any) -> list[Row]:
    """Load a model while another process replaces it, and is killed at random moments."""
    models = [load(files["rows"]), BinaryRelevance(loss="squared").fit(np.eye(50), np.eye(50, 300))]
    rows = []
    for kind in ("zip", "folder"):
        with tempfile.TemporaryDirectory() as name:
            path, loads, failed, rng = Path(name) / "model", 0, 0, random.Random(0)
            models[0].save(path, folder=kind == "folder")
            for _ in range(options.kills):
                pid = save_forever(models, path, folder=kind == "folder")
                end = time.monotonic() + 0.05 + 0.3 * rng.random()
                while time.monotonic() < end:
                    loads, failed = loads + 1, failed + (not is_loaded(path, mmap=loads % 2 == 0))
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                loads, failed = loads + 1, failed + (not is_loaded(path, mmap=False))
            left = len(list(Path(name).iterdir())) - 1
            note = f"loads; {left} files of killed processes left"
            rows.append(Row(f"replaced: {kind}, kill -9 × {options.kills}", loads, failed, note=note))
    return rows


def save_forever(models: Sequence[Any], path: Path, *, folder: bool) -> int:
    """Start a process that saves models to a path in turn until it is killed; return its id."""
    pid = os.fork()
    if pid == 0:
        try:
            for model in itertools.cycle(models):
                model.save(path, folder=folder)
        finally:
            os._exit(1)
    return pid


def is_loaded(path: Path, *, mmap: bool) -> bool:
    """Return whether a model can be loaded."""
    try:
        return load(path, mmap=mmap) is not None
    except Exception as error:
        print(f"    {path}: {type(error).__name__}: {error}", flush=True)
        return False


def start_often(files: dict[str, Path], options: Any) -> list[Row]:
    """Start a server with reviews for the first time, again and again; each must answer within 60 s."""
    failed, slowest = 0, 0.0
    for _ in range(options.starts):
        with tempfile.TemporaryDirectory() as folder:
            start = time.monotonic()
            server = Server(*review_arguments(files, Path(folder) / "reviews.sqlite"))
            try:
                server.wait_until_ready(60)
                httpx.get(f"{server.url}/review/state", timeout=60).raise_for_status()
            except (TimeoutError, httpx.HTTPError):
                failed += 1
            finally:
                server.kill()
            slowest = max(slowest, time.monotonic() - start)
    return [Row("starts: first, with --data", options.starts, failed, note=f"slowest {slowest:.0f} s")]


def try_files(files: dict[str, Path], options: Any) -> list[Row]:
    """Read generated hostile files in processes with limits of time and memory."""
    rows = []
    for kind, tried, wrong, note in hostile_files.run(files, options.files):
        rows.append(Row(f"files: {kind}", tried, wrong, note=note))
    return rows


CASES: dict[str, Callable[[dict[str, Path], Any], list[Row]]] = {
    "first": try_first,
    "allowed": try_allowed,
    "audits": try_audits,
    "reviews": try_reviews,
    "malformed": try_malformed,
    "oversized": try_oversized,
    "crowd": try_crowd,
    "aborted": try_aborted,
    "slow": try_slow,
    "unread": try_unread,
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
    parser.add_argument(
        "--pause", type=float, default=0.0, help="seconds between the requests of a client of the load"
    )
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--starts", type=int, default=10)
    parser.add_argument("--aborted", type=int, default=400)
    parser.add_argument("--files", type=int, default=300)
    options = parser.parse_args(arguments)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        files = make_files(Path(folder))
        for name in options.only.split(","):
            start = time.monotonic()
            new = CASES[name](files, options)
            for row in new:
                print(f"  {row.name}: tried {row.tried}, wrong {row.wrong}; {row.note}", flush=True)
            print(f"{name}: {time.monotonic() - start:.0f} s", flush=True)
            rows += new
    shown = [["–" if value is None else value for value in row] for row in rows]
    show("Faults", ["what", "tried", "wrong", "longest stall, s", "memory above idle, MB", ""], shown)
    if any(row.wrong for row in rows):
        sys.exit(1)


if __name__ == "__main__":
    main()
