"""The server under load, beside the bare ``predict_topk``, on Eurlex-4K.

``python -m benchmarks.serving load`` starts the real server and asks it for the five best labels of one test row at a
time, with 1, 8 and 64 clients that keep their connections. Clients are another process on the same cores. The bare
calls are made in this process while the server is idle, right before and after each measurement, on the same rows.
Beside the times by the clock there is the work of the server's process (of one worker) as a multiple of that of the
bare calls: on a machine that does other things too it is the steadier number.

It needs LABELGAP_DATA; ``--folder`` keeps the fitted model for the next run. ``python -m benchmarks.faults`` mixes
good requests with bad ones.

``python -m benchmarks.serving parts`` measures the CPU time of such a request, of what HTTP and JSON alone take, and
of a bare call.

``python -m benchmarks.serving json`` needs no data. It times two ways in turn, and prints medians and ratios: answers
written by orjson, as the service does it, and joined from prepared strings; and whole requests within this process,
by the service's own dispatch of JSON routes and by FastAPI's.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import orjson
import scipy.sparse as sp
import uvicorn

from benchmarks.common import normalised, show
from labelgap import LEML, BinaryRelevance, load
from labelgap.datasets import make_low_rank
from labelgap.serve import Settings, create_app
from labelgap.serve.protocol import make_protocol
from labelgap.serve.schemas import to_json
from labelgap.serve.scoring import labels_json, rows_json
from labelgap.serve.served_models import Models, ServedModel

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
    with started("labelgap", "serve", f"eurlex={model}", "--port", "0", "--json", *options) as server:
        yield server


@contextmanager
def started(*module: str) -> Iterator[Server]:
    """Start a server that prints its address as JSON, and stop it as a user would."""
    command = [sys.executable, "-m", *module]
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


# --- what a request takes without labelgap --------------------------------------------------------------------------


async def answer_constant(scope: Any, receive: Callable[..., Any], send: Callable[..., Any]) -> None:
    """Answer every request alike, after its body, as an ASGI application."""
    while (await receive()).get("more_body"):
        pass
    headers = [(b"content-type", b"application/json"), (b"content-length", b"300")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b" " * 300})


def serve_constant() -> None:
    """Serve the constant answer as the service is served."""
    listening = socket.create_server(("127.0.0.1", 0))
    print(json.dumps({"url": f"http://127.0.0.1:{listening.getsockname()[1]}"}), flush=True)
    options: dict[str, Any] = {"ws": "none", "lifespan": "off", "log_level": "warning", "access_log": False}
    config = uvicorn.Config(answer_constant, http=make_protocol(), server_header=False, **options)
    uvicorn.Server(config).run(sockets=[listening])


def measure_parts(model_path: Path, seconds: float) -> None:
    """Print the CPU time of a request's parts for each row, and as a multiple of a bare call of 64 rows."""
    _, _, X = normalised("eurlex")
    X, model, clients = sp.csr_array(X)[:1024], load(model_path, mmap=True), max(CLIENTS)
    requests, cpu = requests_of(X, 1), {}
    bodies = [request.partition(b"\r\n\r\n")[2] for request in requests]
    servers = {
        "HTTP: uvicorn and a constant answer": lambda: started("benchmarks.serving", "constant"),
        "the service": lambda: serving(model_path),
    }
    with ProcessPoolExecutor(1, get_context("spawn")) as other:
        for name, start in servers.items():
            with start() as server:
                other.submit(ask, server.port, requests, 8, 1.0).result()
                before = server.cpu()
                found = other.submit(ask, server.port, requests, clients, seconds).result()
                cpu[name] = (server.cpu() - before) / found.n
    work, rounds = time.process_time(), 5
    for body in rounds * bodies:
        orjson.loads(body)
    cpu["JSON: orjson.loads"] = (time.process_time() - work) / (rounds * len(bodies))
    cpu["a bare call of 64 rows"] = call = bare(model, X, 64, seconds / 2).cpu
    show(
        "CPU time of a request for one row",
        ["part", "µs", "× bare"],
        [(n, 1e6 * t, t / call) for n, t in cpu.items()],
    )


# --- JSON -----------------------------------------------------------------------------------------------------------

SIZES = ((1, 5), (100, 50))  # rows and labels of an answer
N_REQUESTS = 50


