"""Virtual environments and built packages, for checks that must not use the environment they run in."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def start(*command: str | Path, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run a command without this project on its path."""
    hidden = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"}
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    words = list(map(str, command))
    return subprocess.run(words, cwd=cwd, env=environment, capture_output=True, text=True, check=False)


def run(*command: str | Path, cwd: Path = ROOT) -> str:
    """Run a command in the same way and return what it prints; exit if it fails."""
    done = start(*command, cwd=cwd)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def make_environment(folder: Path, python: str = sys.executable) -> Path:
    """Make a virtual environment and return its Python."""
    run(python, "-m", "venv", folder)
    return folder / "bin" / "python"


def build_packages(folder: Path) -> tuple[Path, Path]:
    """Build the source package, and the wheel from it; return both paths."""
    python = make_environment(folder / "builder")
    run(python, "-m", "pip", "install", "--quiet", "hatchling")
    dist = folder / "dist"
    run(python, "-m", "hatchling", "build", "--target", "sdist", "--directory", dist)
    (source,) = dist.glob("*.tar.gz")
    run(python, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", dist, source)
    (wheel,) = dist.glob("*.whl")
    return source, wheel
