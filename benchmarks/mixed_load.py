"""Good requests mixed with malformed, oversized, slow and aborted ones."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np


def make_row(row: np.ndarray) -> dict[str, float]:
    """Return a row as requests have it."""
    return {str(j): float(row[j]) for j in np.flatnonzero(row)}


def content_length(head: bytes) -> int:
    """Return the length of the body that a head announces."""
    after = head[head.index(b"content-length: ") + len(b"content-length: ") :]
    return int(after.partition(b"\r\n")[0])


class MixedLoad:
    """Clients of all kinds at once, and what they met; good answers are compared with those of the library."""

    def __init__(self, port: int, X: np.ndarray, decisions: np.ndarray, path: str, pause: float = 0.0) -> None:
        self._pause = pause  # between two requests of a client
        self._port, self._rows, self._decisions = port, [make_row(row) for row in X], decisions
        self._path, self._until = path, 0.0
        self.met: Counter[str] = Counter()
        self.wrong: list[str] = []
        self._random = random.Random(0)

    async def run(self, seconds: float) -> None:
        """Let every kind of client ask for some seconds."""
        self._until = time.monotonic() + seconds
        kinds = [self._good] * 8 + [self._malformed, self._oversized, self._chunked, self._slow, self._aborted] * 2
        await asyncio.gather(*(self._for_ever(kind) for kind in kinds))

    async def _for_ever(self, kind: Callable[[Any, Any], Any]) -> None:
        while time.monotonic() < self._until:
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
            try:
                for _ in range(50 if kind == self._good else 1):
                    await asyncio.wait_for(kind(reader, writer), 60)
                    await asyncio.sleep(self._pause)
            except (ConnectionError, asyncio.IncompleteReadError) as error:
                self.met[f"{kind.__name__}: {type(error).__name__}"] += 1
                if kind == self._good:
                    self.wrong.append(f"a good request met {error!r}")
            finally:
                writer.close()
            if kind != self._good:
                await asyncio.sleep(0.02 + 10 * self._pause)

    def _request(self, body: bytes) -> bytes:
        head = f"POST {self._path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body

    async def _status(self, kind: str, reader: Any) -> tuple[int, bytes]:
        head = await reader.readuntil(b"\r\n\r\n")
        body = await reader.readexactly(content_length(head)) if b"content-length: " in head else b""
        status = int(head.split()[1])
        self.met[f"{kind}: {status}"] += 1
        if status >= 500:
            self.wrong.append(f"{kind} met {body!r}")
        return status, body

    async def _good(self, reader: Any, writer: Any) -> None:
        rows = [self._random.randrange(len(self._rows)) for _ in range(self._random.randint(1, 4))]
        top = self._random.randint(1, 10)
        body = json.dumps({"rows": [self._rows[i] for i in rows], "top": top}).encode()
        writer.write(self._request(body))
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
        writer.write(self._request(bodies[kind]) if kind < len(bodies) else self._random.randbytes(300) + b"\r\n\r\n")
        await self._status("malformed", reader)

    async def _oversized(self, reader: Any, writer: Any) -> None:
        writer.write(self._request(b"[" * (9 << 20)))
        await self._status("oversized", reader)

    async def _chunked(self, reader: Any, writer: Any) -> None:
        head = self._request(b"").replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
        writer.write(head)
        for _ in range(10):
            writer.write(b"100000\r\n" + b" " * (1 << 20) + b"\r\n")
            await writer.drain()
        await self._status("chunked", reader)

    async def _slow(self, reader: Any, writer: Any) -> None:
        whole = self._request(json.dumps({"rows": [self._rows[0]], "top": 1}).encode())
        pause = self._random.choice([0.02, 1.0])  # fifteen seconds are more than a body has
        answer = asyncio.create_task(self._status("slow", reader))
        for start in range(0, len(whole), len(whole) // 15 + 1):
            if not answer.done():
                writer.write(whole[start : start + len(whole) // 15 + 1])
                await asyncio.sleep(pause)
        await answer

    async def _aborted(self, reader: Any, writer: Any) -> None:
        whole = self._request(json.dumps({"rows": self._rows[:50], "top": 5}).encode())
        writer.write(whole[: self._random.choice([len(whole), len(whole) // 2, 30])])
        await asyncio.sleep(self._random.random() * 0.02)
        writer.transport.abort()
        self.met["aborted"] += 1
