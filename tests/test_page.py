"""The page in a real browser: one server of the command line, one Chromium, most steps by keyboard."""

from __future__ import annotations

import csv
import io
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from contextlib import contextmanager
from types import SimpleNamespace

import httpx
import pytest

from labelgap import load
from labelgap.serve.reviews.session import LEARN_EVERY
from test_reviews import HOSTILE, write_posts

CHROMIUM = shutil.which("chromium")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
TOKEN = "open-sesame"
HOLD_MODELS_BACK = """() => {
  const fetch = window.fetch;
  window.fetch = async (path, options) => {
    if (path === "/v1/models") await new Promise((resolve) => { window.letModelsCome = resolve; });
    return fetch(path, options);
  };
}"""
NO_ROUTE = {"code": "not_found", "message": "Not Found"}

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine")


def labelgap(*words):
    return [sys.executable, "-m", "labelgap", *map(str, words)]


class Server:
    """A server that can be killed and started again at the same address."""

    def __init__(self, folder, *options, data="posts.csv"):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        words = ["serve", folder / "model", "--port", self.port, "--json", *options]
        words += ["--data", folder / data, "--reviews", folder / "reviews.sqlite"] if data else []
        self.command = labelgap(*words)
        self.url = f"http://127.0.0.1:{self.port}/"

    def start(self):
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, text=True)
        assert json.loads(self.process.stdout.readline())["url"] + "/" == self.url
        self.process.stdout.close()

    def stop(self, sign=signal.SIGTERM):
        os.kill(self.process.pid, sign)
        self.process.wait(30)

    def get(self, path, **query):
        return httpx.get(self.url + path, params=query, timeout=30)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with posts, and a model that the command line fitted on them."""
    found = tmp_path_factory.mktemp("page")
    write_posts(found / "posts.csv")
    words = ["--text", "title,content", "--tags", "tags", "--output", found / "model", "--json"]
    subprocess.run(labelgap("fit", found / "posts.csv", *words), check=True, capture_output=True)
    return found


@pytest.fixture(scope="module")
def server(folder):
    found = Server(folder)
    found.start()
    yield found
    found.stop()


@pytest.fixture(scope="module")
def chromium():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@contextmanager
def a_page(chromium, width=1280, height=800, **options):
    """Open a page that notes every request, error and dialog."""
    context = chromium.new_context(viewport={"width": width, "height": height}, accept_downloads=True, **options)
    page = context.new_page()
    seen = SimpleNamespace(requests=[], errors=[], dialogs=[])
    page.on("request", lambda request: seen.requests.append(request.url))
    page.on("pageerror", lambda error: seen.errors.append(str(error)))
    page.on("dialog", lambda dialog: (seen.dialogs.append(dialog.message), dialog.dismiss()))
    page.set_default_timeout(60_000)
    yield page, seen
    context.close()
    assert seen.errors == []


@pytest.fixture
def page(chromium, server):
    """Return a page at the review, which leaves the host alone and runs nothing of the data."""
    with a_page(chromium) as (page, seen):
        page.goto(server.url)
        page.wait_for_selector(".suggested-label:not(:empty)")
        yield page
        assert page.evaluate("window.hit") is None
        assert seen.dialogs == []
        assert all(url.startswith((server.url, "blob:" + server.url)) for url in seen.requests)


def shown_card(page):
    """Return the row and the label that are asked about, once the document is there."""
    page.wait_for_selector(".workspace[aria-busy=false]")
    row = page.inner_text(".document .small").removeprefix("Row ")
    return int(row), page.text_content(".suggested-label")


def press(page, key):
    """Press a key when the card is there, and wait until the verdict is stored and the next card is there."""
    page.wait_for_selector(".workspace[aria-busy=false]")
    page.keyboard.press(key)
    page.wait_for_selector("#saving:not(.waiting, .failing)", state="attached")
    page.wait_for_selector(".workspace[aria-busy=false]")


def load_with_answers(page, path, answer):
    """Load the page anew with our answers to a path: those of a page that is open come too late now and then."""
    page.route(path, answer)
    page.reload()


def wait_for_text(page, where, text):
    page.wait_for_function(
        "([where, text]) => document.querySelector(where)?.textContent.includes(text)", arg=[where, text]
    )


def log_of(server):
    return [json.loads(line) for line in server.get("review/export/log", format="jsonl").text.splitlines()]


def test_reviews_by_keyboard_survive_a_killed_server(page, server, folder, tmp_path):
    before = len(log_of(server))
    made, keys = [], ["a", "r", "ArrowRight", "s", "ArrowLeft", "a", "ArrowDown", "a", "r", "a"]
    verdicts = {
        "a": "accept",
        "r": "reject",
        "s": "skip",
        "ArrowRight": "accept",
        "ArrowLeft": "reject",
        "ArrowDown": "skip",
    }
    for key in keys:
        made.append((*shown_card(page), verdicts[key]))
        press(page, key)
    assert len({cell[:2] for cell in made}) == 10
    press(page, "u")
    assert shown_card(page) == made[-1][:2]
    server.stop(signal.SIGKILL)
    page.keyboard.press("r")  # nobody is there to store it
    page.wait_for_selector("#saving.failing")
    assert "not saved" in page.inner_text("#saving")
    server.start()
    page.wait_for_selector("#saving.saved", timeout=60_000)
    made[-1] = (*made[-1][:2], "reject")
    log = log_of(server)[before:]
    assert [(one["row"], one["label"], one["verdict"]) for one in log if one["current"]] == made
    assert [one["verdict"] for one in log][-3:] == ["accept", "undo", "reject"]
    page.goto(server.url + "#export")
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Reviewed labels", exact=True).click()
    waiting.value.save_as(tmp_path / "export.csv")
    assert waiting.value.suggested_filename == "posts-reviewed.csv"
    old, new = (
        list(csv.DictReader(io.StringIO(path.read_text(), newline="")))
        for path in (folder / "posts.csv", tmp_path / "export.csv")
    )
    for row, (was, now) in enumerate(zip(old, new, strict=True)):
        added = [label for i, label, verdict in made if i == row and verdict == "accept"]
        assert now["tags"] == "|".join([*filter(None, was["tags"].split("|")), *added])


def test_undo_after_a_reload_takes_back_the_newest_of_ours(page, server):
    card = shown_card(page)
    press(page, "a")
    elsewhere = listed(server)[5]
    send(server, "skip", elsewhere)
    page.reload()
    page.wait_for_selector(".suggested-label:not(:empty)")
    assert shown_card(page) != card
    press(page, "z")
    page.wait_for_function("label => document.querySelector('.suggested-label').textContent === label", arg=card[1])
    assert shown_card(page) == card
    mine, other, undone = log_of(server)[-3:]
    assert (undone["verdict"], undone["undoes"]) == ("undo", mine["id"])
    page.keyboard.press("u")
    wait_for_text(page, ".last", f"The newest verdict was made elsewhere: {elsewhere[1]} of row {elsewhere[0]}.")
    press(page, "n")  # the question is over
    page.keyboard.press("u")
    wait_for_text(page, ".last", "made elsewhere")
    assert log_of(server)[-1] == undone
    page.keyboard.press("u")
    wait_for_text(page, ".last", f"Undone: {elsewhere[1]}.")
    assert shown_card(page) == tuple(elsewhere)
    assert log_of(server)[-1]["undoes"] == other["id"]


def test_an_undo_shows_what_holds_then(page, server):
    card = shown_card(page)
    send(server, "accept", card)  # somebody else, while it is open here
    press(page, "r")
    press(page, "u")
    assert shown_card(page) == card
    wait_for_text(page, ".verdict", "Current verdict: added")
    wait_for_text(page, ".chips[aria-label=Labels]", card[1])


def test_an_undo_that_comes_too_late_says_so(page, server):
    card = shown_card(page)
    press(page, "a")
    body = {"key": uuid.uuid4().hex, "of": log_of(server)[-1]["key"]}
    assert httpx.post(server.url + "review/undo", json=body, timeout=30).json()["label"] == card[1]
    send(server, "skip", card)
    press(page, "u")
    wait_for_text(page, ".last", "Not undone: There is no such verdict, or it was undone already")
    wait_for_text(page, ".verdict", "Current verdict: skipped")
    page.wait_for_function(NUMBERS, arg=counts_of(server, 0.1))


def test_moving_grouping_and_filtering_by_keyboard(page):
    first = shown_card(page)
    press(page, "n")
    second = shown_card(page)
    assert second != first
    press(page, "p")
    assert shown_card(page) == first
    with page.expect_response("**/review/queue?*"):
        page.keyboard.press("g")
    page.wait_for_selector("button[data-value=label][aria-pressed=true]")
    page.wait_for_load_state("networkidle")
    page.wait_for_selector(".workspace[aria-busy=false]")
    label = page.text_content(".suggested-label")
    press(page, "n")
    assert page.text_content(".suggested-label") == label
    page.keyboard.press("g")
    page.keyboard.press("g")
    page.keyboard.press("/")
    page.keyboard.type("soup")
    page.keyboard.press("Enter")
    page.wait_for_function("() => document.querySelector('.suggested-label').textContent === 'soup'")
    press(page, "Escape")
    assert page.evaluate("document.activeElement.matches('input')") is False
    page.keyboard.press("?")
    assert page.locator("#help").is_visible()
    before = page.text_content(".counts")
    page.keyboard.press("a")  # the help is in front: nothing is decided
    page.keyboard.press("Escape")
    assert page.text_content(".counts") == before
    assert not page.locator("#help").is_visible()


def test_arrows_scroll_the_text_that_has_the_focus(page, server):
    card, before = shown_card(page), len(log_of(server))
    text = page.locator(".text")
    text.evaluate(
        "node => { node.style.minHeight = 0; node.style.maxHeight = '1.5em'; node.style.maxWidth = '8em'; }"
    )
    text.focus()
    for key in ("ArrowLeft", "ArrowRight", "ArrowDown"):
        page.keyboard.press(key)
    page.wait_for_function("() => document.querySelector('.text').scrollTop > 0")
    text.blur()
    for key in ("ArrowLeft", "ArrowRight", "ArrowDown"):
        page.keyboard.press(f"Shift+{key}")
    assert shown_card(page) == card
    assert len(log_of(server)) == before
    press(page, "ArrowDown")
    assert log_of(server)[-1]["verdict"] == "skip"


def test_every_control_is_reached_by_tab_and_shows_it(page):
    reached = []
    page.evaluate("document.activeElement.blur()")
    for _ in range(40):
        page.keyboard.press("Tab")
        name = page.evaluate("(document.activeElement.dataset.does ?? document.activeElement.dataset.view) || null")
        style = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        if name:
            reached.append(name)
            assert style != "none"
    wanted = ["review", "progress", "export", "try", "accept", "reject", "skip", "undo", "next"]
    assert [name for name in dict.fromkeys(reached) if name in wanted] == wanted


def test_a_text_is_tagged_with_reasons(page, server, folder):
    page.evaluate(HOLD_MODELS_BACK)
    page.goto(server.url + "#try")
    field = page.get_by_role("textbox", name="Text", exact=True)  # the review has a region of this name
    field.fill("Which bacon and steak for the grill? <img src=x onerror='window.hit=3'>")
    field.press("Control+Enter")
    page.evaluate("window.letModelsCome()")  # after the text
    page.wait_for_selector(".predictions li .chip")
    best = page.locator(".predictions > li").first
    assert best.locator("strong").inner_text() == "meat"
    assert best.locator(".answer").inner_text() == "yes"
    model, text = load(folder / "model"), field.input_value()
    probability = model.predict_proba([text])[0, list(model.label_names_in_).index("meat")]
    assert best.locator(".weight").first.inner_text() == f"{100 * probability:.0f}\u00a0%"
    assert "probabilities that a person writes the label" in page.locator("main").inner_text()
    assert {"bacon", "steak", "grill"} & set(best.locator(".chip").first.inner_text().split())
    field.fill("qqq zzz")
    field.press("Control+Enter")
    page.wait_for_selector("text=The model knows no word of this text. No label is predicted")


HOSTILE_LABELS = [
    "__proto__",
    "constructor",
    "</script><script>window.hit=1</script>",
    "javascript:window.hit=2",
    "\u202edrawkcab",
    "' OR 1=1 --",
    "long " + "x" * 9000,
]


HOSTILE_TEXTS = [
    "<a" * 50_000,
    "w" * 50_000,
    "<img src=x onerror='window.hit=3'>" * 50 + "&lt;img src=x onerror='window.hit=4'&gt;",
    "\u202e\u0000\ufeff\u2028 right to left",
    "&#" + "9" * 5000 + " long reference",
]
SHOW_DOCUMENT = """async ({ row, parts }) => {
  const { DocumentView } = await import("/page/document.js");
  const view = new DocumentView();
  view.show({ row, parts, labels: [] }, null);
  document.querySelector(".document").replaceWith(view.node);
}"""


@pytest.fixture(scope="module")
def hostile_server(tmp_path_factory):
    """Return a server of posts with labels and texts that a page could fail at."""
    folder, rng = tmp_path_factory.mktemp("hostile"), random.Random(0)
    with open(folder / "posts.jsonl", "w") as stream:
        for row in range(120):
            chosen = rng.sample(range(len(HOSTILE_LABELS)), 2)
            body = " ".join(f"word{j}" for j in chosen for _ in range(3))
            tags = [HOSTILE_LABELS[j] for j in chosen if rng.random() > 0.3]
            text = f"{body} {HOSTILE_TEXTS[row]}" if row < len(HOSTILE_TEXTS) else body
            stream.write(json.dumps({"text": text, "tags": tags}) + "\n")
    words = ["--text", "text", "--tags", "tags", "--output", folder / "model", "--json"]
    subprocess.run(labelgap("fit", folder / "posts.jsonl", *words), check=True, capture_output=True)
    found = Server(folder, data="posts.jsonl")
    found.start()
    yield found
    found.stop()


def test_hostile_data_are_reviewed_as_any_other(chromium, hostile_server):
    with a_page(chromium, width=400) as (page, seen):
        page.goto(hostile_server.url)
        page.wait_for_selector(".suggested-label:not(:empty)")
        labels = [one["label"] for one in hostile_server.get("review/labels").json()]
        assert set(labels) == set(HOSTILE_LABELS)
        for label in labels:
            page.keyboard.press("/")
            page.keyboard.insert_text(label)
            page.keyboard.press("Enter")
            page.wait_for_function(
                "label => document.querySelector('.suggested-label').textContent === label", arg=label
            )
            page.wait_for_selector(".reasons section")
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
            press(page, "a")
        for view, ready in [("progress", ".label-bars"), ("export", "h1"), ("try", "textarea")]:
            page.goto(hostile_server.url + f"#{view}")
            page.wait_for_selector(ready)
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        page.get_by_role("textbox", name="Text", exact=True).fill("word0 word1 </textarea>" + "<a" * 20_000)
        page.keyboard.press("Control+Enter")
        page.wait_for_selector(".predictions li strong")
        assert page.evaluate("window.hit") is None
        assert seen.dialogs == []
    accepted = [entry for entry in log_of(hostile_server) if entry["verdict"] == "accept"]
    assert {entry["label"] for entry in accepted} == set(HOSTILE_LABELS)
    export = hostile_server.get("review/export/labels").text.split("\n")  # other line ends are part of texts
    for entry in accepted:
        assert entry["label"] in json.loads(export[entry["row"]])["tags"]


def test_hostile_texts_are_shown_as_text(chromium, hostile_server):
    with a_page(chromium, width=400) as (page, seen):
        page.goto(hostile_server.url)
        page.wait_for_selector(".suggested-label:not(:empty)")
        for row in range(len(HOSTILE_TEXTS)):
            parts = hostile_server.get(f"review/documents/{row}").json()["parts"]
            page.evaluate(SHOW_DOCUMENT, {"row": row, "parts": parts})
            assert page.evaluate("document.querySelector('.document .text').textContent.length") > 5
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert page.locator("main img, main script").count() == 0
        assert page.evaluate("window.hit") is None
        assert seen.dialogs == []


def test_names_and_texts_are_shown_literally(page, server):
    page.keyboard.press("/")
    page.keyboard.type(HOSTILE)
    page.keyboard.press("Enter")
    page.wait_for_function("name => document.querySelector('.suggested-label').textContent === name", arg=HOSTILE)
    assert page.locator("main img, main script").count() == 0
    press(page, "a")
    assert HOSTILE in page.inner_text(".last")
    page.evaluate("fetch('/review/documents/0')")
    page.goto(server.url + "#progress")
    page.wait_for_selector(".label-bars")
    assert HOSTILE in page.text_content(".label-bars")
    assert page.locator("main img, main script").count() == 0
    found = httpx.get(server.url + "review/documents/0").json()["parts"][1]["text"]
    assert "<script>window.hit=2</script>" in found  # it was escaped in the file, and is text to us
    assert "window.hit=1" in found


def test_progress_is_plotted(page, server):
    for key in ("a", "r"):
        press(page, key)
    page.goto(server.url + "#progress")
    page.wait_for_selector("svg.plot .line.observed")
    stats = server.get("review/stats", kind="missing").json()
    assert page.locator("svg.plot circle.dot.observed").count() == len(stats["calibration"])
    assert f"{100 * stats['precision']['precision']:.0f}\xa0% of" in page.inner_text("main")
    tiles = dict(
        zip(page.locator(".tiles dt").all_inner_texts(), page.locator(".tiles dd").all_inner_texts(), strict=True)
    )
    assert tiles["added"] == str(stats["counts"]["accepted"])


def test_the_cards_follow_what_verdicts_teach(page, server):
    let_the_queue_learn(server)
    learned, shown = server.get("review/state").json()["learned"], []
    page.reload()
    for number in range(LEARN_EVERY + 6):
        shown.append(shown_card(page))
        press(page, "ra"[number % 2])
        if number == LEARN_EVERY - 1:
            wait_until_learned(server, learned)
    assert len(set(shown)) == len(shown)  # the new order shows no card again
    assert list(shown_card(page)) == listed(server, least=0.1)[0]
    page.goto(server.url + "#progress")
    text = page.inner_text("main .muted >> nth=0")
    stats = server.get("review/stats", kind="missing").json()
    assert f"about {stats['next_hundred']:.0f} are right" in text
    assert "Stop when a label is not worth as many" in text
    tiles = dict(zip(page.locator(".tiles dt").all_inner_texts(), page.locator(".tiles dd").all_inner_texts()))
    (missing,) = [caption for caption in tiles if "labels still missing" in caption]
    said = stats["still_missing"]["text"].replace(")", "").split(" (")
    assert tiles[missing] == said[0]
    assert all(part in missing for part in said[1:])


def test_the_counts_are_not_cut_off(page):
    right = page.locator(".counts").evaluate("node => node.scrollWidth + node.getBoundingClientRect().left")
    assert "right in the next" in page.locator(".counts").inner_text()
    assert right <= 1280


def test_retraining_shows_the_gain(page, server, folder):
    press(page, "a")
    page.goto(server.url + "#export")
    page.get_by_role("button", name="Retrain on the reviewed labels").click()
    page.wait_for_selector(".gains tbody tr", timeout=60_000)
    rows = page.locator(".gains tbody tr").all_inner_texts()
    assert rows[0].startswith("P@1 on held-out documents")
    assert "points" in rows[0] or "none" in rows[0]


@pytest.mark.parametrize("view", ["review", "progress", "export", "try"])
def test_a_narrow_screen_needs_no_sideways_scrolling(chromium, server, view):
    with a_page(chromium, 360, 740, color_scheme="dark") as (page, _):
        page.goto(f"{server.url}#{view}")
        page.wait_for_load_state("networkidle")
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        if view == "review":
            page.wait_for_selector(".suggested-label:not(:empty)")
            page.locator("summary").first.click()
            assert page.evaluate("document.documentElement.scrollWidth") <= 360
            box = page.locator("[data-does=accept]").bounding_box()
            assert box["height"] >= 44
            assert box["y"] + box["height"] <= 740


CONTRAST = """() => {
  const parse = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((v) => v / 255)
    .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = (node) => {
    for (; node; node = node.parentElement) {
      const colour = parse(getComputedStyle(node).backgroundColor);
      if (colour.length < 4 || colour[3] > 0.99) return colour;
    }
    return [255, 255, 255];
  };
  const poor = [];
  for (const node of document.querySelectorAll("body *")) {
    const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim());
    const aside = ":disabled, svg, option, .visually-hidden, .skip-link";
    if (!own || !node.checkVisibility() || node.closest(aside)) continue;
    const [a, b] = [light(parse(getComputedStyle(node).color)), light(ground(node))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) poor.push([node.textContent.slice(0, 30), node.className, ratio]);
  }
  return poor;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_enough_contrast(chromium, server, scheme):
    with a_page(chromium, color_scheme=scheme, reduced_motion="reduce") as (page, _):
        for view in ("review", "progress", "export", "try"):
            page.goto(f"{server.url}#{view}")
            page.wait_for_load_state("networkidle")
            page.wait_for_timeout(100)
            assert page.evaluate(CONTRAST) == []


