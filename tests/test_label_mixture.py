"""The mixture model of labels: its formula, its parameters, and its audit."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.pipeline import make_pipeline

from labelgap import BinaryRelevance, audit
from labelgap.gaps import LabelMixture


@pytest.fixture(scope="module")
def words():
    """Counts of words that are a mixture of the words of the row's labels; some labels are flipped."""
    rng = np.random.default_rng(0)
    truth = rng.random((1500, 8)) < 0.3
    P = rng.dirichlet(np.full(12, 0.5), 8)
    shares = truth / np.maximum(truth.sum(axis=1, keepdims=True), 1)
    background = ~truth.any(axis=1, keepdims=True) / 12
    X = np.array([rng.multinomial(60, p) for p in shares @ P + background])
    written = truth ^ (rng.random(truth.shape) < 0.03)
    return X, truth, written, P


def test_the_components_are_the_distributions_of_the_labels(words):
    X, truth, _, P = words
    model = LabelMixture(background=0.05, max_iter=100).fit(X, truth)
    assert model.components_.sum(axis=1) == pytest.approx(np.ones(8))
    assert np.abs(model.components_ - P).max() < 0.05


def test_r_is_the_change_of_the_log_likelihood(words):
    X, _, written, _ = words
    model = LabelMixture().fit(X, written)
    described = model._describe(sp.csr_array(X[:5], dtype=float), sp.csr_array(written[:5], dtype=float))
    for i, j in np.ndindex(5, 8):
        others = written[i].copy()
        others[j] = False
        q, m = others @ model.components_ + 0.3 * model._words, others.sum()
        r = X[i] @ (np.log((q + model.components_[j]) / (m + 1.3)) - np.log(q / (m + 0.3)))
        assert described[i, j] == pytest.approx([1.0, r, r * m, m, np.log1p(m)])


def test_a_score_does_not_depend_on_its_own_label(words):
    X, _, written, _ = words
    model, flipped = LabelMixture().fit(X, written), written.copy()
    flipped[:, 3] ^= True
    scores, others = model.score_labels(X, written), model.score_labels(X, flipped)
    assert others[:, 3] == pytest.approx(scores[:, 3])
    assert not np.allclose(others[:, 2], scores[:, 2])


def test_dense_and_sparse_rows_have_the_same_scores(words):
    X, _, written, _ = words
    dense = LabelMixture().fit(X, written).score_labels(X, written)
    sparse = LabelMixture().fit(sp.csr_array(X), sp.csr_array(written)).score_labels(sp.csr_array(X), written)
    assert sparse == pytest.approx(dense)


def test_an_audit_beside_other_labels_finds_more_than_one_from_features_alone(words):
    X, truth, written, _ = words
    n_wrong = int((truth != written).sum())

    def count_right(estimator):
        found = audit(X, written.astype(np.int8), estimator, candidates=8, random_state=0)
        first = [kind.first(n_wrong // 2) for kind in (found.missing, found.doubtful)]
        return sum((truth != written)[part.rows, part.labels].sum() for part in first)

    assert count_right(LabelMixture()) > 1.2 * count_right(BinaryRelevance(0.1, loss="logistic"))


def test_a_pipeline_ends_with_the_mixture():
    texts = ["chewy cookies", "crisp cookies", "smoked bacon", "crisp bacon"] * 20 + ["cookies again"]
    tags = [["baking"], ["baking"], ["meat"], ["meat"]] * 20 + [[]]
    found = audit(texts, tags, make_pipeline(CountVectorizer(), LabelMixture()), random_state=0)
    assert next(found.records())[:3] == (80, "baking", "missing")


def test_features_below_0_are_refused():
    with pytest.raises(ValueError, match=r"X holds -1, but LabelMixture needs features that are not negative"):
        LabelMixture().fit([[-1.0], [1.0]], [[1], [0]])
