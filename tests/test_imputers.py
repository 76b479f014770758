"""Imputers: EM against densities and expectations row by row, FPC against the conditions of its minimum."""

from __future__ import annotations

import os
from functools import partial

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from labelgap import EMImputer, FPCImputer, LabelwiseSVM, load_dataset, make_completion
from labelgap.estimators.completion import gaussian_mixture as mixture
from labelgap.metrics import imputation_error, label_error

IMPUTERS = [EMImputer(), EMImputer(2, random_state=0), FPCImputer(), FPCImputer(solver="fpc")]
every_imputer = pytest.mark.parametrize("imputer", IMPUTERS, ids=str)


@parametrize_with_checks(IMPUTERS)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def correlated(n=60, d=6, seed=0, missing=0.4):
    """Rows of a Gaussian with correlated cells; some rows have most of their cells and some few."""
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((d, d))
    X = rng.standard_normal((n, d)) @ A + 3 * rng.standard_normal(d)
    hidden = rng.random((n, d)) < np.where(rng.random((n, 1)) < 0.5, missing / 2, 1.5 * missing)
    return X, np.where(hidden, np.nan, X)


def low_rank(n=60, d=30, rank=2, observed=0.6, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, rank)) @ rng.standard_normal((rank, d))
    return X, np.where(rng.random((n, d)) < observed, X, np.nan)


def clusters(n=150, seed=0):
    """Two clouds in which the second feature falls and rises with the first."""
    rng = np.random.default_rng(seed)
    side = rng.integers(0, 2, n)
    first = rng.standard_normal(n)
    X = np.column_stack([first, np.where(side, first, -first), 10 * side]) + 0.1 * rng.standard_normal((n, 3))
    gaps = X.copy()
    gaps[rng.random(n) < 0.3, 1] = np.nan
    return X, gaps


# --- what both promise ----------------------------------------------------------------------------------------------


@every_imputer
def test_what_is_observed_stays_and_what_is_missing_is_filled(imputer):
    _, gaps = correlated()
    before = gaps.copy()
    filled = clone(imputer).fit_transform(gaps)
    np.testing.assert_array_equal(gaps, before)
    np.testing.assert_array_equal(filled[~np.isnan(gaps)], gaps[~np.isnan(gaps)])
    assert np.isfinite(filled).all()
    assert filled.dtype == np.float64


@every_imputer
def test_a_matrix_without_gaps_comes_back_as_a_copy(imputer):
    X, gaps = correlated()
    model = clone(imputer).fit(gaps)
    filled = model.transform(X)
    np.testing.assert_array_equal(filled, X)
    assert not np.shares_memory(filled, X)
    assert clone(imputer).fit(X).transform(gaps).shape == X.shape


@every_imputer
def test_filled_rows_do_not_depend_on_their_neighbours(imputer):
    _, gaps = correlated()
    _, other = correlated(seed=1)
    model = clone(imputer).fit(gaps)
    for rows in (gaps, other):
        whole = model.transform(rows)
        np.testing.assert_allclose(np.vstack([model.transform(row[None]) for row in rows]), whole, atol=1e-8)


@every_imputer
def test_constant_columns(imputer):
    """EM knows their constant. FPC does not: to a matrix of low rank a constant is a direction like any other."""
    _, gaps = correlated()
    constants = np.where(np.arange(len(gaps))[:, None] % 3 == 0, np.nan, [4.0, 0.0])
    filled = clone(imputer).fit_transform(np.column_stack([gaps, constants]))
    assert np.isfinite(filled).all()
    if isinstance(imputer, EMImputer):
        np.testing.assert_allclose(filled[:, -2:], [[4, 0]] * len(gaps), atol=1e-10)
    else:
        np.testing.assert_allclose(filled[:, -1], 0, atol=1e-10)


@every_imputer
def test_a_column_without_an_observed_cell_is_filled_with_0(imputer):
    _, gaps = correlated()
    empty = np.column_stack([gaps, np.full(len(gaps), np.nan)])
    model = clone(imputer).fit(empty)
    np.testing.assert_allclose(model.transform(empty)[:, -1], 0, atol=1e-12)
    assert model.get_feature_names_out().tolist() == [f"x{j}" for j in range(7)]


