"""A tagger as a folder that needs NumPy alone."""

from __future__ import annotations

import inspect
import os
from dataclasses import asdict
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from labelgap import portable
from labelgap.estimators.tagger import Tagger
from labelgap.runtime import write_atomically

MAX_WEIGHTS = 1 << 29  # features × labels
N_PROBES = 20  # rows that check whether scores are linear in the features


def export(model: Tagger, folder: str | os.PathLike) -> None:
    """Write a tagger to a folder that a program without labelgap can use: ``tagger.py`` and ``tagger.npz``.

    ``tagger.py`` needs Python and NumPy; ``PortableTagger`` is its class. Scores must be linear in the words of
    a text, s = x W + b, as those of :class:`~labelgap.BinaryRelevance`, :class:`~labelgap.LEML` and
    :class:`~labelgap.OneClassMF` are.

    Parameters
    ----------
    model : Tagger
        Fitted, with ``words="tfidf"`` and without ``features``.
    folder : str or path
        The folder; it is created, and files of an earlier export are replaced.

    Raises
    ------
    ValueError
        If the model cannot be exported; nothing is written then.

    Examples
    --------
    >>> import tempfile
    >>> from labelgap import BinaryRelevance, Tagger
    >>> from labelgap.portable import PortableTagger
    >>> tagger = Tagger(BinaryRelevance(), min_count=1).fit(["crisp cookies", "smoked bacon"], [["baking"], ["meat"]])
    >>> with tempfile.TemporaryDirectory() as place:
    ...     export(tagger, place)
    ...     PortableTagger(f"{place}/tagger.npz").predict_tags(["smoked bacon"], 1)
    [['meat']]
    """
    check_is_fitted(model)
    if not isinstance(model, Tagger) or model.vocabulary_ is None or model.features is not None:
        raise ValueError(
            f"{type(model).__name__} cannot be exported: only a Tagger with words='tfidf' and without features can, "
            "because other features need more than NumPy."
        )
    weights, intercept = _find_weights(model)
    numbers: dict[str, Any] = {
        "vocabulary": model.vocabulary_.astype(str),
        "idf": model.idf_,
        "ngrams": np.asarray(model.ngrams),
        "labels": model.get_label_names_out().astype(str),
        "weights": weights,
        "intercept": intercept,
        **_collect_calibration(model),
    }
    stream = BytesIO()
    np.savez_compressed(stream, **numbers)
    Path(folder).mkdir(parents=True, exist_ok=True)
    for name, content in (("tagger.npz", stream.getvalue()), ("tagger.py", inspect.getsource(portable).encode())):
        with write_atomically(Path(folder) / name) as file:
            file.write(content)


def _find_weights(model: Tagger) -> tuple[NDArray, NDArray]:
    """Return W and b with s = x W + b from the scores of unit rows; raise ValueError if scores are not linear."""
    d, n_labels, inner = len(model.idf_), model.n_labels_, model.model_
    if d * n_labels > MAX_WEIGHTS:
        raise ValueError(f"The model has {d} words × {n_labels} labels; an export has at most {MAX_WEIGHTS} weights.")
    intercept = inner._scores(sp.csr_array((1, d), dtype=inner.dtype)).dense()[0]
    weights = inner._scores(sp.eye_array(d, format="csr", dtype=inner.dtype)).dense() - intercept
    probes = sp.random_array((N_PROBES, d), density=min(1.0, 50 / d), random_state=0).tocsr().astype(inner.dtype)
    scores, linear = inner._scores(probes).dense(), probes @ weights + intercept
    if not np.allclose(scores, linear, atol=1e-3 * np.abs(scores).max()):
        raise ValueError(
            f"{type(inner).__name__} cannot be exported: its scores are not linear in the words; "
            "use BinaryRelevance, LEML or OneClassMF."
        )
    return weights, intercept


def _collect_calibration(model: Tagger) -> dict[str, Any]:
    """Return thresholds and, if there are probabilities, the numbers that they are computed from."""
    calibration = getattr(model, "calibration_", None)
    if calibration is None:
        return {"thresholds": np.zeros(model.n_labels_), "always_best": False}
    maps = calibration.curve.maps
    decisions = {"thresholds": calibration.thresholds, "always_best": calibration.always_best}
    return decisions | ({} if maps is None else asdict(maps))
