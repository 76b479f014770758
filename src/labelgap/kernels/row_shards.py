"""Rows that lie on the workers of a Dask cluster: Dask arrays and frames, or a list of delayed blocks or futures.

:func:`list_blocks` recognises them, and :class:`RowShards` are validated blocks of features that stay where they are.
The client knows their shapes alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np
import scipy.sparse as sp
from sklearn.utils import check_array

from labelgap.kernels.base import LostArrays, repeat_when_lost
from labelgap.runtime import import_optional


def list_blocks(X: Any) -> list[Any] | None:
    """Return the row blocks of a Dask collection as delayed values or futures; None for other data.

    >>> list_blocks([[1.0], [2.0]]) is None
    True
    """
    if isinstance(X, RowShards):
        return X.blocks
    if hasattr(X, "to_delayed") and hasattr(X, "__dask_graph__"):
        if len(getattr(X, "chunks", ())) == 2:
            X = X.rechunk({1: -1})
        return list(np.ravel(X.to_delayed()))
    if isinstance(X, list | tuple) and X and all(map(_is_lazy, X)):
        return list(X)
    return None


def _is_lazy(value: Any) -> bool:
    return hasattr(value, "__dask_graph__") or (hasattr(value, "key") and hasattr(value, "client"))


def start_blocks(blocks: Sequence[Any]) -> list[Any]:
    """Return futures of blocks, which the current client computes."""
    client = get_client("rows on a Dask cluster need its client")
    return [client.compute(block) if hasattr(block, "__dask_graph__") else block for block in blocks]


def start_calls(calls: Sequence[Callable[[], Any]]) -> list[Any]:
    """Return futures of calls, which the workers of the current client run."""
    client = get_client("blocks need a Dask client")
    return [client.submit(call, key=make_key("read")) for call in calls]


def get_client(reason: str) -> Any:
    """Return the current Dask client; raise ValueError with the reason if there is none."""
    try:
        return import_optional("distributed", "dask").default_client()
    except ValueError:
        raise ValueError(f"{reason}; make one first: dask.distributed.Client(address).") from None


@contextmanager
def watch_losses(client: Any, *further: type[Exception]) -> Iterator[None]:
    """Raise LostArrays for an error in the block that a dead worker explains; ``further`` are such errors too."""
    dask = import_optional("distributed", "dask")
    try:
        yield
    except (
        dask.client.FutureCancelledError,
        dask.scheduler.KilledWorker,
        dask.comm.CommClosedError,
        *further,
    ) as error:
        if client.status != "running":
            raise
        raise LostArrays(f"A worker has died with arrays that others need ({error}).") from error


def scatter(client: Any, value: Any) -> Any:
    """Return a future of a value that the client sends to a worker; raise LostArrays if it dies then.

    Others fetch it from there with their tasks. Dask's own broadcast may wait forever for a worker that has died.
    """
    with watch_losses(client, OSError):
        return client.scatter(value, hash=False)


def submit_each(function: Callable[..., Any], blocks: Sequence[Any], *arguments: Any, numbered: bool = False) -> list:
    """Return futures of ``function(block, *arguments)``, which run where the blocks are; or with its number."""
    client, name = get_client("blocks need a Dask client"), getattr(function, "__name__", "task").strip("_")
    calls = ((function, block, *([i] if numbered else []), *arguments) for i, block in enumerate(blocks))
    return [client.submit(*call, pure=False, key=make_key(name)) for call in calls]


def make_key(name: str) -> str:
    """Return a new key of a task, under a name for Dask's dashboard.

    >>> make_key("spmm")[:14]
    'labelgap_spmm-'
    """
    return f"{KEY_PREFIX}{name}-{uuid4().hex}"


KEY_PREFIX = "labelgap_"


def gather_each(function: Callable[..., Any], blocks: Sequence[Any], *arguments: Any) -> list[Any]:
    """Return ``function(block, *arguments)`` of blocks, computed where they are."""
    return _gather(submit_each(function, blocks, *arguments))


class Facts(NamedTuple):
    """What the client knows about a block."""

    shape: tuple[int, int]
    nnz: int
    sparse: bool


class RowShards:
    """Validated features in blocks of rows on the workers.

    Attributes
    ----------
    blocks : list of futures
        CSR matrices or arrays.
    bounds : list of pairs
        The rows of each block.
    shape, nnz, sparse
        Those of all blocks together.
    """

    def __init__(self, blocks: Sequence[Any], facts: Sequence[Facts]) -> None:
        self.blocks, self.facts = list(blocks), list(facts)
        ends = np.cumsum([0, *(fact.shape[0] for fact in facts)]).tolist()
        self.bounds = list(pairwise(ends))
        self.shape = (ends[-1], facts[0].shape[1])
        self.nnz, self.sparse = sum(fact.nnz for fact in facts), facts[0].sparse

    @classmethod
    def of(cls, blocks: Sequence[Any], dtype: Any, *, allow_nan: bool = False) -> RowShards:
        """Validate blocks on the workers; raise ValueError for an empty one, or one of another width."""
        checked = submit_each(check_block, start_blocks(blocks), dtype, allow_nan, numbered=True)
        facts = [Facts(*fact) for fact in gather_each(_describe_block, checked)]
        for number, fact in enumerate(facts):
            if fact.shape[1] != facts[0].shape[1]:
                raise ValueError(
                    f"Shard {number} has {fact.shape[1]} features and shard 0 has {facts[0].shape[1]}; all shards "
                    "must have the same columns."
                )
            if fact.sparse != facts[0].sparse:
                raise ValueError(f"Shard {number} and shard 0 are not both sparse, or both dense; convert one.")
        return cls(checked, facts)

    def gather(self) -> Any:
        """Return all rows on the client."""
        return stack_blocks(_gather(self.blocks))

    def find_workers(self) -> list[str]:
        """Return a worker that holds each block; an empty name if none does at the moment."""
        who_has = get_client("blocks need a Dask client").who_has(self.blocks)
        return [next(iter(who_has.get(block.key, ())), "") for block in self.blocks]


def _gather(futures: Sequence[Any]) -> list[Any]:
    return futures[0].client.gather(list(futures))


def stack_blocks(blocks: Sequence[Any]) -> Any:
    """Return blocks of rows as one matrix or array."""
    if sp.issparse(blocks[0]):
        return sp.csr_array(sp.vstack(blocks, format="csr"))
    return np.concatenate(blocks)


def check_block(block: Any, number: int, dtype: Any, allow_nan: bool) -> Any:
    """Return a block of features as CSR or a contiguous array; raise ValueError if it has no rows, or infinity."""
    if not sp.issparse(block):
        block = np.asarray(block)
    if len(block.shape) != 2:
        raise ValueError(f"Shard {number} has shape {block.shape}; pass a matrix, with a row for each row.")
    if not block.shape[0]:
        raise ValueError(f"Shard {number} has no rows; leave it out.")
    finite: Any = "allow-nan" if allow_nan else True
    name = f"Shard {number}"
    with np.errstate(over="ignore", invalid="ignore"):  # infinity is an error below
        checked = check_array(block, accept_sparse="csr", dtype=dtype, ensure_all_finite=finite, input_name=name)
    return sp.csr_array(checked) if sp.issparse(checked) else checked


def _describe_block(block: Any) -> tuple[tuple[int, int], int, bool]:
    sparse = sp.issparse(block)
    return block.shape, int(block.nnz if sparse else block.size), sparse


def map_blocks(model: Any, name: str, blocks: Sequence[Any], arguments: Any, options: Any) -> Any:
    """Call a method of a fitted model with each block of rows on the workers; return the joined results."""
    client = get_client("rows on a Dask cluster need its client")
    call = partial(_call_method, name=name, arguments=arguments, options=options)
    call.__name__ = name  # type: ignore[attr-defined]

    def call_each() -> list[Any]:
        with watch_losses(client):
            return gather_each(call, start_blocks(blocks), scatter(client, model))

    results = repeat_when_lost(call_each)
    if isinstance(results[0], tuple):
        return tuple(map(_join_results, zip(*results, strict=True)))
    return _join_results(results)


def _call_method(block: Any, model: Any, *, name: str, arguments: Any, options: Any) -> Any:
    return getattr(model, name)(block, *arguments, **options)


def _join_results(parts: Any) -> Any:
    if parts[0] is None:
        return None
    if isinstance(parts[0], list):
        return [entry for part in parts for entry in part]
    return stack_blocks(list(parts))
