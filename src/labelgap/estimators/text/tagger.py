"""An estimator whose rows are texts."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import clone

from labelgap.estimators.about import About
from labelgap.estimators.base import MultiLabelEstimator
from labelgap.estimators.baselines.binary_relevance import BinaryRelevance
from labelgap.estimators.inner import Packed, pack, unpack
from labelgap.estimators.parameters import check_choice, check_number
from labelgap.estimators.scores import Scores
from labelgap.estimators.text.vectorizers import Words, learn_words
from labelgap.observations import Labels


class Tagger(MultiLabelEstimator):
    """Tags for texts: words become features, and any estimator of labels learns from them.

    A text is cut into words (HTML marks aside, in lower case), word w of a text counts
    (1 + ln count) · (1 + ln((1 + n) / (1 + n_w))), where n_w of the n training texts have it, and rows have length
    one. What was learned of the words is saved with the model, so that a loaded one takes texts.

    Parameters
    ----------
    estimator : estimator, optional
        What learns; :class:`~labelgap.BinaryRelevance` by default.
    words : {"tfidf", "hashing"}, default="tfidf"
        A vocabulary of the training texts, or a fixed number of buckets that words are hashed into, for which no
        vocabulary is kept.
    ngrams : (int, int), default=(1, 1)
        The least and the largest number of words in a row that make a feature.
    max_features : int, optional
        Keep the most frequent features only.
    min_count : int, default=2
        Leave out features that fewer texts have.
    buckets : int, default=2**18
        The number of buckets of "hashing".
    label_names : sequence of str, optional
        The names of the labels; those of a data frame are taken without being asked.
    absent, n_jobs, dtype, verbose
        As in :class:`~labelgap.LEML`; for the estimator its own ones count.
    device : str, default="auto"
        Deprecated; has no effect.

    Attributes
    ----------
    model_ : estimator
        The fitted estimator of the features.
    vocabulary_ : ndarray of str, or None
        The features of "tfidf".
    idf_ : ndarray
        How much each feature counts.
    label_names_in_ : ndarray of str
        The names of labels, where there are any.

    Examples
    --------
    >>> from labelgap import Tagger
    >>> texts = ["chewy chocolate cookies", "crisp cookies", "bacon in the oven", "smoked bacon"]
    >>> model = Tagger(label_names=["baking", "meat"]).fit(texts, [[1, 0], [1, 0], [0, 1], [0, 1]])
    >>> model.predict_tags(["Which cookies?"], 1)
    [['baking']]
    """

    about = About(
        "Texts to tags: words become features for any other method.",
        "Salton and Buckley 1988",
        missing_labels=True,
        fit="z, then as its estimator",
        predict="as its estimator",
    )

    vocabulary_: NDArray | None
    idf_: NDArray
    packed_: Packed

    def __init__(
        self,
        estimator: Any = None,
        *,
        words: Literal["tfidf", "hashing"] = "tfidf",
        ngrams: tuple[int, int] = (1, 1),
        max_features: int | None = None,
        min_count: int = 2,
        buckets: int = 1 << 18,
        label_names: Sequence[str] | None = None,
        absent: Literal["negative", "unknown"] = "negative",
        n_jobs: int | None = None,
        device: str = "auto",
        dtype: Any = "float32",
        verbose: int = 0,
    ) -> None:
        self.estimator = estimator
        self.words = words
        self.ngrams = ngrams
        self.max_features = max_features
        self.min_count = min_count
        self.buckets = buckets
        self.label_names = label_names
        self.absent = absent
        self.n_jobs = n_jobs
        self.device = device
        self.dtype = dtype
        self.verbose = verbose

    @property
    def model_(self) -> Any:
        """The fitted estimator of the features."""
        return self._model

    def predict_tags(self, X: Sequence[str], k: int | None = None) -> list[list[str]]:
        """Return the names of the k best labels of each text, or of those that :meth:`predict` says yes to.

        Either are in the order of their scores; without names they are numbers.
        """
        indices, scores = self.predict_topk(X, self.n_labels_ if k is None else k)
        names = getattr(self, "label_names_in_", np.arange(self.n_labels_).astype(str).astype(object))
        kept = np.ones_like(scores, bool) if k is not None else scores > 0
        return [names[row[mine]].tolist() for row, mine in zip(indices, kept, strict=True)]

    def transform(self, X: Sequence[str]) -> sp.csr_array:
        """Return the features of texts."""
        return self._features(_checked_texts(X))

    def _check_parameters(self) -> None:
        self._check_common()
        check_choice("words", self.words, ("tfidf", "hashing"))
        check_number("min_count", self.min_count, Integral, least=1)
        check_number("buckets", self.buckets, Integral, least=1)
        check_number("max_features", self.max_features, Integral, least=1, optional=True)
        low, high = self.ngrams
        if not 1 <= low <= high:
            raise ValueError(f"ngrams={self.ngrams!r} is no range; pass (least, largest), such as (1, 2).")
        if self.estimator is not None:
            self.estimator._check_parameters()

    def _check_rows(self, X: Any, *, reset: bool = False) -> sp.csr_array:
        texts = _checked_texts(X)
        if reset:
            self._learn_words(texts)
        return self._features(texts)

    def _learn_words(self, texts: list[str]) -> None:
        try:
            found = learn_words(
                texts,
                kind=self.words,
                ngrams=tuple(self.ngrams),  # type: ignore[arg-type]
                max_features=self.max_features,
                min_count=self.min_count,
                buckets=self.buckets,
            )
        except ValueError as error:
            raise ValueError(
                f"X has no words to learn from ({error}); check the texts, or lower min_count={self.min_count}."
            ) from error
        self.vocabulary_, self.idf_ = found.vocabulary, found.idf
        self.n_features_in_ = len(found.idf)

    def _features(self, texts: list[str]) -> sp.csr_array:
        words: Words | None = self.__dict__.get("_words")
        if words is None or words.idf is not self.idf_:  # of an earlier fit, or there is none yet
            words = Words(tuple(self.ngrams), self.vocabulary_, self.idf_)  # type: ignore[arg-type]
            self._words = words
        return words(texts, np.dtype(self.dtype).type)

    def _keep_label_names(self, Y: Any) -> None:
        super()._keep_label_names(Y)
        if self.label_names is not None:
            self.label_names_in_ = np.asarray(self.label_names, dtype=object)

    def _learn(self, X: Any, labels: Labels) -> None:
        names = getattr(self, "label_names_in_", None)
        if names is not None and len(names) != labels.shape[1]:
            raise ValueError(f"label_names has {len(names)} names for {labels.shape[1]} labels; pass one for each.")
        self._model = (BinaryRelevance() if self.estimator is None else clone(self.estimator)).fit(X, labels)
        self.packed_ = pack(self._model)

    def _scores(self, X: Any) -> Scores:
        return self._model._scores(X)

    def _check_loaded(self) -> None:
        if self.vocabulary_ is not None and len(self.vocabulary_) != len(self.idf_):
            raise ValueError(f"{len(self.vocabulary_)} words and {len(self.idf_)} of their numbers")
        self._model = unpack(self, self.packed_)
        if (self._model.n_features_in_, self._model.n_labels_) != (len(self.idf_), self.n_labels_):
            raise ValueError("the model within is of other words or labels")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.two_d_array = False
        tags.input_tags.sparse = False
        return tags


def _checked_texts(X: Any) -> list[str]:
    """Return texts as a list of str, or say what else there is."""
    if isinstance(X, str):
        raise ValueError("X is one text; pass a list of texts, such as [text].")
    if np.ndim(X) > 1 or sp.issparse(X):
        raise ValueError(f"X has shape {np.shape(X)}; pass a list of texts.")
    texts = list(X)
    for place, text in enumerate(texts):
        if not isinstance(text, str):
            raise ValueError(f"X holds {text!r} at place {place}, which is no text; pass a list of str.")
    if not texts:
        raise ValueError("X has no texts; pass at least one.")
    return texts
