"""The HTTP service: answers equal to the library's, limits, tokens, hostile input, and a server that stops well."""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path

import httpx
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from typer.testing import CliRunner

from labelgap import LEML, BinaryRelevance, Tagger, audit, explain
from labelgap.cli import app as command_line
from labelgap.gaps import LabelCooccurrence
from labelgap.inputs import clone_with_seed
from labelgap.observations import as_labels
from labelgap.serve import Settings, create_app, jobs, middleware, protocol, scoring
from labelgap.serve.reviews import add_page
from labelgap.serve.schemas import ApiError
from labelgap.serve.scoring import MAX_SMALL_BATCH, Batcher, Predictor, RequestRows
from labelgap.serve.served_models import Models, ServedModel, open_models, split_model_source
from labelgap.serve.server import CLIENT_FAULTS, _is_no_client_fault

HOSTILE = [
    "<script>alert(1)</script>",
    "\"'; DROP TABLE labels; --",
    "../../etc/passwd",
    "line\nbreak\u2028",
    "&lt;é😀",
]
TEXTS = [
    "oven cake flour",
    "bacon on the grill",
    "broth in a bowl",
    "cake with bacon",
    "flour and broth",
    "grill bowl",
]
WORDS = ("cake", "bacon", "broth", "grill", "flour")
LOCAL = Settings(hosts=("testserver",))


@pytest.fixture(scope="module")
def tagger():
    """A model of texts with label names that nobody should trust."""
    rng = np.random.default_rng(0)
    texts = [f"{rng.choice(TEXTS)} {rng.choice(TEXTS)}" for _ in range(60)]
    Y = np.array([[word in text for word in WORDS] for text in texts], int)
    return Tagger(BinaryRelevance(0.1), label_names=HOSTILE).fit(texts, Y)


@pytest.fixture(scope="module")
def low_rank(planted_rows):
    X, Y = planted_rows
    return LEML(2, alpha=0.1, random_state=0).fit(X, Y)


@pytest.fixture(scope="module")
def planted_rows():
    rng = np.random.default_rng(1)
    X = rng.standard_normal((50, 6))
    return X, (X @ rng.standard_normal((6, 2)) @ rng.standard_normal((2, 7)) > 0.3).astype(int)


@pytest.fixture(scope="module")
def models(tagger, low_rank, planted_rows):
    X, Y = planted_rows
    frame = pd.DataFrame(X, columns=list("abcdef"))
    with_names = BinaryRelevance(0.1).fit(frame, pd.DataFrame(Y, columns=[f"tag {j}" for j in range(7)]))
    return {"tagger": tagger, "rows": low_rank, "names": with_names}


class Client:
    """Asks an application without a network, one request after the other."""

    def __init__(self, runner, client):
        self.run, self.asgi = runner.run, client

    def get(self, path, **options):
        return self.run(self.asgi.get(path, **options))

    def post(self, path, **options):
        return self.run(self.asgi.post(path, **options))


@contextmanager
def client_of(app, base_url="http://testserver"):
    with asyncio.Runner() as runner:
        lifespan = app.router.lifespan_context(app)
        runner.run(lifespan.__aenter__())
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        try:
            yield Client(runner, httpx.AsyncClient(transport=transport, base_url=base_url))
        finally:
            runner.run(lifespan.__aexit__(None, None, None))


@pytest.fixture(scope="module")
def client(models):
    with client_of(create_app(models, settings=LOCAL)) as client:
        yield client


def post(client, path, **body):
    return client.post(f"/v1/models/{path}", json=body)