@every_imputer
def test_no_observed_cell_at_all(imputer):
    with pytest.raises(ValueError, match=r"No cell of X is observed: every one is NaN"):
        clone(imputer).fit(np.full((3, 2), np.nan))


@every_imputer
def test_a_fit_that_fails_leaves_the_imputer_as_it_was(imputer):
    _, gaps = correlated()
    model = clone(imputer)
    with pytest.raises(ValueError, match="infinity"):
        model.fit([[1.0, np.inf]])
    with pytest.raises(NotFittedError):
        model.transform(gaps)
    expected = model.fit(gaps).transform(gaps)
    with pytest.raises(ValueError, match="No cell"):
        model.fit([[np.nan]])
    np.testing.assert_array_equal(model.transform(gaps), expected)


@every_imputer
def test_threads_change_nothing(imputer):
    _, gaps = correlated(n=200)
    one, two = (clone(imputer).set_params(n_jobs=n).fit_transform(gaps) for n in (1, 2))
    np.testing.assert_allclose(one, two, atol=1e-8)


@every_imputer
def test_too_few_steps_warn(imputer):
    _, gaps = correlated()
    model = clone(imputer).set_params(max_iter=1, tol=1e-9)
    with pytest.warns(ConvergenceWarning, match=r"stopped after max_iter=1 steps.*raise max_iter or tol") as caught:
        model.fit(gaps)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert model.status_ == "max_iter"


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (EMImputer(0), r"n_components=0 is out of range"),
        (EMImputer(4), r"n_components=4 is above the number of rows, 3"),
        (EMImputer(prior_rows=-1), r"prior_rows=-1 is out of range"),
        (EMImputer(tol=-1), r"tol=-1 is out of range"),
        (EMImputer(max_iter=0), r"max_iter=0 is out of range"),
        (EMImputer(n_jobs=0), r"n_jobs=0 has no meaning"),
        (FPCImputer(mu=0), r"mu=0 is out of range; pass a number above 0"),
        (FPCImputer(decay=1), r"decay=1 is out of range; pass a number between 0 and 1"),
        (FPCImputer(solver="magic"), r"solver='magic' is not known; choose from"),
        (FPCImputer(tol=np.nan), r"tol=nan is out of range"),
    ],
    ids=str,
)
def test_parameters_out_of_range(model, message):
    with pytest.raises(ValueError, match=message):
        model.fit([[1.0, 2.0], [np.nan, 1.0], [0.0, 3.0]])


# --- EM: expectations -----------------------------------------------------------------------------------------------


def random_mixture(k, d, seed=0):
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((k, d, d))
    weights = rng.random(k) + 0.1
    covariances = A @ A.transpose(0, 2, 1) + 0.1 * np.eye(d)
    return mixture.Mixture(weights / weights.sum(), rng.standard_normal((k, d)), covariances)


def textbook(x, mean, covariance):
    """Log-density of the observed cells; expectation and covariance of all cells given them."""
    o, m = np.flatnonzero(~np.isnan(x)), np.flatnonzero(np.isnan(x))
    expected, spread = x.copy(), np.zeros_like(covariance)
    gain = covariance[np.ix_(m, o)] @ np.linalg.pinv(covariance[np.ix_(o, o)])
    expected[m] = mean[m] + gain @ (x[o] - mean[o])
    spread[np.ix_(m, m)] = covariance[np.ix_(m, m)] - gain @ covariance[np.ix_(o, m)]
    log_density = multivariate_normal(mean[o], covariance[np.ix_(o, o)]).logpdf(x[o]) if len(o) else 0.0
    return log_density, expected, spread


