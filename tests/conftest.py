"""The options --quick and --torch, and data fixtures that several test modules use."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
import pytest
from sklearn.base import BaseEstimator

# Modules that start servers, browsers or processes, read real data or run long fits.
SLOW_MODULES = {
    *("test_page", "test_kill", "test_gallery", "test_docs", "test_readme", "test_published", "test_datasets_real"),
    *(
        "test_serve",
        "test_reviews",
        "test_reviewers",
        "test_attacks",
        "test_checkpoints",
        "test_gpu",
        "test_array_api",
    ),
    *("test_shards", "test_reproduce", "test_reproduce_mc", "test_reproduce_one_class", "test_reproduce_sleec"),
    *("test_fuzzing", "test_hostile_data", "test_one_class_cv", "test_completion_cv", "test_tune", "test_saving"),
    *("test_array_api", "test_startup", "test_front_door", "test_nystroem", "test_imputers"),
}


TORCH_MODULES = {"gpu_streams"}  # whose examples need PyTorch


def pytest_addoption(parser):
    parser.addoption("--quick", action="store_true", help="Skip slow tests; run one configuration of each estimator.")
    parser.addoption("--torch", action="store_true", help='Let device="auto" be a device of PyTorch.')
    parser.addoption("--torch-device", choices=["cpu", "cuda"], default="cpu", help="The device of --torch.")


def pytest_configure(config):
    if config.getoption("--torch"):
        import torch

        from labelgap.kernels import BACKENDS
        from labelgap.kernels.gpu import TorchBackend

        torch.set_num_threads(1)  # as in test_gpu.py
        backend = TorchBackend(config.getoption("--torch-device"))
        BACKENDS["auto"] = lambda: backend


def pytest_collection_modifyitems(config, items):
    """With --quick, deselect slow tests and all but the first configuration of an estimator in each test."""
    if find_spec("torch") is None:
        for item in items:
            if item.path.stem in TORCH_MODULES:
                item.add_marker(pytest.mark.skip(reason="its example needs PyTorch, which is not installed"))
    if not config.getoption("--quick"):
        return
    first: dict[tuple, str] = {}
    selected, deselected = [], []
    for item in items:
        configurations = [
            (value, first.setdefault((item.parent.nodeid, item.originalname, cls), repr(value)))
            for value in (item.callspec.params.values() if hasattr(item, "callspec") else ())
            if (cls := _class_of(value)) is not None
        ]
        other = any(repr(value) != chosen for value, chosen in configurations)
        slow = item.path.stem in SLOW_MODULES or item.get_closest_marker("slow")
        (deselected if other or slow else selected).append(item)
    items[:] = selected
    config.hook.pytest_deselected(items=deselected)


def _class_of(value: Any) -> type | None:
    """Return the class that a parameter of a test configures: an estimator, or a maker of the contract suite."""
    return type(value) if isinstance(value, BaseEstimator) else getattr(value, "of", None)


class Planted(NamedTuple):
    """Rows, labels of a low-rank model, and a mask of the known cells."""

    X: np.ndarray
    Y: np.ndarray
    observed: np.ndarray

    @property
    def gaps(self) -> np.ndarray:
        """The labels, NaN in unknown cells."""
        return np.where(self.observed, self.Y, np.nan)


@pytest.fixture
def planted():
    """Return a function that makes data with Y = [X W Hᵀ > ½], of which the share ``share`` of cells is known."""

    def make(n: int = 40, d: int = 6, L: int = 5, k: int = 2, seed: int = 0, share: float = 0.6) -> Planted:
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((n, d))
        scores = X @ rng.standard_normal((d, k)) @ rng.standard_normal((k, L))
        return Planted(X, (scores > 0.5).astype(int), rng.random((n, L)) < share)

    return make
