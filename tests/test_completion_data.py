"""The synthetic data of matrix completion, and the errors of hidden cells."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import expit

from labelgap import Labels, make_completion
from labelgap.metrics import imputation_error, label_error

# --- the generator --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rank", [2, 4])
def test_features_are_of_low_rank_and_unit_variance(rank):
    data = make_completion(400, rank=rank, noise_variance=0.1, random_state=0)
    assert data.X0.shape == (400, 20)
    assert np.linalg.matrix_rank(data.X0) == rank
    assert data.X0.var() == pytest.approx(1)
    noise = data.X_true - data.X0
    assert noise.var() == pytest.approx(0.1, rel=0.05)
    assert abs(noise.mean()) < 0.02


def test_weights_have_variance_10_and_labels_follow_their_probabilities():
    data = make_completion(4000, 50, 40, rank=3, random_state=0)
    assert data.W.shape == (50, 40)
    assert data.W.var() == pytest.approx(10, rel=0.1)
    assert np.var([make_completion(2, n_labels=200, random_state=i).b for i in range(5)]) == pytest.approx(
        10, rel=0.2
    )
    chance = expit(data.X0 @ data.W + data.b)
    assert set(np.unique(data.Y_true)) == {0.0, 1.0}
    for low in np.arange(0, 1, 0.1):
        cells = (low <= chance) & (chance < low + 0.1)
        assert data.Y_true[cells].mean() == pytest.approx(chance[cells].mean(), abs=0.05)


@pytest.mark.parametrize("observed", [0.1, 0.4, 1.0])
def test_the_same_share_of_features_and_labels_is_shown(observed):
    data = make_completion(100, observed=observed, random_state=1)
    for shown, truth, hidden in (
        (data.X, data.X_true, data.hidden_features),
        (data.Y, data.Y_true, data.hidden_labels),
    ):
        assert (~hidden).sum() == round(observed * truth.size)
        np.testing.assert_array_equal(shown[~hidden], truth[~hidden])
    if observed < 1:
        assert not np.array_equal(data.hidden_features[:, :10], data.hidden_labels)
        assert len(set(data.hidden_labels.sum(axis=0))) > 1  # over all cells, not label by label


def test_without_noise_the_features_are_the_low_rank_matrix():
    data = make_completion(10, noise_variance=0, observed=1, random_state=0)
    np.testing.assert_array_equal(data.X, data.X0)


def test_same_seed_same_data():
    a, b, c = (make_completion(20, random_state=seed) for seed in (3, 3, 4))
    np.testing.assert_array_equal(a.X, b.X)
    np.testing.assert_array_equal(a.Y, b.Y)
    assert not np.array_equal(a.X_true, c.X_true)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_samples": 0}, "n_samples=0 is too small"),
        ({"n_features": 0}, "n_features=0"),
        ({"n_labels": 0}, "n_labels=0"),
        ({"rank": 0}, "rank=0"),
        ({"noise_variance": -1}, "noise_variance=-1 is not a variance"),
        ({"noise_variance": np.nan}, "noise_variance=nan"),
        ({"observed": 0}, "observed=0 is not a share"),
        ({"observed": 20}, "observed=20 is not a share"),
    ],
    ids=str,
)
def test_bad_sizes(changes, message):
    with pytest.raises(ValueError, match=message):
        make_completion(**{"n_samples": 10, **changes})


# --- label error ----------------------------------------------------------------------------------------------------

TRUE = np.array([[1, 0, 1, 0], [0, 1, 1, 0]])
FOUND = np.array([[1, 1, 0, 0], [0, 0, 1, 1]])  # wrong in 2 cells of each row
HIDDEN = np.array([[1, 1, 1, 0], [0, 1, 0, 0]], bool)  # of its 4 cells 3 are wrong


@pytest.mark.parametrize(
    ("true", "found"),
    [
        (TRUE, FOUND),
        (2 * TRUE - 1, 2 * FOUND - 1),
        (TRUE.astype(bool), FOUND - 0.5),
        (sp.csr_array(TRUE), FOUND * 7.0 - 1),
        (Labels(TRUE), FOUND),
    ],
    ids=["0/1", "−1/+1", "decisions", "sparse", "Labels"],
)
def test_label_error_counts_hidden_cells(true, found):
    assert label_error(true, found, HIDDEN) == pytest.approx(75)
    assert label_error(true, found, sp.csr_array(HIDDEN)) == pytest.approx(75)
    assert label_error(true, found) == pytest.approx(50)


def test_label_error_leaves_out_what_the_truth_does_not_know():
    gaps = TRUE.astype(float)
    gaps[0, 0] = np.nan  # hidden and right
    assert label_error(gaps, FOUND, HIDDEN) == pytest.approx(100)
    assert np.isnan(label_error(TRUE, FOUND, np.zeros((2, 4), bool)))


def test_label_error_needs_a_flag_for_each_cell():
    with pytest.raises(ValueError, match=r"observed has shape \(1, 4\)"):
        label_error(TRUE, FOUND, HIDDEN[:1])


# --- imputation error -----------------------------------------------------------------------------------------------


def test_imputation_error_by_hand():
    true, filled = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[1.0, 0.0], [9.0, 3.0]])
    hidden = np.array([[True, True], [False, True]])
    # (0² + 2² + 1²) / (1² + 2² + 4²)
    assert imputation_error(true, filled, hidden, squared=True) == pytest.approx(5 / 21)
    assert imputation_error(true, filled, hidden) == pytest.approx((5 / 21) ** 0.5)
    assert imputation_error(true, true, hidden) == 0
    assert imputation_error(true, np.zeros((2, 2)), hidden) == 1


def test_imputation_error_looks_at_hidden_cells_only():
    true, filled = [[np.nan, 2.0]], [[5.0, 1.0]]
    assert imputation_error(true, filled, [[False, True]]) == 0.5
    with pytest.raises(ValueError, match="X_true has a hidden cell that is not finite"):
        imputation_error(true, filled, [[True, True]])
    with pytest.raises(ValueError, match="X_filled has a hidden cell that is not finite"):
        imputation_error(filled, true, [[True, True]])


def test_imputation_error_of_nothing_is_nan():
    assert np.isnan(imputation_error([[1.0]], [[1.0]], [[False]]))
    assert np.isnan(imputation_error([[0.0]], [[1.0]], [[True]]))


@pytest.mark.parametrize(
    ("hidden", "message"),
    [([[True]], r"X_true has shape \(1, 2\) and hidden has \(1, 1\)"), ([[1, 0]], "hidden holds int64 values")],
)
def test_imputation_error_needs_flags(hidden, message):
    with pytest.raises(ValueError, match=message):
        imputation_error([[1.0, 2.0]], [[1.0, 2.0]], hidden)