def expect_by_hand(X, found):
    """The moments and the filled rows, row by row and component by component."""
    k, d = found.means.shape
    total, counts, sums, products, filled = 0.0, np.zeros(k), np.zeros((k, d)), np.zeros((k, d, d)), np.zeros(X.shape)
    for i, x in enumerate(X):
        views = [textbook(x, *parts) for parts in zip(found.means, found.covariances, strict=True)]
        joint = np.log(found.weights) + [log_density for log_density, _, _ in views]
        total += logsumexp(joint)
        for j, share in enumerate(np.exp(joint - logsumexp(joint))):
            y = views[j][1] - found.means[j]
            counts[j] += share
            sums[j] += share * y
            products[j] += share * (np.outer(y, y) + views[j][2])
            filled[i] += share * views[j][1]
    return total, counts, sums, products, filled


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("cells", [1 << 18, 1], ids=["one batch", "small batches"])
def test_the_expectation_step_is_the_textbook_formula(k, cells, monkeypatch):
    monkeypatch.setattr(mixture, "MAX_VALUES_PER_BATCH", cells)
    X, gaps = correlated(d=5)
    gaps[3], gaps[7], gaps[11:14] = np.nan, X[7], gaps[10]  # nothing observed, everything, equal patterns
    found = random_mixture(k, 5)
    moments, filled = mixture.expect(mixture.PatternRows.of(gaps), found)
    expected = expect_by_hand(gaps, found)
    for part, by_hand in zip((*moments, filled), expected, strict=True):
        np.testing.assert_allclose(part, by_hand, rtol=1e-8, atol=1e-8)


def test_transform_fills_in_conditional_expectations():
    _, gaps = clusters()
    model = EMImputer(2, random_state=0).fit(gaps)
    found = mixture.Mixture(model.weights_, model.means_, model.covariances_)
    _, new = clusters(seed=1)
    *_, expected = expect_by_hand(new, found)
    np.testing.assert_allclose(model.transform(new), expected, atol=1e-8)


def test_a_row_without_an_observed_cell_is_filled_with_the_mean_of_the_mixture():
    model = EMImputer(2, random_state=0).fit(clusters()[1])
    filled = model.transform(np.full((1, 3), np.nan))[0]
    np.testing.assert_allclose(filled, model.weights_ @ model.means_, atol=1e-10)


def test_precision_of_nearly_dependent_features():
    """Both ways to an expectation, by the observed block and by the missing one, keep their digits."""
    rng = np.random.default_rng(0)
    base = rng.standard_normal((200, 2)) @ rng.standard_normal((2, 8))
    covariance = np.cov(base.T) + 1e-6 * np.eye(8)
    X = base[:40].copy()
    X[:20, :5], X[20:, :3] = np.nan, np.nan
    found = mixture.Mixture(np.ones(1), np.zeros((1, 8)), covariance[None])
    moments, filled = mixture.expect(mixture.PatternRows.of(X), found)
    total, *_, expected = expect_by_hand(X, found)
    np.testing.assert_allclose(filled, expected, atol=1e-6)
    assert moments.log_likelihood == pytest.approx(total, rel=1e-5)


# --- EM: the maximum ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prior_rows", [0.0, 5.0])
def test_without_gaps_one_gaussian_has_a_closed_form(prior_rows):
    X, _ = correlated()
    model = EMImputer(prior_rows=prior_rows).fit(X)
    n, covariance = len(X), np.cov(X.T, bias=True)
    np.testing.assert_allclose(model.means_[0], X.mean(axis=0))
    expected = (n * covariance + prior_rows * np.diag(np.diag(covariance))) / (n + prior_rows)
    np.testing.assert_allclose(model.covariances_[0], expected)
    assert model.weights_.tolist() == [1.0]


def test_one_feature_with_gaps_beside_a_complete_one_has_a_closed_form():
    """Then the maximum is the regression of the one on the other in the complete rows (Anderson 1957)."""
    rng = np.random.default_rng(0)
    first = rng.standard_normal(50)
    second = np.where(first > 0.3, np.nan, 2 * first + 1 + rng.standard_normal(50))
    model = EMImputer(prior_rows=0, tol=1e-13, max_iter=2000).fit(np.column_stack([first, second]))
    known = ~np.isnan(second)
    slope, intercept = np.polyfit(first[known], second[known], 1)
    filled = model.transform(np.column_stack([first, second]))
    np.testing.assert_allclose(filled[~known, 1], intercept + slope * first[~known], atol=1e-4)
    np.testing.assert_allclose(model.means_[0], [first.mean(), intercept + slope * first.mean()], atol=1e-4)
    residual = np.var(second[known] - intercept - slope * first[known])
    assert model.covariances_[0, 1, 1] == pytest.approx(residual + slope**2 * first.var(), rel=1e-4)


