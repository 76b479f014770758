"""Fetching from OpenML: the description of a data set, then its ARFF file, checked against the description's MD5."""

from __future__ import annotations

import hashlib
import http.client
import json
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from labelgap.datasets.arff import read_arff
from labelgap.datasets.files import replacing
from labelgap.datasets.records import Table

DESCRIPTIONS = "https://www.openml.org/api/v1/json/data"
TIMEOUT_SECONDS = 30.0

_CHUNK = 1 << 16


def paths(folder: Path, name: str, data_id: int) -> tuple[Path, Path]:
    """Return where a fetched ARFF file and its description lie."""
    return folder / f"{name}-{data_id}.arff", folder / f"{name}-{data_id}.json"


def fetch(folder: Path, name: str, data_id: int) -> None:
    """Download one data set into ``folder``; nothing is left there when anything goes wrong.

    Raises
    ------
    ConnectionError
        When OpenML cannot be reached.
    ValueError
        When the answer is not the data set of that name, or the file does not have the MD5 that was announced.
    """
    arff, description_path = paths(folder, name, data_id)
    try:
        description = _describe(name, data_id)
        folder.mkdir(parents=True, exist_ok=True)
        _download(description["url"], arff, description["md5_checksum"])
    except (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError) as error:
        raise ConnectionError(f"OpenML data set {data_id} ({name}) could not be fetched: {error}") from error
    with replacing(description_path) as stream:
        stream.write(json.dumps(description).encode())


def read(folder: Path, name: str, data_id: int) -> Table:
    """Read a data set that :func:`fetch` left in ``folder``; its labels are the description's target attributes."""
    arff, description = paths(folder, name, data_id)
    targets = json.loads(description.read_text("utf-8"))["default_target_attribute"]
    return read_arff(arff, [target.strip() for target in targets.split(",")])


def _open(url: str) -> Any:
    if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
        raise ValueError(f"OpenML names {url!r} as the file; only http and https are followed.")
    return urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS)


def _describe(name: str, data_id: int) -> dict[str, str]:
    url = f"{DESCRIPTIONS}/{data_id}"
    with _open(url) as answer:
        content = answer.read()
    try:
        description = json.loads(content)["data_set_description"]
        found = description["name"]
        needed = {key: description[key] for key in ("name", "url", "md5_checksum", "default_target_attribute")}
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{url}: found no description of a multi-label data set ({error!r}).") from error
    if found.lower() != name:
        raise ValueError(f"{url}: found data set {found!r}, expected {name!r}.")
    return needed


def _download(url: str, path: Path, md5: str) -> None:
    # It guards against a damaged download; OpenML publishes no stronger sum.
    digest = hashlib.md5(usedforsecurity=False)
    with _open(url) as answer, replacing(path) as stream:
        while chunk := answer.read(_CHUNK):
            digest.update(chunk)
            stream.write(chunk)
        if digest.hexdigest() != md5.lower():
            raise ValueError(
                f"{url}: found MD5 {digest.hexdigest()}, expected {md5}; the file was not kept. Try again."
            )
