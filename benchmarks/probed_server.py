"""A server in a process of its own whose answers and memory are watched, for the benchmarks of faults."""

from __future__ import annotations

import json
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

import httpx


class Server:
    """A server on a free port of this machine, in a process of its own."""

    def __init__(self, *arguments: str, file_limit: int | None = None) -> None:
        def limit_files() -> None:
            if file_limit is not None:
                signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
                resource.setrlimit(resource.RLIMIT_FSIZE, (file_limit, file_limit))

        command = [sys.executable, "-m", "labelgap", "serve", *arguments, "--port", "0", "--json"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=limit_files)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise TimeoutError(f"the server ended with the code {self.process.wait()}")
        self.url = json.loads(line)["url"]
        self.port = int(self.url.rpartition(":")[2])

    def wait_until_ready(self, seconds: float = 120) -> None:
        """Wait until the server answers."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            with suppress(httpx.HTTPError):
                if httpx.get(f"{self.url}/health", timeout=5).status_code == 200:
                    return
            time.sleep(0.05)
        raise TimeoutError("the server does not answer")

    def pids(self) -> list[int]:
        """Return the processes of the server."""
        children = subprocess.run(
            ["ps", "-o", "pid=", "--ppid", str(self.process.pid)], capture_output=True, text=True, check=False
        )
        return [self.process.pid, *map(int, children.stdout.split())]

    def memory(self, field: str = "VmRSS") -> float:
        """Return the resident memory, or its peak (VmHWM), of all processes in MB."""
        total = 0
        for pid in self.pids():
            with suppress(OSError):
                lines = Path(f"/proc/{pid}/status").read_text().splitlines()
                total += sum(int(line.split()[1]) for line in lines if line.startswith(field))
        return total / 1024

    def forget_peak(self) -> None:
        """Begin a new measurement of the peak of memory."""
        for pid in self.pids():
            with suppress(OSError):
                Path(f"/proc/{pid}/clear_refs").write_text("5")

    def stop(self) -> None:
        """Stop the server as a user would, or end it."""
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(40)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """End the server as a crash would."""
        self.process.kill()
        self.process.wait()


@contextmanager
def serve(*arguments: str, **options: Any) -> Iterator[Server]:
    """Run a server for a block."""
    server = Server(*arguments, **options)
    try:
        server.wait_until_ready()
        yield server
    finally:
        server.stop()


class Probe:
    """Asks /health every 20 ms in a thread, and keeps the longest time that an answer took."""

    def __init__(self, server: Server) -> None:
        self._server, self._stop, self.longest, self.memory = server, threading.Event(), 0.0, 0.0
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        client = HTTPConnection("127.0.0.1", self._server.port, timeout=120)
        while not self._stop.wait(0.02):
            start = time.perf_counter()
            try:
                client.request("GET", "/health")
                client.getresponse().read()
            except (OSError, HTTPException):
                client.close()
            self.longest = max(self.longest, time.perf_counter() - start)
        client.close()

    def __enter__(self) -> Probe:
        self._thread.start()
        time.sleep(0.2)
        self.before, self.longest = self._server.memory(), 0.0
        self._server.forget_peak()
        return self

    def __exit__(self, *_: Any) -> None:
        time.sleep(0.2)
        self._stop.set()
        self._thread.join()
        self.memory = max(0.0, self._server.memory("VmHWM") - self.before)
