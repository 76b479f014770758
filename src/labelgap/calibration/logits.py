"""Logistic regression with a normal prior, for few coefficients."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from labelgap.portable import MIN_PROBABILITY

MAX_STEPS, TOLERANCE = 50, 1e-6
MAX_LOGIT = 30.0


def fit_logits(
    design: NDArray,
    yes: NDArray,
    weights: NDArray,
    prior: NDArray,
    prior_weight: float,
    offset: float | NDArray = 0.0,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return θ of logit P(yes) = design θ + offset, and the Hessian of its loss, by Newton steps that lower the loss.

    The loss is −Σ weight · log likelihood + prior_weight/2 ‖θ − prior‖².

    >>> design, yes = np.ones((8, 1)), np.arange(8) < 2
    >>> theta, hessian = fit_logits(design, yes, np.ones(8), np.zeros(1), 0.0)
    >>> round(float(sigmoid(theta)[0]), 6), round(float(hessian[0, 0]), 6)
    (0.25, 1.5)
    """
    theta, sign = prior.astype(np.float64), np.where(yes, -1.0, 1.0)

    def loss(theta: NDArray) -> float:
        deviation = theta - prior
        fit = weights @ np.logaddexp(0, sign * (design @ theta + offset))
        return float(fit + prior_weight / 2 * deviation @ deviation)

    value = loss(theta)
    for _ in range(MAX_STEPS):
        p = sigmoid(design @ theta + offset)
        gradient = design.T @ (weights * (p - yes)) + prior_weight * (theta - prior)
        hessian = (design * (weights * p * (1 - p))[:, None]).T @ design + prior_weight * np.eye(len(theta))
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
