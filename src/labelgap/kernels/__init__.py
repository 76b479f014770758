"""Arrays in, arrays out: the only room that names a device."""

from labelgap.kernels.base import Backend, Cell, Sparse, get_backend, of

__all__ = ["Backend", "Cell", "Sparse", "get_backend", "of"]
