"""Nyström features: the kernel that they approximate, worked out by brute force."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from labelgap import LEML, KMeansNystroem


@parametrize_with_checks([KMeansNystroem(), KMeansNystroem(3), KMeansNystroem(3, gamma="variance", append=False)])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def blobs(n=200, d=4, seed=0):
    """Rows around 20 points, so that K-means has something to find."""
    rng = np.random.default_rng(seed)
    points = 3 * rng.standard_normal((20, d))
    return points[rng.integers(0, 20, n)] + 0.3 * rng.standard_normal((n, d))


def sparse_rows(n=60, d=12, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, d)) * (rng.random((n, d)) < 0.3)


def gaussian(A, B, gamma):
    """The kernel pair by pair."""
    return np.array([[np.exp(-gamma * np.sum((a - b) ** 2)) for b in B] for a in A])


def alone(*args, **kwargs):
    return KMeansNystroem(*args, append=False, random_state=0, **kwargs)


# --- the kernel -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gamma", [0.02, 0.3, 5.0])
def test_inner_products_are_the_nystroem_approximation(gamma):
    X, other = blobs(), blobs(n=30, seed=1)
    model = alone(15, gamma=gamma).fit(X)
    C = model.landmarks_
    assert C.shape == (15, 4)
    near, far = gaussian(X, C, gamma), gaussian(other, C, gamma)
    expected = near @ np.linalg.pinv(gaussian(C, C, gamma), rcond=1e-10) @ far.T
    np.testing.assert_allclose(model.transform(X) @ model.transform(other).T, expected, atol=1e-7)


def test_the_whitening_is_the_symmetric_root_of_the_inverse():
    model = alone(15, gamma=0.3).fit(blobs())
    R, K = model.whitening_, gaussian(model.landmarks_, model.landmarks_, 0.3)
    np.testing.assert_allclose(R, R.T, atol=1e-12)
    np.testing.assert_allclose(R @ K @ R, np.eye(15), atol=1e-8)
    assert np.linalg.eigvalsh(R).min() > 0


def test_two_landmarks_by_hand():
    """K = [[1, e⁻¹], [e⁻¹, 1]] has eigenvalues 1 ± e⁻¹ along (1, ±1)/√2."""
    X = np.array([[0.0], [1.0]])
    model = alone(gamma=1.0).fit(X)
    plus, minus = 1 / np.sqrt(1 + np.exp(-1)), 1 / np.sqrt(1 - np.exp(-1))
    root = 0.5 * np.array([[plus + minus, plus - minus], [plus - minus, plus + minus]])
    middle = np.exp(-0.25) * root.sum(axis=0)
    np.testing.assert_allclose(model.transform([[0.5]])[0], middle, rtol=1e-12)


@pytest.mark.parametrize("n_landmarks", [50, 500])
def test_with_every_row_a_landmark_the_kernel_is_exact(n_landmarks):
    X = blobs(n=50)
    z = alone(n_landmarks, gamma=0.4).fit_transform(X)
    assert z.shape == (50, 50)
    np.testing.assert_allclose(z @ z.T, gaussian(X, X, 0.4), atol=1e-8)


def test_more_landmarks_come_nearer_to_the_kernel():
    X = blobs()
    K = gaussian(X, X, 0.3)
    errors = []
    for n_landmarks in (5, 20, 80):
        z = alone(n_landmarks, gamma=0.3).fit_transform(X)
        errors.append(np.linalg.norm(K - z @ z.T) / np.linalg.norm(K))
    assert errors[0] > 2 * errors[1] > 4 * errors[2]


def test_no_row_is_longer_than_in_the_kernels_own_space():
    X = blobs()
    squares = (alone(20, gamma=0.3).fit(X).transform(10 * X) ** 2).sum(axis=1)
    assert squares.max() <= 1 + 1e-9


# --- landmarks ------------------------------------------------------------------------------------------------------


def test_landmarks_are_a_fixed_point_of_k_means_where_clusters_are_plain():
    X = np.repeat(100.0 * np.eye(4), 10, axis=0) + np.random.default_rng(0).standard_normal((40, 4))
    model = alone(4).fit(X)
    order = np.argmax(model.landmarks_, axis=1)
    np.testing.assert_allclose(model.landmarks_, X.reshape(4, 10, 4).mean(axis=1)[order], rtol=1e-10)
    assert sorted(order) == [0, 1, 2, 3]


def test_centres_are_nearer_to_the_rows_than_random_rows_are():
    X = blobs(n=500)
    rng = np.random.default_rng(0)

    def error(C):
        return ((X[:, None] - C) ** 2).sum(axis=2).min(axis=1).mean()

    chosen = [error(X[rng.choice(500, 30, replace=False)]) for _ in range(5)]
    assert error(alone(30).fit(X).landmarks_) < 0.7 * min(chosen)


def test_equal_rows_are_one_landmark():
    X = np.array([[1.0, 0.0], [1.0, -0.0], [2.0, 3.0], [2.0, 3.0]])
    stored_zero = sp.csr_array(([1.0, 0.0, 1.0, 2.0, 3.0], [0, 1, 0, 0, 1], [0, 2, 3, 5]), shape=(3, 2))
    for rows in (X, sp.csr_array(X), stored_zero):
        found = alone().fit(rows).landmarks_
        np.testing.assert_array_equal(found[np.argsort(found[:, 0])], [[1, 0], [2, 3]])


def test_the_floor_keeps_landmarks_that_coincide_finite():
    X = np.repeat(blobs(n=5), 4, axis=0) * (1 + 1e-12 * np.arange(20)[:, None])
    model = alone(20, gamma=0.4).fit(X)
    assert len(model.landmarks_) == 20
    values = np.linalg.eigvalsh(gaussian(model.landmarks_, model.landmarks_, 0.4))
    assert (values > 1e-6).sum() == 5
    z = model.transform(X)
    assert np.abs(z).max() <= 1
    np.testing.assert_allclose(z @ z.T, gaussian(X, X, 0.4), atol=1e-6)


def test_k_means_that_finds_fewer_centres_is_no_warning():
    """Squares of these differences underflow, so that all the different rows are one to K-means."""
    X = 1e-170 * np.arange(30.0)[:, None]
    z = alone(3).fit_transform(X)
    assert np.isfinite(z).all()
    np.testing.assert_allclose(z @ z.T, 1, atol=1e-9)


def test_a_sample_of_the_rows_is_enough():
    X = blobs(n=2000)
    whole, part = alone(20, gamma=0.3).fit(X), alone(20, gamma=0.3, max_fit_rows=300).fit(X)
    few = alone(gamma=0.3, n_landmarks=7, max_fit_rows=7).fit(X)
    rows = {tuple(row) for row in X}
    assert {tuple(row) for row in few.landmarks_} <= rows
    assert len(few.landmarks_) == 7
    assert not {tuple(row) for row in part.landmarks_} <= rows
    K = gaussian(X[:100], X[:100], 0.3)

    def error(model):
        """The mean over a few seeds, since one alone may miss a blob."""
        features = (clone(model).set_params(random_state=seed).fit(X).transform(X[:100]) for seed in range(5))
        return np.mean([np.linalg.norm(K - z @ z.T) for z in features])

    assert error(part) < 1.5 * error(whole)
    everything = alone(20, gamma=0.3, max_fit_rows=None).fit(X)
    np.testing.assert_allclose(everything.landmarks_, whole.landmarks_, rtol=1e-10)


# --- the width of the kernel ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrap", [np.asarray, sp.csr_array, sp.csc_matrix])
def test_widths_from_the_data(wrap):
    """Values 0, 0, 1, 0, 3, 0: mean 2/3, variance 10/6 − 4/9 = 11/9. Squared distances 1, 9 and 4."""
    X = np.array([[0.0, 0.0], [1.0, 0.0], [3.0, 0.0]])
    assert alone(gamma="variance").fit(wrap(X)).gamma_ == pytest.approx(9 / 11)
    assert alone(gamma="variance", gamma_factor=2.0).fit(wrap(X)).gamma_ == pytest.approx(18 / 11)
    assert alone(gamma="median").fit(wrap(X)).gamma_ == pytest.approx(1 / 4)
    assert alone(gamma="median", gamma_factor=0.5).fit(wrap(X)).gamma_ == pytest.approx(1 / 8)
    assert alone(gamma=3, gamma_factor=2).fit(wrap(X)).gamma_ == 6.0


def test_the_variance_is_of_all_rows_and_the_median_of_different_ones():
    X = np.array([[0.0]] * 50 + [[1.0], [3.0]])
    model = alone(2, gamma="variance", max_fit_rows=2).fit(X)
    assert model.gamma_ == pytest.approx(1 / X.var())
    assert alone(gamma="median").fit(X).gamma_ == pytest.approx(1 / 4)


@pytest.mark.parametrize("gamma", ["median", "variance"])
@pytest.mark.parametrize("X", [np.ones((3, 2)), np.zeros((3, 2)), np.full((1, 1), 7.0)])
def test_rows_without_spread(gamma, X):
    model = alone(gamma=gamma).fit(X)
    assert model.gamma_ == 1.0
    np.testing.assert_allclose(model.transform(X), 1.0)
    np.testing.assert_allclose(model.transform(X + 1), np.exp(-X.shape[1]))


@pytest.mark.parametrize("gamma", [0.0, 1e-300, 1e308])
def test_extreme_widths_stay_finite(gamma):
    X = blobs(n=30)
    z = alone(10, gamma=gamma).fit_transform(X)
    assert np.isfinite(z).all()
    products = z @ z.T
    if gamma > 1:  # a row is like nothing but itself, and only where it is a landmark is that known
        own = products.diagonal().round()
        assert set(own) <= {0.0, 1.0}
        np.testing.assert_allclose(products, np.diag(own), atol=1e-6)
    else:
        np.testing.assert_allclose(products, 1.0, atol=1e-6)


# --- containers and precision ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("gamma", ["median", "variance", 0.3])
@pytest.mark.parametrize("n_landmarks", [8, 100])
def test_sparse_equals_dense(gamma, n_landmarks):
    X = sparse_rows()
    dense, sparse = (alone(n_landmarks, gamma=gamma).fit(rows) for rows in (X, sp.csr_array(X)))
    assert sparse.gamma_ == pytest.approx(dense.gamma_)
    np.testing.assert_allclose(sparse.landmarks_, dense.landmarks_, atol=1e-10)
    for rows in (sp.csr_array(X), sp.csc_matrix(X), X):
        found = sparse.transform(rows)
        assert isinstance(found, np.ndarray)
        np.testing.assert_allclose(found, dense.transform(X), atol=1e-8)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_appended_features(dtype):
    X = sparse_rows().astype(dtype)
    model = KMeansNystroem(8, random_state=0).fit(X)
    z = clone(model).set_params(append=False).fit_transform(X)
    beside = model.transform(X)
    assert isinstance(beside, np.ndarray)
    assert beside.dtype == z.dtype == dtype
    np.testing.assert_array_equal(beside, np.hstack([X, z]))
    for container in (sp.csr_array, sp.csr_matrix):
        found = model.transform(container(X))
        assert isinstance(found, container)
        assert found.dtype == dtype
        np.testing.assert_array_equal(found.toarray()[:, :12], X)
        np.testing.assert_allclose(found.toarray()[:, 12:], z, atol=1e-6)


def test_wide_indices_and_integers():
    X = np.round(4 * sparse_rows())
    narrow = KMeansNystroem(8, random_state=0).fit_transform(sp.csr_array(X))
    wide = sp.csr_array(X)
    wide.indices, wide.indptr = wide.indices.astype(np.int64), wide.indptr.astype(np.int64)
    found = KMeansNystroem(8, random_state=0).fit_transform(wide)
    np.testing.assert_array_equal(found.toarray(), narrow.toarray())
    whole = KMeansNystroem(8, random_state=0).fit_transform(X.astype(int))
    assert whole.dtype == np.float64
    np.testing.assert_allclose(whole, narrow.toarray(), atol=1e-8)


def test_single_precision_is_rounded_only_at_the_end():
    X = blobs().astype(np.float32)
    single, double = (alone(60, gamma=0.02).fit(rows) for rows in (X, X.astype(float)))
    np.testing.assert_array_equal(single.landmarks_, double.landmarks_)
    np.testing.assert_array_equal(single.transform(X), double.transform(X.astype(float)).astype(np.float32))


@pytest.mark.parametrize("wrap", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("append", [True, False])
def test_small_blocks_change_nothing(monkeypatch, wrap, append):
    X = wrap(sparse_rows())
    model = KMeansNystroem(8, append=append, random_state=0).fit(X)
    whole = model.transform(X)
    monkeypatch.setattr("labelgap.runtime.workers.MAX_CELLS_PER_BLOCK", 7 * 12)
    parts = model.transform(X)
    assert parts.shape == whole.shape
    np.testing.assert_allclose(abs(parts - whole).max(), 0, atol=1e-10)


def test_a_cell_stored_in_parts():
    X = np.array([[3.0, 0.0], [0.0, 1.0], [2.0, 2.0]])
    parts = sp.csr_array(([1.0, 2.0, 1.0, 2.0, 2.0], [0, 0, 1, 0, 1], [0, 2, 3, 5]), shape=(3, 2))
    for gamma in ("median", "variance"):
        whole, found = (KMeansNystroem(2, gamma=gamma, random_state=0).fit_transform(A) for A in (X, parts))
        np.testing.assert_allclose(found.toarray(), whole, atol=1e-12)
    assert parts.nnz == 5


def test_data_are_left_alone():
    X = sp.csr_array(([1.0, 0.0, 2.0, 5.0, 1.0], [1, 0, 0, 2, 1], [0, 2, 4, 5]), shape=(3, 3))
    before = [array.copy() for array in (X.data, X.indices, X.indptr)]
    for gamma in ("median", "variance"):
        KMeansNystroem(2, gamma=gamma, random_state=0).fit(X).transform(X)
    for array, old in zip((X.data, X.indices, X.indptr), before):
        np.testing.assert_array_equal(array, old)


def test_names():
    pd = pytest.importorskip("pandas")
    X = blobs(n=30)
    frame = pd.DataFrame(X, columns=list("abcd"))
    model = KMeansNystroem(2, random_state=0).fit(frame)
    names = ["a", "b", "c", "d", "kmeansnystroem0", "kmeansnystroem1"]
    assert list(model.get_feature_names_out()) == names
    shown = model.set_output(transform="pandas").transform(frame)
    assert list(shown.columns) == names
    np.testing.assert_array_equal(shown[list("abcd")], X)
    assert list(model.set_params(append=False).get_feature_names_out()) == names[4:]
    with pytest.raises(ValueError, match="input_features is not equal to feature_names_in_"):
        model.get_feature_names_out(list("wxyz"))


# --- repeatable, and of use -----------------------------------------------------------------------------------------


def test_seeds():
    X = blobs()
    first, again = (KMeansNystroem(15, random_state=3).fit_transform(X) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert not np.allclose(first, KMeansNystroem(15, random_state=4).fit_transform(X))
    a, b = (KMeansNystroem(15, random_state=3, n_jobs=n).fit_transform(X) for n in (1, 2))
    np.testing.assert_allclose(a, b, atol=1e-8)


def test_a_linear_model_learns_what_is_not_linear():
    """A label that says whether a row is in a ring around the origin."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (600, 2))
    Y = (np.abs(np.linalg.norm(X, axis=1) - 1.2) < 0.4).astype(int)[:, None]
    Y = np.hstack([Y, 1 - Y])
    plain = LEML(2, alpha=1e-3, random_state=0)
    curved = make_pipeline(KMeansNystroem(60, random_state=0), clone(plain))
    scores = [model.fit(X[:400], Y[:400]).score(X[400:], Y[400:]) for model in (plain, curved)]
    assert scores[0] < 0.75
    assert scores[1] > 0.9


