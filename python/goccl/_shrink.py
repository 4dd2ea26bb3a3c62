"""A process group of the ranks that are left of one; goccl.shrink is its public name."""

from __future__ import annotations

import copy
import inspect
import socket
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from . import _loader
from ._boot import member
from ._group import Made

if TYPE_CHECKING:
    from ._C import GocclBackend
    from ._C import Options as GroupOptions


def shrink(
    group: dist.ProcessGroup | None, without: Sequence[int], timeout: timedelta | None, quorum: str | int
) -> dist.ProcessGroup:
    """See goccl.shrink."""
    pg = group if group is not None else dist.group.WORLD
    if pg is None:
        raise ValueError("goccl.shrink: there is no process group yet; call init_process_group first")
    fewest = _fewest(quorum)
    backend = _backend_of(pg)
    options = copy.copy(backend.options)
    if timeout is not None:
        options._timeout = timeout
    if hasattr(options, "enable_reconfigure"):  # torch 2.14 and later
        options.enable_reconfigure = False
    default = pg == dist.group.WORLD
    made, members, store = _settle(backend, sorted(set(without)), fewest, options, with_store=default)
    of_job = dist.get_process_group_ranks(pg)
    name, description, device = dist.get_backend(pg), pg.group_desc, pg.bound_device_id
    backend._abort_because(f"the group goes on as one of its ranks {members}")
    if default:
        made.options.global_ranks_in_group = []  # ranks of the whole job are numbered anew
        dist.destroy_process_group()
        dist.init_process_group(
            name, store=store, rank=made.rank(), world_size=made.size(), timeout=options._timeout,
            pg_options=Made(made), device_id=device,
        )  # fmt: skip
        world: dist.ProcessGroup = dist.group.WORLD
        return world
    dist.destroy_process_group(pg)
    in_order = {"sort_ranks": False} if "sort_ranks" in inspect.signature(dist.new_group).parameters else {}
    smaller: dist.ProcessGroup = dist.new_group(
        [of_job[r] for r in members], timeout=options._timeout, backend=name, pg_options=Made(made),
        use_local_synchronization=True, group_desc=description, **in_order,
    )  # fmt: skip
    return smaller


def _fewest(quorum: str | int) -> int:
    """The quorum as the core has it."""
    named = {"majority": 0, "any": 1}
    if quorum in named:
        return named[str(quorum)]
    if isinstance(quorum, int) and not isinstance(quorum, bool) and 1 <= quorum < 2**31:
        return quorum
    raise ValueError(f'goccl.shrink: quorum is {quorum!r}; it is "majority", "any", or a number of ranks')


def _backend_of(pg: dist.ProcessGroup) -> GocclBackend:
    """The one backend of a group."""
    backend = pg._get_backend(torch.device("cpu"))
    backend = getattr(backend, "wrapped_pg", backend)  # with TORCH_DISTRIBUTED_DEBUG=DETAIL
    names = {part.split(":")[-1] for part in dist.get_backend(pg).split(",")}
    if not isinstance(backend, _loader.core().GocclBackend) or names != {"goccl"}:
        raise TypeError(f"goccl.shrink: only groups whose one backend is goccl can shrink; got {', '.join(sorted(names))}")
    return backend


def _settle(
    backend: GocclBackend, without: list[int], quorum: int, options: GroupOptions, with_store: bool
) -> tuple[GocclBackend, list[int], dist.Store | None]:
    """Makes the smaller group and its store. Returns them, and the members' ranks in the former group.

    A member may die before all have the store. The others then shrink that group in turn; those that have it already
    learn of the death in their next operation, and do so too.
    """
    made, members = backend._remaining(without, quorum, copy.copy(options))
    while True:
        try:
            store = _store(made, options._timeout) if with_store else None
            made.barrier().wait()
            return made, members, store
        except dist.DistBackendError:
            rest, kept = made._remaining([], quorum, copy.copy(options))
            if len(kept) == made.size():  # nobody has died: it was something else
                raise
            made, members = rest, [members[r] for r in kept]


def _store(made: GocclBackend, timeout: timedelta) -> dist.Store:
    """A store for the smaller group, which its rank 0 serves: the former one may have died with its rank."""
    port = torch.zeros(1, dtype=torch.int64)
    server = None
    if made.rank() == 0:
        try:
            server = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False, timeout=timeout)
        except RuntimeError as e:
            made._abort_because(f"it cannot serve a store for the others: {e}")
            raise
        port[0] = server.port
    made.broadcast([port]).wait()
    return server or _client(made, int(port), timeout)


def _client(made: GocclBackend, port: int, timeout: timedelta) -> dist.Store:
    """Connects to the store of rank 0."""
    deadline = time.monotonic() + timeout.total_seconds()
    refusals = []
    for address in made._locate(0).split():
        try:  # the store itself would try this one until the timeout
            left = max(deadline - time.monotonic(), 0.1)
            socket.create_connection((address, port), timeout=min(left, 5)).close()
            return dist.TCPStore(address, port, is_master=False, wait_for_workers=False, timeout=timeout)
        except (OSError, RuntimeError) as e:
            refusals.append(f"{address}: {e}")
    raise dist.DistNetworkError(
        f"goccl.shrink: {member(made.options, made.rank(), made.size())}: cannot reach the store that rank 0 serves for "
        f"the smaller group, at port {port} of {'; '.join(refusals) or 'no address'}"
    )
