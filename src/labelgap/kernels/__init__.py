"""Backends: sparse products, sums over cells and rankings on a device, behind one interface."""

from labelgap.kernels.base import (
    BACKENDS,
    Backend,
    CellLoss,
    Sparse,
    copy,
    eigh,
    exact_gram,
    explain_out_of_memory,
    get_backend,
    get_label_backend,
    matmul,
    matmul_t,
    namespace,
    qr,
    svd,
)

__all__ = [
    "BACKENDS",
    "Backend",
    "CellLoss",
    "Sparse",
    "copy",
    "eigh",
    "exact_gram",
    "explain_out_of_memory",
    "get_backend",
    "get_label_backend",
    "matmul",
    "matmul_t",
    "namespace",
    "qr",
    "svd",
]