# --- bad input ------------------------------------------------------------------------------------------------------

PARAMETERS = [
    ({"n_landmarks": 0}, r"n_landmarks=0 is out of range; pass an integer of at least 1"),
    ({"n_landmarks": 2.5}, r"n_landmarks=2\.5 is out of range; pass an integer"),
    ({"gamma": -1.0}, r"gamma=-1\.0 is out of range; pass a finite number of at least 0"),
    ({"gamma": np.nan}, r"gamma=nan is out of range"),
    ({"gamma": None}, r"gamma=None is out of range"),
    ({"gamma": "scale"}, r"gamma='scale' is not known; choose from \['median', 'variance'\]"),
    ({"gamma_factor": -2}, r"gamma_factor=-2 is out of range"),
    ({"gamma": 1e200, "gamma_factor": 1e200}, r"gamma times gamma_factor=inf is out of range"),
    ({"max_fit_rows": 0}, r"max_fit_rows=0 is out of range"),
    (
        {"n_landmarks": 30, "max_fit_rows": 20},
        r"max_fit_rows=20 is below n_landmarks=30.*raise max_fit_rows",
    ),
    ({"n_jobs": 0}, r"n_jobs=0 has no meaning"),
]


@pytest.mark.parametrize(("parameters", "message"), PARAMETERS)
def test_bad_parameters(parameters, message):
    model = KMeansNystroem(**parameters)
    with pytest.raises(ValueError, match=message):
        model.fit(blobs())
    with pytest.raises(NotFittedError):
        model.transform(blobs())


