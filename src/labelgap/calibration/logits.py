"""Logistic regression with a normal prior, for few coefficients."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from labelgap.portable import MIN_PROBABILITY
from labelgap.runtime import row_blocks

MAX_STEPS, TOLERANCE = 50, 1e-6
MAX_LOGIT = 30.0
MAX_CELLS = 1 << 18  # at once: what is computed from them needs several arrays of their size


def fit_logits(
    design: NDArray,
    yes: NDArray,
    weights: NDArray,
    prior: NDArray,
    prior_weight: float,
    offset: float | NDArray = 0.0,
    ceiling: float | NDArray = 1.0,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return θ of P(yes) = ceiling · σ(design θ + offset), and the expected Hessian of its loss.

    The loss is −Σ weight · log likelihood + prior_weight/2 ‖θ − prior‖², lowered by steps of Fisher scoring.

    >>> design, yes = np.ones((8, 1)), np.arange(8) < 2
    >>> theta, hessian = fit_logits(design, yes, np.ones(8), np.zeros(1), 0.0)
    >>> round(float(sigmoid(theta)[0]), 6), round(float(hessian[0, 0]), 6)
    (0.25, 1.5)
    >>> theta, _ = fit_logits(design, yes, np.ones(8), np.zeros(1), 0.0, ceiling=0.5)
    >>> round(float(sigmoid(theta)[0]), 6)
    0.5
    """
    theta = prior.astype(np.float64)
    columns = [np.broadcast_to(part, len(yes)) for part in (offset, ceiling)]
    blocks = [
        [part[rows] for part in (design, yes, weights, *columns)] for rows in row_blocks(len(yes), 1, MAX_CELLS)
    ]

    def loss(theta: NDArray) -> float:
        value, deviation = 0.0, theta - prior
        for x, y, w, shift, most in blocks:
            p = most * sigmoid(x @ theta + shift)
            value -= float(w @ np.log(np.where(y, p, 1 - p)))
        return value + float(prior_weight / 2 * deviation @ deviation)

    def differentiate(theta: NDArray) -> tuple[NDArray, NDArray]:
        gradient, hessian = prior_weight * (theta - prior), prior_weight * np.eye(len(theta))
        for x, y, w, shift, most in blocks:
            s = sigmoid(x @ theta + shift)
            p = most * s
            slope = (1 - s) / (1 - p)  # dp/d(logit) / (p (1 - p))
            gradient += x.T @ (w * slope * (p - y))
            hessian += (x * (w * slope**2 * p * (1 - p))[:, None]).T @ x
        return gradient, hessian

    value = loss(theta)
    for _ in range(MAX_STEPS):
        gradient, hessian = differentiate(theta)
        step = np.linalg.solve(hessian, gradient)
        while (changed := loss(theta - step)) > value and np.abs(step).max() > TOLERANCE:
            step = step / 2
        if np.abs(step).max() <= TOLERANCE:
            break
        theta, value = theta - step, changed
    return theta, hessian


def compute_logits(p: NDArray) -> NDArray[np.float64]:
    """Return log(p / (1 - p)), of probabilities that are kept away from 0 and 1."""
    p = np.clip(p, MIN_PROBABILITY, 1 - MIN_PROBABILITY)
    return np.log(p / (1 - p))


def sigmoid(logits: NDArray) -> NDArray[np.float64]:
    """Return 1 / (1 + exp(-logits)); logits beyond ±30 count as ±30."""
    return 1 / (1 + np.exp(-np.clip(logits, -MAX_LOGIT, MAX_LOGIT)))
