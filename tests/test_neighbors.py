"""Nearest rows: the ranked sparse product and the indexes against brute force; ties, empty rows, duplicates."""

import multiprocessing
import pickle
import sys

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import NotFittedError
from sklearn.neighbors import NearestNeighbors

import reference_kernels as reference
from labelgap.kernels import cpu
from labelgap.neighbors import (
    METRICS,
    ApproximateNeighbors,
    ExactNeighbors,
    compute_squared_norms,
    make_neighbors,
    scale_to_unit_length,
)
from labelgap.neighbors.indexes import sort_by_similarity
from labelgap.runtime import threads

PRECISION = [np.float32, np.float64]
VALUES = np.array([-1.0, -0.5, 0.0, 0.5, 1.0, 2.0])  # sums and products of these are exact, so ties are true ties


def sparse(n, d, density, seed, *, values=VALUES, wide=False):
    """A random CSR matrix; a fifth of its rows and of its columns are empty, and some stored values are 0."""
    rng = np.random.default_rng(seed)
    dense = rng.choice(values, (n, d)) * (rng.random((n, d)) < density)
    dense[: n // 5], dense[:, : d // 5] = 0, 0
    stored = rng.random((n, d)) < density / 10
    rows, columns = np.nonzero((dense != 0) | stored)
    A = sp.csr_array((dense[rows, columns], (rows, columns)), shape=(n, d))
    if wide:
        A.indptr, A.indices = A.indptr.astype(np.int64), A.indices.astype(np.int64)
    return A


def product_topk(A, B, k, dtype=np.float64):
    return cpu.product_topk(cpu.prepare(A, dtype), cpu.prepare(B, dtype), k)


def equal(found, expected):
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


# --- the ranked product ---------------------------------------------------------------------------------------------


def test_a_product_worked_by_hand():
    A = np.array([[1.0, 0.0, 2.0], [0.0, 0.0, 0.0], [0.0, -1.0, 0.0]])
    B = np.array([[1.0, 1.0, 0.0], [0.0, 3.0, 1.0], [0.0, 0.0, 0.0], [2.0, 0.0, 0.0]])
    # A Bᵀ = [[1, 2, 0, 2], [0, 0, 0, 0], [−1, −3, 0, 0]]
    indices, values = product_topk(A, B, 4)
    assert indices.tolist() == [[1, 3, 0, 2], [0, 1, 2, 3], [2, 3, 0, 1]]
    assert values.tolist() == [[2, 2, 1, 0], [0, 0, 0, 0], [0, 0, -1, -3]]
    assert indices.dtype == np.int64


@pytest.mark.parametrize("dtype", PRECISION)
@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize(
    ("shape", "density"),
    [((30, 50, 20), 0.1), ((30, 50, 20), 0.9), ((7, 400, 60), 0.02), ((60, 5, 3), 0.5), ((1, 1, 1), 1.0)],
    ids=str,
)
def test_product_topk_is_its_plain_twin(shape, density, wide, dtype):
    n, m, d = shape
    A, B = sparse(n, d, density, 0, wide=wide), sparse(m, d, density, 1, wide=wide)
    dense = A.toarray() @ B.toarray().T
    for k in sorted({1, min(3, m), m // 2 + 1, m}):
        found = product_topk(A, B, k, dtype)
        equal(
            found,
            reference.product_topk(reference.prepare(A, dtype), reference.prepare(B, dtype), k),
        )
        order = np.lexsort((np.tile(np.arange(m), (n, 1)), -dense))[:, :k]
        equal(found, (order, np.take_along_axis(dense, order, axis=1)))
        assert found[1].dtype == dtype


@pytest.mark.parametrize("dtype", PRECISION)
def test_product_topk_of_real_numbers(dtype):
    """Rounding may swap what is nearly equal, so values are compared with the true ones at the indices found."""
    rng = np.random.default_rng(0)
    A, B = (sparse(n, 300, 0.3, n, values=rng.standard_normal(1000)) for n in (80, 500))
    indices, values = product_topk(A, B, 40, dtype)
    dense = A.toarray() @ B.toarray().T
    scale = 1e-5 if dtype == np.float32 else 1e-13
    np.testing.assert_allclose(values, np.take_along_axis(dense, indices, axis=1), atol=scale * 30, rtol=0)
    np.testing.assert_allclose(values, -np.sort(-dense, axis=1)[:, :40], atol=scale * 30, rtol=0)
    assert all(len(set(row)) == 40 for row in indices.tolist())


@pytest.mark.parametrize("dtype", PRECISION)
def test_product_topk_does_not_depend_on_threads(dtype):
    rng = np.random.default_rng(0)
    # Some features are in most rows, most are in few; some rows have many, most have few.
    share = np.concatenate([np.full(10, 0.7), np.full(490, 0.02)])
    B = sp.csr_array(rng.standard_normal((900, 500)) * (rng.random((900, 500)) < share))
    A = sp.csr_array(sp.diags_array(np.repeat([1.0, 0.0], [600, 300])) @ B)
    A = sp.csr_array(sp.vstack([A, sparse(400, 500, 0.002, 3)]))
    results = []
    for n_jobs in (1, 2, 3):
        with threads(n_jobs):
            results.append(product_topk(A, B, 50, dtype))
    equal(results[0], results[1])
    equal(results[0], results[2])


@pytest.mark.parametrize("dtype", PRECISION)
@pytest.mark.parametrize("density", [0.03, 0.6])
def test_equal_rows_tie_wherever_they_stand(dtype, density):
    rng = np.random.default_rng(0)
    B = sparse(37, 40, density, 0, values=rng.standard_normal(100))[10:]
    copies = sp.csr_array(sp.vstack([B] * 9))
    indices, values = product_topk(B, copies, 9, dtype)
    own = np.asarray(B.multiply(B).sum(axis=1)).ravel() > 0
    best = (B @ B.T).toarray().argmax(axis=1)
    expected = best[:, None] + B.shape[0] * np.arange(9)
    np.testing.assert_array_equal(indices[own], expected[own])
    assert (values == values[:, :1])[own].all()


def test_repeated_and_unsorted_cells_add_up():
    ragged = sp.csr_array((np.ones(6), np.array([2, 0, 0, 1, 1, 1]), np.array([0, 3, 6])), shape=(2, 3))
    assert not ragged.has_canonical_format
    indices, values = product_topk(ragged, sp.csr_array(np.eye(3)), 3)
    assert indices.tolist() == [[0, 2, 1], [1, 0, 2]]
    assert values.tolist() == [[2, 1, 0], [3, 0, 0]]


def test_rows_and_queries_may_be_none_at_all():
    indices, values = product_topk(sp.csr_array((0, 4)), sp.csr_array((3, 4)), 2)
    assert indices.shape == values.shape == (0, 2)
    assert product_topk(sp.csr_array((2, 4)), sp.csr_array((3, 4)), 3)[0].tolist() == [[0, 1, 2]] * 2


@pytest.mark.parametrize(("shape", "k"), [((3, 5), 1), ((3, 4), 4), ((3, 4), 0)])
def test_product_topk_refuses_what_does_not_fit(shape, k):
    with pytest.raises(ValueError, match=rf"k={k}"):
        product_topk(sp.csr_array((2, 4)), sp.csr_array(shape), k)


# --- exact indexes --------------------------------------------------------------------------------------------------


def brute_force(metric, queries, rows, k):
    """Similarities one by one, in float64; ties to the lower index."""
    queries, rows = np.asarray(queries, float), np.asarray(rows, float)
    if metric == "cosine":
        queries, rows = ([row / (np.linalg.norm(row) or 1) for row in block] for block in (queries, rows))
    pair = (lambda q, x: -np.sum((q - x) ** 2)) if metric == "euclidean" else np.dot
    table = np.array([[pair(q, x) for x in rows] for q in queries])
    order = np.argsort(-table, axis=1, kind="stable")[:, :k]
    return order, np.take_along_axis(table, order, axis=1)


@pytest.fixture(params=["dense", "sparse"])
def container(request):
    return np.asarray if request.param == "dense" else sp.csr_array


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("dtype", PRECISION)
def test_exact_search_is_brute_force(metric, dtype, container):
    rng = np.random.default_rng(0)
    rows, queries = (rng.standard_normal((n, 12)) * (rng.random((n, 12)) < 0.5) for n in (90, 25))
    rows[[0, 50]], queries[3] = 0, 0
    rows, queries = rows.astype(dtype), queries.astype(dtype)
    index = ExactNeighbors(metric).fit(container(rows))
    for k in (1, 7, 90):
        indices, similarities = index.search(container(queries), k)
        expected = brute_force(metric, queries, rows, k)
        np.testing.assert_allclose(similarities, expected[1], atol=2e-6 if dtype == np.float32 else 1e-12)
        table = brute_force(metric, queries, rows, 90)
        at = np.argsort(table[0], axis=1)
        own = np.take_along_axis(table[1], np.take_along_axis(at, indices, axis=1), axis=1)
        np.testing.assert_allclose(similarities, own, atol=2e-6 if dtype == np.float32 else 1e-12)
        assert similarities.dtype == dtype
        assert indices.dtype == np.int64


@pytest.mark.parametrize("metric", ["dot", "euclidean"])
def test_ties_go_to_the_lower_index(metric, container):
    """Whole numbers have exact similarities, so the order is known to the last place."""
    rng = np.random.default_rng(1)
    rows, queries = (rng.integers(0, 3, (n, 4)).astype(float) for n in (60, 20))
    for k in (1, 11, 60):
        equal(
            ExactNeighbors(metric).fit(container(rows)).search(container(queries), k),
            brute_force(metric, queries, rows, k),
        )


@pytest.mark.parametrize("metric", ["dot", "euclidean"])
def test_what_was_found_in_any_order_is_put_in_order(metric):
    rows = np.tile(np.eye(2), (20, 1))
    shuffled = np.random.default_rng(0).permutation(40)[None]
    indices, similarities = sort_by_similarity(metric, np.array([[0.0, 1.0]]), rows, shuffled)
    assert indices.ravel().tolist() == [*range(1, 40, 2), *range(0, 40, 2)]
    assert (
        similarities.ravel().tolist()
        == [1.0 if metric == "dot" else 0.0] * 20 + [0.0 if metric == "dot" else -2.0] * 20
    )


@pytest.mark.parametrize("metric", METRICS)
def test_duplicates_come_in_their_order(metric, container):
    rng = np.random.default_rng(2)
    distinct = rng.standard_normal((9, 6))
    rows = np.tile(scale_to_unit_length(distinct), (5, 1))
    indices, similarities = ExactNeighbors(metric).fit(container(rows)).search(container(rows[:9]), 5)
    np.testing.assert_array_equal(indices, np.arange(9)[:, None] + 9 * np.arange(5))
    assert (similarities == similarities[:, :1]).all()
    np.testing.assert_allclose(similarities, 0 if metric == "euclidean" else 1, atol=1e-12)


def test_rows_of_zeros_have_similarity_0_and_come_before_opposite_rows(container):
    rows, queries = np.array([[-1.0, 0.0], [0.0, 0.0], [2.0, 0.0]]), np.array([[1.0, 0.0], [0.0, 0.0]])
    indices, similarities = ExactNeighbors().fit(container(rows)).search(container(queries), 3)
    assert indices.tolist() == [[2, 1, 0], [0, 1, 2]]
    assert similarities.tolist() == [[1, 0, -1], [0, 0, 0]]


def test_near_rows_far_from_the_origin(container):
    """q·x − ½‖x‖² loses these distances in float32; the answer must not."""
    rng = np.random.default_rng(3)
    rows = (1000 + rng.standard_normal((200, 5)) / 10).astype(np.float32)
    indices, similarities = ExactNeighbors("euclidean").fit(container(rows)).search(container(rows[:40]), 4)
    expected = brute_force("euclidean", rows[:40], rows, 4)
    np.testing.assert_array_equal(indices, expected[0])
    np.testing.assert_allclose(similarities, expected[1], rtol=1e-6)
    assert (similarities[:, 0] == 0).all()


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_extreme_lengths(scale, container):
    rows = scale * np.array([[3.0, 4.0], [0.0, 0.0], [4.0, -3.0]])
    scaled = scale_to_unit_length(container(rows))
    np.testing.assert_allclose(scaled.toarray() if sp.issparse(scaled) else scaled, [[0.6, 0.8], [0, 0], [0.8, -0.6]])
    assert ExactNeighbors().fit(container(rows)).search(container(rows), 1)[0].ravel().tolist() == [0, 0, 2]


def test_squared_norms_are_float64(container):
    assert compute_squared_norms(container(np.float32([[3e19, 4e19], [0, 0]]))).tolist() == [pytest.approx(25e38), 0]


def test_agreement_with_scikit_learn(container):
    rng = np.random.default_rng(4)
    rows, queries = (rng.random((n, 30)) * (rng.random((n, 30)) < 0.4) + 1e-3 for n in (300, 50))
    for metric in ("cosine", "euclidean"):
        theirs = NearestNeighbors(n_neighbors=9, algorithm="brute", metric=metric).fit(rows)
        distances, expected = theirs.kneighbors(queries)
        indices, similarities = ExactNeighbors(metric).fit(container(rows)).search(container(queries), 9)
        np.testing.assert_array_equal(indices, expected)
        np.testing.assert_allclose(similarities, 1 - distances if metric == "cosine" else -(distances**2), atol=1e-12)


@pytest.mark.parametrize("metric", METRICS)
def test_a_query_has_the_same_answer_alone_and_on_any_threads(metric, container):
    rng = np.random.default_rng(5)
    rows, queries = rng.standard_normal((700, 33)), rng.standard_normal((50, 33))
    index = ExactNeighbors(metric).fit(container(rows))
    with threads(1):
        together = index.search(container(queries), 6)
    for n_jobs in (1, 2, 3):
        with threads(n_jobs):
            equal(index.search(container(queries), 6), together)
            alone = [index.search(container(queries[i : i + 1]), 6) for i in (0, 17, 49)]
        equal([np.vstack(part) for part in zip(*alone, strict=True)], [part[[0, 17, 49]] for part in together])


def test_whole_numbers_and_lists_are_searched_as_float64():
    index = ExactNeighbors("dot").fit([[1, 2], [3, 4]])
    assert index.rows_.dtype == np.float64
    assert index.search([[1, 1]], 2)[1].tolist() == [[7, 3]]
    assert ExactNeighbors().fit(sp.csr_array(np.eye(2, dtype=bool))).rows_.dtype == np.float64
    assert index.search(np.empty((0, 2)), 1)[0].shape == (0, 1)


def test_the_rows_that_were_passed_stay_as_they_are(container):
    rows = container(np.array([[3.0, 4.0], [1.0, 0.0]]))
    before = rows.copy()
    for metric in METRICS:
        ExactNeighbors(metric).fit(rows).search(rows, 1)
    assert abs(rows - before).max() == 0


# --- approximate indexes --------------------------------------------------------------------------------------------


def clusters(n, d, seed=0):
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((n // 40, d))
    rows = centres[rng.integers(0, len(centres), n)] + 0.4 * rng.standard_normal((n, d))
    return rows * rng.uniform(0.5, 2, (n, 1))


def recall(found, expected):
    return np.mean([len(set(a) & set(b)) / len(b) for a, b in zip(found.tolist(), expected.tolist(), strict=True)])


@pytest.fixture(scope="module")
def planted():
    rows = clusters(4200, 24)
    return rows[:4000], rows[4000:]


@pytest.mark.parametrize("metric", METRICS)
def test_approximate_search_finds_most_and_measures_exactly(metric, planted):
    rows, queries = planted
    expected, expected_similarities = ExactNeighbors(metric).fit(rows).search(queries, 10)
    found, similarities = ApproximateNeighbors(metric).fit(rows).search(queries, 10)
    assert recall(found, expected) >= 0.95
    whole = (found == expected).all(axis=1)
    assert whole.mean() > 0.5
    np.testing.assert_array_equal(similarities[whole], expected_similarities[whole])
    assert (np.diff(similarities, axis=1) <= 0).all()


def test_a_wider_search_finds_more():
    rng = np.random.default_rng(0)
    rows, queries = rng.standard_normal((3000, 40)), rng.standard_normal((100, 40))  # no structure: hard
    expected, _ = ExactNeighbors().fit(rows).search(queries, 10)
    narrow, wide = (
        recall(
            ApproximateNeighbors(links=4, build_width=16, search_width=w).fit(rows).search(queries, 10)[0], expected
        )
        for w in (1, 400)
    )
    assert narrow < wide
    assert wide > 0.8


def test_the_same_rows_give_the_same_answers_on_any_threads(planted):
    rows, queries = (part[:1000].astype(np.float32) for part in planted)
    results = []
    for n_jobs in (1, 2, 3):
        with threads(n_jobs):
            results.append(ApproximateNeighbors(links=4, build_width=8, search_width=8).fit(rows).search(queries, 5))
    equal(results[0], results[1])
    equal(results[0], results[2])


def test_openmp_keeps_its_threads(planted):
    import faiss

    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(3)
    try:
        with threads(1):
            ApproximateNeighbors().fit(planted[0][:100]).search(planted[1], 3)
        assert faiss.omp_get_max_threads() == 3
    finally:
        faiss.omp_set_num_threads(before)


@pytest.mark.parametrize("k", [1, 30, 60])
def test_k_up_to_all_rows_with_duplicates_and_zeros(k):
    """A graph of copies falls apart: what the walk does not reach is found all the same."""
    rows = np.vstack([np.zeros((20, 3)), np.tile([[1.0, 0.0, 0.0]], (20, 1)), np.tile([[0.0, 1.0, 0.0]], (20, 1))])
    queries = np.array([[1.0, 0.1, 0.0], [0.0, 0.0, 0.0], [-1.0, 0.0, 0.0]])
    for metric in METRICS:
        found, similarities = (
            ApproximateNeighbors(metric, links=2, build_width=2, search_width=1).fit(rows).search(queries, k)
        )
        assert found.shape == (3, k)
        assert all(len(set(row)) == k for row in found.tolist())
        assert found.min() >= 0
        if k == 60:
            equal((found, similarities), ExactNeighbors(metric).fit(rows).search(queries, k))


@pytest.mark.parametrize("metric", METRICS)
def test_rows_of_zeros_alone_and_no_queries(metric):
    index = ApproximateNeighbors(metric).fit(np.zeros((5, 3)))
    indices, similarities = index.search(np.zeros((1, 3)), 5)
    assert indices.tolist() == [[0, 1, 2, 3, 4]]
    assert similarities.tolist() == [[0, 0, 0, 0, 0]]
    assert index.search(np.empty((0, 3)), 2)[0].shape == (0, 2)


def test_queries_beyond_single_precision_are_searched_exactly(planted):
    far = 1e60 * planted[1][:5]
    found, exact = (make("euclidean").fit(planted[0]) for make in (ApproximateNeighbors, ExactNeighbors))
    equal(found.search(far, 4), exact.search(far, 4))


def test_what_the_walk_loses_is_searched_exactly(planted, monkeypatch):
    rows, queries = planted
    index = ApproximateNeighbors().fit(rows)
    search_graph = index._search_graph

    def forgetful(queries, k):
        indices = search_graph(queries, k)
        indices[1, 2:], indices[4] = -1, -1
        return indices

    monkeypatch.setattr(index, "_search_graph", forgetful)
    found = index.search(queries[:6], 5)
    expected = ExactNeighbors().fit(rows).search(queries[:6], 5)
    equal([part[[1, 4]] for part in found], [part[[1, 4]] for part in expected])


@pytest.mark.parametrize("scale", [1e-100, 1e100])
def test_lengths_beyond_single_precision(scale, planted):
    rows, queries = (scale * part[:500] for part in planted)
    for metric in METRICS:
        found = ApproximateNeighbors(metric).fit(rows).search(queries, 5)[0]
        assert recall(found, ExactNeighbors(metric).fit(rows).search(queries, 5)[0]) >= 0.95


@pytest.mark.parametrize("make", [ExactNeighbors, ApproximateNeighbors])
def test_an_index_is_rebuilt_from_its_rows(make, planted):
    rows, queries = planted
    index = make("euclidean").fit(rows[:500])
    first = index.search(queries, 4)
    again = pickle.loads(pickle.dumps(index))
    assert "_structure" not in again.__dict__
    equal(again.search(queries, 4), first)
    equal(index.fit(rows[500:700]).search(queries, 4), make("euclidean").fit(rows[500:700]).search(queries, 4))


def _answers(index, queries, answers):
    answers.put(index.search(queries, 3)[0])


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux forks by default")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_an_index_works_in_a_forked_child(planted):
    rows, queries = planted
    index = ApproximateNeighbors().fit(rows[:1000])
    with threads(2):
        expected = index.search(queries, 3)[0]
        context = multiprocessing.get_context("fork")
        answers = context.Queue()
        child = context.Process(target=_answers, args=(index, queries, answers))
        child.start()
        np.testing.assert_array_equal(answers.get(timeout=60), expected)
        child.join()


# --- errors ---------------------------------------------------------------------------------------------------------


def test_make_neighbors():
    assert isinstance(make_neighbors(), ExactNeighbors)
    assert isinstance(make_neighbors("approximate", "dot"), ApproximateNeighbors)
    assert make_neighbors("approximate", "dot").metric == "dot"
    with pytest.raises(ValueError, match=r"algorithm='tree' is not known; choose from \['exact', 'approximate'\]"):
        make_neighbors("tree")
    with pytest.raises(ValueError, match=r"metric='manhattan' is not known; choose from \['cosine', 'dot', 'eu"):
        make_neighbors("exact", "manhattan")


@pytest.mark.parametrize(
    ("parameter", "value", "least"), [("links", 1, 2), ("build_width", 0, 1), ("search_width", 2.5, 1)]
)
def test_the_graph_needs_whole_numbers(parameter, value, least):
    with pytest.raises(
        ValueError, match=rf"{parameter}={value} is out of range; pass an integer of at least {least}"
    ):
        ApproximateNeighbors(**{parameter: value})


@pytest.mark.parametrize("k", [0, 4, 1.5, None, "2"])
def test_k_is_a_number_of_rows(k):
    with pytest.raises(
        ValueError, match=r"k=.* is out of range; the index has 3 rows, so pass an integer from 1 to 3"
    ):
        ExactNeighbors().fit(np.eye(3)).search(np.eye(3), k)


def test_queries_are_rows_like_those_of_the_index():
    index = ExactNeighbors().fit(np.eye(3))
    with pytest.raises(ValueError, match="queries has 2 columns; the rows of the index have 3"):
        index.search(np.ones((1, 2)), 1)
    with pytest.raises(
        ValueError, match=r"queries is sparse and the rows of the index are dense; pass queries.toarray"
    ):
        index.search(sp.csr_array(np.eye(3)), 1)
    with pytest.raises(
        ValueError, match=r"queries is dense and the rows of the index are sparse; pass scipy.sparse.csr"
    ):
        ExactNeighbors().fit(sp.csr_array(np.eye(3))).search(np.eye(3), 1)
    with pytest.raises(ValueError, match="queries contains NaN"):
        index.search([[np.nan, 0, 0]], 1)


@pytest.mark.parametrize("make", [ExactNeighbors, ApproximateNeighbors])
def test_rows_come_first_and_are_finite_and_dense(make):
    with pytest.raises(NotFittedError, match=f"This {make.__name__} has no rows yet; call fit first"):
        make().search(np.eye(3), 1)
    with pytest.raises(ValueError, match="rows contains infinity"):
        make().fit([[np.inf]])
    with pytest.raises(ValueError, match="minimum of 1 is required"):
        make().fit(np.empty((0, 3)))


def test_approximate_search_takes_dense_rows():
    with pytest.raises(
        ValueError, match="rows is sparse, and approximate search takes dense rows; use ExactNeighbors"
    ):
        ApproximateNeighbors().fit(sp.csr_array(np.eye(3)))


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(ImportError, match=r"faiss is needed here and not installed; .* labelgap\[ann\]"):
        ApproximateNeighbors().fit(np.eye(3))