def penalised(model, X):
    """The objective of the docstring, written out."""
    found = mixture.Mixture(model.weights_, model.means_, model.covariances_)
    D = np.diag(np.nanvar(X, axis=0))
    prior = sum(
        np.linalg.slogdet(S @ np.linalg.inv(D))[1] + np.trace(D @ np.linalg.inv(S)) for S in found.covariances
    )
    return expect_by_hand(X, found)[0] - model.prior_rows / 2 * prior


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("prior_rows", [0.0, 2.0])
def test_the_objective_is_that_of_the_docstring_and_never_falls(k, prior_rows):
    _, gaps = correlated(n=150, d=4)
    model = EMImputer(k, prior_rows=prior_rows, tol=1e-5, random_state=0).fit(gaps)
    assert model.objective_[-1] == pytest.approx(penalised(model, gaps), rel=1e-9)
    rises = np.diff(model.objective_)
    assert len(rises) == model.n_iter_ > 5
    assert (rises > -1e-10 * abs(model.objective_[-1])).all()
    assert rises[0] > 1e-5 * len(gaps) >= rises[-1]


@pytest.mark.parametrize("k", [1, 2])
def test_at_the_end_no_nearby_mixture_is_better(k):
    _, gaps = correlated(n=80, d=3)
    model = EMImputer(k, prior_rows=1.0, tol=1e-10, max_iter=5000, random_state=0).fit(gaps)
    best, rng = penalised(model, gaps), np.random.default_rng(0)
    for size in (1e-2, 1e-1):
        other = clone(model)
        other.weights_ = model.weights_ * np.exp(size * rng.standard_normal(k))
        other.weights_ /= other.weights_.sum()
        other.means_ = model.means_ + size * model.scale_ * rng.standard_normal((k, 3))
        turn = np.eye(3) + size * rng.standard_normal((k, 3, 3))
        other.covariances_ = turn @ model.covariances_ @ turn.transpose(0, 2, 1)
        assert penalised(other, gaps) < best


def test_units_of_the_features_do_not_matter():
    _, gaps = correlated()
    scale, shift = np.array([1e-6, 1.0, 1e5, 2.0, 1.0, 30.0]), np.array([0.0, 1e3, -1e6, 0.5, 0.0, 0.0])
    plain, scaled = (EMImputer(2, random_state=0).fit_transform(X) for X in (gaps, gaps * scale + shift))
    np.testing.assert_allclose((scaled - shift) / scale, plain, rtol=1e-5, atol=1e-5)


def test_two_components_tell_two_clouds_apart():
    X, gaps = clusters()
    hidden = np.isnan(gaps)
    one, two = (EMImputer(k, random_state=0).fit_transform(gaps) for k in (1, 2))
    assert imputation_error(X, one, hidden) > 0.8
    assert imputation_error(X, two, hidden) < 0.2


def test_more_components_than_different_rows():
    X = np.array([[0.0, 1.0], [0.0, 1.0], [2.0, 3.0], [2.0, np.nan]])
    model = EMImputer(4, random_state=0).fit(X)
    assert 1 <= len(model.weights_) <= 3
    assert np.isfinite(model.transform(X)).all()


def test_a_component_that_no_row_belongs_to():
    rows, found = mixture.PatternRows.of(clusters()[1]), random_mixture(2, 3)
    lonely = found._replace(weights=np.array([1.0, 0.0]))
    following = mixture.maximize(mixture.expect(rows, lonely).moments, lonely, 1.0)
    assert following.weights.tolist() == [1.0, 0.0]
    np.testing.assert_array_equal(following.covariances[1], np.eye(3))
    assert np.isfinite(mixture.expect(rows, following).filled).all()


def test_the_maximisation_step_by_hand():
    X, found = correlated(d=3)[0], random_mixture(2, 3)
    shares = np.array([expect_by_hand(row[None], found)[1] for row in X])
    following = mixture.maximize(mixture.expect(mixture.PatternRows.of(X), found).moments, found, 2.0)
    np.testing.assert_allclose(following.weights, shares.mean(axis=0))
    for k, share in enumerate(shares.T):
        mean, n = np.average(X, axis=0, weights=share), share.sum()
        np.testing.assert_allclose(following.means[k], mean)
        expected = (n * np.cov(X.T, aweights=share, bias=True) + 2 * np.eye(3)) / (n + 2)
        np.testing.assert_allclose(following.covariances[k], expected)


