"""Code that a page prints, run as it is printed: Python in one namespace, commands of labelgap in the same folder."""

from __future__ import annotations

import re
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.testing import CliRunner

from labelgap.cli import app

FENCE = re.compile(r"^(`{3,})([^\n]*)\n(.*?)^\1[ ]*$", re.MULTILINE | re.DOTALL)
AFTER = re.compile(r"<!-- after: (\S+) (.+?) -->")
DEFAULT_PORT = 8000


class Block(NamedTuple):
    """A fenced block of a page: what follows the fence, its text, and the number of its first line."""

    language: str
    text: str
    line: int


def blocks(path: Path) -> list[Block]:
    """Return the fenced blocks of a page."""
    page = path.read_text(encoding="utf-8")
    return [
        Block(found[2].strip(), found[3], page.count("\n", 0, found.start(3)) + 1) for found in FENCE.finditer(page)
    ]


def commands(text: str) -> list[list[str]]:
    r"""Return the words of each command of a block; a backslash joins lines, # begins a comment.

    >>> commands("labelgap fit a.csv \\\n  --tags 'my tags'  # learn\n# done")
    [['labelgap', 'fit', 'a.csv', '--tags', 'my tags']]
    """
    lines = text.replace("\\\n", " ").splitlines()
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def section(path: Path, title: str) -> list[Block]:
    """Return the blocks below one heading of a page, up to the next heading."""
    lines = path.read_text(encoding="utf-8").splitlines()
    begin = lines.index(f"## {title}")
    end = next((i for i, line in enumerate(lines) if i > begin and line.startswith("## ")), len(lines))
    return [block for block in blocks(path) if begin < block.line <= end]


def steps(path: Path) -> list[tuple[Path, Block]]:
    """Return the blocks of a page, after those of a section of another page that it says it goes on from."""
    found = AFTER.search(path.read_text(encoding="utf-8"))
    other = path.parent / found[1] if found else path
    before = [(other, block) for block in section(other, found[2])] if found else []
    return before + [(path, block) for block in blocks(path)]


def run_page(path: Path) -> dict[str, Any]:
    """Run the Python and the commands of a page in order, in the current folder; return the names that it made."""
    names: dict[str, Any] = {"__name__": "__main__"}
    with Shell() as shell:
        for page, block in steps(path):
            if block.language == "python":
                run_python(page, block._replace(text=shell.readdressed(block.text)), names)
            elif block.language == "sh":
                shell.run(block.text)
    return names


def run_python(page: Path, block: Block, names: dict[str, Any]) -> None:
    """Run a block of Python; a traceback has the lines of the page."""
    exec(compile("\n" * (block.line - 1) + block.text, str(page), "exec"), names)


class Shell:
    """Runs commands of labelgap here, and servers beside, until it is closed.

    A server gets a free port instead of the printed one, which may be somebody else's. That is the only thing that is
    not as it is printed.
    """

    def __init__(self) -> None:
        self._servers, self._ports = ExitStack(), dict[int, int]()

    def __enter__(self) -> Shell:
        return self

    def __exit__(self, *error: Any) -> None:
        self._servers.__exit__(*error)

    def run(self, text: str) -> None:
        """Run the commands of a block, one after the other."""
        for words in commands(text):
            assert words[0] == "labelgap", f"only labelgap is run, mark other commands as text: {shlex.join(words)}"
            if words[1] == "serve":
                self._serve(words[1:])
            else:
                shown = CliRunner().invoke(app, words[1:], env={"COLUMNS": "160"})
                assert shown.exit_code == 0, f"{shlex.join(words)}\n{shown.output}"

    def readdressed(self, text: str) -> str:
        """Return a text in which printed addresses are those of the servers."""
        for printed, port in self._ports.items():
            text = text.replace(f"127.0.0.1:{printed}", f"127.0.0.1:{port}")
        return text

    def _serve(self, words: list[str]) -> None:
        for package in ("fastapi", "uvicorn"):
            pytest.importorskip(package, reason=f"{package} is not installed; labelgap[serve] brings it")
        printed = int(words[words.index("--port") + 1]) if "--port" in words else DEFAULT_PORT
        self._ports[printed] = free_port()
        self._servers.enter_context(serving([*words, "--port", str(self._ports[printed])], self._ports[printed]))


def free_port() -> int:
    """Return a port at which nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def serving(words: list[str], port: int) -> Iterator[None]:
    """Run a server in a process of its own, from when it answers until the end."""
    with open(f"server-{port}.log", "w+", encoding="utf-8") as log:
        server = subprocess.Popen([sys.executable, "-m", "labelgap", *words], stdout=log, stderr=log)
        try:
            assert answers(port, server), Path(log.name).read_text(encoding="utf-8")
            yield
            assert server.poll() is None, Path(log.name).read_text(encoding="utf-8")
        finally:
            end(server)


def answers(port: int, server: subprocess.Popen, seconds: float = 60) -> bool:
    """Wait until something answers at a port; False if the server ends before, or does not begin."""
    until = time.monotonic() + seconds
    while time.monotonic() < until and server.poll() is None:
        with socket.socket() as probe:
            probe.settimeout(1)
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return True
        time.sleep(0.1)
    return False


def end(server: subprocess.Popen, seconds: float = 20) -> None:
    """Ask a server to stop, and see to it."""
    server.terminate()
    try:
        server.wait(seconds)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()