def test_a_token_is_asked_for_once(chromium, folder, tmp_path):
    for name in ("posts.csv", "model"):
        (tmp_path / name).symlink_to(folder / name)
    server = Server(tmp_path, "--token", TOKEN)
    server.start()
    try:
        assert server.get("review/state").status_code == 401
        with a_page(chromium) as (page, _):
            page.goto(server.url)
            page.wait_for_selector("#token input")
            for _ in range(3):
                page.keyboard.press("Escape")
            for wrong, said in (("schl\u00fcssel", "plain ASCII"), ("wrong", "The token is wrong.")):
                page.locator("#token input").fill(wrong)
                page.keyboard.press("Enter")
                wait_for_text(page, "#token", said)
                assert page.evaluate("sessionStorage.length") == 0
            page.locator("#token input").fill(TOKEN)
            page.keyboard.press("Enter")
            page.wait_for_selector("nav a[aria-current=page]")
            page.reload()
            page.wait_for_selector("nav a[aria-current=page]")
            assert not page.locator("#token").is_visible()
            page.wait_for_selector(".notice .working, .suggested-label:not(:empty)")
    finally:
        server.stop()


def test_reviews_of_another_file_are_refused_in_one_line(server, folder):
    other = folder / "other.csv"
    other.write_text((folder / "posts.csv").read_text().replace("Post 0 ", "Post zero "))
    words = ["serve", folder / "model", "--port", 0, "--data", other, "--reviews", folder / "reviews.sqlite"]
    done = subprocess.run(labelgap(*words), capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr.startswith("labelgap: ")
    assert (
        "holds reviews of another data file; restore that data file; another --reviews FILE starts with no verdicts."
        in done.stderr
    )
    assert done.stderr.count("\n") == 1


# --- lists that change while somebody works through them ------------------------------------------------------------

WALK = """async ([choice, verdict]) => {
  const { SuggestionQueue } = await import("/page/queue.js");
  const { post } = await import("/page/api.js");
  const { newEntryId } = await import("/page/outbox.js");
  const cards = new SuggestionQueue(choice), seen = [], asked = window.fetch;
  let requests = 0;
  window.fetch = (...given) => {
    if (String(given[0]).startsWith("/review/queue") && ++requests > 60) throw new Error("it asks without end");
    return asked(...given);
  };
  try {
    for (let card = await cards.loadCurrent(); card; card = await cards.loadCurrent()) {
      seen.push([card.row, card.label]);
      if (verdict) await post("/review/verdicts", { key: newEntryId(), row: card.row, label: card.label, verdict });
      if (verdict) card.verdict = verdict;
      if (seen.length === 1 && window.meanwhile) await window.meanwhile(cards, post, newEntryId);
      cards.move(1);
    }
  } finally { window.fetch = asked; }
  return seen;
}"""


NUMBERS = """wanted => [...document.querySelectorAll('.counts strong')]
  .every((one, i) => Number(one.textContent.replace(',', '')) === wanted[i])"""


def choice_of(**changes):
    plain = {"kind": "missing", "group": "none", "order": "probability", "status": "open", "label": "", "least": 0.01}
    return plain | changes


def listed(server, **changes):
    """Return every cell of a choice, in order."""
    query = {name: value for name, value in choice_of(**changes).items() if value != ""} | {"limit": 100}
    found = []
    while page := server.get("review/queue", **query).json()["suggestions"]:
        found += [[one["row"], one["label"]] for one in page]
        query |= {"after_row": found[-1][0], "after_label": found[-1][1]}
    return found


def send(server, verdict, cell):
    body = {"key": uuid.uuid4().hex, "row": cell[0], "label": cell[1], "verdict": verdict}
    assert httpx.post(server.url + "review/verdicts", json=body, timeout=30).status_code == 200


def let_the_queue_learn(server):
    """Send as many verdicts as the queue waits for; the next few do not change its order."""
    learned = server.get("review/state").json()["learned"]
    new = [one for one in log_of(server) if one["id"] > learned and one["verdict"] != "skip"]
    for cell in listed(server)[len(new) - LEARN_EVERY :]:
        send(server, "reject", cell)
    wait_until_learned(server, learned)


def wait_until_learned(server, learned):
    end = time.monotonic() + 60
    while server.get("review/state").json()["learned"] == learned:
        assert time.monotonic() < end, "it has not learned"
        time.sleep(0.05)


def shown_counts(page):
    return [int(text.replace(",", "")) for text in page.locator(".counts strong").all_inner_texts()]


def counts_of(server, least):
    counts = server.get("review/state", least=least).json()["counts"]
    return [counts["accepted"] + counts["rejected"] + counts["skipped"], counts["missing"]["open"]]


def test_skipped_cards_that_are_skipped_again_come_to_an_end(page, server):
    for cell in listed(server)[:45]:
        send(server, "skip", cell)
    skipped = listed(server, status="skipped")
    assert len(skipped) >= 45
    assert page.evaluate(WALK, [choice_of(status="skipped"), "skip"]) == skipped


@pytest.mark.parametrize("group", ["none", "document"])
def test_no_card_is_passed_over_when_others_decide_and_undo(page, server, group):
    let_the_queue_learn(server)
    cards = listed(server, group=group)
    assert len(cards) > 60
    gone, back = cards[2:12], cards[1]
    send(server, "reject", back)  # it is not in the list until somebody takes that back
    page.evaluate(
        """gone => { window.meanwhile = async (cards, post, newEntryId) => {
          await post("/review/undo", { key: newEntryId() });
          for (const [row, label] of gone)
            await post("/review/verdicts", { key: newEntryId(), row, label, verdict: "accept" });
          for (const row of [0, 1, 2]) cards.goTo({ row, label: `outside ${row}`, kind: "doubtful", verdict: null });
        }; }""",
        gone,
    )
    seen = page.evaluate(WALK, [choice_of(group=group), None])
    assert seen[:4] == [cards[0], [1, "outside 1"], [0, "outside 0"], cards[0]]  # those outside the filter come first
    assert seen[3:] == [cards[0], *cards[2:], back]


def test_numbers_follow_the_server_where_a_skipped_card_is_decided(page, server):
    let_the_queue_learn(server)
    send(server, "skip", listed(server)[0])
    page.get_by_label("Show").select_option("skipped")
    page.wait_for_selector(".workspace[aria-busy=false]")
    before = counts_of(server, 0.01)
    page.wait_for_function(NUMBERS, arg=before)
    with page.expect_response(lambda answer: "/review/state" in answer.url):
        press(page, "a")
    assert counts_of(server, 0.01) == before  # it is reviewed as it was, and was not open
    page.wait_for_function(NUMBERS, arg=before)


def test_a_verdict_that_is_refused_stays_listed_until_it_is_stored(page, server):
    refusal = {"error": {"code": "no_suggestion", "message": "no such suggestion"}}
    load_with_answers(page, "**/review/verdicts", lambda route: route.fulfill(status=404, json=refusal))
    row, label = shown_card(page)
    before, n_entries = shown_counts(page), len(log_of(server))
    assert before == counts_of(server, 0.1)
    with page.expect_response(lambda answer: "/review/state" in answer.url):
        page.keyboard.press("a")
    page.wait_for_function(NUMBERS, arg=before)
    assert "Not stored: no such suggestion" in page.inner_text(".last")
    listed_text = f"Not stored: “Added: {label}.” in row {row}. no such suggestion"
    page.evaluate("location.hash = 'export'")
    page.get_by_role("button", name="Reviewed labels", exact=True).wait_for()
    for place in ("#unsaved", "#alert"):
        assert listed_text in page.text_content(place)
    assert page.locator("#unsaved").is_visible()
    assert page.text_content("#saving") == "1 verdict not stored"
    assert page.evaluate(CONTRAST) == []
    page.unroute("**/review/verdicts")
    page.get_by_role("button", name="Try again").click()
    page.wait_for_selector("#saving.saved")
    assert not page.locator("#unsaved").is_visible()
    assert [(one["row"], one["label"], one["verdict"]) for one in log_of(server)[n_entries:]] == [
        (row, label, "accept")
    ]


UNGUARDED = "addEventListener('beforeunload', (event) => event.stopImmediatePropagation(), true)"
FULL_STORAGE = """() => {
  Storage.prototype.setItem = () => { throw new DOMException("full", "QuotaExceededError"); };
}"""
FORGET = """() => sessionStorage.setItem("labelgap-verdicts",
  JSON.stringify({ ...JSON.parse(sessionStorage.getItem("labelgap-verdicts")), entryIds: ["never-stored"] }))"""


def test_a_verdict_that_waits_survives_a_reload_and_an_unknown_one_undoes_no_other(page, server):
    page.add_init_script(UNGUARDED)  # as after a crash, nobody is asked whether to leave
    load_with_answers(page, "**/review/verdicts", lambda route: route.fulfill(status=404, json={"error": NO_ROUTE}))
    card, n_entries = shown_card(page), len(log_of(server))
    page.keyboard.press("a")
    page.wait_for_selector("#saving.failing")
    wait_for_text(page, "#unsaved", "Not saved yet: The server was started without --data")
    page.unroute("**/review/verdicts")
    page.reload()
    page.wait_for_selector("#saving.saved")
    entries = log_of(server)[n_entries:]
    assert [(one["row"], one["label"], one["verdict"]) for one in entries] == [(*card, "accept")]
    page.evaluate(FORGET)
    page.reload()
    shown_card(page)
    page.keyboard.press("u")
    wait_for_text(page, ".last", "nothing was undone")
    assert log_of(server)[n_entries:] == entries


def test_a_verdict_names_its_data_and_is_sent_when_the_storage_is_full(page, server):
    changed = {}
    load_with_answers(page, "**/review/state*", lambda route: route.fulfill(json=route.fetch().json() | changed))
    page.evaluate(FULL_STORAGE)
    card = shown_card(page)
    with page.expect_request("**/review/verdicts") as waiting:
        press(page, "a")
    assert waiting.value.post_data_json["data_id"] == server.get("review/state").json()["data_id"]
    last = log_of(server)[-1]
    assert (last["row"], last["label"]) == card
    changed["data_id"] = "of other data"
    page.keyboard.press("g")
    wait_for_text(page, ".notice", "The server was restarted with other data.")


@pytest.mark.parametrize("path", ["state*", "queue?*", "documents/*", "documents/*/reasons?*"])
def test_a_card_that_cannot_be_fetched_is_said_and_asked_for_again(page, path):
    failing, failure = f"**/review/{path}", {"error": {"message": "out of order"}}
    load_with_answers(page, failing, lambda route: route.fulfill(status=500, json=failure))
    page.wait_for_selector("text=The server did not answer: out of order")
    page.unroute(failing)
    page.get_by_role("button", name="Try again").click()
    assert shown_card(page)


def test_only_a_card_whose_document_is_shown_is_decided(page, server):
    cards = listed(server, least=0.1)
    for cell in cards[1:]:
        if cell[0] != cards[0][0]:
            break
        send(server, "reject", cell)  # so that the second card has another document
    known, held = [f"{server.url}review/documents/{cards[0][0]}"], []
    load_with_answers(
        page,
        "**/review/documents/*",
        lambda route: held.append(route) if known and route.request.url not in known else route.continue_(),
    )
    first, before = shown_card(page), len(log_of(server))
    page.keyboard.press("a")
    wait_for_text(page, ".text", "Loading")
    asked = page.text_content(".suggested-label")
    for key in ("a", "ArrowLeft", "s"):
        page.keyboard.press(key)
    page.evaluate("document.querySelector('[data-does=accept]').click()")
    assert page.locator("[aria-disabled=true]").count() == 3
    assert page.text_content(".suggested-label") == asked
    known.clear()
    for route in held:
        route.continue_()
    second = shown_card(page)
    assert page.locator("[aria-disabled=true]").count() == 0
    press(page, "r")
    log = [(one["row"], one["label"], one["verdict"]) for one in log_of(server)[before:]]
    assert log == [(*first, "accept"), (*second, "reject")]


def test_the_end_names_cards_that_were_passed_over(page, server):
    by_label = {}
    for cell in listed(server, least=0.1):
        by_label.setdefault(cell[1], []).append(cell)
    label, cells = min(by_label.items(), key=lambda one: (len(one[1]) < 2, one[0] == HOSTILE, len(one[1])))
    for cell in cells[2:]:
        send(server, "reject", cell)
    page.keyboard.press("/")
    page.keyboard.type(label)
    page.keyboard.press("Enter")
    page.wait_for_function("name => document.querySelector('.suggested-label').textContent === name", arg=label)
    passed = shown_card(page)
    press(page, "n")
    shown_card(page)
    page.keyboard.press("r")
    wait_for_text(page, ".notice", "1 suggestion has no verdict.")
    page.get_by_role("button", name="Start over").click()
    assert shown_card(page) == passed
    page.keyboard.press("r")
    wait_for_text(page, ".notice", "Done. No suggestions are left for these filters.")
    assert page.get_by_role("button", name="Start over").count() == 0


@pytest.mark.parametrize(("status", "body"), [(408, {}), (429, {}), (403, "a proxy")])
def test_a_verdict_that_was_not_refused_for_good_is_sent_again(page, server, status, body):
    refusals = iter([status])

    def answer(route):
        refused = next(refusals, None)
        route.continue_() if refused is None else route.fulfill(status=refused, json=body)

    load_with_answers(page, "**/review/verdicts", answer)
    card = shown_card(page)
    with page.expect_response(lambda found: found.url.endswith("/review/verdicts") and found.status == 200):
        page.keyboard.press("a")
    page.wait_for_selector("#saving.saved")
    last = log_of(server)[-1]
    assert (last["row"], last["label"], last["verdict"]) == (*card, "accept")
    assert next(refusals, None) is None  # it was refused once
