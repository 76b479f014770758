"""Build the source package and the wheel, install the wheel into an empty environment, and use it there.

The wheel is built from the source package, so that both must be complete. Dependencies are taken from the environment
that runs this command; ``--full`` installs them anew.

    python -m tools.check_package [--full]
"""

from __future__ import annotations

import csv
import sys
import sysconfig
import tarfile
import tempfile
import zipfile
from pathlib import Path

from tools.environments import ROOT, build_packages, make_environment, run

USE = """
import numpy as np, labelgap
from labelgap import LEML
Y = np.array([[1, 0, np.nan], [1, 0, 1], [0, 1, 0], [0, np.nan, 0]])
X = np.array([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]])
model = LEML(2, alpha=0.01, random_state=0).fit(X, Y)
assert model.predict([[1.0, 0.05]]).tolist() == [[1, 0, 1]]
print(labelgap.__file__)
"""
NEEDED = ("py.typed", "serve/reviews/page/index.html", "serve/reviews/page/page.css")


def check_contents(source: Path, wheel: Path) -> None:
    """Exit unless the wheel has every module and file of src, and the source package the tests and the licence."""
    names, package_folder = set(zipfile.ZipFile(wheel).namelist()), ROOT / "src" / "labelgap"
    files = [path for path in package_folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    absent = [str(path) for path in files if f"labelgap/{path.relative_to(package_folder)}" not in names]
    absent += [name for name in NEEDED if f"labelgap/{name}" not in names]
    with tarfile.open(source) as package:
        members = {name.partition("/")[2] for name in package.getnames()}
    absent += [name for name in ("LICENSE", "README.md", "tests/conftest.py", "docs/conf.py") if name not in members]
    if absent:
        sys.exit(f"The packages lack {', '.join(absent)}.")


def check_use(python: Path, wheel: Path, folder: Path, *, full: bool) -> None:
    """Install the wheel, then fit a model in Python and on the command line, in a folder without the project."""
    run(python, "-m", "pip", "install", "--quiet", *([] if full else ["--no-deps"]), wheel)
    if not full:
        packages = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
        (packages / "borrowed.pth").write_text(sysconfig.get_path("purelib"))
    work = folder / "work"
    work.mkdir()
    location = run(python, "-c", USE, cwd=work).strip()
    if not location.startswith(str(folder)):
        sys.exit(f"labelgap was imported from {location}, not from the wheel.")
    with open(work / "posts.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["text", "tags"], *[["oven cake", "baking"], ["smoked bacon", "meat"]] * 20])
    command = python.with_name("labelgap")
    print("labelgap", run(command, "--version", cwd=work).strip())
    run(command, "fit", "posts.csv", "--output", "model", cwd=work)
    prediction = run(command, "predict", "--model", "model", "--top", "1", "--document", "bacon", "--json", cwd=work)
    if '"meat"' not in prediction:
        sys.exit(f"The installed command predicts {prediction}")


def main(full: bool) -> None:
    """Build, install and use the packages."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        source, wheel = build_packages(folder)
        check_contents(source, wheel)
        check_use(make_environment(folder / "empty"), wheel, folder, full=full)
        for path in (source, wheel):
            print(f"{path.name}: {path.stat().st_size / 1e6:.2f} MB, installed and used")


if __name__ == "__main__":
    main("--full" in sys.argv[1:])
