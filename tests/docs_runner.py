"""Runner of the code on a documentation page: Python in one namespace, commands of labelgap in the same folder."""

from __future__ import annotations

import re
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.testing import CliRunner

from labelgap.cli import app

FENCE = re.compile(r"^(`{3,})([^\n]*)\n(.*?)^\1[ ]*$", re.MULTILINE | re.DOTALL)
AFTER = re.compile(r"<!-- after: (\S+) (.+?) -->")
SECTION_OR_NEED = re.compile(r"^## |^<!-- needs: ([\w.]+) -->", re.MULTILINE)
DEFAULT_PORT = 8000


class Block(NamedTuple):
    """A fenced block of a page: its language, its text, its first line, and the package that it needs, if any."""

    language: str
    text: str
    line: int
    needs: str = ""


def find_blocks(path: Path) -> list[Block]:
    """Return the fenced blocks of a page."""
    page = path.read_text(encoding="utf-8")
    return [
        Block(match[2].strip(), match[3], page.count("\n", 0, match.start(3)) + 1, find_need(page, match.start()))
        for match in FENCE.finditer(page)
    ]


def find_need(page: str, position: int) -> str:
    r"""Return the package that ``<!-- needs: package -->`` names in the same section before a position, or "".

    >>> page = "## A\n<!-- needs: polars -->\n…\n## B\n…"
    >>> find_need(page, page.index("## B")), find_need(page, len(page))
    ('polars', '')
    """
    marks = SECTION_OR_NEED.findall(page, 0, position)
    return marks[-1] if marks else ""


def split_commands(text: str) -> list[list[str]]:
    r"""Return the words of each command of a block; a backslash joins lines, # starts a comment.

    >>> split_commands("labelgap fit a.csv \\\n  --tags 'my tags'  # learn\n# done")
    [['labelgap', 'fit', 'a.csv', '--tags', 'my tags']]
    """
    lines = text.replace("\\\n", " ").splitlines()
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def find_section_blocks(path: Path, title: str) -> list[Block]:
    """Return the blocks between a heading of a page and the next heading."""
    lines = path.read_text(encoding="utf-8").splitlines()
    begin = lines.index(f"## {title}")
    end = next((i for i, line in enumerate(lines) if i > begin and line.startswith("## ")), len(lines))
    return [block for block in find_blocks(path) if begin < block.line <= end]


def list_steps(path: Path) -> list[tuple[Path, Block]]:
    """Return the blocks of a page, after those of the section of another page that ``<!-- after: -->`` names."""
    match = AFTER.search(path.read_text(encoding="utf-8"))
    other = path.parent / match[1] if match else path
    before = [(other, block) for block in find_section_blocks(other, match[2])] if match else []
    return before + [(path, block) for block in find_blocks(path)]


def run_page(path: Path) -> dict[str, Any]:
    """Run the Python and the commands of a page in order, in the current folder; return the Python names.

    If a section needs a package that is not installed, the rest of the page runs, and then the test is skipped.
    """
    names: dict[str, Any] = {"__name__": "__main__"}
    absent = set()
    with Shell() as shell:
        for page, block in list_steps(path):
            if block.needs and find_spec(block.needs) is None:
                absent.add(block.needs)
            elif block.language == "python":
                run_python(page, block._replace(text=shell.replace_addresses(block.text)), names)
            elif block.language == "sh":
                shell.run(block.text)
    if absent:
        pytest.skip(f"{path.name}: all ran but what needs {', '.join(sorted(absent))}, which is not installed")
    return names


def run_python(page: Path, block: Block, names: dict[str, Any]) -> None:
    """Run a block of Python; tracebacks have the line numbers of the page."""
    exec(compile("\n" * (block.line - 1) + block.text, str(page), "exec"), names)


class Shell:
    """Context manager that runs commands of labelgap in this process, and servers in processes of their own.

    A server gets a free port in place of the printed one, which may be in use. Nothing else differs from the page.
    """

    def __init__(self) -> None:
        self._servers, self._ports = ExitStack(), dict[int, int]()

    def __enter__(self) -> Shell:
        return self

    def __exit__(self, *error: Any) -> None:
        self._servers.__exit__(*error)

    def run(self, text: str) -> None:
        """Run the commands of a block in order."""
        for words in split_commands(text):
            assert words[0] == "labelgap", f"only labelgap commands run; mark others as text: {shlex.join(words)}"
            if words[1] == "serve":
                self._serve(words[1:])
            else:
                result = CliRunner().invoke(app, words[1:], env={"COLUMNS": "160"})
                assert result.exit_code == 0, f"{shlex.join(words)}\n{result.output}"

    def replace_addresses(self, text: str) -> str:
        """Return the text with the addresses of the running servers."""
        for printed_port, port in self._ports.items():
            text = text.replace(f"127.0.0.1:{printed_port}", f"127.0.0.1:{port}")
        return text

    def _serve(self, words: list[str]) -> None:
        for package in ("fastapi", "uvicorn"):
            pytest.importorskip(package, reason=f"{package} is not installed; install labelgap[serve]")
        port = find_free_port()
        words = words if "--port" in words else [*words, "--port", str(DEFAULT_PORT)]
        place = words.index("--port") + 1
        self._ports[int(words[place])] = port
        self._servers.enter_context(run_server([*words[:place], str(port), *words[place + 1 :]], port))


def find_free_port() -> int:
    """Return a port on which nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def run_server(words: list[str], port: int) -> Iterator[None]:
    """Run a server in another process during the block, which starts when the server answers."""
    with open(f"server-{port}.log", "w+", encoding="utf-8") as log:
        server = subprocess.Popen([sys.executable, "-m", "labelgap", *words], stdout=log, stderr=log)
        try:
            assert wait_for_answer(port, server), Path(log.name).read_text(encoding="utf-8")
            yield
            assert server.poll() is None, Path(log.name).read_text(encoding="utf-8")
        finally:
            stop(server)


def wait_for_answer(port: int, server: subprocess.Popen, seconds: float = 60) -> bool:
    """Wait until something answers at the port; return False if the server ends or the time is over first."""
    until = time.monotonic() + seconds
    while time.monotonic() < until and server.poll() is None:
        with socket.socket() as probe:
            probe.settimeout(1)
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return True
        time.sleep(0.1)
    return False


def stop(server: subprocess.Popen, seconds: float = 20) -> None:
    """Terminate a server, or kill it if it does not end in time."""
    server.terminate()
    try:
        server.wait(seconds)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()
