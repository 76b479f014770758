"""inspect and convert."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from labelgap.commands.inputs import check_file, open_model
from labelgap.commands.outputs import check_output
from labelgap.datasets import read, write
from labelgap.persistence import read_header


def inspect(path: Path) -> dict[str, Any]:
    """Return what a model is, without reading its arrays."""
    header = open_model(path, read_header)
    attributes = header["attributes"]

    def plain(name: str) -> Any:
        return attributes.get(name, {}).get("value")

    size = sum(part.stat().st_size for part in path.iterdir()) if path.is_dir() else path.stat().st_size
    return {
        "estimator": header.get("estimator"),
        "parameters": header.get("parameters"),
        "labels": plain("n_labels_"),
        "features": plain("n_features_in_"),
        "label names": attributes.get("label_names_in_", {}).get("values"),
        "status": plain("status_"),
        "format": header["format"],
        "version": header.get("version"),
        "versions": header.get("versions"),
        "megabytes": round(size / 1e6, 3),
    }


def convert(source: Path, target: Path) -> dict[str, int]:
    """Write features and labels again in the format of another ending."""
    check_file(source)
    check_output("The target", target, source)
    X, Y, feature_names, label_names = read(source)
    write(target, X, Y, feature_names=feature_names, label_names=label_names)
    return {"rows": X.shape[0], "features": X.shape[1], "labels": Y.shape[1]}