def ok(client, path, **body):
    answer = post(client, path, **body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def problem(answer, status):
    assert answer.status_code == status, answer.text
    assert set(answer.json()) == {"error"}
    assert set(answer.json()["error"]) == {"code", "message"}
    return answer.json()["error"]["message"]


def pairs(labels):
    return [(one["label"], one["score"]) for one in labels]


def expected(model, X, top):
    """What predict must say, from the whole matrix of decisions."""
    scores = np.asarray(model.decision_function(X), float)
    names = list(getattr(model, "label_names_in_", range(model.n_labels_)))
    found = []
    for row in scores:
        order = np.argsort(-row, kind="stable")
        order = order[row[order] > 0] if top is None else order[:top]
        found.append([(str(names[j]), row[j]) for j in order])
    return found


def check_predictions(answer, model, X, top):
    rows = expected(model, X, top)
    assert len(answer["predictions"]) == len(rows)
    for found, wanted in zip(answer["predictions"], rows, strict=True):
        assert [name for name, _ in pairs(found["labels"])] == [name for name, _ in wanted]
        scores = [score for _, score in pairs(found["labels"])]
        np.testing.assert_allclose(scores, [s for _, s in wanted], rtol=1e-5, atol=1e-6)


# --- answers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("top", [None, 1, 3, 100])
def test_texts_get_the_labels_that_the_library_gives(client, tagger, top):
    check_predictions(ok(client, "tagger/predict", texts=TEXTS, top=top), tagger, TEXTS, top)


@pytest.mark.parametrize("top", [None, 4])
def test_sparse_and_dense_rows_get_the_same_labels_as_in_the_library(client, low_rank, planted_rows, top):
    X = np.where(np.abs(planted_rows[0][:5]) > 0.5, planted_rows[0][:5], 0)
    sparse = [{str(j): value for j, value in enumerate(row) if value} for row in X]
    backwards = [dict(reversed(row.items())) for row in sparse]
    for body in ({"rows": sparse}, {"rows": backwards}, {"dense": X.tolist()}):
        check_predictions(ok(client, "rows/predict", **body, top=top), low_rank, X, top)


def test_features_and_labels_go_by_name_where_there_are_names(client, models, planted_rows):
    X = planted_rows[0][:2]
    rows = [dict(zip("abcdef", row, strict=True)) for row in X.tolist()]
    check_predictions(
        ok(client, "names/predict", rows=rows, top=2), models["names"], pd.DataFrame(X, columns=list("abcdef")), 2
    )
    assert "'0'" in problem(post(client, "names/predict", rows=[{"0": 1.0}]), 422)
    assert client.get("/v1/models/names").json()["named_features"]
    reasons = ok(client, "names/explain", row=rows[0], label="tag 3", top=2)["features"]
    coefficients = models["names"].coef_[3] * X[0]
    strongest = np.argsort(-np.abs(coefficients))[:2]
    assert [one["name"] for one in reasons] == ["abcdef"[j] for j in strongest]
    assert [one["weight"] for one in reasons] == pytest.approx(coefficients[strongest].tolist(), rel=1e-4)


def test_explanations_are_those_of_the_library(client, tagger, low_rank, planted_rows):
    text = "bacon cake in a bowl"
    found = ok(client, "tagger/explain", text=text, label=HOSTILE[1], top=3)
    wanted = explain(tagger, text, HOSTILE[1], top=3)
    assert found["decision"] == pytest.approx(wanted.decision)
    assert [one["name"] for one in found["features"]] == [one.name for one in wanted.features]
    assert [one["weight"] for one in found["features"]] == pytest.approx([one.weight for one in wanted.features])
    row = planted_rows[0][0].tolist()
    wanted = explain(low_rank, [row], 4)
    for body in ({"dense": row}, {"row": {str(j): value for j, value in enumerate(row)}}):
        found = ok(client, "rows/explain", **body, label=4)
        assert found["label"] == "4"
        assert [one["weight"] for one in found["features"]] == pytest.approx(
            [w for _, w in wanted.features], abs=1e-6
        )


def test_known_labels_argue_where_training_labels_are_known(low_rank, planted_rows):
    labels = as_labels(planted_rows[1])
    served = ServedModel("rows", low_rank)
    served.training_labels = labels
    with client_of(create_app(Models([served]), settings=LOCAL)) as client:
        found = ok(client, "rows/explain", row={"0": 1.0}, label=0, known=[3, "5", 0])
    companions = LabelCooccurrence(labels)
    wanted = {"3": companions.get_weight(3, 0), "5": companions.get_weight(5, 0)}
    assert {one["name"]: one["weight"] for one in found["labels"]} == pytest.approx(wanted)


def test_complete_scores_exactly_the_unknown_cells(client, tagger):
    known = [{HOSTILE[0]: True, HOSTILE[3]: False, HOSTILE[4]: None}, {}]
    found = ok(client, "tagger/complete", texts=TEXTS[:2], known=known)["completions"]
    whole = expected(tagger, TEXTS[:2], 5)
    assert [name for name, _ in pairs(found[0]["labels"])] == [
        name for name, _ in whole[0] if name not in (HOSTILE[0], HOSTILE[3])
    ]
    np.testing.assert_allclose([s for _, s in pairs(found[1]["labels"])], [s for _, s in whole[1]], rtol=1e-5)
    assert len(ok(client, "tagger/complete", texts=TEXTS[:2], top=2)["completions"][0]["labels"]) == 2
    assert "known has 1" in problem(post(client, "tagger/complete", texts=TEXTS[:2], known=[{}]), 422)


def test_check_labels_returns_what_the_model_disagrees_with(client, tagger):
    labels = [[HOSTILE[1], 2], []]
    found = ok(client, "tagger/check-labels", texts=TEXTS[:2], labels=labels)["audits"]
    for row, has, scores in zip(found, [{1, 2}, set()], tagger.decision_function(TEXTS[:2]), strict=True):
        missing = {HOSTILE[j]: scores[j] for j in range(5) if j not in has and scores[j] > 0}
        doubtful = {HOSTILE[j]: scores[j] for j in range(5) if j in has and scores[j] <= 0}
        assert dict(pairs(row["missing"])) == pytest.approx(missing, rel=1e-5)
        assert dict(pairs(row["doubtful"])) == pytest.approx(doubtful, rel=1e-5)
        assert [s for _, s in pairs(row["missing"])] == sorted((s for _, s in pairs(row["missing"])), reverse=True)
        assert [s for _, s in pairs(row["doubtful"])] == sorted(s for _, s in pairs(row["doubtful"]))
    assert found[0]["doubtful"]
    assert found[1]["missing"]
    assert len(ok(client, "tagger/check-labels", texts=TEXTS[:1], labels=[[]], top=4)["audits"][0]["missing"]) == 4


def test_the_old_name_of_check_labels_answers_the_same_and_says_that_it_is_deprecated(client):
    body = {"texts": TEXTS[:2], "labels": [[HOSTILE[1], 2], []], "top": 2}
    new, old = post(client, "tagger/check-labels", **body), post(client, "tagger/audit", **body)
    assert (old.status_code, old.content) == (200, new.content)
    assert old.headers["deprecation"] == "true"
    assert old.headers["link"] == '</v1/models/tagger/check-labels>; rel="successor-version"'
    assert "deprecation" not in new.headers
    paths = client.get("/openapi.json").json()["paths"]
    assert paths["/v1/models/{name}/audit"]["post"]["deprecated"]
    assert "deprecated" not in paths["/v1/models/{name}/check-labels"]["post"]


def test_models_and_labels_are_listed(client, models):
    shown = {one["name"]: one for one in client.get("/v1/models").json()["models"]}
    assert shown.keys() == models.keys()
    assert (shown["rows"]["method"], shown["rows"]["labels"], shown["rows"]["features"]) == ("LEML", 7, 6)
    assert (shown["tagger"]["method"], shown["tagger"]["takes"]) == ("BinaryRelevance", "texts")
    found = client.get("/v1/models/tagger/labels", params={"query": "SCRIPT"}).json()
    assert found == {"model": "tagger", "total": 1, "labels": [{"index": 0, "label": HOSTILE[0]}]}
    found = client.get("/v1/models/tagger/labels", params={"offset": 3, "limit": 1}).json()
    assert (found["total"], [one["index"] for one in found["labels"]]) == (5, [3])
    assert client.get("/health").json()["status"] == "ok"


def test_metrics_count_requests_and_batches(models):
    with client_of(create_app(models, settings=LOCAL)) as client:
        ok(client, "rows/predict", rows=[{"0": 1.0}, {"1": 1.0}])
        post(client, "rows/predict", rows=[])
        client.get("/v1/models/none")
        for number in range(3):
            client.run(client.asgi.request(f"MADEUP{number}", "/health"))
        text = client.get("/metrics").text
    route = 'method="POST",route="/v1/models/{name}/predict"'
    assert f'labelgap_requests_total{{{route},status="200"}} 1' in text
    assert f'labelgap_requests_total{{{route},status="422"}} 1' in text
    assert 'route="/v1/models/{name}",status="404"} 1' in text
    assert "MADEUP" not in text
    assert 'labelgap_requests_total{method="other",route="/health",status="405"} 3' in text
    assert 'labelgap_batch_rows_sum{model="rows"} 2.0' in text
    assert 'labelgap_rows_waiting{model="rows"} 0' in text


# --- audit jobs -----------------------------------------------------------------------------------------------------


def audit_body(planted_rows, **options):
    X, Y = planted_rows
    labels = [np.flatnonzero(row).tolist() for row in Y]
    return {"dense": X.tolist(), "labels": labels, "folds": 3, **options}


def wait_for_job(client, location, **query):
    end = time.monotonic() + 60
    while (found := client.get(location, params=query).json())["state"] == "running":
        assert time.monotonic() < end, "the job took too long"
        time.sleep(0.05)
    return found


def test_an_audit_job_is_the_audit_of_the_library(client, low_rank, planted_rows):
    X, Y = planted_rows
    started = post(client, "rows/audit-jobs", **audit_body(planted_rows, seed=3))
    assert started.status_code == 202
    location = started.headers["location"]
    assert location == f"/v1/models/rows/audit-jobs/{started.json()['id']}"
    assert (started.json()["model"], started.json()["state"]) == ("rows", "running")
    found = wait_for_job(client, location)
    wanted = audit(X, sp.csr_array(Y), clone_with_seed(low_rank, 3), n_folds=3, random_state=3)
    assert (found["state"], found["done"], found["total"], found["message"]) == ("done", 3, 3, "")
    result = found["result"]
    assert result["share_missing"] == pytest.approx(wanted.share_missing)
    assert result["share_missing_interval"] == pytest.approx(wanted.share_missing_interval)
    for kind, suggestions in (("missing", wanted.missing), ("doubtful", wanted.doubtful)):
        assert result[f"n_{kind}"] == len(suggestions)
        assert [(one["row"], int(one["label"])) for one in result[kind]] == list(
            zip(*(part[:100].tolist() for part in suggestions[:2]), strict=True)
        )
        assert [one["probability"] for one in result[kind]] == pytest.approx(suggestions.probabilities[:100].tolist())
    page = client.get(location, params={"offset": 2, "limit": 3}).json()["result"]
    assert (page["missing"], page["n_missing"]) == (result["missing"][2:5], result["n_missing"])
    problem(client.get(location, params={"limit": 1001}), 422)
    problem(client.get(location.replace("rows", "tagger")), 404)
    problem(client.get(location.replace("rows", "nothing")), 404)
    assert client.run(client.asgi.delete(location)).status_code == 204
    problem(client.get(location), 404)
    problem(client.run(client.asgi.delete(location)), 404)


def test_an_audit_job_shows_its_first_suggestions_while_it_runs(client, planted_rows, monkeypatch):
    seen, go_on = threading.Event(), threading.Event()

    def slow_audit(*args, callback, **options):
        def report(part):
            callback(part)
            seen.set()
            assert go_on.wait(30)

        return audit(*args, callback=report, **options)

    monkeypatch.setattr("labelgap.serve.jobs.audit", slow_audit)
    path = post(client, "rows/audit-jobs", **audit_body(planted_rows)).headers["location"]
    try:
        assert seen.wait(30)
        early = client.get(path).json()
    finally:
        go_on.set()
    assert early["state"] == "running"
    assert early["result"]["missing"]
    assert early["result"]["n_doubtful"] < wait_for_job(client, path)["result"]["n_doubtful"]


def test_an_audit_job_takes_texts(client, tagger):
    labels = [[name for name, word in zip(HOSTILE, WORDS, strict=True) if word in text] for text in TEXTS]
    started = post(client, "tagger/audit-jobs", texts=TEXTS * 5, labels=labels * 5, folds=2)
    found = wait_for_job(client, started.headers["location"], limit=1)
    assert found["state"] == "done", found["message"]
    assert len(found["result"]["missing"]) == 1
    assert found["result"]["missing"][0]["label"] in HOSTILE


def test_what_cannot_be_audited_is_refused(client, planted_rows):
    body = audit_body(planted_rows)
    assert "labels has 1 entries for 50 rows" in problem(
        post(client, "rows/audit-jobs", **body | {"labels": [[]]}), 422
    )
    assert "There is no label 7" in problem(post(client, "rows/audit-jobs", **body | {"labels": [[7]] * 50}), 422)
    assert "takes texts" in problem(post(client, "tagger/audit-jobs", **body), 422)
    problem(post(client, "rows/audit-jobs", **body | {"folds": 1}), 422)
    problem(post(client, "nothing/audit-jobs", **body), 404)
    failed = post(client, "rows/audit-jobs", **body | {"labels": [[]] * 50})
    found = wait_for_job(client, failed.headers["location"])
    assert (found["state"], found["result"]) == ("failed", None)
    assert "Y has no positive label" in found["message"]
    alone = post(client, "rows/audit-jobs", dense=body["dense"][:1], labels=[[1]])
    assert "at least two" in wait_for_job(client, alone.headers["location"])["message"]


def test_a_model_that_cannot_be_fitted_again_cannot_audit(planted_rows):
    class Altered(LEML):
        def __init__(self, k=2, random_state=None):
            super().__init__(k, random_state=random_state)
            self.k = k + 1

    model = Altered(random_state=0).fit(*planted_rows)
    with client_of(create_app({"rows": model}, settings=LOCAL)) as client:
        message = problem(post(client, "rows/audit-jobs", **audit_body(planted_rows)), 422)
        assert "The model rows cannot be fitted again, so it cannot audit" in message


class Patient(LEML):
    """Waits before it is fitted again."""

    begun, go = threading.Event(), threading.Event()

    def fit(self, X, Y, **side):
        self.begun.set()
        self.go.wait(30)
        return super().fit(X, Y, **side)


def test_audit_jobs_are_bounded_and_can_be_cancelled(planted_rows):
    Patient.go.set()
    model = Patient(2, random_state=0).fit(*planted_rows)
    body = audit_body(planted_rows)
    settings = replace(LOCAL, max_audit_jobs=1)
    with client_of(create_app({"rows": model}, settings=settings)) as client:
        Patient.go.clear()
        Patient.begun.clear()
        first = post(client, "rows/audit-jobs", **body).headers["location"]
        assert Patient.begun.wait(30)
        shown = client.get(first).json()
        assert (shown["state"], shown["done"], shown["total"], shown["result"]) == ("running", 0, 3, None)
        assert "1 of 3" in shown["message"]
        full = post(client, "rows/audit-jobs", **body)
        assert "at most 1 audits at once" in problem(full, 429)
        assert int(full.headers["retry-after"]) > 0
        assert ok(client, "rows/predict", rows=[{}], top=1)  # an audit does not block the event loop
        assert client.run(client.asgi.delete(first)).status_code == 204
        problem(client.get(first), 404)
        problem(post(client, "rows/audit-jobs", **body), 429)  # it runs until its next report
        Patient.go.set()
        end = time.monotonic() + 60
        while (second := post(client, "rows/audit-jobs", **body)).status_code == 429:
            assert time.monotonic() < end
            time.sleep(0.05)
        assert wait_for_job(client, second.headers["location"])["state"] == "done"


def test_only_the_latest_results_are_kept(client, planted_rows, monkeypatch):
    monkeypatch.setattr(jobs, "MAX_FINISHED_AUDITS", 2)
    body = audit_body(planted_rows, folds=2)
    locations = []
    for _ in range(3):
        locations.append(post(client, "rows/audit-jobs", **body).headers["location"])
        wait_for_job(client, locations[-1])
    assert [client.get(location).status_code for location in locations] == [404, 200, 200]


def test_a_server_without_audit_jobs_says_so(low_rank, planted_rows):
    with client_of(create_app({"rows": low_rank}, settings=replace(LOCAL, max_audit_jobs=0))) as client:
        assert "without --workers" in problem(post(client, "rows/audit-jobs", **audit_body(planted_rows)), 501)


# --- many at once ---------------------------------------------------------------------------------------------------


def test_requests_that_come_together_get_each_its_own_rows(low_rank, planted_rows):
    app, rng = create_app({"rows": low_rank}, settings=LOCAL), np.random.default_rng(2)

    async def ask(client, number):
        if number % 7 == 0:
            wrong = [{"99": 1.0}] if number % 2 else [{"0": 1e39}]  # the second is too large for float32
            return None, None, await client.post("/v1/models/rows/predict", json={"rows": wrong, "top": 2})
        X = rng.standard_normal((1 + number % 3, 6))
        top = (None, 2, 5)[number % 3]
        return X, top, await client.post("/v1/models/rows/predict", json={"dense": X.tolist(), "top": top})

    async def all_of_them():
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://testserver") as client:
            answers = await asyncio.gather(*(ask(client, number) for number in range(120)))
            return answers, (await client.get("/metrics")).text

    answers, metrics = asyncio.run(all_of_them())
    for X, top, answer in answers:
        if X is None:
            problem(answer, 422)
        else:
            check_predictions(answer.json(), low_rank, X, top)
    batches = next(line for line in metrics.splitlines() if line.startswith("labelgap_batch_rows_count"))
    assert float(batches.split()[-1]) < 60


def run_batcher(work, scenario, **options):
    async def run():
        with ThreadPoolExecutor(1) as pool:
            return await scenario(Batcher(work, pool, **{"size": 4, "wait": 0.01, "queue": 8, **options}))

    return asyncio.run(run())


def test_a_batch_has_at_most_its_size_and_keeps_the_order():
    seen = []

    def work(jobs):
        seen.append(list(jobs))
        return [10 * job for job in jobs]

    async def scenario(batcher):
        return await asyncio.gather(*(batcher.submit(job, 1) for job in range(7)), batcher.submit(7, 9))

    assert run_batcher(work, scenario, queue=100) == [10 * job for job in range(8)]
    assert [job for jobs in seen for job in jobs] == list(range(8))
    assert max(map(len, seen)) == 4
    assert [7] in seen  # more rows than a batch has: alone


def test_who_no_longer_waits_is_dropped_and_a_full_queue_says_so():
    begun, go = threading.Event(), threading.Event()
    seen = []

    def work(jobs):
        seen.extend(jobs)
        begun.set()
        go.wait(10)
        return jobs

    async def scenario(batcher):
        first = asyncio.ensure_future(batcher.submit("first", 1))
        await asyncio.to_thread(begun.wait, 10)
        others = [asyncio.ensure_future(batcher.submit(job, 4)) for job in ("gone", "stays")]
        await asyncio.sleep(0)
        assert batcher.n_waiting == 8
        with pytest.raises(ApiError, match="Too many") as error:
            await batcher.submit("more", 1)
        assert (error.value.status, error.value.headers) == (503, {"Retry-After": "1"})
        others[0].cancel()
        go.set()
        assert (await first, await others[1], batcher.n_waiting) == ("first", "stays", 0)

    run_batcher(work, scenario)
    assert seen == ["first", "stays"]


def test_an_error_of_one_job_is_its_own():
    def work(jobs):
        return [ValueError("mine") if job == 1 else job for job in jobs]

    async def scenario(batcher):
        return await asyncio.gather(*(batcher.submit(job, 1) for job in range(3)), return_exceptions=True)

    found = run_batcher(work, scenario)
    assert (found[0], str(found[1]), found[2]) == (0, "mine", 2)


@pytest.mark.parametrize(("given", "small", "large"), [(None, 3, None), (2, 2, 2)])
def test_small_batches_leave_a_core_to_the_event_loop(given, small, large, monkeypatch):
    chosen = []
    monkeypatch.setattr(scoring, "available_cores", lambda: 4)
    monkeypatch.setattr(scoring, "threads", lambda n: chosen.append(n) or nullcontext())
    predict = Predictor(None, Settings(n_threads=given))
    monkeypatch.setattr(predict, "_answer_group", lambda form, top, parts: [b""] * len(parts))
    for n_rows in (1, MAX_SMALL_BATCH - 1, MAX_SMALL_BATCH):
        predict([RequestRows("dense", [[]] * n_rows, 1), RequestRows("dense", [[]], 1)])
    assert chosen == [small, small, large]


# --- limits ---------------------------------------------------------------------------------------------------------


async def in_pieces(body, size):
    for start in range(0, len(body), size):
        yield body[start : start + size]


def test_what_is_too_much_is_refused(models):
    settings = Settings(
        hosts=("testserver",), max_body=2000, max_texts=3, max_length=50, max_top=4, max_cells=6, max_arguments=2
    )
    with client_of(create_app(models, settings=settings)) as client:
        path, body = "/v1/models/tagger/predict", json.dumps({"texts": ["a" * 3000]}).encode()
        kind = {"Content-Type": "application/json"}
        assert "2000 bytes" in problem(client.post(path, content=body, headers=kind), 413)
        chunked = client.post(path, content=in_pieces(body, 500), headers=kind)
        assert "content-length" not in chunked.request.headers
        problem(chunked, 413)
        assert "at most 3" in problem(post(client, "tagger/predict", texts=["a"] * 4), 413)
        assert "texts[1] has 51" in problem(post(client, "tagger/predict", texts=["a", "b" * 51]), 413)
        assert "at most 4" in problem(post(client, "tagger/predict", texts=["a"], top=5), 422)
        problem(post(client, "tagger/complete", texts=["a", "b"]), 413)
        assert "3 features" in problem(
            post(client, "rows/explain", row={"0": 1, "1": 1, "2": 1}, label=0, top=1), 413
        )
        assert "more than 6 scores" in problem(post(client, "tagger/predict", texts=["a"] * 3, top=4), 413)
        ok(client, "tagger/predict", texts=["a" * 50] * 3, top=2)
    with client_of(create_app(models, settings=replace(LOCAL, max_work=10))) as client:
        assert "at most 2 rows" in problem(post(client, "tagger/predict", texts=["a"] * 3), 413)
        ok(client, "tagger/predict", texts=["a"] * 2)
        few = post(client, "tagger/audit-jobs", texts=["a"] * 2, labels=[[], []])
        assert "at most 1 rows" in problem(few, 413)  # half as many, since models are fitted too


def scope(path="/v1/models/rows/predict", method="POST", headers=()):
    given = [(b"host", b"localhost"), (b"content-type", b"application/json"), (b"content-length", b"20"), *headers]
    return {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
        "path": path, "raw_path": path.encode(), "query_string": b"", "root_path": "", "headers": given,
        "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80),
    }  # fmt: skip


async def call(app, receive):
    """Answer one request whose messages come from ``receive``; return what was sent."""
    sent = []

    async def send(message):
        sent.append(message)

    await asyncio.wait_for(app(scope(), receive, send), 10)
    return sent


class Sleepy(LEML):
    """Takes its time."""

    def rank(self, X, k, **options):
        time.sleep(0.4)
        return super().rank(X, k, **options)


@pytest.fixture(scope="module")
def sleepy(planted_rows):
    return Sleepy(2, random_state=0).fit(*planted_rows)


def test_a_body_that_does_not_come_is_given_up(low_rank):
    async def receive():
        await asyncio.sleep(60)

    sent = asyncio.run(call(create_app({"rows": low_rank}, settings=Settings(body_timeout=0.1)), receive))
    assert sent[0]["status"] == 408
    assert (b"connection", b"close") in sent[0]["headers"]


def whole_body(then):
    """Return a receive that gives a request at once, and after ``then`` more seconds hangs up."""
    messages = iter([{"type": "http.request", "body": b'{"rows":[{}],"top":1}', "more_body": False}])

    async def receive():
        message = next(messages, None)
        if message is None:
            await asyncio.sleep(then)
        return message or {"type": "http.disconnect"}

    return receive


def test_an_answer_that_takes_too_long_is_a_504(sleepy):
    start = time.perf_counter()
    sent = asyncio.run(call(create_app({"rows": sleepy}, settings=Settings(timeout=0.1)), whole_body(60)))
    assert sent[0]["status"] == 504
    assert time.perf_counter() - start < 2
    sent = asyncio.run(call(create_app({"rows": sleepy}, settings=Settings(timeout=5)), whole_body(60)))
    assert sent[0]["status"] == 200


def test_a_client_that_goes_away_is_not_answered(sleepy):
    app = create_app({"rows": sleepy}, settings=Settings())
    with client_of(app, base_url="http://localhost") as client:
        assert client.run(call(app, whole_body(0.1))) == []
        assert 'status="0"} 1' in client.get("/metrics").text
        assert ok(client, "rows/predict", rows=[{}], top=1)


def test_an_error_of_ours_is_a_500_that_tells_nothing(low_rank, planted_rows, caplog):
    class Broken(LEML):
        def rank(self, X, k, **options):
            raise RuntimeError("the secret of the house")

    with client_of(create_app({"rows": Broken(2, random_state=0).fit(*planted_rows)}, settings=LOCAL)) as client:
        answer = post(client, "rows/predict", rows=[{}], top=1)
        assert "secret" not in problem(answer, 500)
        assert answer.headers["x-content-type-options"] == "nosniff"
        ok(client, "rows/predict", rows=[{}])  # without top there is no ranking
    assert "the secret of the house" in caplog.text


# --- who may ask ----------------------------------------------------------------------------------------------------


def test_a_token_opens_everything_and_nothing_else_does(models):
    app = create_app(models, settings=Settings(hosts=("testserver",), token="s3cret"))
    app.state.open_paths |= {"/", "/page/"}
    with client_of(app) as client:
        for wrong in (
            {},
            {"Authorization": "Bearer S3cret"},
            {"Authorization": "s3cret"},
            {"Authorization": "Bearer é"},
        ):
            headers = {name: value.encode() for name, value in wrong.items()}
            answer = client.get("/v1/models", headers=headers)
            problem(answer, 401)
            assert answer.headers["www-authenticate"] == "Bearer"
            problem(client.get("/openapi.json", headers=headers), 401)
            problem(client.get("/pages", headers=headers), 401)
        right = {"Authorization": "Bearer s3cret"}
        assert client.get("/v1/models", headers=right).status_code == 200
        assert "HTTPBearer" in client.get("/openapi.json", headers=right).json()["components"]["securitySchemes"]
        body = {"rows": [{}], "top": 1}
        assert client.post("/v1/models/rows/predict", json=body, headers=right).status_code == 200
        problem(client.post("/v1/models/rows/predict", json=body), 401)
        assert client.get("/health").status_code == 200
        paths = client.get("/openapi.json", headers=right).json()["paths"]
        assert {path for path, found in paths.items() if "401" not in str(found)} == {"/health"}
        assert client.get("/page/script.js").status_code == 404  # open, and not there


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:8000", 200),
        ("127.0.0.1", 200),
        ("[::1]:8000", 200),
        ("evil.example", 421),
        ("localhost.evil", 421),
        ("[::1].evil.com", 421),
        ("localhost:80@evil.com", 421),
        ("localhost:123456", 421),
        ("", 421),
    ],
)
def test_only_names_of_this_machine_are_answered_to(models, host, status):
    with client_of(create_app(models)) as client:
        assert client.get("/health", headers={"Host": host}).status_code == status


