"""The server under load, beside the bare ``predict_topk``, on Eurlex-4K.

``python -m benchmarks.serving load`` starts the real server and asks it for the five best labels of one test row at a
time, with 1, 8 and 64 clients that keep their connections. Clients are another process on the same cores. The bare
calls are made in this process while the server is idle, right before and after each measurement, on the same rows.
Beside the times by the clock there is the work of the server's process (of one worker) as a multiple of that of the
bare calls: on a machine that does other things too it is the steadier number.

``python -m benchmarks.serving soak --minutes 10`` mixes good requests with malformed, oversized, slow and aborted
ones. Each good answer is compared with the library's; the memory of the server is printed as time goes by.

Both need LABELGAP_DATA; ``--folder`` keeps the fitted model for the next run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from benchmarks.common import normalised, show
from labelgap import LEML, BinaryRelevance, load

TOP = 5
PATH = "/v1/models/eurlex/predict"
CLIENTS = (1, 8, 64)


class Server(NamedTuple):
    """A running server."""

    process: subprocess.Popen
    port: int

    def cpu(self) -> float:
        """Return the seconds that the process has worked, on all cores."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory(self) -> float:
        """Return the resident memory of the process and its children in MB."""
        children = subprocess.run(
            ["ps", "-o", "rss=", "--ppid", str(self.process.pid), "--pid", str(self.process.pid)],
            capture_output=True,
            text=True,
            check=True,
        )
        return sum(map(int, children.stdout.split())) / 1024


class Load(NamedTuple):
    """What some clients met in some seconds."""

    n: int
    seconds: float
    times: list[float]

    @property
    def rate(self) -> float:
        """Requests a second."""
        return self.n / self.seconds

    def percentile(self, share: float) -> float:
        """Return a percentile of the times in ms."""
        return float(np.percentile(self.times, share)) * 1000


MODELS = {
    "low-rank": LEML(256, max_iter=3, random_state=0),  # three alternations are enough for what is measured here
    "one-vs-all": BinaryRelevance(loss="squared"),
}


def fitted(folder: Path, kind: str) -> Path:
    """Return the file of the model, fitted unless it is there."""
    path = folder / f"eurlex-{kind}"
    if not path.exists():
        dataset, X, _ = normalised("eurlex")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            MODELS[kind].fit(X, dataset.Y_train).save(path)
    return path


def as_row(X: sp.csr_array, i: int) -> dict[str, float]:
    """Return a row as requests have it."""
    part = slice(X.indptr[i], X.indptr[i + 1])
    return dict(zip(map(str, X.indices[part].tolist()), X.data[part].tolist(), strict=True))


def request(body: bytes, path: str = PATH) -> bytes:
    """Return a whole request."""
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def requests_of(X: sp.csr_array, size: int) -> list[bytes]:
    """Return requests for the best labels of so many rows each."""
    rows = [as_row(X, i) for i in range(X.shape[0])]
    parts = (rows[start : start + size] for start in range(0, len(rows), size))
    return [request(json.dumps({"rows": part, "top": TOP}).encode()) for part in parts]