def join_answer(beginnings: Sequence[str], indices: np.ndarray, scores: np.ndarray) -> bytes:
    """Return the body of an answer joined from strings; ``beginnings`` are prepared for each label."""
    rows = [
        ",".join([f"{beginnings[j]}{score!r}}}" for j, score in zip(places, values, strict=True)])
        for places, values in zip(indices.tolist(), scores.tolist(), strict=True)
    ]
    labels = ",".join(f'{{"labels":[{row}]}}' for row in rows)
    return f'{{"model":"m","predictions":[{labels}]}}'.encode()


def dump_answer(served: Any, indices: np.ndarray, scores: np.ndarray) -> bytes:
    """Return the body of the same answer as the service writes it."""
    rows = ({"labels": labels_json(served, *row)} for row in zip(indices, scores, strict=True))
    return rows_json(served, "predictions", rows)


def median_times(calls: dict[str, Callable[[], Any]], repeats: int, rounds: int = 31) -> dict[str, float]:
    """Return the median time of each call in microseconds; rounds of the calls alternate."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            start = time.perf_counter()
            for _ in range(repeats):
                call()
            times[name].append((time.perf_counter() - start) / repeats)
    return {name: 1e6 * float(np.median(values)) for name, values in times.items()}


def measure_json() -> None:
    """Print how long answers take to write, and requests within this process to answer."""
    data = make_low_rank(500, 50, 200, rank=5, random_state=0)
    served = ServedModel("m", LEML(5, max_iter=2, random_state=0).fit(data.X, data.Y))
    beginnings = [f'{{"label":{to_json(name).decode()},"score":' for name in served.label_names]
    rows = []
    for n_rows, n_labels in SIZES:
        top = served.model.predict_topk(data.X[:n_rows], n_labels)
        assert json.loads(join_answer(beginnings, *top)) == json.loads(dump_answer(served, *top))
        calls = {"joined": partial(join_answer, beginnings, *top), "orjson": partial(dump_answer, served, *top)}
        medians = median_times(calls, 2000 // (n_rows * n_labels) + 1)
        rows.append([f"{n_rows} × {n_labels}", *medians.values(), medians["orjson"] / medians["joined"]])
    show("Answers, µs", ["rows × labels", "joined", "orjson", "orjson / joined"], rows)
    app, rows = create_app(Models([served]), settings=Settings()), []
    with asyncio.Runner() as runner:
        for n_rows, n_labels in SIZES:
            body = json.dumps({"dense": np.asarray(data.X)[:n_rows].tolist(), "top": n_labels}).encode()
            dispatches = {"own": app.dispatch, "FastAPI": super(type(app), app).__call__}
            calls = {
                name: lambda dispatch=dispatch, body=body: runner.run(ask_in_process(dispatch, body))
                for name, dispatch in dispatches.items()
            }
            medians = {name: median / N_REQUESTS for name, median in median_times(calls, 1).items()}
            rows.append([f"{n_rows} × {n_labels}", *medians.values(), medians["own"] / medians["FastAPI"]])
    show("Requests, µs", ["rows × labels", "own dispatch", "FastAPI's", "own / FastAPI's"], rows)


async def ask_in_process(dispatch: Callable[..., Any], body: bytes) -> None:
    """Send a request to an ASGI application 50 times, one after the other."""
    headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        assert message.get("status", 200) == 200, message

    for _ in range(N_REQUESTS):
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "scheme": "http",
            "path": "/v1/models/m/predict", "raw_path": b"/v1/models/m/predict", "query_string": b"", "root_path": "",
            "headers": headers, "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80),
        }  # fmt: skip
        await dispatch(scope, receive, send)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["load", "parts", "json", "constant"])
    parser.add_argument("--folder", type=Path, help="where the model is kept; a temporary folder by default")
    parser.add_argument("--model", choices=MODELS, default="low-rank")
    parser.add_argument("--seconds", type=float, default=8.0, help="of each measurement of load")
    parser.add_argument("--rows", type=int, default=1, help="of a request of load; a divisor of 1024")
    options, more = parser.parse_known_args(arguments)
    if options.what == "json":
        measure_json()
        return
    if options.what == "constant":
        serve_constant()
        return
    with tempfile.TemporaryDirectory() as temporary:
        model = fitted(options.folder or Path(temporary), options.model)
        if options.what == "parts":
            measure_parts(model, options.seconds)
            return
        measure_load(model, options.seconds, options.rows, more)


if __name__ == "__main__":
    main()