def test_answers_carry_headers_that_make_browsers_careful(client):
    for answer in (client.get("/health"), client.get("/nothing"), post(client, "rows/predict", rows=[{}])):
        assert "default-src 'self'" in answer.headers["content-security-policy"]
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert "access-control-allow-origin" not in answer.headers


# --- hostile input --------------------------------------------------------------------------------------------------


def test_names_of_labels_are_data_and_never_markup(client):
    answer = post(client, "tagger/predict", texts=TEXTS[:1], top=5)
    assert answer.headers["content-type"] == "application/json"
    assert sorted(one["label"] for one in answer.json()["predictions"][0]["labels"]) == sorted(HOSTILE)
    listing = client.get("/v1/models/tagger/labels")
    wrong = post(client, "tagger/explain", text="<script>", label="<script>alert(2)</script>")
    assert HOSTILE[0] in problem(wrong, 422)  # a near one
    for one in (answer, listing, wrong, post(client, "tagger/explain", text="cake", label=HOSTILE[0])):
        assert not set(b"<>&") & set(one.content)
        assert one.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    "name",
    [
        "../../etc/passwd",
        "..%2f..%2fetc%2fpasswd",
        "%2e%2e%2f%2e%2e%2fetc/passwd",
        "/etc/passwd",
        "rows%00",
        "%",
        "é" * 99,
    ],
)
@pytest.mark.parametrize("tail", ["", "/labels", "/predict"])
def test_a_name_is_never_a_path(client, name, tail):
    ask = client.post if tail == "/predict" else client.get
    answer = ask(f"/v1/models/{name}{tail}", **({"json": {"texts": ["a"]}} if tail == "/predict" else {}))
    problem(answer, 404)
    assert "root:" not in answer.text


