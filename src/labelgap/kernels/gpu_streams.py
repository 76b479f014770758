"""Sparse matrices that are larger than the memory of a GPU: row blocks in pinned memory, copied when they are used.

:class:`~labelgap.kernels.shards.ShardedBackend` calls a :class:`StreamBackend` for each block. While one block is
multiplied, the next one is copied: the GPU holds two blocks at a time, and all arrays of factors.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from typing import Any, NamedTuple

from labelgap.kernels.gpu import Pieces, TorchBackend, TorchCSR
from labelgap.kernels.shards import ShardedBackend, ShardedMatrix


class _Copy(NamedTuple):
    """The tensors of a block on the device, and the event after which they are complete."""

    parts: tuple[Any, Any, Any]
    done: Any


class PinnedCSR:
    """CSR block in pinned memory; its values may be on the device, where they were computed.

    Parameters
    ----------
    backend : StreamBackend
        The backend of the device.
    indptr, indices, data : tensors
        As in :class:`~labelgap.kernels.gpu.TorchCSR`.
    shape : pair of int
        The number of rows and of columns.
    """

    def __init__(self, backend: StreamBackend, indptr: Any, indices: Any, data: Any, shape: tuple[int, int]) -> None:
        self.backend, self.indptr, self.indices, self.data, self.shape = backend, indptr, indices, data, shape
        self.nnz = int(indices.shape[0])
        self.following: Callable[[], PinnedCSR | None] = lambda: None  # the block that is probably used next
        self._copy: _Copy | None = None
        self._pieces: Pieces | None = None

    @classmethod
    def of(cls, backend: StreamBackend, block: TorchCSR) -> PinnedCSR:
        """Move a block from the device to pinned memory."""
        indptr, indices, data = (backend.pin(part) for part in (block.indptr, block.indices, block.data))
        return cls(backend, indptr, indices, data, block.shape)

    @cached_property
    def T(self) -> PinnedCSR:
        """The transpose, in pinned memory too."""
        transpose = PinnedCSR.of(self.backend, self.load().T)
        transpose.following = self._find_following_transpose
        return transpose

    def _find_following_transpose(self) -> PinnedCSR | None:
        following = self.following()
        return None if following is None else following.__dict__.get("T")

    def with_data(self, data: Any) -> PinnedCSR:
        """Return the block with these numbers in the stored cells."""
        other = PinnedCSR(self.backend, self.indptr, self.indices, data, self.shape)
        other._pieces = self._pieces
        return other

    def load(self) -> TorchCSR:
        """Return the block on the device, and start to copy the next one."""
        copy, following = self._start(), self.following()
        self._copy = None
        if following is not None and following is not self:
            following._copy = following._start()
        self.backend.wait(copy.done, copy.parts)
        block = TorchCSR(*copy.parts, self.shape)
        if self._pieces is None:
            self._pieces = block.pieces
        block.__dict__.update(pieces=self._pieces, bounds=self.indptr.numpy())
        return block

    def _start(self) -> _Copy:
        return self._copy or self.backend.start_copy((self.indptr, self.indices, self.data))


class StreamBackend(TorchBackend):
    """The functions of a device for blocks in pinned memory."""

    @cached_property
    def _stream(self) -> Any:
        return self.torch.cuda.Stream(self.device) if self.on_gpu else None

    def pin(self, tensor: Any) -> Any:
        """Return a copy in memory from which the device reads by itself."""
        host = tensor.cpu()
        return host.pin_memory() if self.on_gpu else host

    def start_copy(self, parts: tuple[Any, Any, Any]) -> _Copy:
        """Start to copy tensors to the device, beside its other work."""
        if not self.on_gpu:
            return _Copy(parts, None)
        with self.torch.cuda.stream(self._stream):
            indptr, indices, data = (part.to(self.device, non_blocking=True) for part in parts)
            return _Copy((indptr, indices, data), self._stream.record_event())

    def wait(self, done: Any, parts: tuple[Any, ...]) -> None:
        """Let further work on the device wait for a copy."""
        if done is None:
            return
        current = self.torch.cuda.current_stream(self.device)
        current.wait_event(done)
        for part in parts:
            part.record_stream(current)  # its memory is not used again before this work is done

    def prepare(self, matrix: Any, dtype: Any) -> Any:
        return PinnedCSR.of(self, super().prepare(matrix, dtype))

    def spmm_t(self, A: Any, B: Any) -> Any:
        return self.spmm(A.T, B)


def _on_loaded(name: str) -> Any:
    """Return a method of TorchBackend whose blocks are copied to the device before."""
    function = getattr(TorchBackend, name)

    def method(self: StreamBackend, *arguments: Any) -> Any:
        return function(self, *(value.load() if isinstance(value, PinnedCSR) else value for value in arguments))

    return method


for _name in (
    *("column_sums", "column_squares", "spmm", "gram", "sddmm", "topk"),
    *("cells_value", "cells_sum", "cells_model", "cells_hessp", "cells_diagonal"),
    *("all_value", "all_model", "all_hessp"),
):
    setattr(StreamBackend, _name, _on_loaded(_name))


class StreamedBackend(ShardedBackend):
    """Shards on one device whose sparse matrices stay in pinned memory.

    >>> import numpy as np
    >>> import scipy.sparse as sp
    >>> backend = StreamedBackend(TorchBackend("cpu"), 2)
    >>> A = backend.prepare(sp.csr_array(np.eye(3)), "float64")
    >>> backend.spmm(A, backend.array(np.ones((3, 1)), "float64")).shape
    (3, 1)
    """

    def __init__(self, inner: Any, count: int) -> None:
        super().__init__(inner, count)
        streams: Any = StreamBackend(inner.device.type, coarse=inner.rounds)
        streams.min_coarse_numbers = inner.min_coarse_numbers
        self.on_shards = streams

    def prepare(self, matrix: Any, dtype: Any) -> ShardedMatrix:
        sharded = super().prepare(matrix, dtype)
        for block, following in zip(sharded.blocks, sharded.blocks[1:] + sharded.blocks[:1], strict=True):
            block.following = partial(_return, following)
        return sharded


def _return(block: PinnedCSR) -> PinnedCSR:
    return block
