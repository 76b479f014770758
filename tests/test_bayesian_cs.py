"""Bayesian compressed sensing: against the same model with dense L×L algebra, and a free energy that never rises."""

from __future__ import annotations

import os

import numpy as np
import pytest
from scipy.special import gammaln, psi
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import normalize

from labelgap import BayesianCS, hide_cells, load_dataset
from labelgap.baselines import sparse_recovery
from labelgap.baselines.sparse_recovery import GAMMA_RATE, GAMMA_SHAPE, infer_posterior, update_posterior
from labelgap.metrics import precision_at_k

EXACT = {"dtype": "float64", "random_state": 0}


def rows_of_codes(n=6, k=4, L=7, seed=0):
    rng = np.random.default_rng(seed)
    variance = rng.uniform(0.1, 1, (n, L))
    variance[:, 2], variance[1] = 0, 0  # a label that is known everywhere, a row that is known altogether
    return rng.standard_normal((k, L)), rng.standard_normal((n, k)), variance


def plain_update(A, z, v, noise):
    """Mean, covariance and new v of one row's free labels, by an L×L inverse."""
    free = v > 0
    cov = np.zeros((len(v), len(v)))
    cov[np.ix_(free, free)] = np.linalg.inv(A[:, free].T @ A[:, free] / noise + np.diag(1 / v[free]))
    mean = cov @ A.T @ z / noise
    new = np.where(free, (2 * GAMMA_RATE + mean**2 + np.diag(cov)) / (2 * GAMMA_SHAPE + 1), 0)
    return mean, cov, new


def free_energy(A, z, mean, cov, v, noise):
    """E_q[ln q(y, a) − ln p(z, y, a)] with the Gammas of E[1/a] = v, term by term."""
    free = np.diag(cov) > 0
    m, C, k = mean[free], cov[np.ix_(free, free)], len(z)
    shape, rate = GAMMA_SHAPE + 0.5, (GAMMA_SHAPE + 0.5) * v[free]
    precision, log_precision = shape / rate, psi(shape) - np.log(rate)
    residual = z - A @ mean
    likelihood = -0.5 * k * np.log(2 * np.pi * noise)
    likelihood -= (residual @ residual + np.trace(A @ cov @ A.T)) / (2 * noise)
    prior = 0.5 * (log_precision - np.log(2 * np.pi) - precision * (m**2 + np.diag(C))).sum()
    gammas = (
        GAMMA_SHAPE * np.log(GAMMA_RATE)
        - gammaln(GAMMA_SHAPE)
        + (GAMMA_SHAPE - 1) * log_precision
        - GAMMA_RATE * precision
    )
    entropy = 0.5 * np.linalg.slogdet(2 * np.pi * np.e * C)[1] if free.any() else 0.0
    entropy += (shape - np.log(rate) + gammaln(shape) + (1 - shape) * psi(shape)).sum()
    return -(likelihood + prior + gammas.sum() + entropy)


def test_an_update_is_that_of_dense_algebra():
    A, codes, variance = rows_of_codes()
    found = update_posterior(A, codes, variance, 0.3)
    for i in range(len(codes)):
        mean, _, new = plain_update(A, codes[i], variance[i], 0.3)
        np.testing.assert_allclose(found.mean[i], mean, atol=1e-10)
        np.testing.assert_allclose(found.variance[i], new, atol=1e-10)
    assert not found.mean[1].any()
    assert not found.variance[:, 2].any()


def test_the_energy_is_the_free_energy_but_for_a_constant():
    A, codes, variance = rows_of_codes()
    variance[:, 3:] = np.random.default_rng(1).uniform(0.1, 1, variance[:, 3:].shape)
    variance[1] = variance[0]
    expected, found = [], update_posterior(A, codes, variance, 0.3)
    for z, v in zip(codes, variance, strict=True):
        mean, cov, new = plain_update(A, z, v, 0.3)
        expected.append(free_energy(A, z, mean, cov, new, 0.3))
    ours = found.energy + ((codes - found.mean @ A.T) ** 2).sum(1) / 0.6
    np.testing.assert_allclose(np.diff(ours), np.diff(expected), atol=1e-8)


def test_updates_lower_the_free_energy_of_each_row():
    A, codes, variance = rows_of_codes()
    energies = []
    for n in range(1, 8):
        found = infer_posterior(A, codes, variance, 0.3, n)
        energies.append(found.energy + ((codes - found.mean @ A.T) ** 2).sum(1) / 0.6)
    falls = -np.diff(energies, axis=0)
    assert (falls >= -1e-9).all()
    assert falls[0].max() > 1e-2