def test_maximum_likelihood_of_dependent_features_is_refused():
    X = np.random.default_rng(0).standard_normal((20, 2))
    with pytest.raises(ValueError, match=r"covariance became singular with prior_rows=0 .*; raise prior_rows"):
        EMImputer(prior_rows=0).fit(np.column_stack([X, X]))


def test_without_conditional_covariances_it_is_iterated_regression():
    """The covariance is that of the filled rows, which is smaller, and filling them again changes nothing."""
    X, gaps = correlated(n=150)
    settings = {"prior_rows": 0, "tol": 1e-9, "max_iter": 5000}
    model = EMImputer(conditional_covariances=False, **settings).fit(gaps)
    filled = model.transform(gaps)
    np.testing.assert_allclose(model.covariances_[0], np.cov(filled.T, bias=True), atol=1e-2)
    whole = EMImputer(**settings).fit(gaps)
    assert np.linalg.slogdet(model.covariances_[0])[1] < np.linalg.slogdet(whole.covariances_[0])[1]
    errors = [imputation_error(X, one.transform(gaps), np.isnan(gaps)) for one in (whole, model)]
    assert errors[0] < errors[1]


def test_seeds_make_it_repeatable():
    _, gaps = correlated(n=100)
    a, b = (EMImputer(3, random_state=5).fit_transform(gaps) for _ in range(2))
    np.testing.assert_array_equal(a, b)


# --- FPC ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", ["accelerated", "fpc"])
def test_a_matrix_of_low_rank_is_recovered_exactly(solver):
    X, gaps = low_rank()
    model = FPCImputer(mu=1e-9, tol=1e-8, max_iter=5000, solver=solver).fit(gaps)
    assert imputation_error(X, model.transform(gaps), np.isnan(gaps)) < 1e-4
    np.testing.assert_allclose(model.features_, X, atol=1e-3)
    assert np.linalg.matrix_rank(model.features_, tol=1e-3) == 2


@pytest.mark.parametrize("solver", ["accelerated", "fpc"])
def test_the_end_is_the_minimum(solver):
    """0 is in the subdifferential: Uᵀ G V = −μ I on the range of Z and ‖G‖ ≤ μ beside it, G the gradient."""
    X, gaps = low_rank(rank=4, n=40, d=15)
    gaps += 0.3 * np.random.default_rng(1).standard_normal(X.shape)
    observed, mu = ~np.isnan(gaps), 5e-3
    model = FPCImputer(mu=mu, tol=1e-15, max_iter=20_000, solver=solver).fit(gaps)
    G = np.where(observed, model.features_ - np.where(observed, gaps, 0), 0) / observed.sum()
    U, s, Vt = np.linalg.svd(model.features_, full_matrices=False)
    U, Vt = U[:, s > 1e-9], Vt[s > 1e-9]
    assert 0 < len(Vt) < 15
    assert model.rank_ == len(Vt)
    np.testing.assert_allclose(U.T @ G, -mu * Vt, atol=1e-6)
    np.testing.assert_allclose(G @ Vt.T, -mu * U, atol=1e-6)
    beside = G - U @ (U.T @ G)
    assert np.linalg.norm(beside - beside @ Vt.T @ Vt, 2) <= mu + 1e-6
    value = mu * s.sum() + 0.5 * observed.sum() * (G**2).sum()
    assert model.objective_[-1] == pytest.approx(value, rel=1e-9)


def test_mu_falls_to_its_last_value():
    _, gaps = low_rank()
    model = FPCImputer(mu=1e-4, decay=0.5).fit(gaps)
    mus = [stage["mu"] for stage in model.path_]
    largest = np.linalg.svd(np.nan_to_num(gaps), compute_uv=False)[0]
    np.testing.assert_allclose(mus[:3], largest * 0.5 ** np.arange(1, 4))
    assert mus[-1] == 1e-4
    assert model.n_iter_ == sum(stage["n_iter"] for stage in model.path_)


def test_rows_of_the_fit_are_filled_from_the_completed_matrix():
    _, gaps = low_rank(observed=0.4)
    model = FPCImputer(tol=1e-3).fit(gaps)
    expected = np.where(np.isnan(gaps), model.features_, gaps)
    np.testing.assert_array_equal(model.transform(gaps), expected)
    np.testing.assert_array_equal(FPCImputer(tol=1e-3).fit_transform(gaps), expected)
    np.testing.assert_array_equal(model.transform(gaps[::-1][:7]), expected[::-1][:7])