BAD_BODIES = [
    (b"", 400), (b"{", 400), (b"\xff\xfe", 400), (b"[" * 100_000, 400), (b'{"rows": [{"0": NaN}]}', 422),
    (b'{"rows": [{"0": 1e999}]}', 400), (b'{"rows": [{"0": 1e200}]}', 422), (b'{"rows": [{"0": "1"}]}', 422),
    (b'{"rows": [{"-1": 1}]}', 422), (b'{"rows": [{"' + b"9" * 5000 + b'": 1}]}', 422), (b"[]", 422), (b"null", 422),
    (b'{"rows": [{}], "dense": [[]]}', 422), (b"{}", 422), (b'{"texts": ["a"]}', 422), (b'{"dense": [[1]]}', 422),
    (b'{"rows": []}', 422), (b'{"rows": [{}], "top": 0}', 422), (b'{"rows": [{}], "top": true}', 422),
    (b'{"rows": [{}], "more": 1}', 422), (b'{"dense": [[null, 0, 0, 0, 0, 0]]}', 422),
    (b'{"texts": ["\\ud800"]}', 400),
]  # fmt: skip


@pytest.mark.parametrize(("body", "status"), BAD_BODIES, ids=lambda value: repr(value)[:40])
def test_a_bad_body_is_one_clear_error(client, body, status):
    answer = client.post("/v1/models/rows/predict", content=body, headers={"Content-Type": "application/json"})
    if answer.status_code in (400, 422) and body in (b'{"rows": [{"0": NaN}]}', b'{"texts": ["\\ud800"]}'):
        status = answer.status_code  # parsers differ in whether this is JSON at all
    problem(answer, status)


