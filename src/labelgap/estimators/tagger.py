"""Tagger: an estimator for texts, and the conversion of texts to features."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence, Sized
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, DTypeLike, NDArray
from sklearn.base import clone
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer
from sklearn.preprocessing import normalize
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from labelgap.datasets.shard_folders import store_rows
from labelgap.datasets.text_files import TextFiles
from labelgap.estimators.base import About, MultiLabelEstimator
from labelgap.estimators.binary_relevance import BinaryRelevance, LinearSide
from labelgap.estimators.calibrating import calibrate_fitted, make_fold_scorer
from labelgap.estimators.choosing import Choice, choose_estimator
from labelgap.estimators.model_files import unpack_model
from labelgap.estimators.parameters import check_choice, check_number, check_sample_weight
from labelgap.estimators.scores import FoldScorer, Scores
from labelgap.estimators.sources import (
    check_source,
    describe_source,
    explain_source,
    fit_source,
    is_missing,
    pack_source,
    unpack_source,
    use_source,
)
from labelgap.kernels.row_shards import RowShards, gather_each, list_blocks, start_blocks, start_calls, submit_each
from labelgap.losses import get_loss
from labelgap.observations import Labels, encode_tags, holds_tags
from labelgap.observations.arguments import LabelsLike, MatrixLike
from labelgap.observations.frames import get_frame_package
from labelgap.portable import TOKEN, plain_text
from labelgap.runtime import call_elsewhere, progress, run_parallel

MIN_CALIBRATED_ROWS = 50  # of a fit that calibrates without being asked to
MIN_REST = 1e-3  # of the squared length of a text: with less, its other words are too few to fill it
NAME_SEPARATORS = re.compile(r"[-_./:]+")  # between the words of a label's name


class Tagger(MultiLabelEstimator):
    """Estimator for texts: it turns words into features and fits any multi-label estimator to them.

    A text is split into lower-case words, without HTML tags. The feature of word w is
    (1 + ln count) · (1 + ln((1 + n) / (1 + n_w))), where n_w of the n training texts contain w; rows are scaled to
    length 1. The vocabulary is saved with the model, so that a loaded model accepts texts.

    Parameters
    ----------
    estimator : estimator, optional
        The estimator to fit; by default a :class:`~labelgap.BinaryRelevance` that is chosen on held-out texts: its
        penalty, how much more rare labels count, and how much the words of their names do (see ``report_``).
    features : {"vectors"}, transformer or encoder, optional
        What turns X into features instead of words: any transformer of scikit-learn (a ColumnTransformer takes data
        frames with several columns, sparse and dense); any object with ``encode(texts)``, as in
        sentence-transformers; or "vectors", if X holds the features, one array, list or JSON list for each row.
    words : {"tfidf", "hashing"}, default="tfidf"
        Use the vocabulary of the training texts, or hash words into a fixed number of buckets without a vocabulary.
    ngrams : (int, int), default=(1, 1)
        The smallest and largest number of consecutive words in a feature.
    max_features : int, optional
        Use only this number of the most frequent features.
    min_count : int, default=2
        Ignore features that occur in fewer texts.
    buckets : int, default=2**18
        Number of buckets of "hashing".
    label_names : sequence of str, optional
        The names of the labels. By default they are the column names if Y is a data frame, and all tags if Y holds
        lists of tags.
    complete : bool, optional
        Whether an absent label is a "no". By default it is in a matrix without unknown cells; in lists of tags it may
        have been forgotten.
    name_weight : float or "auto", default="auto"
        The prior weight of the words of a label's name (see ``prior`` of :meth:`BinaryRelevance.fit`). "auto" chooses
        it on held-out texts if there is no ``estimator`` or if it is an ``AutoLabeler``, and is 0 otherwise.
    absent, n_jobs, dtype, verbose
        As in :class:`~labelgap.LEML`; the estimator has its own values of these parameters.
    device : str, default="auto"
        Deprecated; has no effect.

    Attributes
    ----------
    model_ : estimator
        The fitted estimator.
    vocabulary_ : ndarray of str, or None
        The features of "tfidf", or their names if ``features`` has any.
    idf_ : ndarray
        The weight of each feature; 1 with ``features``.
    name_weight_ : float
        The prior weight of names that was used.
    report_ : list of dict
        The candidates of the default estimator, with the geometric mean of P@1, P@3 and P@5 on held-out texts.
    label_names_in_ : ndarray of str
        The names of the labels, if there are any.
    positives_only_ : bool
        Whether absent labels were taken as unlabelled rather than as a "no".
    calibration_ : RowCalibration
        Probabilities, thresholds and their quality on held-out texts; absent if the model was not calibrated.
    columns_ : dict of str
        The columns of the table that ``labelgap fit`` or ``labelgap tune`` read; absent if neither fitted the model.

    Examples
    --------
    >>> from labelgap import Tagger
    >>> texts = ["chewy chocolate cookies", "crisp cookies", "bacon in the oven", "smoked bacon"]
    >>> model = Tagger().fit(texts, [["baking"], ["baking"], ["meat"], ["meat"]])
    >>> model.predict_tags(["Which cookies?"], 1)
    [['baking']]
    """

    about = About(
        "Turns texts into features for any other method.",
        "Salton and Buckley 1988",
        missing_labels=True,
        fit="z, then as its estimator",
        predict="as its estimator",
    )

    vocabulary_: NDArray | None
    idf_: NDArray
    model_: MultiLabelEstimator
    if TYPE_CHECKING:  # model files must have all declared attributes; these are optional
        columns_: dict[str, str]
        positives_only_: bool
        name_weight_: float
        report_: list[dict[str, float]]

    def __init__(
        self,
        estimator: Any = None,
        *,
        features: Any = None,
        words: Literal["tfidf", "hashing"] = "tfidf",
        ngrams: tuple[int, int] = (1, 1),
        max_features: int | None = None,
        min_count: int = 2,
        buckets: int = 1 << 18,
        label_names: Sequence[str] | None = None,
        complete: bool | None = None,
        name_weight: float | Literal["auto"] = "auto",
        absent: Literal["negative", "unknown"] = "negative",
        n_jobs: int | None = None,
        device: str = "auto",
        dtype: DTypeLike = "float32",
        verbose: int = 0,
    ) -> None:
        self.estimator = estimator
        self.features = features
        self.words = words
        self.ngrams = ngrams
        self.max_features = max_features
        self.min_count = min_count
        self.buckets = buckets
        self.label_names = label_names
        self.complete = complete
        self.name_weight = name_weight
        self.absent = absent
        self.n_jobs = n_jobs
        self.device = device
        self.dtype = dtype
        self.verbose = verbose

    def set_params(self, **params: Any) -> Self:
        """Set parameters, as in scikit-learn; "estimator__alpha" without an estimator is that of ridge regression."""
        inner = any(name.startswith("estimator__") for name in params)
        if inner and self.estimator is None and "estimator" not in params:
            self.estimator = BinaryRelevance(loss="squared", n_jobs=self.n_jobs)
        return super().set_params(**params)

    def fit(
        self,
        X: MatrixLike,
        Y: LabelsLike,
        observed: MatrixLike | None = None,
        *,
        sample_weight: ArrayLike | None = None,
        calibrate: bool | str | None = None,
    ) -> Self:
        """Fit the model to texts X and labels Y.

        Parameters
        ----------
        X : sequence of str
            Texts, or the rows that ``features`` takes.
        Y : sequence of lists of str, or labels of any form
            The tags of each text, of which some may have been forgotten unless ``complete``; or a label matrix, in
            which NaN is unknown.
        observed : array-like or sparse matrix of shape (n, L), optional
            True where a matrix Y is known. By default all cells are known except NaN.
        sample_weight : array of shape (n,), optional
            Weights of the texts, which multiply the losses of their cells, if the fit of the ``estimator`` takes
            them. Words, the choice of the default estimator and the calibration count each text once.
        calibrate : bool or str, optional
            Whether to calibrate scores to probabilities and to choose thresholds on texts that are held out of
            further fits; a str is the aim, see :meth:`calibrate`. By default that is so if the Tagger has no
            ``estimator`` and there are at least 50 texts.

        Returns
        -------
        self
        """
        if calibrate is None:
            calibrate = self.estimator is None and isinstance(X, Sized) and len(X) >= MIN_CALIBRATED_ROWS
        try:
            return self._fit(X, Y, observed, LinearSide(sample_weight=sample_weight), calibrate=calibrate)
        finally:
            for name in ("_choice", "_weights"):  # they hold the training rows, and their weights
                self.__dict__.pop(name, None)

    def chosen(self) -> Tagger:
        """Return an unfitted Tagger with the estimator and the parameters that this one was fitted with."""
        names = self.label_names
        if names is None and hasattr(self, "label_names_in_"):
            names = self.label_names_in_.tolist()
        return clone(self).set_params(
            estimator=self.model_.chosen(), label_names=names, name_weight=getattr(self, "name_weight_", 0.0)
        )

    def partial_fit(self, X: MatrixLike, Y: LabelsLike, observed: MatrixLike | None = None, **options: Any) -> Self:
        """Update the fitted estimator with further texts, in the vocabulary of :meth:`fit`.

        The estimator must have a method ``partial_fit``, as the default one, :class:`~labelgap.OneClassMF` and
        :class:`~labelgap.LEML` do. ``options`` are passed to it; the X of ``past`` holds texts. A search passes the
        texts to its best estimator. Thresholds and probabilities stay those of :meth:`fit`.
        """
        check_is_fitted(self)
        learner: Any = getattr(self.model_, "best_estimator_", self.model_)
        if not hasattr(learner, "partial_fit"):
            raise TypeError(f"{type(learner).__name__} has no partial_fit; fit again with all texts.")
        with self._restore_on_error():
            names = getattr(self, "label_names_in_", None)
            labels = self._read_labels(Y, observed)
            if options.get("past") is not None:
                options["past"] = self._read_past(options["past"])
                options |= self._fit_options(labels.shape[1])
            learner.partial_fit(self._check_rows(X), labels, **options)
            if learner.n_labels_ != self.n_labels_:
                self._drop_calibration("partial_fit has added labels")
            self.n_labels_ = self.model_.n_labels_ = learner.n_labels_
            if names is not None and len(names) < self.n_labels_:
                further = [f"label{j}" for j in range(len(names), self.n_labels_)]
                self.label_names_in_ = np.concatenate([names, np.array(further, dtype=object)])
        return self

    def _read_past(self, past: Any) -> tuple[Any, Labels]:
        """Return the rows and labels of earlier texts."""
        if not isinstance(past, tuple | list) or len(past) != 2:
            raise ValueError("past is not a pair; pass past=(X, Y), the texts learned from before and their labels.")
        return self._check_rows(past[0]), self._read_labels(past[1], None)

    def predict_tags(self, X: Sequence[str], k: int | None = None) -> list[list[str]]:
        """Return the names of the k best labels of each text; by default of the predicted labels.

        The most probable label comes first; without a calibration, the one with the largest score. Labels without
        names are numbered. A text without a word that the model knows has the best labels only if ``k`` asks for
        them.
        """
        indices, scores, _ = self.rank(X, self.n_labels_ if k is None else k)
        names = getattr(self, "label_names_in_", np.arange(self.n_labels_).astype(str).astype(object))
        selected = np.ones_like(scores, bool) if k is not None else scores > 0
        return [names[row[mask]].tolist() for row, mask in zip(indices, selected, strict=True)]

    def transform(self, X: MatrixLike) -> sp.csr_array:
        """Return the features of texts."""
        check_is_fitted(self)
        return sp.csr_array(self._check_rows(X))

    def get_feature_names_out(self, input_features: Any = None) -> NDArray:
        """Return the names of the columns of :meth:`transform`: the words, or "bucket0" and so on for "hashing".

        Other features without names are called "feature0" and so on. ``input_features`` is ignored; scikit-learn
        passes it.
        """
        check_is_fitted(self)
        if self.vocabulary_ is None:
            kind = "bucket" if self.features is None else "feature"
            return np.asarray([f"{kind}{j}" for j in range(self.n_features_in_)], dtype=object)
        return np.asarray(self.vocabulary_, dtype=object)

    def _check_parameters(self) -> None:
        self._check_common()
        check_choice("words", self.words, ("tfidf", "hashing"))
        check_number("min_count", self.min_count, Integral, least=1)
        check_number("buckets", self.buckets, Integral, least=1)
        check_number("max_features", self.max_features, Integral, least=1, optional=True)
        low, high = self.ngrams
        if not 1 <= low <= high:
            raise ValueError(f"ngrams={self.ngrams!r} is not a range; pass (smallest, largest), such as (1, 2).")
        check_choice("complete", self.complete, (None, True, False))
        if self.name_weight != "auto":
            check_number("name_weight", self.name_weight, Real, least=0)
        if self.name_weight not in ("auto", 0) and not _takes_prior(self.estimator):
            raise ValueError(
                f"name_weight={self.name_weight} needs BinaryRelevance(loss='squared') or AutoLabeler, and the "
                f"estimator is {self.estimator!r}; leave it at 'auto'."
            )
        check_source(self.features)
        if self.estimator is not None:
            self.estimator._check_parameters()

    def _check_rows(self, X: Any, *, reset: bool = False) -> Any:
        """Return the features of validated texts; ``reset`` learns the vocabulary from them."""
        if self.features is not None:
            return self._check_features(X, reset=reset)
        blocks = list_blocks(X)
        if reset:
            return self._learn_words(X) if blocks is None and not isinstance(X, TextFiles) else self._learn_blocks(X)
        if blocks is not None:
            X = [text for block in gather_each(_check_texts, start_blocks(blocks)) for text in block]
        vectorizer: TextVectorizer | None = self.__dict__.get("_vectorizer")
        if vectorizer is None or vectorizer.idf is not self.idf_:  # none yet, or that of an earlier fit
            vectorizer = TextVectorizer(tuple(self.ngrams), self.vocabulary_, self.idf_)  # type: ignore[arg-type]
            self._vectorizer = vectorizer
        return vectorizer(_check_texts(X), np.dtype(self.dtype).type)

    def _check_features(self, X: Any, *, reset: bool) -> Any:
        """Return the rows that ``features`` makes of X; ``reset`` fits a transformer."""
        if reset:
            with progress(None, f"{type(self).__name__}: features", 0):
                self._source, rows = fit_source(self.features, X)
        elif "_source" in self.__dict__:
            rows = self._source(X)
        else:
            raise ValueError(f"The features of the model are not in its file; {explain_source(self.features)}")
        rows = super()._check_rows(rows, reset=reset)
        if reset:
            self.idf_ = np.ones(rows.shape[1])
            self.vocabulary_ = self._source.get_names()
        return rows

    def _learn_words(self, X: Any) -> sp.csr_array:
        """Set the vocabulary and the weights of its words from training texts; return their features."""
        texts = _check_texts(X)
        with self._explain_words():
            vectorizer, counts = count_words(
                texts,
                kind=self.words,
                ngrams=tuple(self.ngrams),  # type: ignore[arg-type]
                max_features=self.max_features,
                min_count=self.min_count,
                buckets=self.buckets,
            )
        self._set_words(vectorizer)
        return vectorizer.weigh(counts, np.dtype(self.dtype).type)

    def _learn_blocks(self, X: Any) -> Any:
        """Set the words from blocks of texts, whose document counts are added up; return the features.

        Blocks on a Dask cluster are counted and vectorized there, and their features stay if the fit is there too.
        Those of files are else in a mapped file.
        """
        dtype, on_cluster = np.dtype(self.dtype).type, not isinstance(X, TextFiles) or self._fits_on_cluster()
        ngrams: tuple[int, int] = tuple(self.ngrams)  # type: ignore[assignment]
        count = partial(count_documents, kind=self.words, ngrams=ngrams, buckets=self.buckets)
        if on_cluster:
            blocks = start_calls(X.blocks) if isinstance(X, TextFiles) else start_blocks(list_blocks(X) or ())
            counts = gather_each(count, blocks)
        else:
            counts = list(
                run_parallel([partial(call_elsewhere, partial(_read_then, block, count)) for block in X.blocks])
            )
        with self._explain_words():
            vectorizer = add_counts(counts, ngrams, self.max_features, self.min_count)
        self._set_words(vectorizer)
        vectorize = partial(vectorizer, dtype=dtype)
        if on_cluster:
            shards = RowShards.of(submit_each(vectorize, blocks), dtype)
            return shards if self._fits_on_cluster() else shards.gather()
        tasks = [partial(call_elsewhere, partial(_read_then, block, vectorize)) for block in X.blocks]
        return store_rows(run_parallel(tasks), dtype)

    def _fits_on_cluster(self) -> bool:
        return self.estimator is not None and self.estimator._fits_on_cluster()

    @contextmanager
    def _explain_words(self) -> Iterator[None]:
        """Show progress, and explain texts without words."""
        try:
            with progress(None, f"{type(self).__name__}: words", 0):
                yield
        except ValueError as error:
            raise ValueError(
                f"X has no words to learn from: none is in min_count={self.min_count} texts; check that X holds the "
                "texts, pass more of them, or lower min_count of Tagger."
            ) from error

    def _set_words(self, vectorizer: TextVectorizer) -> None:
        self._vectorizer, self.vocabulary_, self.idf_ = vectorizer, vectorizer.vocabulary, vectorizer.idf
        self.n_features_in_ = len(vectorizer.idf)

    def _store_label_names(self, Y: Any) -> None:
        super()._store_label_names(Y)
        names = self.label_names
        if names is None and holds_tags(Y):
            names = encode_tags(Y).names
        if names is not None:
            self.label_names_in_ = np.asarray(names, dtype=object)

    def _read_labels(self, Y: Any, observed: Any) -> Labels:
        """Return labels of any form; lists of tags have the columns of the label names."""
        if Y is not None and holds_tags(Y):
            names = getattr(self, "label_names_in_", None)
            if names is None:
                raise ValueError("Y holds lists of tags, and the labels of the model have no names; pass a matrix.")
            Y = encode_tags(Y, list(names)).Y
        return super()._read_labels(Y, observed)

    def _check_fit(self, X: Any, Y: Any, observed: Any) -> tuple[Any, Labels]:
        has_tags = Y is not None and holds_tags(Y)
        X, labels = super()._check_fit(X, Y, observed)
        one_class = self.estimator is not None and self.estimator.about.positives_only
        by_default = one_class or (has_tags and labels.complete)
        self.positives_only_ = by_default if self.complete is None else not self.complete
        return X, labels

    def _check_label_names(self, labels: Labels) -> None:
        names = getattr(self, "label_names_in_", None)
        if names is not None and len(names) != labels.shape[1]:
            raise ValueError(f"label_names has {len(names)} names for {labels.shape[1]} labels; pass one for each.")

    def _check_calibrate(self, aim: str, X: Any, *side: Any) -> None:
        super()._check_calibrate(aim, X)  # the weights of a side are split by rows
        if isinstance(X, TextFiles) and self._fits_on_cluster():
            raise ValueError(
                "Calibration holds rows out, which rows on a Dask cluster cannot be; fit without it "
                "(--no-calibrate), then call calibrate(X, Y) with held-out texts."
            )

    def _check_sample_weight(self, sample_weight: Any, n: int) -> NDArray | None:
        """Return validated weights of texts; raise ValueError if the estimator's fit takes none."""
        if sample_weight is None:
            return None
        if self.estimator is not None and not has_fit_parameter(self.estimator, "sample_weight"):
            raise ValueError(
                f"sample_weight: the fit of {type(self.estimator).__name__} takes no weights; leave them out, or "
                "choose BinaryRelevance, LEML, OneClassMF or the default estimator."
            )
        return check_sample_weight(sample_weight, n)

    def _learn(self, X: Any, labels: Labels, side: LinearSide | None = None) -> None:
        self._check_label_names(labels)
        self._weights = None if side is None else self._check_sample_weight(side.sample_weight, len(labels))
        estimator, weight = self.estimator, self.name_weight
        self.__dict__.pop("report_", None)
        if estimator is None:
            prior = self._embed_names(labels.shape[1]) if weight == "auto" or weight else None
            choice = choose_estimator(X, labels, prior=prior, weights=self._weights, n_jobs=self.n_jobs)
            estimator, self.report_, self._choice = choice.estimator, list(choice.report), choice
            weight = choice.prior_weight if weight == "auto" else weight
        self.name_weight_ = self._resolve_weight(weight)
        self.model_ = clone(estimator).fit(X, labels, **self._fit_options(labels.shape[1]))

    def _resolve_weight(self, weight: Any) -> float:
        """Return the prior weight of names; "auto" is 1 for an estimator that chooses a factor itself, else 0."""
        return float(getattr(self.estimator, "chooses_prior", False)) if weight == "auto" else float(weight)

    def _fit_options(self, n_labels: int) -> dict[str, Any]:
        """Return options of the estimator's fit: as prior, the features of the names of labels times their weight.

        In a fit, they include the weights of texts.
        """
        weight = getattr(self, "name_weight_", 0.0)
        prior = self._embed_names(n_labels) if weight else None
        options = {"prior": None if prior is None else weight * prior, "sample_weight": self.__dict__.get("_weights")}
        return {name: value for name, value in options.items() if value is not None}

    def _embed_names(self, n_labels: int) -> Any:
        """Return the features of the names of labels, L×d with rows of length 1 or 0, or None without names."""
        names = getattr(self, "label_names_in_", None)
        if names is None or len(names) != n_labels or (self.features is not None and not self._source.takes_texts):
            return None
        texts = [f"{name} {NAME_SEPARATORS.sub(' ', str(name))}" for name in names]
        return normalize(self._check_rows(texts))

    def _scores(self, X: Any) -> Scores:
        return self.model_._scores(X)

    def _find_evidence(self, X: Any) -> NDArray[np.bool_]:
        """Return which texts have a word that the model knows; all rows of dense features do."""
        return np.diff(X.indptr) > 0 if sp.issparse(X) else super()._find_evidence(X)

    def _has_positives_only(self, labels: Labels) -> bool:
        return getattr(self, "positives_only_", False)

    def _calibrate_in_folds(self, X: Any, labels: Labels, aim: str) -> None:
        choice: Choice | None = self.__dict__.get("_choice")
        held_out = None
        if choice is not None and choice.score_held_out:
            held_out = choice.score_held_out(self.model_, self._measure_lengthening(X))
        self.calibration_ = calibrate_fitted(
            self.model_,
            X,
            labels,
            aim=aim,
            positives_only=self._has_positives_only(labels),
            options=self._fit_options(labels.shape[1]),
            held_out=held_out,
        )

    def _measure_lengthening(self, X: Any) -> NDArray | None:
        """Return how much longer the other words of each training text would be if it were new.

        A word that no more than ``min_count`` texts have would then be unknown; the others fill the length 1.
        """
        if self.features is not None or self.words == "hashing":
            return None
        rare = np.bincount(X.indices, minlength=X.shape[1]) <= self.min_count
        rest = 1 - np.asarray((X * X) @ rare.astype(X.dtype), float).ravel()
        return np.where(rest > MIN_REST, 1 / np.sqrt(np.maximum(rest, MIN_REST)), 0.0)

    def _prepare_folds(self, X: Any, labels: Labels) -> FoldScorer:
        """Return a function that scores the texts of a fold.

        All folds share the features, whose vocabulary is that of all texts; words say nothing about labels. The
        default estimator is chosen once for all folds.
        """
        self._check_parameters()
        X, labels = self._check_fit(X, labels, None)
        self._check_label_names(labels)
        estimator, weight = self.estimator, self.name_weight
        if estimator is None:
            choice = choose_estimator(X, labels, prior=self._embed_names(labels.shape[1]), n_jobs=self.n_jobs)
            estimator, weight = choice.estimator, choice.prior_weight if weight == "auto" else weight
        self.name_weight_ = self._resolve_weight(weight)
        return make_fold_scorer(estimator, X, labels, self._fit_options(labels.shape[1]))

    @classmethod
    def _upgrade_values(cls, values: dict[str, Any]) -> dict[str, Any]:
        return {("model_" if name == "packed_" else name): value for name, value in values.items()}

    def _check_loaded(self) -> None:
        self.ngrams = self.ngrams[0], self.ngrams[1]  # a list in JSON
        if self.vocabulary_ is not None and len(self.vocabulary_) != len(self.idf_):
            raise ValueError(f"{len(self.vocabulary_)} words and {len(self.idf_)} weights of words")
        if not isinstance(self.model_, MultiLabelEstimator):  # format 2 and older
            self.model_ = unpack_model(self, self.model_)
        if (self.model_.n_features_in_, self.model_.n_labels_) != (len(self.idf_), self.n_labels_):
            raise ValueError("the inner model has other features or labels")
        if "source_" in self.__dict__:
            self._source = unpack_source(self.__dict__.pop("source_"))
            self.features = self._source.source

    def _header(self) -> dict[str, Any]:
        header = super()._header() if self.features is None else clone(self).set_params(features=None)._header()
        if self.features is not None:
            header["parameters"]["features"] = describe_source(self.features)
        return header

    def _fitted_values(self) -> dict[str, Any]:
        values = super()._fitted_values()
        packed = None if self.features is None else pack_source(self._source)
        return values if packed is None else values | {"source_": packed}

    @property
    def needs_features(self) -> str:
        """What a loaded model asks for because its file could not hold it; empty if it is complete."""
        return explain_source(self.features) if is_missing(self.features) and "_source" not in vars(self) else ""

    def set_features(self, source: Any) -> Self:
        """Set the fitted transformer or the encoder of a loaded model, which its file could not hold."""
        check_source(source)
        if describe_source(source) != describe_source(self.features):
            raise ValueError(f"features is a {describe_source(source)}; {explain_source(self.features)}")
        self._source, self.features = use_source(source), source
        return self

    def __sklearn_clone__(self) -> Tagger:
        values = self.get_params(deep=False)
        # An encoder may be large, and nothing here changes it, so clones share it.
        return type(self)(
            **{k: v if k == "features" and hasattr(v, "encode") else clone(v, safe=False) for k, v in values.items()}
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = self.features is None
        tags.input_tags.two_d_array = self.features is not None
        tags.input_tags.sparse = False
        return tags


def name_tags(tagger: Tagger, Y: Any) -> tuple[Tagger, sp.csr_array]:
    """Return an unfitted Tagger that takes lists of tags as a matrix, with the names of its labels, and the matrix.

    Some of the tags may have been forgotten unless the Tagger says that they are complete.
    """
    encoded = encode_tags(Y, tagger.label_names)
    complete = False if tagger.complete is None else tagger.complete
    return clone(tagger).set_params(label_names=encoded.names, complete=complete), encoded.Y


def _takes_prior(estimator: Any) -> bool:
    """Whether the fit of an estimator takes a prior; None is the default estimator, which does."""
    if estimator is None or getattr(estimator, "chooses_prior", False):
        return True
    return isinstance(estimator, BinaryRelevance) and get_loss(estimator.loss).quadratic


def _check_texts(X: Any) -> list[str]:
    """Return texts as a list of str, or raise ValueError."""
    if isinstance(X, str):
        raise ValueError("X is one text; pass a list of texts, such as [text].")
    if get_frame_package(X) and len(X.columns) == 1:
        X = X[X.columns[0]]
    # No array of a list of texts: NumPy would give every text the width of the longest one.
    if len(getattr(X, "shape", ())) > 1 or sp.issparse(X):
        raise ValueError(f"X has shape {X.shape}; pass a list of texts.")
    texts = list(X)
    for position, text in enumerate(texts):
        if not isinstance(text, str):
            raise ValueError(f"X holds {text!r} at position {position}, which is not a text; pass a list of str.")
    if not texts:
        raise ValueError("X has no texts; pass at least one.")
    return texts


@dataclass(frozen=True, eq=False)
class TextVectorizer:
    """Conversion of texts to rows: x_w = (1 + ln count) · idf_w for each word that occurs, scaled to length 1.

    Attributes
    ----------
    ngrams : (int, int)
        The smallest and largest number of consecutive words in a feature.
    vocabulary : ndarray of str, or None
        The features. Without it words are hashed into as many buckets as ``idf`` has entries.
    idf : ndarray
        1 + ln((1 + n) / (1 + n_w)), where n_w of the n training texts contain word w.
    """

    ngrams: tuple[int, int]
    vocabulary: NDArray | None
    idf: NDArray

    def __call__(self, texts: Sequence[str], dtype: Any) -> sp.csr_array:
        """Return the rows of texts; a text without known words has the row 0."""
        return self.weigh(self._counter.transform(texts), dtype)

    def weigh(self, counts: Any, dtype: Any) -> sp.csr_array:
        """Return the rows of texts from their sparse counts of words."""
        rows = sp.csr_array(counts, dtype=float)
        rows.data = (1 + np.log(rows.data)) * self.idf[rows.indices]
        return normalize(rows, copy=False).astype(dtype)

    @cached_property
    def _counter(self) -> Any:
        if self.vocabulary is None:
            return _make_hashing_counter(self.ngrams, len(self.idf))
        vocabulary = {word: j for j, word in enumerate(self.vocabulary)}
        return CountVectorizer(**_counter_options(self.ngrams), vocabulary=vocabulary)


def learn_words(texts: Sequence[str], **options: Any) -> TextVectorizer:
    """Return a vectorizer with the vocabulary of these texts; the options are those of :func:`count_words`.

    >>> vectorizer = learn_words(["Salt and pepper", "salt"])
    >>> vectorizer.vocabulary.tolist(), vectorizer(["salt"], "float32").toarray().tolist()
    (['and', 'pepper', 'salt'], [[0.0, 0.0, 1.0]])
    """
    return count_words(texts, **options)[0]


def count_words(
    texts: Sequence[str],
    *,
    kind: str = "tfidf",
    ngrams: tuple[int, int] = (1, 1),
    max_features: int | None = None,
    min_count: int = 1,
    buckets: int = 1 << 18,
) -> tuple[TextVectorizer, sp.csr_array]:
    """Return a vectorizer with the vocabulary of these texts, and their counts of its words.

    >>> count_words(["salt, pepper, salt", "salt"])[1].toarray().tolist()
    [[1, 2], [0, 1]]
    """
    vocabulary = None
    if kind == "hashing":
        counts = _make_hashing_counter(ngrams, buckets).transform(texts)
    else:
        min_df = min(min_count, len(texts))
        counter = CountVectorizer(**_counter_options(ngrams), max_features=max_features, min_df=min_df)
        counts = counter.fit_transform(texts)
        vocabulary = counter.get_feature_names_out()
    document_counts = np.bincount(counts.indices, minlength=counts.shape[1])
    return TextVectorizer(ngrams, vocabulary, _weigh_words(counts.shape[0], document_counts)), sp.csr_array(counts)


class WordCounts(NamedTuple):
    """The words of some texts, how many of the texts have each, and how often they have it; buckets have no words."""

    n_texts: int
    words: NDArray | None
    documents: NDArray
    occurrences: NDArray


def count_documents(texts: Any, *, kind: str, ngrams: tuple[int, int], buckets: int) -> WordCounts:
    """Return the words of some texts, of which a block may have none.

    >>> count_documents(["salt, pepper, salt", "salt"], kind="tfidf", ngrams=(1, 1), buckets=8).documents
    array([1, 2])
    """
    texts, words = _check_texts(texts), None
    if kind == "hashing":
        counts = _make_hashing_counter(ngrams, buckets).transform(texts)
    else:
        counter = CountVectorizer(**_counter_options(ngrams))
        try:
            counts = counter.fit_transform(texts)
        except ValueError:  # no words
            none = np.zeros(0, int)
            return WordCounts(len(texts), np.zeros(0, object), none, none)
        words = np.asarray(counter.get_feature_names_out(), object)
    documents = np.bincount(counts.indices, minlength=counts.shape[1])
    return WordCounts(len(texts), words, documents, np.asarray(counts.sum(axis=0)).ravel().astype(np.int64))


def add_counts(
    parts: Sequence[WordCounts], ngrams: tuple[int, int], max_features: int | None, min_count: int
) -> TextVectorizer:
    """Return the vectorizer that :func:`count_words` makes of all texts, from the counts of their blocks."""
    n = sum(part.n_texts for part in parts)
    if parts[0].words is None:
        return TextVectorizer(ngrams, None, _weigh_words(n, sum(part.documents for part in parts)))  # type: ignore
    words, position = np.unique(np.concatenate([part.words for part in parts]), return_inverse=True)
    documents, occurrences = (
        np.bincount(position, np.concatenate(numbers), len(words)).astype(np.int64)
        for numbers in ([part.documents for part in parts], [part.occurrences for part in parts])
    )
    frequent = np.flatnonzero(documents >= min(min_count, n))
    if max_features is not None:
        frequent = np.sort(frequent[(-occurrences[frequent]).argsort()[:max_features]])
    if not len(frequent):
        raise ValueError("no word is in enough of them")
    return TextVectorizer(ngrams, words[frequent], _weigh_words(n, documents[frequent]))


def _weigh_words(n: int, documents: NDArray) -> NDArray:
    """Return 1 + ln((1 + n) / (1 + n_w))."""
    return 1 + np.log((1 + n) / (1 + documents))


def _read_then(read: Callable[[], list[str]], function: Callable[[list[str]], Any]) -> Any:
    return function(read())


def _counter_options(ngrams: tuple[int, int]) -> dict[str, Any]:
    return {"preprocessor": plain_text, "token_pattern": TOKEN, "ngram_range": tuple(ngrams)}


def _make_hashing_counter(ngrams: tuple[int, int], buckets: int) -> HashingVectorizer:
    return HashingVectorizer(**_counter_options(ngrams), n_features=buckets, norm=None, alternate_sign=False)