def test_other_rows_are_completed_in_the_row_space():
    """By ridge regression on V √S, which for a row of the fit leads to its row of Z where the fit is exact."""
    _, gaps = low_rank(rank=3, n=40, d=15)
    model = FPCImputer(mu=1e-3, tol=1e-14, max_iter=5000).fit(gaps)
    again = model.transform(gaps * (1 + 1e-9))
    np.testing.assert_allclose(again, np.where(np.isnan(gaps), model.features_, gaps), atol=1e-4)
    _, s, Vt = np.linalg.svd(model.features_)
    k = model.rank_
    H, ridge = Vt[:k].T * np.sqrt(s[:k]), 1e-3 * (~np.isnan(gaps)).sum()
    row = np.where(np.arange(15) % 2, np.linspace(-1, 1, 15), np.nan)
    o = ~np.isnan(row)
    w = np.linalg.solve(H[o].T @ H[o] + ridge * np.eye(k), H[o].T @ row[o])
    np.testing.assert_allclose(model.transform(row[None])[0], np.where(o, row, H @ w), atol=1e-9)


def test_a_row_without_an_observed_cell_is_0():
    X, gaps = low_rank()
    gaps[4] = np.nan
    model = FPCImputer().fit(gaps)
    np.testing.assert_allclose(model.transform(gaps)[4], 0, atol=1e-12)
    np.testing.assert_array_equal(FPCImputer().fit(X).transform(gaps[4:5]), 0)


def test_zeros_alone():
    X = np.array([[0.0, np.nan], [0.0, 0.0]])
    model = FPCImputer().fit(X)
    assert model.rank_ == 0
    assert model.transform([[np.nan, 3.0]]).tolist() == [[0.0, 3.0]]


# --- before a machine for each label --------------------------------------------------------------------------------

MAKERS = {
    "EM": EMImputer,
    "FPC": FPCImputer,
    "mean": SimpleImputer,
    "zero": partial(SimpleImputer, strategy="constant", fill_value=0),
}


def test_low_rank_imputers_beat_means_and_zeros():
    """The setting σ² 0.01, r 2, n 400, 20 % of the paper: errors 0.45, 0.50, 1.01, 1 and 12.0, 12.6, 20.0, 19.7 %."""
    data = make_completion(400, rank=2, noise_variance=0.01, observed=0.2, random_state=0)
    errors = {}
    for name, make in MAKERS.items():
        model = make_pipeline(make(), LabelwiseSVM()).fit(data.X, data.Y)
        filled = model[0].transform(data.X)
        errors[name] = (
            imputation_error(data.X_true, filled, data.hidden_features),
            label_error(data.Y_true, model.predict(data.X), data.hidden_labels),
        )
    assert errors["EM"][0] < errors["FPC"][0] < 0.6 < 0.95 < errors["mean"][0] < 1.1
    assert errors["zero"][0] == pytest.approx(1)
    for better in ("EM", "FPC"):
        for worse in ("mean", "zero"):
            assert errors[better][1] < errors[worse][1] - 2


@pytest.mark.skipif("LABELGAP_DATA" not in os.environ, reason="needs real data: LABELGAP_DATA does not name a folder")
@pytest.mark.parametrize(
    ("name", "imputer", "published"),
    [
        ("emotions", FPCImputer(solver="fpc"), 0.64),
        ("emotions", SimpleImputer(), 0.18),
        ("yeast", FPCImputer(solver="fpc"), 0.81),
        ("yeast", SimpleImputer(), 1.00),
    ],
    ids=str,
)
def test_published_imputation_errors(name, imputer, published):
    """Tables 4 and 5 of Goldberg et al. (2010) at 40 %: raw features, and the root of the printed formula."""
    data = load_dataset(name)
    X = np.vstack([data.X_train, data.X_test]).astype(float)
    hidden = np.random.default_rng(0).random(X.shape) > 0.4
    filled = clone(imputer).fit_transform(np.where(hidden, np.nan, X))
    assert imputation_error(X, filled, hidden) == pytest.approx(published, abs=0.03)