@contextmanager
def serving(model: Path, *options: str) -> Iterator[Server]:
    """Start the server, and stop it as a user would."""
    command = [sys.executable, "-m", "labelgap", "serve", f"eurlex={model}", "--port", "0", "--json", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["url"]
        yield Server(process, int(url.rpartition(":")[2]))
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        print(f"The server stopped with exit code {code}.", flush=True)


# --- load -----------------------------------------------------------------------------------------------------------


class Client(asyncio.Protocol):
    """Sends one request after the other on one connection."""

    def __init__(self, requests: Iterator[bytes], until: float, times: list[float], done: Callable[[], None]) -> None:
        self._requests, self._until, self._times, self._done = requests, until, times, done
        self._received = b""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._send()

    def _send(self) -> None:
        """Send the next request, unless time is up."""
        if time.perf_counter() > self._until:
            self._transport.close()
            return
        self._start = time.perf_counter()
        self._transport.write(next(self._requests))

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, blank, body = self._received.partition(b"\r\n\r\n")
        if not blank or len(body) < content_length(head):
            return
        if not head.startswith(b"HTTP/1.1 200"):
            raise AssertionError(self._received[:1000])
        self._times.append(time.perf_counter() - self._start)
        self._received = b""
        self._send()

    def connection_lost(self, error: Exception | None) -> None:
        self._done()


def content_length(head: bytes) -> int:
    """Return the length of the body that a head announces."""
    after = head[head.index(b"content-length: ") + len(b"content-length: ") :]
    return int(after.partition(b"\r\n")[0])


async def _ask(port: int, requests: Sequence[bytes], clients: int, seconds: float) -> Load:
    loop, times, left = asyncio.get_running_loop(), [], clients
    finished = loop.create_future()

    def done() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            finished.set_result(None)

    def endless(first: int) -> Iterator[bytes]:
        while True:
            yield requests[first % len(requests)]
            first += clients

    start = time.perf_counter()
    for number in range(clients):
        make = lambda number=number: Client(endless(number), start + seconds, times, done)  # noqa: E731
        await loop.create_connection(make, "127.0.0.1", port)
    await finished
    return Load(len(times), time.perf_counter() - start, times)


def ask(port: int, requests: Sequence[bytes], clients: int, seconds: float) -> Load:
    """Ask with so many clients at once for so long; runs in a process of its own."""
    return asyncio.run(_ask(port, requests, clients, seconds))


class Bare(NamedTuple):
    """Seconds for each row, by the clock and of work on all cores."""

    clock: float
    cpu: float


def bare(model: Any, X: sp.csr_array, size: int, seconds: float) -> Bare:
    """Return what a row takes in calls of ``predict_topk`` for so many rows."""
    model.predict_topk(X[:size], TOP)
    blocks = [X[i : i + size] for i in range(0, X.shape[0] - size + 1, size)]
    start, work, n = time.perf_counter(), time.process_time(), 0
    while time.perf_counter() - start < seconds:
        model.predict_topk(blocks[n % len(blocks)], TOP)
        n += 1
    return Bare((time.perf_counter() - start) / (n * size), (time.process_time() - work) / (n * size))


def measure_load(model_path: Path, seconds: float, size: int, options: Sequence[str]) -> None:
    """Print throughput and times for each number of clients, beside the bare calls."""
    _, _, X = normalised("eurlex")
    X, model, rows = sp.csr_array(X)[:1024], load(model_path, mmap=True), []
    requests = requests_of(X, size)
    with serving(model_path, *options) as server, ProcessPoolExecutor(1, get_context("spawn")) as other:
        other.submit(ask, server.port, requests, 8, 1.0).result()
        for clients in CLIENTS:
            direct = [bare(model, X, 64, seconds / 4)]
            cpu = server.cpu()
            found = other.submit(ask, server.port, requests, clients, seconds).result()
            cpu = (server.cpu() - cpu) / (found.n * size)
            direct.append(bare(model, X, 64, seconds / 4))
            one = bare(model, X, 1, seconds / 4)
            clock, work = np.mean(direct, axis=0)
            rate = found.rate * size
            served = [rate, found.percentile(50), found.percentile(99)]
            rows.append([clients, *served, 1 / one.clock, 1 / clock, 1 / clock / rate, cpu / work])
    header = ["clients", "rows/s", "p50 ms", "p99 ms", "bare rows/s by 1", "by 64", "time × bare by 64", "CPU ×"]
    show(f"predict, top {TOP}, Eurlex, {size} rows a request {' '.join(options)}", header, rows)


# --- soak -----------------------------------------------------------------------------------------------------------


class Soak:
    """Clients of all kinds, and what they met."""

    def __init__(self, port: int, X: sp.csr_array, decisions: np.ndarray, seconds: float) -> None:
        self._port, self._X, self._decisions = port, X, decisions
        self._until = time.monotonic() + seconds
        self.met: Counter[str] = Counter()
        self.wrong: list[str] = []
        self._random = random.Random(0)

    async def run(self, report: Callable[[], None]) -> None:
        """Let every kind of client ask until the time is up."""
        kinds = [self._good] * 8 + [self._malformed, self._oversized, self._chunked, self._slow, self._aborted] * 2
        reporting = asyncio.create_task(self._repeat(report))
        await asyncio.gather(*(self._for_ever(kind) for kind in kinds))
        reporting.cancel()

    async def _repeat(self, report: Callable[[], None]) -> None:
        while True:
            report()
            await asyncio.sleep(30)

    async def _for_ever(self, kind: Callable[[Any, Any], Any]) -> None:
        while time.monotonic() < self._until:
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
            try:
                for _ in range(50 if kind == self._good else 1):
                    await asyncio.wait_for(kind(reader, writer), 60)
            except (ConnectionError, asyncio.IncompleteReadError) as error:
                self.met[f"{kind.__name__}: {type(error).__name__}"] += 1
                if kind == self._good:
                    self.wrong.append(f"a good request met {error!r}")
            finally:
                writer.close()
            if kind != self._good:
                await asyncio.sleep(0.02)

    async def _status(self, kind: str, reader: Any) -> tuple[int, bytes]:
        head = await reader.readuntil(b"\r\n\r\n")
        body = await reader.readexactly(content_length(head)) if b"content-length: " in head else b""
        status = int(head.split()[1])
        self.met[f"{kind}: {status}"] += 1
        if status >= 500:
            self.wrong.append(f"{kind} met {body!r}")
        return status, body

    async def _good(self, reader: Any, writer: Any) -> None:
        rows = [self._random.randrange(self._X.shape[0]) for _ in range(self._random.randint(1, 4))]
        top = self._random.randint(1, 10)
        body = json.dumps({"rows": [as_row(self._X, i) for i in rows], "top": top}).encode()
        writer.write(request(body))
        status, answer = await self._status("good", reader)
        found = json.loads(answer).get("predictions", ())
        if status != 200 or len(found) != len(rows) or not all(map(partial(self._is_right, top), rows, found)):
            self.wrong.append(f"rows {rows}, top {top}: {status} {answer[:500]!r}")

    def _is_right(self, top: int, row: int, found: dict[str, Any]) -> bool:
        """Tell whether labels have their own scores, and these are the best there are."""
        decisions = self._decisions[row]
        labels = [int(one["label"]) for one in found["labels"]]
        scores = np.array([one["score"] for one in found["labels"]])
        best = -np.sort(-decisions)[:top]
        return (
            len(set(labels)) == top
            and np.allclose(scores, decisions[labels], atol=1e-4)
            and np.allclose(scores, best, atol=1e-4)
        )

    async def _malformed(self, reader: Any, writer: Any) -> None:
        bodies = [
            b"{",
            b"[" * 10_000,
            b"\xff",
            b'{"rows": [{"x": 1}]}',
            b'{"texts": ["a"]}',
            b'{"rows": 7, "top": -1}',
        ]
        kind = self._random.randrange(len(bodies) + 1)
        writer.write(request(bodies[kind]) if kind < len(bodies) else self._random.randbytes(300) + b"\r\n\r\n")
        await self._status("malformed", reader)

    async def _oversized(self, reader: Any, writer: Any) -> None:
        writer.write(request(b"[" * (9 << 20)))
        await self._status("oversized", reader)

    async def _chunked(self, reader: Any, writer: Any) -> None:
        head = request(b"").replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
        writer.write(head)
        for _ in range(10):
            writer.write(b"100000\r\n" + b" " * (1 << 20) + b"\r\n")
            await writer.drain()
        await self._status("chunked", reader)

    async def _slow(self, reader: Any, writer: Any) -> None:
        whole = request(json.dumps({"rows": [as_row(self._X, 0)], "top": 1}).encode())
        pause = self._random.choice([0.02, 1.0])  # fifteen seconds are more than a body has
        answer = asyncio.create_task(self._status("slow", reader))
        for start in range(0, len(whole), len(whole) // 15 + 1):
            if not answer.done():
                writer.write(whole[start : start + len(whole) // 15 + 1])
                await asyncio.sleep(pause)
        await answer

    async def _aborted(self, reader: Any, writer: Any) -> None:
        whole = request(json.dumps({"rows": [as_row(self._X, i) for i in range(50)], "top": 5}).encode())
        writer.write(whole[: self._random.choice([len(whole), len(whole) // 2, 30])])
        await asyncio.sleep(self._random.random() * 0.02)
        writer.transport.abort()
        self.met["aborted"] += 1


def measure_soak(model_path: Path, minutes: float, options: Sequence[str]) -> None:
    """Ask for so many minutes, and print memory and what was met."""
    _, _, X = normalised("eurlex")
    X = sp.csr_array(X)[:1024]
    decisions = load(model_path, mmap=True).decision_function(X)
    with serving(model_path, *options) as server:
        start, soak = time.monotonic(), Soak(server.port, X, decisions, 60 * minutes)

        def report() -> None:
            print(
                f"{time.monotonic() - start:5.0f} s  {server.memory():7.1f} MB  {sum(soak.met.values())}", flush=True
            )

        asyncio.run(soak.run(report))
        report()
        print(dict(sorted(soak.met.items())))
        if server.process.poll() is not None or soak.wrong:
            sys.exit(
                f"{len(soak.wrong)} went wrong: {soak.wrong[:5]}; the server's exit code {server.process.poll()}"
            )
    print("Every good answer was the library's.")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["load", "soak"])
    parser.add_argument("--folder", type=Path, help="where the model is kept; a temporary folder by default")
    parser.add_argument("--model", choices=MODELS, default="low-rank")
    parser.add_argument("--seconds", type=float, default=8.0, help="of each measurement of load")
    parser.add_argument("--rows", type=int, default=1, help="of a request of load; a divisor of 1024")
    parser.add_argument("--minutes", type=float, default=10.0, help="of the soak")
    options, more = parser.parse_known_args(arguments)
    with tempfile.TemporaryDirectory() as temporary:
        model = fitted(options.folder or Path(temporary), options.model)
        if options.what == "load":
            measure_load(model, options.seconds, options.rows, more)
        else:
            measure_soak(model, options.minutes, more)


if __name__ == "__main__":
    main()
