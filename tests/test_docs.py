"""The documentation: what its pages print works; they build without a warning and load nothing from outside."""

from __future__ import annotations

import doctest
import re
import subprocess
import sys
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import labelgap
from docs_runner import FENCE, find_blocks, run_page, split_commands
from labelgap.methods import list_methods

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
MADE = (DOCS / "_build", DOCS / "gallery" / "pages")  # by `make docs`; a fresh checkout has none of it
PAGES = sorted(path for path in DOCS.rglob("*.md") if not set(MADE) & set(path.parents))
LANGUAGES = {"python", "sh", "text", ""}
INCLUDE = re.compile(r"```{include} (\S+)\n(.*?)```", re.DOTALL)

names = [str(path.relative_to(DOCS)) for path in PAGES]


@pytest.mark.parametrize("page", PAGES, ids=names)
def test_what_a_page_prints_works(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LABELGAP_DATA", raising=False)
    run_page(page)


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ("```sh\nlabelgap fit nothing.csv --output model\n```", "There is no file nothing.csv"),
        ("```sh\nmake docs\n```", "mark others as text: make docs"),
        ("```python\nassert 1 + 1 == 3, 'sum'\n```", "sum"),
    ],
)
def test_what_does_not_work_is_found(block, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = tmp_path / "page.md"
    page.write_text(f"# A page\n\n{block}\n")
    with pytest.raises(AssertionError, match=message):
        run_page(page)


@pytest.mark.parametrize("page", PAGES, ids=names)
def test_every_block_says_whether_it_is_run(page):
    for block in find_blocks(page):
        assert block.language.startswith("{") or block.language in LANGUAGES, f"line {block.line}: {block.language}"
        if block.language == "sh":
            assert {words[0] for words in split_commands(block.text)} == {"labelgap"}, f"line {block.line}"


RUN_ELSEWHERE = {"../CONTRIBUTING.md"}  # tests/test_losses.py runs its example


def test_what_pages_include_prints_no_code():
    """Blocks of an included file would not be run."""
    included = [(page, *found) for page in PAGES for found in INCLUDE.findall(page.read_text(encoding="utf-8"))]
    assert included
    for page, target, options in included:
        if target in RUN_ELSEWHERE:
            continue
        text = (page.parent / target).read_text(encoding="utf-8")
        for option, side in (("start-after", 1), ("end-before", 0)):
            mark = re.search(rf':{option}: "(.*)"', options)
            text = text.split(mark[1], 1)[side] if mark else text
        assert not re.search(r"```(python|sh)\n", text), f"{page} includes code of {target}"


@pytest.mark.parametrize("page", PAGES, ids=names)
def test_links_lead_somewhere_in_a_fresh_checkout(page):
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", FENCE.sub("", page.read_text(encoding="utf-8"))):
        there = (page.parent / target).resolve()
        assert urlsplit(target).scheme or (there.exists() and not set(MADE) & set(there.parents)), target


def test_the_gallery_lists_its_scripts():
    shown = (DOCS / "gallery" / "README.md").read_text(encoding="utf-8")
    scripts = [path for path in (DOCS / "gallery").glob("*.py") if path.stem != "build"]
    assert scripts
    for path in scripts:
        title = path.read_text(encoding="utf-8").split("\n", 1)[0].removeprefix('"""')
        assert f"[{title}]({path.name})" in shown


def test_every_method_has_a_page_with_a_picture():
    for name in list_methods():
        page = (DOCS / "methods" / f"{name}.md").read_text(encoding="utf-8")
        assert page.startswith(f"# {name}\n\n<!-- generated: facts {name} -->")
        assert "**Use it if**" in page
        assert "**Look elsewhere if**" in page
        assert f"\n{name}\n" in (DOCS / "methods" / "index.md").read_text(encoding="utf-8")
        assert name == "Tagger" or (DOCS / "pictures" / "methods" / f"{name}.png").exists()


def test_the_reference_names_everything_that_is_exported():
    pages = [*(DOCS / "api").glob("*.md"), *(DOCS / "methods").glob("*.md")]
    reference = "".join(page.read_text(encoding="utf-8") for page in pages)
    listed = re.findall(r"[\w.]+", " ".join(re.findall(r"generated: (?:api|class) (.*?)-->", reference, re.DOTALL)))
    assert len(listed) == len(set(listed))
    assert set(labelgap.__all__) - {"__version__"} <= set(listed)


@pytest.mark.parametrize("extension", sorted((DOCS / "_ext").glob("*.py")), ids=lambda path: path.stem)
def test_extensions_do_what_they_say(extension, monkeypatch):
    monkeypatch.syspath_prepend(DOCS / "_ext")
    found = doctest.testmod(import_module(extension.stem))
    assert found.attempted > 0
    assert found.failed == 0


# --- the built pages -----------------------------------------------------------------------------------------------

LOADS = {"script": "src", "img": "src", "link": "href", "source": "src", "iframe": "src", "object": "data"}


class Links(HTMLParser):
    """What a page loads by itself, what it leads to, and the places in it."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.leads: list[str] = []
        self.places: set[str] = set()
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        if values.get(LOADS.get(tag, "")):
            self.loads.append(values[LOADS[tag]])
        if tag == "a" and values.get("href"):
            self.leads.append(values["href"])
        self.places.add(values.get("id", ""))


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    for package in ("sphinx", "furo", "myst_parser", "matplotlib"):
        pytest.importorskip(package, reason=f"{package} is not installed; labelgap[docs] brings it")
    folder = tmp_path_factory.mktemp("docs")
    command = f"-m sphinx -W --keep-going -q -d {folder / 'trees'} {DOCS} {folder / 'html'}".split()
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return {page: Links(page) for page in (folder / "html").rglob("*.html")}


def test_it_builds_without_a_warning(built):
    assert {"index.html", "walk.html", "choosing.html", "figures.html", "LEML.html"} <= {page.name for page in built}


def test_commands_and_names_are_in_the_built_pages(built):
    text = {page.name: page.read_text(encoding="utf-8") for page in built}
    for command in ("fit", "audit", "data get", "reproduce"):
        assert f"labelgap {command}" in text["commands.html"]
    places = set().union(*(links.places for links in built.values()))
    assert {f"labelgap.{name}" for name in labelgap.__all__ if name != "__version__"} <= places


def test_nothing_is_loaded_from_outside(built):
    for page, links in built.items():
        for target in links.loads:
            parts = urlsplit(target)
            assert not parts.netloc, f"{page.name} loads {target}"
            assert parts.scheme == "data" or not parts.path or (page.parent / unquote(parts.path)).exists(), target


def test_styles_load_nothing_from_outside(built):
    root = next(page.parent for page in built if page.name == "genindex.html")
    for style in root.rglob("*.css"):
        found = re.findall(r"(?:url\(|@import\s+)[\s\"\']*([^\s\"\')]+)", style.read_text(encoding="utf-8"))
        assert [target for target in found if urlsplit(target).netloc] == [], style.name


def test_links_within_resolve(built):
    for page, links in built.items():
        for target in links.leads:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                continue
            there = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            assert there.exists(), f"{page.name} leads to {target}"
            if parts.fragment and there in built:
                assert unquote(parts.fragment) in built[there].places, f"{page.name} leads to {target}"
