"""What is under review: the documents of a file, their labels, and the model that argues about them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from labelgap.commands.inputs import Columns
from labelgap.commands.learning import columns_of, data_for, names_of
from labelgap.datasets.files import read_bytes
from labelgap.estimators.text.vectorizers import TOKEN, without_markup
from labelgap.gaps import Argument, Explanation, explain
from labelgap.gaps.companions import Companions
from labelgap.observations import Labels, as_labels
from labelgap.serve.reviews.store import Review

_BLANK_LINES = re.compile(r"\s*\n\s*\n\s*")
_BLANKS = re.compile(r"[^\S\n]+")


class Segment(NamedTuple):
    """A piece of text, and how much it says for a label; 0 where it says nothing."""

    text: str
    weight: float


class Material:
    """A table of texts with labels, and a fitted model of the same labels.

    Parameters
    ----------
    path : path
        CSV, TSV, JSON lines or Parquet.
    model : Tagger
        Fitted; it knows its columns if the command line fitted it.
    given : Columns
        Which columns hold what, where the model does not know or is wrong.
    """

    def __init__(self, path: Path, model: Any, given: Columns) -> None:
        self.path, self.model = path, model
        self.columns = columns_of(model, given)
        data = data_for(model, path, given, labels=True)
        if data.records is None:
            raise ValueError(f"--data {path} has no texts to show; pass a table: .csv, .tsv, .jsonl or .parquet.")
        self.texts: list[str] = data.X
        self.records = data.records
        self.labels = as_labels(data.Y)
        self.label_names = names_of(model) or list(map(str, data.label_names or ()))
        if len(self.label_names) != self.labels.shape[1]:
            raise ValueError(
                f"{path} has {self.labels.shape[1]} labels and the model {len(self.label_names)}; "
                "pass the data that the model was fitted on."
            )
        self.place = {name: j for j, name in enumerate(self.label_names)}

    @property
    def identity(self) -> dict[str, str]:
        """Fingerprints of the file, the columns and the label names: reviews of another one mean something else."""
        columns = (self.columns.text, self.columns.tags, self.columns.labels, self.columns.separator or "")
        return {
            "data file": hashlib.sha256(read_bytes(self.path).data).hexdigest(),
            "choice of columns": _fingerprint(columns),
            "set of labels": _fingerprint(self.label_names),
        }

    @cached_property
    def companions(self) -> Companions:
        """Which labels go together."""
        return Companions(self.labels)

    def labels_of(self, row: int) -> list[str]:
        """Return the labels that a document has in the file."""
        return [self.label_names[j] for j in self.labels.positives[[row]].indices]

    def reviewed(self, reviews: Iterable[Review]) -> Labels:
        """Return the labels with verdicts applied: what is accepted as missing is there, as doubtful is not."""
        accepted = [review for review in reviews if review.verdict == "accept"]
        cells = [(review.row, self.place[review.label], review.kind == "missing") for review in accepted]
        if not cells:
            return self.labels
        rows, columns, there = (np.array(part) for part in zip(*cells, strict=True))
        positives = sp.lil_array(self.labels.positives)
        positives[rows, columns] = there
        return Labels.of_patterns(sp.csr_array(positives), self.labels.known)

    def parts(self, row: int) -> list[tuple[str, str]]:
        """Return the columns of a document's text by name, without markup and without empty space."""
        record = self.records[row]
        return [(name, tidy("" if record[name] is None else str(record[name]))) for name in self.columns.texts]

    def explain(self, row: int, label: str, top: int = 8) -> Explanation:
        """Say which words and which other labels of a document argue for a label."""
        found = explain(self.model, self.texts[row], label, top=top)
        column = self.place[label]
        others = [other for other in self.labels_of(row) if other != label]
        argued = [Argument(other, self.companions.between(self.place[other], column)) for other in others]
        argued.sort(key=lambda argument: -abs(argument.weight))
        return found._replace(features=[one for one in found.features if one.weight], labels=argued[:top])


def tidy(text: str) -> str:
    """Return a text without markup, with single blanks and at most one empty line in a row.

    >>> tidy("<p>Salt  &amp; <b>pepper</b></p>\\n \\n\\n<p>x</p>")
    'Salt & pepper\\n\\nx'
    """
    plain = _BLANKS.sub(" ", without_markup(text))
    return _BLANK_LINES.sub("\n\n", plain).strip()


def highlight(text: str, arguments: Sequence[Argument]) -> list[Segment]:
    """Cut a text where words argue, cut into words as a Tagger does it; features may be several words in a row.

    >>> highlight("Salt the oven.", [Argument("oven", 0.5), Argument("salt", -0.1)])
    [Segment(text='Salt', weight=-0.1), Segment(text=' the ', weight=0.0), Segment(text='oven', weight=0.5), \
Segment(text='.', weight=0.0)]
    """
    weights = {tuple(argument.name.split(" ")): argument.weight for argument in arguments}
    words = list(re.finditer(TOKEN, text))
    said = [word.group().lower() for word in words]
    most = max(map(len, weights), default=0)
    segments, end, i = [], 0, 0
    while i < len(words):
        size = next((n for n in range(most, 0, -1) if tuple(said[i : i + n]) in weights), 0)
        if size:
            start, stop = words[i].start(), words[min(i + size, len(words)) - 1].end()
            segments += [Segment(text[end:start], 0.0), Segment(text[start:stop], weights[tuple(said[i : i + size])])]
            end = stop
        i += size or 1
    return [segment for segment in [*segments, Segment(text[end:], 0.0)] if segment.text]


def _fingerprint(words: Sequence[str]) -> str:
    return hashlib.sha256("\0".join(words).encode()).hexdigest()
