"""Run tests with the lowest and with the newest versions of the dependencies, on several versions of Python.

The lowest versions are the ones that pyproject.toml names, or the first ones with a wheel for a newer Python. A
dependency of a dependency is as new as these allow.

    python -m tools.check_versions [--python python3.11 python3.12] [--kinds lowest newest] [--tests tests/test_x.py]
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import tempfile
import time
import tomllib
from pathlib import Path

from tools.environments import ROOT, build_packages, make_environment, run, start

TESTS = [f"tests/test_{name}.py" for name in ("leml", "one_class", "tagger", "metrics", "persistence", "frames")]
TOOLS = ["pytest", "hypothesis", "pandas", "pyarrow", "array-api-strict", "matplotlib", "httpx"]
PYTHONS = ["python3.11", "python3.12", "python3.13", "python3.14"]  # those that are installed are used
SHOWN = ["numpy", "scipy", "numba", "scikit-learn", "typer", "rich"]


def list_lowest(tag: str) -> list[str]:
    """Return the dependencies at their lowest versions that can be installed on a Python, as ``name==version``."""
    with open(ROOT / "pyproject.toml", "rb") as file:
        dependencies = tomllib.load(file)["project"]["dependencies"]
    floors = dict(re.match(r"([\w-]+)>=([\w.]+)", text).groups() for text in dependencies)  # type: ignore[union-attr]
    return [f"{name}=={FIRST_WHEEL.get((tag, name), floor)}" for name, floor in floors.items()]


# The first versions with wheels for a Python that is newer than the lowest version.
FIRST_WHEEL = {
    ("3.13", "numpy"): "2.1.0",
    ("3.13", "scipy"): "1.14.1",
    ("3.13", "numba"): "0.61.0",
    ("3.14", "numpy"): "2.3.2",
    ("3.14", "scipy"): "1.16.1",
    ("3.14", "numba"): "0.63.0",
    ("3.14", "scikit-learn"): "1.7.2",
}


def try_versions(wheel: Path, python: str, kind: str, tests: list[str]) -> bool:
    """Print a row of the table: Python, kind, versions and what the tests say; return whether they pass."""
    with tempfile.TemporaryDirectory() as folder:
        interpreter = make_environment(Path(folder) / "env", python)
        tag = run(interpreter, "-c", "import sys; print('%d.%d' % sys.version_info[:2])").strip()
        pins = list_lowest(tag) if kind == "lowest" else []
        run(interpreter, "-m", "pip", "install", "--quiet", "--prefer-binary", *pins, *TOOLS, wheel)
        versions = run(interpreter, "-m", "pip", "list", "--format=freeze").lower()
        shown = ", ".join(line.replace("==", " ") for line in versions.split() if line.split("==")[0] in SHOWN)
        passed, summary = run_tests(interpreter, tests)
    print(f"| {tag} | {kind} | {shown} | {summary} |", flush=True)
    return passed


def run_tests(python: Path, tests: list[str]) -> tuple[bool, str]:
    """Run tests against the wheel, print what fails, and return whether all pass, and the last line of pytest."""
    # Deprecations in other versions of other packages are not errors here.
    begin = time.monotonic()
    done = start(python, "-m", "pytest", "--quick", "-q", "-W", "default", "-p", "no:cacheprovider", *tests)
    lines = done.stdout.strip().splitlines() or [done.stderr.strip()]
    print("\n".join(line for line in lines if line.startswith(("FAILED", "ERROR"))), file=sys.stderr, flush=True)
    return done.returncode == 0, f"{lines[-1].strip('= ').partition(' in ')[0]} ({time.monotonic() - begin:.0f} s)"


def main() -> None:
    """Print a table with a row for each Python and kind."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", nargs="+", default=list(filter(shutil.which, PYTHONS)))
    parser.add_argument("--kinds", nargs="+", choices=["lowest", "newest"], default=["lowest", "newest"])
    parser.add_argument("--tests", nargs="+", default=TESTS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        wheel = build_packages(Path(folder))[1]
        print("| Python | versions | | tests |\n|---|---|---|---|")
        cases = [(python, kind) for python in options.python for kind in options.kinds]
        passed = [try_versions(wheel, *case, options.tests) for case in cases]
    sys.exit(not all(passed))


if __name__ == "__main__":
    main()