def test_blocks_and_one_variance_for_all_change_nothing(monkeypatch):
    A, codes, variance = rows_of_codes(n=11)
    whole = infer_posterior(A, codes, variance[0], 0.3, 3)
    monkeypatch.setattr(sparse_recovery, "MAX_CELLS_PER_POSTERIOR_BLOCK", 2 * A.size)
    parts = infer_posterior(A, codes, np.tile(variance[0], (11, 1)), 0.3, 3)
    for one, other in zip(whole, parts, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-12)


def planted_gaps(share=0.5, seed=0):
    """Rows whose features are their sparse labels, noisy; a share of the cells is known."""
    rng = np.random.default_rng(seed)
    Y = (rng.random((120, 10)) < 0.2).astype(float)
    X = Y @ rng.standard_normal((10, 15)) + 0.1 * rng.standard_normal((120, 15))
    return X, Y, rng.random(Y.shape) < share


@pytest.mark.parametrize("k", [6, 10])
def test_a_fit_lowers_the_free_energy_and_fills_the_gaps(k):
    X, Y, known = planted_gaps()
    gaps = np.where(known, Y, np.nan)
    model = BayesianCS(k, alpha=0.1, noise=0.02, tol=1e-4, max_iter=300, **EXACT).fit(X, gaps)
    assert (np.diff(model.objective_) <= 1e-9 * np.abs(model.objective_[0])).all()
    assert (model.n_iter_, model.status_) == (len(model.objective_), "converged")
    right = (model.predict(X) == Y)[~known].mean()
    as_no = (BayesianCS(k, alpha=0.1, noise=0.02, **EXACT).fit(X, np.nan_to_num(gaps)).predict(X) == Y)[~known].mean()
    assert right > as_no + 0.02


def test_complete_labels_are_a_ridge_regression_of_their_codes():
    X, Y, _ = planted_gaps()
    model = BayesianCS(6, alpha=0.7, **EXACT).fit(X, Y)
    A, features = model.projection_, np.column_stack([X, np.ones(len(X))])
    W = np.linalg.solve(features.T @ features + 0.7 * np.eye(16), features.T @ Y @ A.T)
    residual = Y @ A.T - features @ W
    assert model.noise_ == pytest.approx((residual**2).mean())
    assert model.objective_ == [pytest.approx(((residual**2).sum() + 0.7 * (W**2).sum()) / 2 / model.noise_)]
    np.testing.assert_allclose(model.prior_, Y.mean(0))
    expected = infer_posterior(A, features @ W, Y.mean(0), model.noise_, 10).mean
    np.testing.assert_allclose(model.decision_function(X) + 0.5, expected, atol=1e-8)


def test_labels_without_a_known_positive_stay_at_zero():
    X, Y, known = planted_gaps()
    Y[:, 0], known[:, 1] = 0, False
    model = BayesianCS(alpha=0.1, tol=0.1, **EXACT).fit(X, np.where(known, Y, np.nan))
    np.testing.assert_array_equal(model.decision_function(X)[:, :2], -0.5)


def test_too_few_rounds_warn():
    X, Y, known = planted_gaps()
    with pytest.warns(ConvergenceWarning, match=r"max_iter=2 rounds .*raise max_iter, tol or alpha") as caught:
        model = BayesianCS(max_iter=2, tol=0, **EXACT).fit(X, np.where(known, Y, np.nan))
    assert caught[0].filename == __file__
    assert (model.status_, model.n_iter_) == ("max_iter", 2)


@pytest.mark.skipif("LABELGAP_DATA" not in os.environ, reason="needs real data: LABELGAP_DATA does not name a folder")
def test_bibtex_reaches_the_figures_of_leml_paper():
    """Tables 6 to 8 at k = ⌊0.2 L⌋; and gaps that are inferred serve better than gaps that are taken for noes."""
    data = load_dataset("bibtex")
    X, X_test = normalize(data.X_train), normalize(data.X_test)[:1000]
    best = BayesianCS(31, random_state=0, n_updates=4).fit(X, data.Y_train).predict_topk(X_test, 5)
    found = [100 * precision_at_k(data.Y_test[:1000], best, k) for k in (1, 3, 5)]
    assert np.all(np.array(found) >= [41.43, 21.74, 15.39]), found
    part = hide_cells(data.Y_train, 0.2, random_state=0)[:1000]
    filled, ignored = (
        BayesianCS(31, random_state=0, n_updates=4, tol=0.02).fit(X[:1000], Y).score(X_test, data.Y_test[:1000])
        for Y in (part, part.positives)
    )
    assert filled > ignored
