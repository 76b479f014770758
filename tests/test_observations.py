"""Labels against dense three-state matrices: 1 yes, 0 no, NaN unknown."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score, train_test_split

from labelgap import (
    LEML,
    Labels,
    hide_by_propensity,
    hide_cells,
    hide_positives,
    hold_out_cells,
    hold_out_positives,
    label_propensities,
)
from labelgap.observations import Container, as_labels

NAN = np.nan
N, L = 23, 7
FORMATS = ("csr", "csc", "coo", "lil", "dok", "bsr", "dia")
SEEDS = range(3)


def truth(seed, n=N, labels=L):
    """Random 0/1 with an empty row, a full row, an empty label and a full label."""
    Y = (np.random.default_rng(seed).random((n, labels)) < 0.3).astype(int)
    Y[0], Y[1], Y[:, 2], Y[:, 3] = 0, 1, 0, 1
    return Y


def mask(seed, n=N, labels=L):
    """Random flags with a row and a label of which nothing is known."""
    known = np.random.default_rng(1000 + seed).random((n, labels)) < 0.5
    known[4], known[:, 5] = False, False
    return known


def gaps(Y, known):
    return np.where(known, Y, NAN)


def stored(values, known, kind=sp.csr_array):
    """A sparse matrix that stores the values of the known cells, zeros too."""
    rows, columns = np.nonzero(known)
    return kind((values[rows, columns], (rows, columns)), shape=values.shape)


def assert_states(labels, dense):
    """Every way of looking at labels agrees with a dense matrix of 1, 0 and NaN."""
    dense = np.asarray(dense, float)
    known, positive = ~np.isnan(dense), dense == 1
    np.testing.assert_array_equal(labels.toarray(), dense)
    np.testing.assert_array_equal(labels.positives.toarray(), positive)
    assert labels.shape == dense.shape
    assert labels.ndim == 2
    assert len(labels) == len(dense)
    assert labels.n_known == known.sum()
    assert labels.complete == known.all() == (labels.known is None)
    assert f"{positive.sum()} positive, {(dense == 0).sum()} negative, {(~known).sum()} unknown" in repr(labels)
    for pattern in (labels.positives, labels.known):
        if pattern is not None:
            assert pattern.dtype == bool
            assert pattern.data.all()
            assert pattern.has_canonical_format
            assert pattern.indices.dtype == pattern.indptr.dtype == np.int32
    if labels.known is not None:
        np.testing.assert_array_equal(labels.known.toarray(), known)


# --- the five ways -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("dtype", ["int64", "int8", "uint8", "float32", "float64", "bool", "object"])
def test_dense_is_all_observed(seed, dtype):
    Y = truth(seed)
    given = Y.astype(dtype)
    before = given.copy()
    assert_states(Labels(given), Y)
    assert_states(Labels(given.tolist()), Y)
    np.testing.assert_array_equal(given, before)


@pytest.mark.parametrize("dtype", ["int64", "int8", "float32"])
def test_dense_minus_one_is_negative(dtype):
    Y = truth(0)
    assert_states(Labels((2 * Y - 1).astype(dtype)), Y)


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("flavour", ["array", "matrix"])
@pytest.mark.parametrize("dtype", ["bool", "int8", "int64", "float64"])
def test_sparse_is_all_observed(fmt, flavour, dtype):
    Y = truth(1)
    given = getattr(sp, f"{fmt}_{flavour}")(sp.csr_array(Y.astype(dtype)))
    before = given.copy()
    assert_states(Labels(given), Y)
    assert given.dtype == before.dtype == dtype
    np.testing.assert_array_equal(given.toarray(), before.toarray())
    assert given.nnz == before.nnz


def test_sparse_stored_zeros_are_negative_too():
    Y, known = truth(2), mask(2)
    assert_states(Labels(stored(Y, known | (Y == 1))), Y)


def test_sparse_minus_one_with_every_cell_stored():
    Y = truth(2)
    assert_states(Labels(stored(2 * Y - 1, np.ones_like(Y, bool))), Y)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("low", [0, -1])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_dense_nan_is_unknown(seed, low, dtype):
    Y, known = truth(seed), mask(seed)
    given = gaps(np.where(Y == 1, 1, low), known).astype(dtype)
    before = given.copy()
    assert_states(Labels(given), gaps(Y, known))
    np.testing.assert_array_equal(given, before)


def test_none_in_a_list_is_unknown():
    assert_states(Labels([[1, None], [0, 1]]), [[1, NAN], [0, 1]])


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    "wrap", [np.array, sp.csr_array, sp.coo_matrix, sp.lil_array, sp.bsr_array, np.ndarray.tolist]
)
@pytest.mark.parametrize("flag", [bool, np.uint8, float])
def test_observed_mask(seed, wrap, flag):
    Y, known = truth(seed), mask(seed)
    flags = wrap(known.astype(flag))
    before = np.array(flags) if isinstance(flags, list) else flags.copy()
    expected = gaps(Y, known)
    assert_states(Labels(Y, observed=flags), expected)
    assert_states(Labels(sp.csr_array(Y), observed=flags), expected)
    assert_states(Labels(sp.csc_matrix(Y), observed=flags, absent="unknown"), expected)
    assert_states(Labels(Labels(Y), observed=flags), expected)
    after = flags.toarray() if sp.issparse(flags) else np.array(flags)
    np.testing.assert_array_equal(after, before.toarray() if sp.issparse(before) else before)


@pytest.mark.parametrize("junk", [7, -1, 0.25, np.inf, NAN])
def test_outside_the_mask_labels_are_not_looked_at(junk):
    Y, known = truth(0), mask(0)
    given = np.where(known, Y, junk)
    assert_states(Labels(given, observed=known), gaps(Y, known))
    assert_states(Labels(stored(given, np.ones_like(known)), observed=known), gaps(Y, known))


def test_minus_one_inside_the_mask():
    Y, known = truth(0), mask(0)
    assert_states(Labels(2 * Y - 1, observed=known), gaps(Y, known))
    assert_states(Labels(stored(2 * Y - 1, known), observed=known), gaps(Y, known))


def test_mask_of_everything_and_stored_false():
    Y, known = truth(0), mask(0)
    everything = Labels(Y, observed=np.ones_like(known))
    assert everything.complete
    assert_states(everything, Y)
    assert_states(Labels(Y, observed=stored(known, np.ones_like(known))), gaps(Y, known))


def test_labels_with_a_mask_narrow():
    Y, first, second = truth(0), mask(0), mask(1)
    labels = Labels(Y, observed=first)
    assert_states(as_labels(labels, second), gaps(Y, first & second))
    assert_states(as_labels(labels, np.ones_like(first)), gaps(Y, first))
    assert as_labels(labels) is labels
    assert_states(labels, gaps(Y, first))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("fmt", ["csr", "csc", "coo"])
@pytest.mark.parametrize("flavour", ["array", "matrix"])
@pytest.mark.parametrize("low", [0, -1])
def test_absent_unknown(seed, fmt, flavour, low):
    Y, known = truth(seed), mask(seed)
    given = getattr(sp, f"{fmt}_{flavour}")(stored(np.where(Y == 1, 1, low), known))
    count = given.nnz
    assert_states(Labels(given, absent="unknown"), gaps(Y, known))
    assert given.nnz == count == known.sum()


@pytest.mark.parametrize("kind", [sp.lil_array, sp.dok_array, sp.lil_matrix])
def test_absent_unknown_where_zeros_cannot_be_stored(kind):
    Y, known = truth(0), mask(0)
    given = kind(sp.csr_array(stored(2 * Y - 1, known)))
    assert_states(Labels(given, absent="unknown"), gaps(Y, known))


def test_absent_unknown_with_nan_stored():
    Y, known = truth(0), mask(0)
    everywhere = stored(gaps(Y, known), np.ones_like(known))
    assert_states(Labels(everywhere, absent="unknown"), gaps(Y, known))


def test_absent_unknown_with_every_cell_stored_is_complete():
    Y = truth(0)
    assert_states(Labels(stored(Y, np.ones_like(Y)), absent="unknown"), Y)


def test_absent_does_not_touch_dense_labels():
    Y, known = truth(0), mask(0)
    assert_states(Labels(gaps(Y, known), absent="unknown"), gaps(Y, known))
    assert_states(Labels(Y, absent="unknown"), Y)


def test_one_class_reads_the_positives_of_every_form():
    Y, known = truth(0), mask(0)
    forms = [Labels(Y, observed=known), Labels(gaps(Y, known)), Labels(stored(Y, known), absent="unknown")]
    for labels in forms:
        np.testing.assert_array_equal(labels.positives.toarray(), (Y == 1) & known)


# --- untidy sparse matrices ----------------------------------------------------------------------------------------


def untidy(known, values, index_type):
    """CSR with unsorted indices of a given type."""
    tidy = sp.csr_array(stored(values, known))
    parts = [np.arange(a, b)[::-1] for a, b in zip(tidy.indptr, tidy.indptr[1:])]
    order = np.concatenate(parts)
    csr = sp.csr_array(tidy.shape, dtype=tidy.dtype)
    csr.data, csr.indices = tidy.data[order], tidy.indices[order].astype(index_type)
    csr.indptr = tidy.indptr.astype(index_type)
    return csr


@pytest.mark.parametrize("index_type", [np.int32, np.int64])
def test_unsorted_indices_and_wide_ones(index_type):
    Y, known = truth(0), mask(0)
    given = untidy(known, Y, index_type)
    indices, indptr, data = given.indices.copy(), given.indptr.copy(), given.data.copy()
    assert_states(Labels(given, absent="unknown"), gaps(Y, known))
    assert_states(Labels(Y, observed=untidy(known, known, index_type)), gaps(Y, known))
    assert_states(Labels(given), np.where(known, Y, 0))
    for after, before in zip((given.indices, given.indptr, given.data), (indices, indptr, data)):
        assert after.dtype == before.dtype
        np.testing.assert_array_equal(after, before)


def test_duplicates_add_up_as_everywhere_in_scipy():
    cells = ([0, 0, 1, 1], [0, 0, 1, 2])
    split = sp.coo_array((np.array([0.5, 0.5, 0.0, 1.0]), cells), shape=(2, 3))
    assert_states(Labels(split), [[1, 0, 0], [0, 0, 1]])
    assert_states(Labels(split, absent="unknown"), [[1, NAN, NAN], [NAN, 0, 1]])
    flags = sp.coo_array((np.ones(4, bool), cells), shape=(2, 3))
    assert_states(Labels(flags), [[1, 0, 0], [0, 1, 1]])
    with pytest.raises(ValueError, match="Y holds 2 at row 0, label 0"):
        Labels(sp.coo_array((np.array([1, 1]), ([0, 0], [0, 0])), shape=(1, 1)))


def test_labels_are_a_copy():
    Y = sp.csr_array(np.array([[1.0, 0.0], [0.0, 1.0]]))
    flags = np.array([[True, True], [False, True]])
    labels = Labels(Y, observed=flags)
    Y.data[:], flags[:] = 0, False
    assert_states(labels, [[1, 0], [NAN, 1]])


# --- small shapes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(1, 4), (4, 1), (1, 1), (0, 3), (3, 0)])
def test_small_shapes(shape):
    Y = np.arange(np.prod(shape)).reshape(shape) % 2
    known = Y == 0
    assert_states(Labels(Y), Y)
    assert_states(Labels(sp.csr_array(Y)), Y)
    assert_states(Labels(Y, observed=known), gaps(Y, known))
    assert_states(Labels(stored(Y, known), absent="unknown"), gaps(Y, known))
    assert_states(Labels(Y, observed=known).T, gaps(Y, known).T)
    assert Labels(Y, observed=known).encode(-1, 1).shape == shape


# --- rows, columns, targets ----------------------------------------------------------------------------------------

KEYS = [
    slice(None),
    slice(3, 11, 2),
    slice(None, None, -1),
    slice(5, 5),
    [4, 4, 0, 22],
    [-1, 2],
    [],
    np.array([7, 1], np.int32),
    np.arange(N) % 3 == 0,
    (np.arange(N) % 3 == 0).tolist(),
]


@pytest.mark.parametrize("key", KEYS, ids=str)
@pytest.mark.parametrize("wrap", [lambda key: key, lambda key: (key, ...), lambda key: (key, slice(None))])
def test_rows_as_numpy_takes_them(key, wrap):
    Y, known = truth(0), mask(0)
    assert_states(Labels(Y)[wrap(key)], Y[key])
    assert_states(Labels(Y, observed=known)[wrap(key)], gaps(Y, known)[key])


@pytest.mark.parametrize("everything", [..., (), (...,)], ids=str)
def test_an_ellipsis_is_every_row(everything):
    assert_states(Labels(truth(0))[everything], truth(0))


@pytest.mark.parametrize("row", [0, 5, -1, np.int64(3)])
def test_one_row_stays_a_matrix(row):
    Y, known = truth(0), mask(0)
    assert_states(Labels(Y, observed=known)[row], gaps(Y, known)[[row]])
    assert_states(Labels(Y)[row, ...], Y[[row]])


def test_rows_of_which_all_is_known_are_complete():
    Y = np.array([[1, NAN], [0, 1], [1, 1]])
    assert not Labels(Y).complete
    assert_states(Labels(Y)[1:], Y[1:])


@pytest.mark.parametrize("key", [(0, 1), (slice(None), [0, 1]), (slice(None), np.array([0, 1])), None, N, [0.5]])
def test_other_indices_are_refused(key):
    with pytest.raises(IndexError):
        Labels(truth(0))[key]


def test_indexing_keeps_the_container():
    labels = Labels((2 * truth(0) - 1).astype(np.int8))
    assert labels[:3].container == labels.T.container == Container(False, "int8", -1.0)


@pytest.mark.parametrize("seed", SEEDS)
def test_transposition(seed):
    Y, known = truth(seed), mask(seed)
    labels = Labels(Y, observed=known)
    assert_states(labels.T, gaps(Y, known).T)
    assert_states(labels.T.T, gaps(Y, known))
    assert_states(Labels(Y).T, Y.T)


@pytest.mark.parametrize("known", [None, mask(0)], ids=["complete", "gaps"])
@pytest.mark.parametrize(("low", "high"), [(0, 1), (-1, 1), (2, 0)])
def test_encode_stores_every_known_cell(known, low, high):
    Y = truth(0)
    targets = Labels(Y, observed=known).encode(low, high, np.float32)
    inside = np.ones_like(Y, bool) if known is None else known
    rows, columns = np.nonzero(inside)
    assert targets.dtype == np.float32
    assert targets.nnz == inside.sum()
    assert targets.indices.dtype == np.int32
    np.testing.assert_array_equal(targets.indices, columns)
    np.testing.assert_array_equal(np.repeat(np.arange(N), np.diff(targets.indptr)), rows)
    np.testing.assert_array_equal(targets.data, np.where(Y == 1, high, low)[rows, columns])


def test_of_patterns_drops_unknown_positives():
    Y, known = truth(0), mask(0)
    labels = Labels.of_patterns(sp.csr_array(Y), sp.csr_array(known))
    assert_states(labels, gaps(Y, known))
    assert labels.container.sparse


# --- containers ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given",
    [
        np.array([[1, 0], [0, 0]], np.int8),
        np.array([[True, False], [False, False]]),
        np.array([[1.0, -1.0], [-1.0, -1.0]], np.float32),
        sp.csr_array(np.array([[1, 0], [0, 0]], np.uint8)),
        sp.csc_array(np.array([[True, False], [False, False]])),
    ],
    ids=["int8", "bool", "signed float32", "csr uint8", "csc bool"],
)
def test_pack_writes_what_was_read(given):
    labels = Labels(given)
    packed = labels.container.pack(labels.positives)
    assert packed.dtype == given.dtype
    assert sp.issparse(packed) == sp.issparse(given)
    dense = given.toarray() if sp.issparse(given) else given
    np.testing.assert_array_equal(packed.toarray() if sp.issparse(packed) else packed, dense)


# --- splitters -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["nan", "labels", "sparse labels"])
def test_cross_validation_sees_the_gaps(form, planted):
    X, Y, known = planted(n=60)
    forms = {
        "nan": gaps(Y, known),
        "labels": Labels(Y, observed=known),
        "sparse labels": Labels(stored(Y, known), absent="unknown"),
    }
    model = LEML(2, alpha=0.1, random_state=0, n_jobs=1)
    splitter = KFold(3, shuffle=True, random_state=0)
    found = cross_val_score(model, X, forms[form], cv=splitter)
    for score, (train, test) in zip(found, splitter.split(X)):
        dense = gaps(Y, known)
        assert score == model.fit(X[train], dense[train]).score(X[test], dense[test])


@pytest.mark.parametrize("form", [gaps, lambda Y, known: Labels(Y, observed=known)], ids=["nan", "labels"])
def test_grid_search_on_gaps(form, planted):
    X, Y, known = planted(n=60)
    search = GridSearchCV(LEML(2, random_state=0, n_jobs=1), {"alpha": [0.1, 1e4]}, cv=3)
    search.fit(X, form(Y, known))
    assert search.best_params_ == {"alpha": 0.1}
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


def test_train_test_split_keeps_rows_together():
    Y, known = truth(0), mask(0)
    rows = np.arange(N)[:, None]
    rows_train, rows_test, train, test = train_test_split(rows, Labels(Y, observed=known), random_state=0)
    assert_states(train, gaps(Y, known)[rows_train.ravel()])
    assert_states(test, gaps(Y, known)[rows_test.ravel()])


# --- ways of losing labels -----------------------------------------------------------------------------------------


def assert_binomial(count, n, p):
    """A draw that lies more than 5 standard deviations off happens once in a million."""
    assert abs(count - n * p) <= 5 * np.sqrt(n * p * (1 - p)) + 1e-9


BIG = (np.random.default_rng(0).random((400, 30)) < 0.2).astype(int)
BIG_KNOWN = np.random.default_rng(1).random(BIG.shape) < 0.5


@pytest.mark.parametrize("keep", [0.0, 0.1, 0.7, 1.0])
@pytest.mark.parametrize("known", [None, BIG_KNOWN], ids=["complete", "gaps"])
def test_hide_cells(keep, known):
    labels = Labels(BIG, observed=known)
    left = hide_cells(labels, keep, random_state=3)
    states, before = left.toarray(), labels.toarray()
    assert_states(left, states)
    seen = ~np.isnan(states)
    np.testing.assert_array_equal(states[seen], before[seen])
    assert_binomial(left.n_known, labels.n_known, keep)
    assert_binomial(left.positives.nnz, labels.positives.nnz, keep)
    np.testing.assert_array_equal(hide_cells(labels, keep, random_state=3).toarray(), states)
    if 0 < keep < 1:
        assert not np.array_equal(hide_cells(labels, keep, random_state=4).toarray(), states, equal_nan=True)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("known", [None, BIG_KNOWN], ids=["complete", "gaps"])
def test_hold_out_cells_splits_the_known_ones(share, known):
    labels = Labels(BIG, observed=known)
    train, held = hold_out_cells(labels, share, random_state=3)
    both = labels.toarray()
    a, b = train.toarray(), held.toarray()
    assert_states(train, a)
    assert_states(held, b)
    assert not (~np.isnan(a) & ~np.isnan(b)).any()
    np.testing.assert_array_equal(np.where(np.isnan(a), b, a), both)
    assert_binomial(held.n_known, labels.n_known, share)
    np.testing.assert_array_equal(hold_out_cells(labels, share, random_state=3)[1].toarray(), b)


@pytest.mark.parametrize("keep", [0.0, 0.4, 1.0])
def test_hide_positives(keep):
    left = hide_positives(BIG, keep, random_state=3)
    assert set(np.unique(left.toarray())) <= {0.0, 1.0}
    assert (left.toarray() <= BIG).all()
    assert_binomial(left.nnz, BIG.sum(), keep)
    np.testing.assert_array_equal(hide_positives(BIG, keep, random_state=3).toarray(), left.toarray())


@pytest.mark.parametrize("share", [0.0, 0.2, 0.37, 1.0])
@pytest.mark.parametrize(
    "wrap", [np.array, sp.csc_array, lambda Y: 2 * Y - 1, lambda Y: Labels(Y, observed=BIG_KNOWN)]
)
def test_hold_out_positives_splits_them(share, wrap):
    given = wrap(BIG)
    whole = Labels(given).positives.toarray()
    train, held = hold_out_positives(given, share, random_state=3)
    for part in (train, held):
        assert part.format == "csr"
        assert part.dtype == float
        assert part.shape == BIG.shape
        assert part.has_canonical_format
        assert (part.data == 1).all()
    np.testing.assert_array_equal(train.toarray() + held.toarray(), whole)
    assert held.nnz == round(share * whole.sum())
    again = hold_out_positives(given, share, random_state=3)
    np.testing.assert_array_equal(again[1].toarray(), held.toarray())
    if 0 < share < 1:
        assert (hold_out_positives(given, share, random_state=4)[1] != held).nnz


def test_hold_out_positives_favours_none():
    # Five positives, two of them held out: over many draws each in 2/5, and each of the ten pairs in 1/10 of them.
    Y = np.array([[1, 0, 1], [0, 1, 1], [1, 0, 0]])
    rng = np.random.RandomState(0)
    draws = np.array([hold_out_positives(Y, 0.4, random_state=rng)[1].toarray()[Y == 1] for _ in range(1000)])
    together = draws.T @ draws
    for i in range(5):
        for j in range(5):
            assert_binomial(together[i, j], 1000, 0.4 if i == j else 0.1)


def test_hold_out_positives_of_nothing_and_by_default():
    for part in hold_out_positives(np.zeros((3, 2)), 0.5):
        assert (part.nnz, part.shape) == (0, (3, 2))
    assert [part.nnz for part in hold_out_positives(np.ones((5, 3)))] == [12, 3]


def test_hold_out_positives_takes_labels_and_no_ratings():
    with pytest.raises(ValueError, match="Y holds 4"):
        hold_out_positives(np.array([[4.0, 0.0]]))


def test_hide_by_propensity_keeps_frequent_labels_best():
    rng = np.random.default_rng(0)
    Y = (rng.random((4000, 3)) < [0.5, 0.05, 0.005]).astype(int)
    chance = label_propensities(Y)
    left = hide_by_propensity(Y, random_state=3).toarray()
    assert (left <= Y).all()
    for label in range(3):
        assert_binomial(left[:, label].sum(), Y[:, label].sum(), chance[label])
    assert chance[0] > chance[1] > chance[2]
    np.testing.assert_array_equal(hide_by_propensity(Y, random_state=3).toarray(), left)


def test_propensities_by_hand():
    # N = 100, N_l = 10: C = (4.605170 − 1) · 2.5^0.55 = 3.605170 · 1.655262 = 5.967501;
    # 11.5^−0.55 = exp(−0.55 · 2.442347) = 0.260985; 1 / (1 + 5.967501 · 0.260985) = 0.391018.
    # N_l = 0: 1.5^−0.55 = exp(−0.55 · 0.405465) = 0.800112; 1 / (1 + 5.967501 · 0.800112) = 0.173170.
    Y = np.zeros((100, 2))
    Y[:10, 0] = 1
    np.testing.assert_allclose(label_propensities(Y), [0.391018, 0.173170], atol=2e-6)


def test_propensities_of_other_constants():
    # A = 0.5, B = 0: C = log N − 1, p = 1 / (1 + C / √N_l) with √4 = 2.
    Y = np.zeros((50, 1))
    Y[:4] = 1
    assert label_propensities(Y, A=0.5, B=0.0)[0] == pytest.approx(2 / (2 + np.log(50) - 1))


@pytest.mark.parametrize("n", [1, 2, 3])
def test_propensities_of_few_rows_are_probabilities(n):
    p = label_propensities(np.ones((n, 2)))
    assert ((p > 0) & (p < 1)).all()


@pytest.mark.parametrize("call", [hide_cells, hide_positives, hold_out_cells, hold_out_positives])
@pytest.mark.parametrize("share", [-0.1, 1.5, NAN])
def test_a_share_is_between_0_and_1(call, share):
    name = "share" if call in (hold_out_cells, hold_out_positives) else "keep"
    with pytest.raises(ValueError, match=f"{name}={share} is not a share; pass a number from 0 to 1"):
        call(BIG, share)


# --- errors: the argument, what was found, what to do ---------------------------------------------------------------


@pytest.mark.parametrize(
    "mixed",
    [
        np.array([[0, -1, 1]]),
        np.array([[0.0, -1.0, NAN]]),
        sp.csr_array((np.array([0, -1]), np.array([0, 1]), np.array([0, 2])), shape=(1, 3)),
    ],
    ids=["dense", "nan", "sparse"],
)
def test_mixing_zero_and_minus_one(mixed):
    with pytest.raises(ValueError, match=r"Y mixes 0 and −1.*write negatives one way"):
        Labels(mixed, absent="unknown")


def test_mixing_outside_the_mask_does_not_matter():
    assert_states(Labels([[0, -1, 1]], observed=[[1, 0, 1]]), [[0, NAN, 1]])


ERRORS = [
    ({"Y": [[1, 2]]}, "Y holds 2 at row 0, label 1; labels must be 0/1, bool or −1/"),
    ({"Y": [[0, 1], [0.5, 1]]}, "Y holds 0.5 at row 1, label 0"),
    ({"Y": [[0, np.inf]]}, "Y holds inf at row 0, label 1"),
    ({"Y": sp.csr_array([[0, 0], [0, 3]])}, "Y holds 3 at row 1, label 1.*MultiLabelBinarizer"),
    ({"Y": sp.csr_array([[0, 0], [0, 3]]), "absent": "unknown"}, "Y holds 3 at row 1, label 1"),
    ({"Y": [["cat", "dog"]]}, "Y holds .* not numbers.*MultiLabelBinarizer"),
    ({"Y": [["1", "0"]]}, "Y holds .* not numbers.*MultiLabelBinarizer"),
    ({"Y": np.array([["1", 0]], object)}, "Y holds object values that are not numbers"),
    ({"Y": np.array([[1j, 0]])}, "Y holds complex128 values that are not numbers"),
    ({"Y": [[1, 2], [0]]}, "Y is not a matrix: its rows differ in length.*MultiLabelBinarizer"),
    ({"Y": [1, 0]}, r"Y must have two dimensions.*has 1; .*reshape\(-1, 1\)"),
    ({"Y": np.zeros((2, 2, 2))}, "Y must have two dimensions.*has 3"),
    ({"Y": sp.coo_array([1, 0, 1])}, "Y must have two dimensions.*has 1"),
    ({"Y": [[1, 0]], "absent": "maybe"}, "absent='maybe' is not understood; use 'negative' or 'unknown'"),
    ({"Y": [[1, 0]], "observed": [[1]]}, r"observed has shape \(1, 1\) and Y has \(1, 2\); pass one flag"),
    ({"Y": [[1, 0]], "observed": [1, 0]}, r"observed has shape \(2,\) and Y has \(1, 2\)"),
    ({"Y": sp.csr_array([[1, 0]]), "observed": sp.csr_array([[1]])}, "observed has shape"),
    ({"Y": [[1, 0]], "observed": [["y", "n"]]}, "observed holds .* pass booleans"),
    ({"Y": [[1, 0]], "observed": [[1.0, NAN]]}, "observed holds .* pass booleans"),
    ({"Y": [[1, 0]], "observed": sp.csr_array([[1.0, NAN]])}, "observed holds .* pass booleans"),
    (
        {"Y": [[1, NAN]], "observed": [[1, 1]]},
        "observed says that row 0, label 1 is known, but Y is NaN there; clear",
    ),
    ({"Y": sp.csr_array([[1.0, NAN]])}, "Y is sparse and stores NaN.*absent='unknown'"),
    ({"Y": sp.csr_array([[1.0, NAN]]), "observed": [[1, 1]], "absent": "unknown"}, "Y is sparse and stores NaN"),
    ({"Y": sp.csr_array([[1, -1, 0]])}, "Y is sparse, stores −1 and leaves known cells out.*absent='unknown'"),
    ({"Y": sp.csr_array([[1, -1, 0]]), "observed": [[1, 1, 1]], "absent": "unknown"}, "stores −1 and leaves known"),
    ({"Y": sp.bsr_array([[1, 0]]), "absent": "unknown"}, "Y is a bsr matrix.*pass a CSR or COO"),
    ({"Y": sp.dia_array([[1, 0]]), "absent": "unknown"}, "Y is a dia matrix.*pass a CSR or COO"),
]


@pytest.mark.parametrize(("arguments", "message"), ERRORS)
def test_errors_help(arguments, message):
    with pytest.raises(ValueError, match=message):
        Labels(**arguments)
    if "absent" not in arguments:
        with pytest.raises(ValueError, match=message):
            as_labels(*arguments.values())


def test_labels_with_a_mask_of_another_shape():
    with pytest.raises(ValueError, match=r"observed has shape \(1, 1\) and Y has \(1, 2\)"):
        Labels(Labels([[1, 0]]), observed=[[True]])
