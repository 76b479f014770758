"""Clients that mean harm: what they can send is bounded in size, time and work before memory is taken for it."""

from __future__ import annotations

import asyncio
import html
import json
import random
import socket
import threading
import time
import tracemalloc
from contextlib import suppress

import numpy as np
import pytest

from labelgap import LEML, BinaryRelevance, Tagger, explain
from labelgap.gaps import explanations
from labelgap.portable import HTML_TAG, without_markup
from labelgap.runtime import workers
from labelgap.serve import Settings, bodies, create_app, middleware, protocol
from labelgap.serve import app as app_module
from labelgap.serve.bodies import parse_body
from labelgap.serve.jobs import Job
from labelgap.serve.schemas import ApiError, CheckLabelsRequest, CompleteRequest, PredictRequest
from labelgap.serve.scoring import Predictor, RequestRows
from labelgap.serve.served_models import ServedModel

HEAD = b"POST /v1/models/m/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


@pytest.fixture(scope="module")
def model():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 5))
    return LEML(2, random_state=0).fit(X, (X @ rng.standard_normal((5, 30)) > 0).astype(int))


def run_server(app, scenario):
    """Serve on a free port of this machine while a scenario runs with that port."""
    import uvicorn

    async def main():
        with socket.create_server(("127.0.0.1", 0)) as listening:
            options = {"ws": "none", "log_level": "critical", "lifespan": "off"}
            server = uvicorn.Server(uvicorn.Config(app, http=protocol.make_protocol(), **options))
            serving = asyncio.create_task(server.serve(sockets=[listening]))
            try:
                return await asyncio.wait_for(scenario(listening.getsockname()[1]), 30)
            finally:
                server.should_exit = True
                server.force_exit = True
                await serving

    return asyncio.run(main())


async def read_all(reader):
    received = b""
    with suppress(ConnectionError):
        while part := await reader.read(1 << 16):
            received += part
    return received


