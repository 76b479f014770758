"""Losses against finite differences, convexity, and extreme margins."""

import re
from pathlib import Path

import numpy as np
import pytest

from labelgap.losses import LOSSES, Logistic, Loss, get_loss


def loss_of_the_contributing_page():
    """Run the example of CONTRIBUTING.md and return its loss, so that what newcomers copy passes these tests."""
    page = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    namespace: dict = {}
    exec(re.search(r"```python\n(.*?)```", page, re.DOTALL)[1], namespace)
    return namespace["LogCosh"]()


ALL = [*(cls() for cls in LOSSES.values()), loss_of_the_contributing_page()]
SCORES = np.array([-7.3, -1.6, -0.4, 0.1, 0.3, 0.9, 1.7, 6.1])  # round numbers may be kinks


@pytest.mark.parametrize("loss", ALL, ids=repr)
@pytest.mark.parametrize("side", ["negative", "positive"])
def test_derivatives_match_finite_differences(loss, side):
    value, gradient, curvature = loss.functions(np)
    a = np.full_like(SCORES, getattr(loss, side))
    h = 1e-5
    slope = (value(a, SCORES + h) - value(a, SCORES - h)) / (2 * h)
    bend = (gradient(a, SCORES + h) - gradient(a, SCORES - h)) / (2 * h)
    np.testing.assert_allclose(gradient(a, SCORES), slope, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(curvature(a, SCORES), bend, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("loss", ALL, ids=repr)
def test_curvature_is_bounded_by_what_the_loss_says(loss):
    scores = np.linspace(-30, 30, 10_001)
    for a in (loss.negative, loss.positive):
        bend = loss.functions(np).curvature(np.full_like(scores, a), scores)
        assert bend.min() >= 0
        assert bend.max() <= loss.max_curvature * (1 + 1e-12)
    top = max(
        loss.functions(np).curvature(np.full_like(scores, a), scores).max() for a in (loss.negative, loss.positive)
    )
    assert top == pytest.approx(loss.max_curvature, rel=1e-3)


@pytest.mark.parametrize("margin", [1e3, 1e30, -1e3, -1e30])
def test_logistic_does_not_overflow(margin):
    with np.errstate(over="raise", invalid="raise"):
        value, gradient, curvature = Logistic().functions(np)
        assert value(1.0, margin) == pytest.approx(max(0.0, -margin))
        assert gradient(1.0, margin) == pytest.approx(-1.0 if margin < 0 else 0.0)
        assert curvature(1.0, margin) == 0.0


@pytest.mark.parametrize("loss", ALL, ids=repr)
def test_threshold_lies_halfway_between_the_targets(loss):
    value = loss.functions(np).value
    assert value(loss.negative, loss.threshold) == pytest.approx(value(loss.positive, loss.threshold))


def test_loss_by_name():
    assert get_loss("logistic").name == "logistic"
    mine = Logistic()
    assert get_loss(mine) is mine
    with pytest.raises(ValueError, match=r"loss='hinge' is not known.*squared_hinge"):
        get_loss("hinge")


def test_a_loss_without_functions_cannot_be_made():
    with pytest.raises(TypeError, match="functions"):
        Loss()


def test_a_class_is_not_a_loss():
    with pytest.raises(ValueError, match=r"loss=Logistic is a class; pass an instance: loss=Logistic\(\)"):
        get_loss(Logistic)


def test_a_loss_must_say_how_curved_it_is():
    class Incomplete(Loss):
        name = "incomplete"

        def functions(self, xp=np):
            return Logistic().functions(xp)

    with pytest.raises(ValueError, match=r"Incomplete\(\) has no max_curvature; set it in its class"):
        get_loss(Incomplete())
