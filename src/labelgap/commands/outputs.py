"""What a command will write, looked at before its work begins."""

from __future__ import annotations

import os
from pathlib import Path

from labelgap.datasets.tabular import table_format


def check_output(option: str, path: Path | None, *read: Path, table: bool = False) -> None:
    """Refuse at once what could not be written after hours, or would replace a file that is ``read``.

    >>> check_output("--output", Path("found.doc"), table=True)
    Traceback (most recent call last):
        ...
    ValueError: --output found.doc: the ending says no table; use .csv, .tsv, .jsonl or .parquet.
    """
    if path is None:
        return
    folder = path.absolute().parent
    if not folder.is_dir():
        raise FileNotFoundError(f"{option} {path} is in no existing folder; make {folder} first.")
    if path.is_dir():
        raise IsADirectoryError(f"{option} {path} is a folder; name a file in it.")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(f"{option} {path}: nothing can be written into {folder}; choose another folder.")
    if path.exists() and any(one.exists() and path.samefile(one) for one in read):
        raise ValueError(f"{option} {path} is a file that this command reads; choose another name.")
    if table and table_format(path) is None:
        raise ValueError(f"{option} {path}: the ending says no table; use .csv, .tsv, .jsonl or .parquet.")
    if table and path.suffix.lower() == ".zip":
        raise ValueError(f"{option} {path}: a .zip can be read but not written; use .gz or .xz.")