def test_other_types_than_json_are_refused(client):
    for kind in ("text/plain", "application/x-www-form-urlencoded", ""):
        answer = client.post("/v1/models/rows/predict", content=b'{"rows":[{}]}', headers={"Content-Type": kind})
        problem(answer, 415)


def test_a_wrong_method_says_which_are_right(client):
    answer = client.get("/v1/models/rows/predict")
    problem(answer, 405)
    assert answer.headers["allow"] == "POST"


def test_the_api_keeps_to_its_schema(models):
    """Whatever requests the schema allows (and many that it does not) get answers that the schema foresees."""
    import schemathesis
    from hypothesis import HealthCheck, Phase, given
    from hypothesis import settings as hypothesis_settings
    from schemathesis.specs.openapi.checks import positive_data_acceptance  # what fits the schema may not fit a model

    settings = Settings(hosts=("testserver",), timeout=5)
    schema = schemathesis.openapi.from_asgi("/openapi.json", create_app(models, settings=settings))
    operations = [operation.ok() for operation in schema.get_all_operations()]
    assert len(operations) == 13
    for operation in operations:

        @hypothesis_settings(
            max_examples=25, deadline=None, database=None, derandomize=True, phases=[Phase.explicit, Phase.generate],
            suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        def check(case):
            if "name" in (case.path_parameters or {}):
                case.path_parameters["name"] = "tagger" if len(str(case.body)) % 2 else "rows"
            case.call_and_validate(excluded_checks=[positive_data_acceptance])

        given(operation.as_strategy())(check)()


# --- extensions, names, files ---------------------------------------------------------------------------------------


def test_a_server_may_be_called_as_it_is_announced():
    assert "127.0.0.2" in Settings(host="127.0.0.2").allowed_hosts
    assert {"box.local", "10.0.0.7"} <= Settings(host="10.0.0.7", hosts=("Box.local",)).allowed_hosts
    assert "[::1]" in Settings(host="::1").allowed_hosts
    assert Settings(host="0.0.0.0").allowed_hosts is None


def test_what_would_open_a_door_is_refused(low_rank):
    with pytest.raises(ValueError, match="token is empty"):
        Settings(token="")
    for token in ("schl\u00fcssel", " key", "key ", "key\n", "\u30ad\u30fc"):
        with pytest.raises(ValueError, match=r"token contains .* which an HTTP header cannot carry"):
            Settings(token=token)
    assert Settings(token="open, sesame!").token == "open, sesame!"
    with pytest.raises(ValueError, match="model name 'a\"b' is invalid; use letters"):
        ServedModel('a"b', low_rank)


def test_without_data_the_page_lets_a_text_be_tried(models):
    with client_of(create_app(models, settings=replace(LOCAL, token="key"), extensions=[add_page])) as client:
        page = client.get("/")
        assert page.headers["content-type"].startswith("text/html")
        assert client.get("/page/page.js").status_code == 200
        assert client.get("/v1/models").status_code == 401
        assert client.get("/review/state", headers={"Authorization": "Bearer key"}).status_code == 404


def test_extensions_come_after_the_api(models):
    def extension(app, given, settings):
        assert (given["tagger"], settings.max_top) == (models["tagger"], 1000)

        @app.get("/v1/models")
        def mine():
            return "not this one"

        @app.get("/review/state")
        def state():
            return {"rows": 3}

    with client_of(create_app(models, settings=LOCAL, extensions=[extension])) as client:
        assert "models" in client.get("/v1/models").json()
        assert client.get("/review/state").json() == {"rows": 3}


@pytest.mark.parametrize("given", ["a b=x", "../=x", "=x", "x" * 200, "<b>=x", ".hidden"])
def test_names_of_models_are_plain(given):
    with pytest.raises(ValueError, match="not a valid model name"):
        split_model_source(given)


def test_models_stay_in_their_files(low_rank, tmp_path):
    low_rank.save(tmp_path / "mine.labelgap")
    models = open_models([str(tmp_path / "mine.labelgap"), f"other={tmp_path / 'mine.labelgap'}"])
    assert list(models) == ["mine", "other"]
    array = models["mine"].label_factors_
    assert isinstance(array.base, np.memmap)
    with pytest.raises(ValueError, match="the same name"):
        open_models([str(tmp_path / "mine.labelgap")] * 2)


def test_a_model_without_features_is_refused():
    from labelgap import OneClassMF

    recommender = OneClassMF(1, random_state=0).fit(None, sp.csr_array(np.eye(4)))
    with pytest.raises(ValueError, match="no features"):
        create_app({"items": recommender})


# --- connections ----------------------------------------------------------------------------------------------------


async def over_the_network(app, scenario):
    """Serve on a free port of this machine while a scenario runs with that port."""
    import uvicorn

    with socket.create_server(("127.0.0.1", 0)) as listening:
        config = uvicorn.Config(app, http=protocol.make_protocol(), ws="none", log_level="critical", lifespan="off")
        running = uvicorn.Server(config)
        serving = asyncio.create_task(running.serve(sockets=[listening]))
        try:
            return await asyncio.wait_for(scenario(listening.getsockname()[1]), 20)
        finally:
            running.should_exit = True
            await serving


async def exchange(port, *pieces, pause=0.0):
    """Send pieces and return everything that comes back until the server closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for piece in pieces:
        writer.write(piece)
        await asyncio.sleep(pause)
    found = b""
    with suppress(ConnectionResetError, BrokenPipeError):
        while part := await reader.read(1 << 16):
            found += part
    writer.close()
    return found


def test_bad_connections_end_and_good_ones_go_on(low_rank, monkeypatch):
    monkeypatch.setattr(protocol, "HEADER_TIMEOUT_SECONDS", 0.3)
    monkeypatch.setattr(middleware, "DRAIN_SECONDS", 0.2)
    head = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"
    post_head = b"POST /v1/models/rows/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    chunk = b"20000\r\n" + b" " * 0x20000 + b"\r\n"

    async def scenario(port):
        return await asyncio.gather(
            exchange(port, *(head[i : i + 5] for i in range(0, 40, 5)), pause=0.1),
            exchange(port),
            exchange(port, head + b"\r\n", head + b"\r\n"),
            exchange(port, b"\x00\xff nonsense\r\n\r\n"),
            exchange(port, post_head + b"Content-Length: 9999999\r\n\r\n"),
            exchange(port, post_head + b"Transfer-Encoding: chunked\r\n\r\n", chunk, chunk),
            exchange(port, post_head + b"Content-Length: 9\r\n\r\n{"),
        )

    settings = Settings(max_body=100_000, body_timeout=1.0)
    found = asyncio.run(over_the_network(create_app({"rows": low_rank}, settings=settings), scenario))
    assert found[:2] == [b"", b""]  # a head that trickles in, and none at all
    assert found[2].count(b"200 OK") == 2
    assert [one.split()[1] for one in found[3:]] == [b"400", b"413", b"413", b"408"]


# --- the command ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model_file(low_rank, tmp_path_factory):
    path = tmp_path_factory.mktemp("served") / "mine"
    low_rank.save(path)
    return path


def test_what_clients_send_does_not_fill_the_log():
    from uvicorn.protocols.http import httptools_impl

    for message in CLIENT_FAULTS:
        assert message in inspect.getsource(httptools_impl)
        assert not _is_no_client_fault(logging.makeLogRecord({"msg": message}))
    assert _is_no_client_fault(logging.makeLogRecord({"msg": "Exception in ASGI application"}))


def test_the_command_refuses_what_is_unsafe_or_not_there(model_file):
    def refused(*arguments):
        shown = CliRunner().invoke(command_line, ["serve", *map(str, arguments)])
        assert shown.exit_code == 1
        assert len(shown.output.splitlines()) == 1
        return shown.output

    assert "--token" in refused(model_file, "--host", "0.0.0.0")
    assert "--data" in refused(model_file, "--reviews", "reviews.sqlite")
    assert "There is no model" in refused(model_file.with_name("none"))
    assert "device='tpu' is not available" in refused(model_file, "--device", "tpu")
    assert "use printable ASCII characters for --token (LABELGAP_TOKEN)" in refused(
        model_file, "--token", "schl\u00fcssel"
    )
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert "another --host or --port" in refused(model_file, "--port", taken.getsockname()[1])


@contextmanager
def server(model_file, *options):
    command = [sys.executable, "-m", "labelgap", "serve", str(model_file), "--port", "0", "--json", *options]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        yield process, json.loads(process.stdout.readline())["url"]
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # workers too, which would keep the pipes open
        process.communicate()


def workers_of(pid):
    shown = subprocess.run(
        ["ps", "-ww", "-o", "pid=,args=", "--ppid", str(pid)], capture_output=True, text=True, check=False
    )
    return {int(line.split()[0]) for line in shown.stdout.splitlines() if "spawn_main" in line}


def metric(text, name):
    """Return the sum of the samples of a metric whose line begins with a name and labels."""
    return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(name))


def test_metrics_add_up_over_workers_and_forget_dead_ones(model_file):
    requests = 'labelgap_requests_total{method="POST",route="/v1/models/{name}/predict",status="200"}'
    with server(model_file, "--workers", "2") as (process, url):

        def ask():
            httpx.post(f"{url}/v1/models/mine/predict", json={"rows": [{"0": 1.0}]}, timeout=60).raise_for_status()

        def shown():
            return httpx.get(f"{url}/metrics", timeout=60).text

        n_asked, pids = 0, set()
        end = time.monotonic() + 120
        while len(pids) < 2:  # each new connection may reach either worker
            assert time.monotonic() < end
            ask()
            n_asked += 1
            pids = {path.stem.rpartition("_")[2] for path in metrics_folder(process.pid).glob("histogram_*.db")}
        assert [metric(shown(), requests) for _ in range(6)] == [n_asked] * 6
        assert metric(shown(), "labelgap_batch_rows_sum") == n_asked
        assert metric(shown(), "labelgap_rows_waiting") == 0
        os.kill(min(workers_of(process.pid)), signal.SIGKILL)
        ask()
        assert metric(shown(), requests) == n_asked + 1  # counts of a dead worker stay

        def gauges():
            return {int(path.stem.rpartition("_")[2]) for path in metrics_folder(process.pid).glob("gauge_live*.db")}

        end = time.monotonic() + 60
        while not gauges() <= workers_of(process.pid):  # until the server has noticed the dead worker
            assert time.monotonic() < end
            shown()
            time.sleep(0.1)


def metrics_folder(pid):
    """Return the folder in which the workers of a server add up their metrics."""
    environment = Path(f"/proc/{min(workers_of(pid))}/environ").read_text().split("\0")
    return Path(next(one.partition("=")[2] for one in environment if one.startswith("PROMETHEUS_MULTIPROC_DIR=")))


def test_a_server_outlives_a_killed_worker_and_answers_before_it_stops(model_file):
    options = ("--workers", "2", "--token", "t", "--batch-ms", "1000")
    with server(model_file, *options) as (process, url), ThreadPoolExecutor(1) as pool:

        def ask():
            body, headers = {"rows": [{"0": 1.0}], "top": 2}, {"Authorization": "Bearer t"}
            return httpx.post(f"{url}/v1/models/mine/predict", json=body, headers=headers, timeout=60).json()

        first, before = ask(), workers_of(process.pid)
        assert (len(first["predictions"][0]["labels"]), len(before)) == (2, 2)
        os.kill(min(before), signal.SIGKILL)
        assert ask() == first
        end = time.monotonic() + 120  # a worker that is busy is given a minute before the next is looked at
        while not workers_of(process.pid) - before and time.monotonic() < end:
            time.sleep(0.1)
        assert len(workers_of(process.pid) - before) == 1
        last = pool.submit(ask)
        time.sleep(0.5)  # it waits for others to join it
        process.send_signal(signal.SIGTERM)
        assert last.result() == first
        assert process.wait(30) == 0
        assert workers_of(process.pid) == set()
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{url}/health")
