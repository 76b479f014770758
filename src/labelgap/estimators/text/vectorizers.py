"""Texts to rows of features by scikit-learn's counters, kept as words and numbers rather than as objects."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer
from sklearn.preprocessing import normalize

_MARKUP = re.compile(r"<[a-zA-Z/!][^>]*>")
# Words may hold marks inside (can't, cooking-time, node.js) and end in some (c++, c#).
TOKEN = r"\b\w(?:[\w'.+#-]*\w)?[+#]*"


def without_markup(text: str) -> str:
    """Return a text without HTML marks.

    >>> without_markup("<p>Salt &amp; <b>Pepper</b>: 1 < 2</p>")
    ' Salt &  Pepper : 1 < 2 '
    """
    return html.unescape(_MARKUP.sub(" ", text))


def plain_text(text: str) -> str:
    """Return a text without HTML marks, in lower case.

    >>> plain_text("<b>Salt</b>")
    ' salt '
    """
    return without_markup(text).lower()


@dataclass(frozen=True, eq=False)
class Words:
    """How texts become rows: x_w = (1 + ln count) · idf_w for each word that occurs, then length one.

    Attributes
    ----------
    ngrams : (int, int)
        The least and the largest number of words in a row that make a feature.
    vocabulary : ndarray of str, or None
        The features; without it words are hashed into as many buckets as ``idf`` has.
    idf : ndarray
        1 + ln((1 + n) / (1 + n_w)), n_w of the n training texts having word w.
    """

    ngrams: tuple[int, int]
    vocabulary: NDArray | None
    idf: NDArray

    def __call__(self, texts: Sequence[str], dtype: Any) -> sp.csr_array:
        """Return the rows of texts; one without a known word is 0."""
        rows = sp.csr_array(self._counter.transform(texts), dtype=float)
        rows.data = (1 + np.log(rows.data)) * self.idf[rows.indices]
        return normalize(rows, copy=False).astype(dtype)

    @cached_property
    def _counter(self) -> Any:
        return _counter(self.ngrams, len(self.idf), self.vocabulary)


def learn_words(
    texts: Sequence[str],
    *,
    kind: str = "tfidf",
    ngrams: tuple[int, int] = (1, 1),
    max_features: int | None = None,
    min_count: int = 1,
    buckets: int = 1 << 18,
) -> Words:
    """Return how texts become rows, by the words of these.

    >>> words = learn_words(["Salt and pepper", "salt"])
    >>> words.vocabulary.tolist(), words(["salt"], "float32").toarray().tolist()
    (['and', 'pepper', 'salt'], [[0.0, 0.0, 1.0]])
    """
    if kind == "hashing":
        counts = _counter(ngrams, buckets, None).transform(texts)
        return Words(ngrams, None, _idf(counts))
    least = min(min_count, len(texts))
    counter = CountVectorizer(**_options(ngrams), max_features=max_features, min_df=least)
    counts = counter.fit_transform(texts)
    return Words(ngrams, counter.get_feature_names_out(), _idf(counts))


def _idf(counts: Any) -> NDArray:
    having = np.bincount(counts.indices, minlength=counts.shape[1])
    return 1 + np.log((1 + counts.shape[0]) / (1 + having))


def _options(ngrams: tuple[int, int]) -> dict[str, Any]:
    return {"preprocessor": plain_text, "token_pattern": TOKEN, "ngram_range": tuple(ngrams)}


def _counter(ngrams: tuple[int, int], size: int, vocabulary: NDArray | None) -> Any:
    if vocabulary is None:
        return HashingVectorizer(**_options(ngrams), n_features=size, norm=None, alternate_sign=False)
    return CountVectorizer(**_options(ngrams), vocabulary={word: j for j, word in enumerate(vocabulary)})
