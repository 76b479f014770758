"""What is computed on a device: sparse products, sums over cells and rankings, behind one interface."""

from labelgap.kernels.base import (
    BACKENDS,
    Backend,
    Cell,
    Sparse,
    eigh,
    get_backend,
    matmul,
    matmul_t,
    namespace,
    qr,
    svd,
    whole,
)

__all__ = [
    "BACKENDS",
    "Backend",
    "Cell",
    "Sparse",
    "eigh",
    "get_backend",
    "matmul",
    "matmul_t",
    "namespace",
    "qr",
    "svd",
    "whole",
]