def with_value(value):
    X = blobs(n=20)
    X[3, 2] = value
    return X


@pytest.mark.parametrize("wrap", [np.asarray, sp.csr_array])
@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.nan, "Input X contains NaN"),
        (np.inf, "Input X contains infinity"),
        (-1e200, r"X holds values up to 1e\+200, whose squares overflow.*scale the features"),
    ],
)
def test_bad_values(wrap, value, message):
    with pytest.raises(ValueError, match=message):
        KMeansNystroem().fit(wrap(with_value(value)))
    model = KMeansNystroem().fit(blobs(n=20))
    with pytest.raises(ValueError, match=message):
        model.transform(wrap(with_value(value)))


def test_a_fit_that_fails_leaves_the_old_one():
    X = blobs(n=20)
    model = KMeansNystroem(3, random_state=0).fit(X)
    before = model.transform(X)
    for bad in (with_value(np.nan)[:, :3], with_value(1e200)[:, :3], X[:0], X[0]):
        with pytest.raises(ValueError, match=r"Input X|X holds|0 sample|Expected 2D"):
            model.fit(bad)
    with pytest.raises(ValueError, match="out of range"):
        model.set_params(n_landmarks=0).fit(X[:, :3])
    np.testing.assert_array_equal(model.transform(X), before)
    with pytest.raises(ValueError, match="X has 3 features, but KMeansNystroem is expecting 4"):
        model.transform(X[:, :3])