async def send_until_cut(port, first, piece, count):
    """Send a beginning and then pieces; return what came back and how many pieces the server took."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    taken = 0
    with suppress(ConnectionError):
        writer.write(first)
        for _ in range(count):
            writer.write(piece)
            await writer.drain()
            taken += 1
    received = await read_all(reader)
    writer.close()
    return received, taken


# --- bodies ---------------------------------------------------------------------------------------------------------


def test_a_body_of_a_million_wrong_items_is_refused_at_the_first():
    start = time.process_time()
    with pytest.raises(ApiError, match="200000 lists") as refused:
        parse_body(CheckLabelsRequest, b'{"texts":["a"],"labels":[[' + b"{}," * 1_000_000 + b"{}]]}")
    assert refused.value.status == 413
    with pytest.raises(ApiError, match="values"):
        parse_body(PredictRequest, b'{"texts":[' + b"1," * 1_000_000 + b"1]}")
    with pytest.raises(ApiError, match=r"^texts\.0: pass a string"):
        parse_body(PredictRequest, b'{"texts":[' + b"1," * 400_000 + b"1]}")
    with pytest.raises(ApiError, match=r"^labels\.0\.0: pass a string or an integer"):
        parse_body(CheckLabelsRequest, b'{"texts":["a"],"labels":[[' + b"{}," * 50_000 + b"{}]]}")
    with pytest.raises(ApiError, match="250000 keys"):
        parse_body(PredictRequest, b'{"rows":[{' + b'"a":1,' * 300_000 + b'"b":1}]}')
    keys = ",".join(f'"k{i}":1' for i in range(100_000))
    with pytest.raises(ApiError, match="there is no such field"):
        parse_body(PredictRequest, f"{{{keys}}}".encode())
    assert time.process_time() - start < 5  # it took a minute


def test_tags_that_do_not_end_take_linear_time():
    start = time.process_time()
    for text in ("<a" * 500_000, "<a" * 500_000 + ">", "&#" + "1" * 500_000 + ";", "&" * 500_000):
        without_markup(text)
    assert time.process_time() - start < 3  # a tenth of the first took 6 s, in which no other thread ran
    assert without_markup("&#" + "1" * 5000 + "; a") == "\ufffd a"  # as html.unescape reads fewer digits
    rng = random.Random(0)
    for _ in range(500):
        text = "".join(rng.choices("<>a/! &;", k=20))
        assert without_markup(text) == html.unescape(HTML_TAG.sub(" ", text))


def test_one_long_text_takes_no_memory_for_the_others():
    texts = ["oven cake", "bacon grill", "oven bread", "bacon steak"] * 5
    tagger = Tagger(BinaryRelevance(1.0)).fit(texts, [["baking"] if "oven" in text else ["meat"] for text in texts])
    predict = Predictor(ServedModel("m", tagger), Settings())
    requests = [RequestRows("texts", ["oven"] * 999 + ["word " * 20_000], 1)]
    predict(requests)
    tracemalloc.start()
    try:
        assert b'"baking"' in predict(requests)[0]
        assert tracemalloc.get_traced_memory()[1] < 30 << 20  # an array of texts of one length has 400 MB
    finally:
        tracemalloc.stop()


def test_an_explanation_of_many_features_takes_bounded_memory(monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((20, 3000))
    model = BinaryRelevance(loss="squared").fit(X, (X[:, :2] > 0).astype(int))
    tracemalloc.start()
    try:
        whole = explain(model, X[:1], 1, top=3000)
        assert (
            tracemalloc.get_traced_memory()[1] < 200 << 20
        )  # all rows without one feature have 100 MB, in four copies
    finally:
        tracemalloc.stop()
    weights = dict(whole.features)
    without = X[:1].copy()
    without[0, 7] = 0
    expected = model.decision_function(X[:1])[0, 1] - model.decision_function(without)[0, 1]
    assert weights["feature 7"] == pytest.approx(expected, rel=1e-4, abs=1e-5)
    monkeypatch.setattr(explanations, "MAX_BLOCK_VALUES", 7 * 3000)
    blockwise = dict(explain(model, X[:1], 1, top=3000).features)
    assert blockwise == pytest.approx(weights, rel=1e-4, abs=1e-5)
    assert explain(model, np.zeros((1, 3000)), 1).features == []


def test_brackets_within_texts_are_no_lists():
    text = "[" * 300_000 + '\\"{' * 10
    assert parse_body(PredictRequest, json.dumps({"texts": [text]}).encode()).texts == [text]


@pytest.mark.parametrize(
    ("cls", "body"),
    [
        (PredictRequest, {"texts": ["a"], "top": 3}),
        (PredictRequest, {"rows": [{"0": 1, "1": 2.5}], "top": None}),
        (PredictRequest, {"dense": [[1, None, 2.5]]}),
        (CompleteRequest, {"texts": ["a"], "known": [{"x": True, "y": None}]}),
        (CheckLabelsRequest, {"texts": ["a"], "labels": [["x", 3]]}),
        (PredictRequest, {"texts": ["a"], "top": 0}),
        (PredictRequest, {"texts": ["a"], "top": True}),
        (PredictRequest, {"texts": "a"}),
        (PredictRequest, {"texts": [None]}),
        (PredictRequest, {"rows": [{"0": True}]}),
        (PredictRequest, {"dense": [[1, "2"]]}),
        (CompleteRequest, {"texts": ["a"], "known": [{"x": 1}]}),
        (CheckLabelsRequest, {"texts": ["a"]}),
        (CheckLabelsRequest, {"texts": ["a"], "labels": [["x", 3.5]]}),
        (CheckLabelsRequest, {"texts": ["a"], "labels": [["x", True]]}),
    ],
)
def test_a_body_is_accepted_where_pydantic_accepts_it(cls, body):
    text = json.dumps(body).encode()
    try:
        expected = cls.model_validate_json(text)
    except ValueError:
        with pytest.raises(ApiError) as refused:
            parse_body(cls, text)
        assert refused.value.status == 422
    else:
        assert parse_body(cls, text) == expected


def test_large_bodies_are_parsed_off_the_event_loop(model, monkeypatch):
    names = []

    def record(cls, body):
        names.append(threading.current_thread().name)
        return bodies.parse_body(cls, body)

    monkeypatch.setattr(app_module, "parse_body", record)
    small = json.dumps({"rows": [{"0": 1.0}]}).encode()

    async def scenario(port):
        for body in (small, small + b" " * 100_000):
            request = HEAD + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body
            assert b"200 OK" in (await send_until_cut(port, request, b"", 0))[0]

    run_server(create_app({"m": model}), scenario)
    assert [name.startswith("parse") for name in names] == [False, True]


def test_all_requests_together_have_a_budget(model, monkeypatch):
    monkeypatch.setattr(middleware, "DRAIN_SECONDS", 0.1)
    body = json.dumps({"rows": [{"0": 1.0}]}).encode() + b" " * 60_000
    head = HEAD + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body)
    app = create_app({"m": model}, settings=Settings(max_memory=100_000, body_timeout=3.0))

    async def scenario(port):
        first = asyncio.create_task(slowly(port))
        await asyncio.sleep(0.5)
        second, _ = await send_until_cut(port, head + body, b"", 0)
        return await first, second, (await send_until_cut(port, head + body, b"", 0))[0]

    async def slowly(port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(head + body[:-1])
        await asyncio.sleep(1.5)
        writer.write(body[-1:])
        received = await read_all(reader)
        writer.close()
        return received

    first, second, third = run_server(app, scenario)
    assert [answer.split()[1] for answer in (first, second, third)] == [b"200", b"503", b"200"]
    assert app.guard._budget.used == 0


def test_the_values_of_bodies_count_too(model):
    body = b'{"rows":[' + b'{"0":1},' * 999 + b'{"0":1}]}' + b" " * 10_000  # 18 KB, and 300 KB when it is parsed
    head = HEAD + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body)

    async def scenario(port):
        return (await send_until_cut(port, head + body, b"", 0))[0]

    for limit, status in [(200_000, b"503"), (2_000_000, b"200")]:
        app = create_app({"m": model}, settings=Settings(max_memory=limit))
        assert run_server(app, scenario).split()[1] == status
        assert app.guard._budget.used == 0


# --- heads and clients that do not read -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "piece"),
    [
        (b"GET /health HTTP/1.1\r\nHost: localhost\r\n", b"a: " + b"b" * 1000 + b"\r\n"),
        (b"GET /health HTTP/1.1\r\nHost: localhost\r\nx: ", b"b" * 1000),
        (b"GET /health?", b"b" * 1000),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n", b"a: " + b"b" * 1000 + b"\r\n"),
    ],
    ids=["many headers", "one header", "address", "trailers"],
)
def test_an_endless_head_is_cut(model, first, piece):
    received, taken = run_server(create_app({"m": model}), lambda port: send_until_cut(port, first, piece, 30_000))
    assert taken < 20_000  # what the buffers of the system take does not reach the server
    assert received == b"" or received.split()[1] in (b"431", b"422")


def test_a_client_that_does_not_read_is_cut_off(model, monkeypatch, caplog):
    monkeypatch.setattr(protocol, "HEADER_TIMEOUT_SECONDS", 0.5)
    monkeypatch.setattr(middleware, "PIECE_BYTES", 1 << 14)
    body = json.dumps({"rows": [{"0": 1.0}] * 1000, "top": 30}).encode()
    app = create_app({"m": model}, settings=Settings(timeout=2.0))
    counts = []

    async def scenario(port):
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect(("127.0.0.1", port))
            for _ in range(8):  # answers of 1.5 MB, which no buffer holds
                client.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
            for _ in range(60):
                await asyncio.sleep(0.2)
                counts.append(app.guard._budget.used)
                if len(counts) > 10 and counts[-1] == 0:
                    break

    run_server(app, scenario)
    assert max(counts) > 1_000_000
    assert counts[-1] == 0
    assert not caplog.records  # its further requests are dropped, and do not fail


def test_two_host_headers_are_refused(model):
    head = b"GET /health HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\nConnection: close\r\n\r\n"
    received, _ = run_server(create_app({"m": model}), lambda port: send_until_cut(port, head, b"", 0))
    assert received.split()[1] == b"421"


def test_every_token_is_compared_whole(model, monkeypatch):
    lengths = []

    def compare(a, b):
        lengths.append((len(a), len(b)))
        return a == b

    monkeypatch.setattr(middleware.hmac, "compare_digest", compare)
    guard = create_app(
        {"m": model}, settings=Settings(token="abc", tokens=(("Anna", "abcd"), ("Ben", "x" * 90)))
    ).guard
    for sent, name in [(b"abc", ""), (b"abcd", "Anna"), (b"x" * 90, "Ben"), (b"ab", None), (b"", None)]:
        assert guard._find_name(b"Bearer " + sent) == name
        assert guard._find_name(b"Basic " + sent) is None
    assert len(lengths) == 10 * 3  # none is left out, whichever is right
    assert set(lengths) == {(32, 32)}


def test_the_controller_of_threads_exists_before_a_job_has_one():
    workers._blas_controller.cache_clear()
    job = Job("example")
    job.start(lambda: workers._blas_controller.cache_info().currsize)
    job.wait(30)
    assert job.result == 1
