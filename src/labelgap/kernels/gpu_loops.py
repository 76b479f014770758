"""Triton kernels over the non-zeros of a CSR matrix.

A program handles a piece of a row, at most :data:`PIECE_SIZE` non-zeros, and all columns of the dense side at once:
one warp reads a dense row in 16-byte words. A row of several pieces writes partial sums, which :func:`add_pieces`
adds up in their order, so that results do not vary from run to run, as those of atomic additions do.

The number of columns K and the distances of rows are compile-time constants: with run-time numbers the compiler could
not prove that the words of a row are inside of it and aligned, and would read single numbers. READ is the number of
columns to read, K or, in padded rows, more.
"""

from __future__ import annotations

try:
    import triton.language as tl
    from triton import jit
except ImportError:  # a PyTorch without GPU comes without Triton, and calls no kernel
    tl, jit = None, lambda kernel: kernel

PIECE_SIZE = 1024
MAX_COLUMNS = 1024  # of a program; more would not fit in the registers of a warp
# By the bytes of a number: columns and rows that a product reads at once, and warps; 2 and 4 are measured (H200).
TILES = {2: (256, 4, 1), 4: (128, 4, 1), 8: (64, 4, 1)}
UNROLL = {2: 8, 4: 4, 8: 4}  # rows that the other kernels read at once
CHUNK = 256  # products of float32 whose sum is float32


@jit
def multiply(
    pieces, indices, data, B, out, partial, stride_b: tl.constexpr, stride_out: tl.constexpr,
    K: tl.constexpr, READ: tl.constexpr, BLOCK: tl.constexpr, SUM: tl.constexpr, TOTAL: tl.constexpr,
    OFFSET: tl.constexpr, ROWS: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """out_i = Σ_j data_ij B_j; ``pieces`` has the row, the range and the slot of each, −1 if it is a whole row.

    ROWS rows of B are read at once. Sums of at most CHUNK products have the type SUM, and the sum of these TOTAL, for
    long float32 sums would lose digits. OFFSET is the type of a place in B.
    """
    piece = tl.program_id(0).to(tl.int64)
    row, start = tl.load(pieces + 4 * piece), tl.load(pieces + 4 * piece + 1)
    stop, slot = tl.load(pieces + 4 * piece + 2), tl.load(pieces + 4 * piece + 3)
    columns, lanes = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, ROWS)
    inside = (columns < READ)[None, :]
    total = tl.zeros((BLOCK,), TOTAL)
    for chunk in range(start, stop, CHUNK):
        few, end = tl.zeros((ROWS, BLOCK), SUM), tl.minimum(chunk + CHUNK, stop)
        full = chunk + (end - chunk) // ROWS * ROWS
        for first in range(chunk, full, ROWS):
            j = tl.load(indices + first + lanes).to(OFFSET)
            values = tl.load(data + first + lanes).to(SUM)
            b = tl.load(B + (j[:, None] * stride_b + columns[None, :]), mask=inside, other=0.0)
            few += values[:, None] * b.to(SUM)
        if full < end:
            stored = full + lanes < end
            j = tl.load(indices + full + lanes, mask=stored, other=0).to(OFFSET)
            values = tl.load(data + full + lanes, mask=stored, other=0.0).to(SUM)
            b = tl.load(B + (j[:, None] * stride_b + columns[None, :]), mask=inside & stored[:, None], other=0.0)
            few += values[:, None] * b.to(SUM)
        total += tl.sum(few, 0).to(TOTAL)
    target = out + row * stride_out if slot < 0 else partial + slot * stride_out
    tl.store(target + columns, total, mask=columns < K)


@jit
def add_pieces(rows, bounds, partial, out, stride, K: tl.constexpr, BLOCK: tl.constexpr, SUM: tl.constexpr):
    """out_i = the sum of the partial sums bounds_i to bounds_(i+1), for each of ``rows``."""
    position = tl.program_id(0)
    row, start, stop = tl.load(rows + position), tl.load(bounds + position), tl.load(bounds + position + 1)
    columns, lanes = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, 8)
    total = tl.zeros((8, BLOCK), SUM)
    for first in range(start, stop, 8):
        inside = (first + lanes < stop)[:, None] & (columns < K)[None, :]
        total += tl.load(partial + (first + lanes)[:, None] * stride + columns[None, :], mask=inside, other=0.0)
    tl.store(out + row * stride + columns, tl.sum(total, 0), mask=columns < K)


@jit
def score_cells(
    pieces, indices, B, H, out, stride_b: tl.constexpr, stride_h: tl.constexpr,
    K: tl.constexpr, READ: tl.constexpr, BLOCK: tl.constexpr, SUM: tl.constexpr, UNROLL: tl.constexpr,
):  # fmt: skip
    """out_ij = b_i · h_j at the non-zeros of a piece."""
    piece = tl.program_id(0).to(tl.int64)
    row, start = tl.load(pieces + 4 * piece), tl.load(pieces + 4 * piece + 1)
    stop = tl.load(pieces + 4 * piece + 2)
    columns = tl.arange(0, BLOCK)
    inside = columns < K
    b = tl.load(B + row * stride_b + columns, mask=inside, other=0.0).to(SUM)
    for first in range(start, stop, UNROLL):
        for step in tl.static_range(UNROLL):
            stored = first + step < stop
            j = tl.load(indices + first + step, mask=stored, other=0).to(tl.int64)
            h = tl.load(H + j * stride_h + columns, mask=columns < READ, other=0.0).to(SUM)
            tl.store(out + first + step, tl.sum(b * h, 0), mask=stored)


@jit
def curve_cells(
    pieces, indices, curvature, S, H, out, partial,
    stride_s: tl.constexpr, stride_h: tl.constexpr, stride_out: tl.constexpr,
    K: tl.constexpr, READ: tl.constexpr, BLOCK: tl.constexpr, SUM: tl.constexpr, UNROLL: tl.constexpr,
):  # fmt: skip
    """out_i = Σ_j curvature_ij (s_i · h_j) h_j, which reads each h_j once."""
    piece = tl.program_id(0).to(tl.int64)
    row, start = tl.load(pieces + 4 * piece), tl.load(pieces + 4 * piece + 1)
    stop, slot = tl.load(pieces + 4 * piece + 2), tl.load(pieces + 4 * piece + 3)
    columns = tl.arange(0, BLOCK)
    inside = columns < K
    s = tl.load(S + row * stride_s + columns, mask=inside, other=0.0).to(SUM)
    total = tl.zeros((BLOCK,), SUM)
    for first in range(start, stop, UNROLL):
        for step in tl.static_range(UNROLL):
            stored = first + step < stop
            j = tl.load(indices + first + step, mask=stored, other=0).to(tl.int64)
            h = tl.load(H + j * stride_h + columns, mask=columns < READ, other=0.0).to(SUM)
            total += tl.load(curvature + first + step, mask=stored, other=0.0).to(SUM) * tl.sum(s * h, 0) * h
    target = out + row * stride_out if slot < 0 else partial + slot * stride_out
    tl.store(target + columns, total, mask=inside)
