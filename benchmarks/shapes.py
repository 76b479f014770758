"""Random data with the shape, the non-zeros and the skew of large data sets, generated on a GPU in about a second.

Columns are drawn with probability 1 / (rank + 10), as words are, and the lengths of rows are log-normal. Most labels
of a row are drawn from a list of three that belongs to one of its features, so that labels can be predicted.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import scipy.sparse as sp
import torch

ZIPF_SHIFT, LENGTH_DEVIATION = 10.0, 0.6
LISTED_LABELS, LISTED_SHARE = 3, 0.7


class Shape(NamedTuple):
    """Rows, features, labels, and the non-zeros of X and Y; without features d is 0."""

    n: int
    d: int
    L: int
    features: int
    labels: int


SHAPES = {
    "bibtex": Shape(4_880, 1_836, 159, 335_451, 11_712),
    "autofood": Shape(155, 9_382, 162, 22_308, 2_449),
    "compphys": Shape(161, 33_284, 208, 127_638, 1_578),
    "delicious": Shape(12_920, 500, 983, 234_756, 245_868),
    "eurlex": Shape(17_413, 5_000, 3_993, 4_121_483, 92_289),
    "nus-wide": Shape(161_789, 1_134, 1_000, 139_575_370, 935_140),
    "wikipedia": Shape(881_805, 366_932, 213_707, 129_431_338, 6_225_543),
    "amazon-670k": Shape(490_449, 135_909, 670_091, 37_117_180, 2_672_947),
    "ml-20m": Shape(138_493, 0, 26_744, 0, 20_000_263),
}


def make_shape(
    name: str, seed: int = 0, *, device: str = "cuda", scale: float = 1.0
) -> tuple[sp.csr_array | None, sp.csr_array]:
    """Return X, rows of unit length, and Y in main memory; X is None without features.

    ``scale`` multiplies the numbers of rows, features, labels and non-zeros.
    """
    shape = Shape(*(int(scale * number) for number in SHAPES[name]))
    generator = torch.Generator(device).manual_seed(seed)
    if not shape.d:
        return None, _to_scipy(_draw(shape.n, shape.L, shape.labels, generator), (shape.n, shape.L))
    keys = _draw(shape.n, shape.d, shape.features, generator)
    X = _to_scipy(keys, (shape.n, shape.d), generator)
    return X, _to_scipy(_draw_labels(keys, shape, generator), (shape.n, shape.L))


def _draw(n: int, d: int, count: int, generator: torch.Generator) -> Any:
    """Return ``count`` distinct cells, row · d + column, in order; dense matrices lose their skew."""
    device = generator.device
    lengths = torch.exp(LENGTH_DEVIATION * torch.randn(n, generator=generator, device=device, dtype=torch.float64))
    rows, columns = torch.cumsum(lengths / lengths.sum(), 0), _make_distribution(d, device)
    names = torch.randperm(d, generator=generator, device=device)
    keys = torch.empty(0, dtype=torch.int64, device=device)
    if 4 * count > n * d:
        keys = torch.randperm(n * d, generator=generator, device=device)[:count]
    while len(keys) < count:
        more = (count - len(keys)) * 5 // 4 + 1_000
        new = _sample(rows, more, generator) * d + names[_sample(columns, more, generator)]
        keys = torch.unique(torch.cat([keys, new]))
    chosen = torch.randperm(len(keys), generator=generator, device=device)[:count]
    return torch.sort(keys[chosen]).values


def _make_distribution(d: int, device: Any) -> Any:
    weights = 1 / (torch.arange(d, device=device, dtype=torch.float64) + ZIPF_SHIFT)
    return torch.cumsum(weights / weights.sum(), 0)


def _sample(distribution: Any, count: int, generator: torch.Generator) -> Any:
    uniform = torch.rand(count, generator=generator, device=distribution.device, dtype=torch.float64)
    return torch.searchsorted(distribution, uniform).clamp_(max=len(distribution) - 1)


def _draw_labels(keys: Any, shape: Shape, generator: torch.Generator) -> Any:
    """Return the cells of labels: most from the list of a random feature of the row, the others at random."""
    _, d, L, _, count = shape
    lists = _sample(_make_distribution(L, keys.device), d * LISTED_LABELS, generator).reshape(d, LISTED_LABELS)
    cells = torch.empty(0, dtype=torch.int64, device=keys.device)
    while len(cells) < count:
        more = (count - len(cells)) * 5 // 4 + 1_000
        picked = keys[torch.randint(len(keys), (more,), generator=generator, device=keys.device)]
        place = torch.randint(LISTED_LABELS, (more,), generator=generator, device=keys.device)
        listed = torch.rand(more, generator=generator, device=keys.device) < LISTED_SHARE
        labels = torch.where(
            listed, lists[picked % d, place], _sample(_make_distribution(L, keys.device), more, generator)
        )
        cells = torch.unique(torch.cat([cells, picked // d * L + labels]))
    chosen = torch.randperm(len(cells), generator=generator, device=keys.device)[:count]
    return torch.sort(cells[chosen]).values


def _to_scipy(keys: Any, shape: tuple[int, int], generator: torch.Generator | None = None) -> sp.csr_array:
    """Return a CSR matrix of ones, or of random values in rows of unit length."""
    n, d = shape
    rows, counts = keys // d, torch.zeros(n + 1, dtype=torch.int64, device=keys.device)
    counts[1:] = torch.cumsum(torch.bincount(rows, minlength=n), 0)
    values = torch.ones(len(keys), device=keys.device)
    if generator is not None:
        values = 0.2 + torch.rand(len(keys), generator=generator, device=keys.device)
        sizes = torch.zeros(n, dtype=torch.float64, device=keys.device).index_add_(0, rows, values.double() ** 2)
        values = values / sizes.sqrt().float()[rows]
    parts = (values.cpu().numpy(), (keys % d).int().cpu().numpy(), counts.int().cpu().numpy())
    return sp.csr_array(parts, shape=shape)
