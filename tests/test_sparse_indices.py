"""Sparse matrices whose indices point outside are refused where they enter; 64-bit indices work as 32-bit ones."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from labelgap import LEML, BinaryRelevance, KMeansNystroem, Labels, OneClassMF
from labelgap.observations import check_sparse_indices

X = sp.csr_array(np.arange(12.0).reshape(4, 3) % 5)
Y = sp.csr_array(np.array([[1, 0], [0, 1], [1, 1], [0, 1]]))
FORMS = ["csr", "csc", "coo", "bsr"]


def damaged(matrix, form, index):
    """Return a matrix with one index replaced behind SciPy's back."""
    broken = getattr(sp.csr_array(matrix, copy=True), f"to{form}")()
    (broken.coords[1] if form == "coo" else broken.indices)[-1] = index
    return broken


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("index", [-5, 4, 10**8])
def test_an_index_outside_is_refused_wherever_it_enters(form, index):
    rows, labels = damaged(X, form, index), damaged(Y, form, index)
    model = LEML(1, random_state=0).fit(X, Y)
    calls = [
        lambda: LEML(1).fit(rows, Y),
        lambda: LEML(1).fit(X, labels),
        lambda: LEML(1).fit(X, Labels(Y, observed=damaged(np.ones((4, 2)), form, index))),
        lambda: BinaryRelevance().fit(rows, Y),
        lambda: model.predict_topk(rows, 1),
        lambda: model.decision_function(rows),
        lambda: model.score(X, labels),
        lambda: OneClassMF(1).fit(None, labels),
        lambda: OneClassMF(1).fit(X, Y, label_features=damaged(np.ones((2, 2)), form, index)),
        lambda: KMeansNystroem(2).fit(rows),
    ]
    for call in calls:
        with pytest.raises(ValueError, match=r"has the .* index .* and only"):
            call()


@pytest.mark.parametrize("pointers", [[0, 3, 2, 4, 9], [1, 2, 3, 4, 5], [0, 1, 2, 3, 10**9], [0, 2, -1, 3, 4]])
def test_pointers_that_lead_outside_are_refused(pointers):
    broken = sp.csr_array(X, copy=True)
    broken.indptr = np.array(pointers)
    with pytest.raises(ValueError, match="indptr"):
        LEML(1).fit(broken, Y)


def test_what_is_right_passes():
    for form in (*FORMS, "lil", "dok", "dia"):
        matrix = getattr(X, f"to{form}")()
        assert check_sparse_indices("X", matrix) is matrix
    assert check_sparse_indices("X", None) is None


def test_64_bit_indices_give_what_32_bit_ones_give():
    wide = [matrix.copy() for matrix in (X, Y)]
    for matrix in wide:
        matrix.indices, matrix.indptr = matrix.indices.astype(np.int64), matrix.indptr.astype(np.int64)
        assert matrix.indices.dtype == np.int64
    for make in (lambda: LEML(1, random_state=0), lambda: OneClassMF(1, random_state=0), BinaryRelevance):
        narrow, other = make().fit(X, Y), make().fit(*wide)
        np.testing.assert_allclose(
            other.decision_function(wide[0]), narrow.decision_function(X), rtol=1e-4, atol=1e-6
        )
        np.testing.assert_array_equal(other.predict_topk(wide[0], 2)[0], narrow.predict_topk(X, 2)[0])
