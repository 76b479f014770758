"""Requests that mean harm: the largest that are allowed, malformed ones, and ones above every limit."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress

MB = 1 << 20
WIDE = 7 * MB
MOST_VALUES, MOST_PAIRS = 499_000, 249_000
GET = b"GET %b HTTP/1.1\r\nHost: localhost\r\n\r\n"
Requests = dict[str, bytes]


def post(path: str, body: bytes) -> bytes:
    """Return a whole request with a body of JSON."""
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def ask(route: str, body: bytes, model: str = "rows") -> bytes:
    """Return a whole request to a route of a model."""
    return post(f"/v1/models/{model}/{route}", body)


def first_requests() -> Requests:
    """Return a small request to each route; the first may load or compile something."""
    row, labels = b'{"rows":[{"0":1}]', b',"labels":[["1"]]}'
    text = b'{"texts":["oven cake"]'
    return {
        "predict": ask("predict", row + b',"top":3}'),
        "predict without top": ask("predict", row + b"}"),
        "predict dense": ask("predict", b'{"dense":[[' + b"1," * 49 + b'1]],"top":3}'),
        "complete": ask("complete", row + b"}"),
        "check labels": ask("check-labels", row + labels),
        "explain": ask("explain", b'{"row":{"0":1},"label":"1"}'),
        "predict a text": ask("predict", text + b',"top":3}', "posts"),
        "predict a text without top": ask("predict", text + b"}", "posts"),
        "complete a text": ask("complete", text + b"}", "posts"),
        "check labels of a text": ask("check-labels", text + b',"labels":[["oven"]]}', "posts"),
        "explain a text": ask("explain", b'{"text":"oven cake","label":"oven"}', "posts"),
        "schema": GET % b"/openapi.json",
        "metrics": GET % b"/metrics",
        "models": GET % b"/v1/models",
        "labels": GET % b"/v1/models/rows/labels?query=1",
        "page": GET % b"/",
    }


def allowed_requests() -> Requests:
    """Return requests within all limits that cost as much as possible."""
    numbers = b",".join(b'"%d":1' % i for i in range(50))
    words = " ".join(f"w{i}" for i in range(14_000)).encode()[:99_999]
    rows = b",".join([b"{%b}" % numbers] * 1000)
    known = json.dumps([{str(j): j % 2 == 0 for j in range(200)}] * 1000).encode()
    labels = json.dumps([list(range(300))] * 1000).encode()
    return {
        "largest answer": ask("predict", b'{"rows":[' + b"{}," * 665 + b'{}],"top":300}'),
        "all predicted labels": ask("predict", b'{"rows":[' + rows + b"]}"),
        "dense rows": ask("predict", b'{"dense":' + json.dumps([[0.123456789] * 50] * 1000).encode() + b',"top":5}'),
        "known labels": ask("complete", b'{"rows":[' + b"{}," * 999 + b'{}],"top":5,"known":' + known + b"}"),
        "all labels of each row": ask("check-labels", b'{"rows":[' + b"{}," * 999 + b'{}],"labels":' + labels + b"}"),
        "unclosed tags": ask("predict", b'{"texts":["' + b'","'.join([b"<a" * 50_000] * 70) + b'"]}', "posts"),
        "unclosed references": ask(
            "predict", b'{"texts":["' + b'","'.join([b"&#" + b"1" * 99_000] * 70) + b'"]}', "posts"
        ),
        "long texts": ask("predict", b'{"texts":["' + b'","'.join([words] * 70) + b'"],"top":6}', "posts"),
        "one long text": ask("predict", b'{"texts":["' + words + b'"]}', "posts"),
        "a thousand texts": ask(
            "predict", b'{"texts":["' + b'","'.join([b"oven cake " * 700] * 1000) + b'"]}', "posts"
        ),
        "text to explain": ask("explain", b'{"label":"oven","text":"' + words + b'"}', "posts"),
        "audit job": ask("audit-jobs", b'{"rows":[' + rows + b'],"labels":[' + b"[1,2]," * 999 + b"[3]]}"),
        "all scores": ask("predict", b'{"rows":[' + rows + b"]}", "wide"),
        "best of many labels": ask("predict", b'{"rows":[' + b"{}," * 199 + b'{}],"top":1000}', "wide"),
        "unknown of many labels": ask("complete", b'{"rows":[' + rows + b'],"top":200}', "wide"),
        "check of many labels": ask(
            "check-labels", b'{"rows":[' + rows + b'],"labels":' + labels + b',"top":200}', "wide"
        ),
        "names of many labels": GET % b"/v1/models/wide/labels?query=1&limit=1000",
        "explanation among many": ask("explain", b'{"row":{%b},"label":"1"}' % numbers, "wide"),
        "similar label": ask("check-labels", b'{"rows":[{}],"labels":[["' + b"12" * 50 + b'"]]}'),
    }


def review_requests() -> Requests:
    """Return a request to each route of the reviews; document 0 is a long text of tags that do not end."""
    reads = ("state", "queue?least=0&limit=100", "queue?group=document&order=uncertainty&least=0", "labels?least=0")
    texts = ("documents/0", "documents/0/reasons?label=oven", "documents/1/reasons?label=oven", "stats")
    exports = ("export/labels", "export/log", "retrain")
    return {
        **{route: GET % f"/review/{route}".encode() for route in (*reads, *texts, *exports)},
        "audit": post("/review/audit", b'{"action":"start"}'),
        "undo": post("/review/undo", b'{"key":"key-00000000"}'),
        "verdict": post(
            "/review/verdicts", b'{"key":"key-00000001","row":0,"label":"' + b"x" * 10_000 + b'","verdict":"skip"}'
        ),
    }


def malformed_requests() -> Requests:
    """Return bodies within the limits of size that are wrong, and costly to check."""
    return {
        "objects as labels": ask("audit", b'{"rows":[{}],"labels":[[' + b"{}," * 199_000 + b"{}]]}"),
        "numbers as texts": ask("predict", b'{"texts":[' + b"1," * MOST_VALUES + b"1]}"),
        "lists as rows": ask("predict", b'{"rows":[' + b"[]," * 199_000 + b"[]]}"),
        "one long row": ask("predict", b'{"rows":[{' + b",".join(b'"%d":1' % i for i in range(MOST_PAIRS)) + b"}]}"),
        "unknown keys": ask("predict", b"{" + b",".join(b'"k%d":1' % i for i in range(MOST_PAIRS)) + b"}"),
        "empty rows": ask("predict", b'{"rows":[' + b"{}," * 199_000 + b"{}]}"),
        "empty labels": ask("check-labels", b'{"rows":[{}],"labels":[' + b"[]," * 198_000 + b"[]]}"),
        "unknown labels": ask("check-labels", b'{"rows":[{}],"labels":[[' + b'"zz",' * MOST_VALUES + b'"z"]]}'),
        "brackets in a text": ask("predict", b'{"texts":["' + b"[," * (WIDE // 2) + b'"]}'),
        "short strings": ask("predict", b'{"texts":[' + b'"ab",' * MOST_VALUES + b'"a"]}'),
        "one dense row": ask("predict", b'{"dense":[[' + b"0.123456789," * MOST_VALUES + b"1]]}"),
        "escapes": ask("predict", b'{"texts":["' + b"\\u0141" * (WIDE // 6) + b'"]}'),
        "long number": ask("predict", b'{"dense":[[' + b"1" * WIDE + b"]]}"),
        "deep lists": ask("predict", b"[" * 199_000),
        "blanks": ask("predict", b" " * WIDE),
        "no UTF-8": ask("predict", b'{"texts":["' + b"\xff" * WIDE + b'"]}'),
    }


def oversized_requests() -> Requests:
    """Return heads and bodies above every limit."""
    return {
        "objects": ask("audit", b'{"rows":[{}],"labels":[[' + b"{}," * (WIDE // 3) + b"{}]]}"),
        "values": ask("predict", b'{"texts":[' + b"1," * (WIDE // 2) + b"1]}"),
        "lists": ask("predict", b"[" * WIDE),
        "body": ask("predict", b" " * (24 * MB)),
        "scores": ask("predict", b'{"rows":[' + b"{}," * 999 + b'{}],"top":300}'),
        "rows": ask("predict", b'{"rows":[' + b"{}," * 1000 + b"{}]}"),
        "text": ask("predict", b'{"texts":["' + b"a" * 100_001 + b'"]}', "posts"),
        "body of a route without rows": post("/review/verdicts", b"{" + b" " * WIDE + b"}"),
        "head": b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + b"a: bcdefgh\r\n" * (WIDE // 4),
        "header": b"GET /health HTTP/1.1\r\nHost: localhost\r\nx: " + b"b" * 8 * WIDE,
        "address": b"GET /" + b"b" * 8 * WIDE,
    }


async def exchange(port: int, content: bytes, seconds: float = 60.0) -> int:
    """Send bytes as fast as the server takes them, and read the whole answer.

    Return the status, 0 if the server cuts the connection, or -1 if the time is over.
    """

    async def run() -> int:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
        answer = asyncio.create_task(read_answer(reader))
        try:
            with suppress(ConnectionError):
                for start in range(0, len(content), 1 << 16):
                    if answer.done():
                        break
                    writer.write(content[start : start + (1 << 16)])
                    await writer.drain()
            return await answer
        except ConnectionError:
            return 0
        finally:
            answer.cancel()
            writer.transport.abort()

    try:
        return await asyncio.wait_for(run(), seconds)
    except TimeoutError:
        return -1


async def read_answer(reader: asyncio.StreamReader) -> int:
    """Return the status of an answer after reading its body; 0 if there is none."""
    words = (await reader.readline()).split()
    length = 0
    while (line := await reader.readline()).strip():
        name, _, value = line.partition(b":")
        length = int(value) if name.lower() == b"content-length" else length
    while length > 0 and (part := await reader.read(min(length, 1 << 20))):
        length -= len(part)
    return int(words[1]) if len(words) > 1 else 0
