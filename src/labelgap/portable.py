"""Tags for texts with NumPy and the standard library alone.

``labelgap export MODEL FOLDER`` copies this file to FOLDER/tagger.py, beside the numbers of a model in tagger.npz::

    from tagger import PortableTagger
    tagger = PortableTagger("tagger.npz")
    tagger.predict_tags(["Which knife for sourdough?"])

labelgap itself splits texts and computes probabilities with the functions of this file, so both agree.
"""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

HTML_TAG = re.compile(r"<[a-zA-Z/!][^>]*>")
LONG_REFERENCE = re.compile(r"&#[0-9]{4000,}+;?")  # to no character; Python does not convert so many digits
# Words may contain punctuation (can't, cooking-time, node.js) and end with + or # (c++, c#).
TOKEN = r"\b\w(?:[\w'.+#-]*\w)?[+#]*"
SMALL_MARGIN = 1e-6  # decision value of a label that is predicted because it is the best one of its row
MIN_PROBABILITY = 1e-6  # probabilities stay at least this far from 0 and 1
MIN_SLOPE = 1e-3  # of the logit curve, in units of 1 / standard deviation of the scores
SMOOTH_SHARE = 0.02  # of the smooth curve beside the steps; it keeps the order within a step


def without_markup(text: str) -> str:
    """Return a text without HTML tags.

    >>> without_markup("<p>Salt &amp; <b>Pepper</b>: 1 < 2</p>")
    ' Salt &  Pepper : 1 < 2 '
    """
    end = text.rfind(">") + 1  # no tag ends after it, and to look for one behind each "<" takes quadratic time
    return html.unescape(LONG_REFERENCE.sub("\N{REPLACEMENT CHARACTER}", HTML_TAG.sub(" ", text[:end]) + text[end:]))


def plain_text(text: str) -> str:
    """Return a text without HTML tags, in lower case.

    >>> plain_text("<b>Salt</b>")
    ' salt '
    """
    return without_markup(text).lower()


def interpolate_logits(values: Any, knots: Any, logits: Any, slope: float) -> Any:
    """Return a monotone function of scores: linear between its knots, with ``slope`` added beyond them."""
    beyond = np.maximum(values - knots[-1], 0.0) + np.minimum(values - knots[0], 0.0)
    return np.interp(values, knots, logits) + slope * (beyond + MIN_SLOPE * values)


def compute_probabilities(scores: Any, labels: Any, maps: Any) -> Any:
    """Return P(written) of cells from their scores and labels; ``maps`` has the numbers of a calibration."""
    logits = interpolate_logits(scores, maps.knot_scores, maps.knot_logits, maps.beyond_slope)
    logits = maps.slopes[labels] * ((logits - maps.center) / maps.scale) + maps.offsets[labels]
    smooth = 1 / (1 + np.exp(-np.clip(logits, -700, 700)))
    mixed = (1 - SMOOTH_SHARE) * np.interp(logits, maps.step_logits, maps.step_shares) + SMOOTH_SHARE * smooth
    return np.clip(mixed, MIN_PROBABILITY, 1 - MIN_PROBABILITY)


class PortableTagger:
    """An exported tagger: a text is a row x of weighted words, and label j has the score x · w_j + b_j.

    Parameters
    ----------
    path : str
        The file ``tagger.npz``.
    """

    def __init__(self, path: Any) -> None:
        with np.load(path, allow_pickle=False) as file:
            self.numbers = SimpleNamespace(**{name: file[name] for name in file.files})
        self.columns = {word: j for j, word in enumerate(self.numbers.vocabulary.tolist())}
        self.labels = self.numbers.labels.tolist()

    def decision_function(self, texts: Sequence[str]) -> Any:
        """Return the scores of all labels less their thresholds, an array of shape (texts, labels)."""
        return self._decide(self._multiply(texts))

    def predict_proba(self, texts: Sequence[str]) -> Any:
        """Return the probability that a person writes each label, an array of shape (texts, labels)."""
        if not hasattr(self.numbers, "slopes"):
            raise ValueError("The exported model has scores and no probabilities, because it was not calibrated.")
        return self._convert(self._multiply(texts) + self.numbers.intercept)

    def predict_tags(self, texts: Sequence[str], k: int | None = None) -> list[list[str]]:
        """Return the labels of each text: those above their thresholds, or the ``k`` best by score.

        The most probable label comes first; without probabilities, the one with the largest score.
        """
        products = self._multiply(texts)
        scores, decisions = products + self.numbers.intercept, self._decide(products)
        chances = self._convert(scores) if hasattr(self.numbers, "slopes") else scores
        tags = []
        for row, probable, values in zip(scores, chances, decisions, strict=True):
            best = np.argsort(-row, kind="stable")
            best = best[values[best] > 0] if k is None else best[:k]
            order = np.argsort(-probable[best], kind="stable")
            tags.append([self.labels[j] for j in best[order]])
        return tags

    def _multiply(self, texts: Sequence[str]) -> Any:
        """Return x · w_j for all texts and labels; it is 0 for a text without a known word."""
        return np.stack([self._score_text(text) for text in texts])

    def _convert(self, scores: Any) -> Any:
        return compute_probabilities(scores.astype(np.float64), np.arange(len(self.labels)), self.numbers)

    def _decide(self, products: Any) -> Any:
        scores = products + self.numbers.intercept
        values = scores - self.numbers.thresholds.astype(scores.dtype)
        rows = np.flatnonzero(self.numbers.always_best & products.any(axis=1))
        best = rows, scores[rows].argmax(axis=1)
        values[best] = np.maximum(values[best], SMALL_MARGIN)
        return values

    def _score_text(self, text: str) -> Any:
        counts = Counter(self.columns[word] for word in self._split(text) if word in self.columns)
        weights = np.zeros(len(self.labels), self.numbers.weights.dtype)
        if not counts:
            return weights
        columns = np.fromiter(counts, np.int64, len(counts))
        values = (1 + np.log(np.fromiter(counts.values(), np.float64, len(counts)))) * self.numbers.idf[columns]
        values /= np.sqrt(values @ values)
        return values.astype(weights.dtype) @ self.numbers.weights[columns]

    def _split(self, text: str) -> list[str]:
        """Return the words of a text and the sequences of words that the model uses."""
        words = re.findall(TOKEN, plain_text(text))
        least, most = self.numbers.ngrams
        lengths = range(int(least), int(most) + 1)
        return [" ".join(words[i : i + size]) for size in lengths for i in range(len(words) - size + 1)]
