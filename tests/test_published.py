"""Published figures on real data, with the parameters that validation chose (see `labelgap reproduce`)."""

import os

import numpy as np
import pytest
from sklearn.preprocessing import normalize

from labelgap import LEML, OneClassMF, OneClassMFCV, hide_cells, hide_positives, load_dataset
from labelgap.metrics import hamming_loss, instance_auc, precision_at_k

pytestmark = pytest.mark.skipif(
    "LABELGAP_DATA" not in os.environ, reason="needs real data: LABELGAP_DATA does not name a folder"
)


@pytest.fixture(scope="module")
def bibtex():
    data = load_dataset("bibtex")
    return normalize(data.X_train), data.Y_train, normalize(data.X_test), data.Y_test


def test_bibtex_with_every_label_known(bibtex):
    X, Y, X_test, Y_test = bibtex
    best = LEML(150, alpha=2.0, random_state=0).fit(X, Y).predict_topk(X_test, 5)
    found = [100 * precision_at_k(Y_test, best, k) for k in (1, 3, 5)]
    assert np.all(np.array(found) >= [63.5, 38.5, 28.0]), found


@pytest.mark.parametrize(
    ("loss", "alpha", "least_p3", "most_hamming", "least_auc"),
    [
        ("squared", 2**0.5, 29.5, 0.0134, 0.855),
        ("logistic", 2**0.5, 25.79, 0.0150, 0.8392),
        ("squared_hinge", 8.0, 18.97, 0.0226, 0.7813),
    ],
)
def test_bibtex_with_a_fifth_of_the_cells(bibtex, loss, alpha, least_p3, most_hamming, least_auc):
    """LEML's tables 12, 14 and 15 at k = ⌊0.4 L⌋; for squared loss more than they have."""
    X, Y, X_test, Y_test = bibtex
    model = LEML(63, loss=loss, alpha=alpha, random_state=0).fit(X, hide_cells(Y, 0.2, random_state=0))
    scores = model.decision_function(X_test)
    assert 100 * precision_at_k(Y_test, scores, 3) >= least_p3
    assert hamming_loss(Y_test, scores) <= most_hamming
    assert instance_auc(Y_test, scores) >= least_auc


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_one_class_bibtex_with_every_label_known(bibtex):
    """LR-wSQ's row of the one-class paper's table Supp-3.

    As in the paper, P@5 on a fifth of the training rows chooses the number of alternations.
    """
    X, Y, X_test, Y_test = bibtex
    model = OneClassMF(150, weight_unlabelled=2.0**-6, alpha=0.5, max_iter=1, tol=0.0, random_state=0).fit(X, Y)
    best = model.predict_topk(X_test, 5)
    found = [100 * precision_at_k(Y_test, best, k) for k in (1, 3, 5)]
    assert np.all(np.array(found) >= [63.22, 39.89, 29.50]), found


def test_a_fifth_of_the_positives_of_bibtex(bibtex):
    """At least a point ahead of the best figures that installable peers reached on the same mask."""
    X, Y, X_test, Y_test = bibtex
    model = OneClassMFCV(150, n_splits=1, random_state=0).fit(X, hide_positives(Y, 0.2, random_state=0))
    best = model.predict_topk(X_test, 5)
    found = [100 * precision_at_k(Y_test, best, k) for k in (1, 3, 5)]
    assert np.all(np.array(found) >= [54.1, 32.6, 24.2]), found


def test_eurlex_with_every_label_known():
    data = load_dataset("eurlex")
    model = LEML(256, alpha=2.0, random_state=0).fit(normalize(data.X_train), data.Y_train)
    best = model.predict_topk(normalize(data.X_test), 5)
    found = [100 * precision_at_k(data.Y_test, best, k) for k in (1, 3, 5)]
    # Seeds and machines move these figures by 0.2: three seeds give 75.4 to 75.6, 59.6 to 59.7 and 48.7 to 48.8.
    assert np.all(np.array(found) >= [75.2, 59.5, 48.5]), found
