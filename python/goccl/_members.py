"""Process groups with other members than before: goccl.shrink, goccl.grow, goccl.address and goccl.join."""

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

from . import _loader, _recorder
from ._boot import member
from ._group import Made, native
from ._options import lines
from .zoptions import Options

if TYPE_CHECKING:
    from ._C import GocclBackend
    from ._C import Options as GroupOptions


def shrink(
    group: dist.ProcessGroup | None, without: Sequence[int], timeout: timedelta | None, quorum: str | int
) -> dist.ProcessGroup:
    """See goccl.shrink."""
    pg = _chosen("shrink", group)
    fewest = _fewest(quorum)
    backend = _backend_of("shrink", pg)
    options = _options_of(backend, timeout)
    made, members = backend._remaining(sorted(set(without)), fewest, copy.copy(options))
    default = pg == dist.group.WORLD
    made, members, store = _settle("shrink", made, members, fewest, options, with_store=default)
    backend._abort_because(f"the group goes on as one of its ranks {members}")
    if default:
        return _as_default(made, store, dist.get_backend(pg), options._timeout, pg.bound_device_id)
    of_job = dist.get_process_group_ranks(pg)
    name, description = dist.get_backend(pg), pg.group_desc
    dist.destroy_process_group(pg)
    in_order = {"sort_ranks": False} if "sort_ranks" in inspect.signature(dist.new_group).parameters else {}
    smaller: dist.ProcessGroup = dist.new_group(
        [of_job[r] for r in members], timeout=options._timeout, backend=name, pg_options=Made(made),
        use_local_synchronization=True, group_desc=description, **in_order,
    )  # fmt: skip
    return smaller


def grow(
    group: dist.ProcessGroup | None, newcomers: int, wait: timedelta | None, timeout: timedelta | None
) -> dist.ProcessGroup:
    """See goccl.grow."""
    pg = _chosen("grow", group)
    backend = _backend_of("grow", pg)
    if pg != dist.group.WORLD:
        raise ValueError("goccl.grow: only the default group can grow: every other one consists of ranks of it")
    if newcomers < 1:
        raise ValueError(f"goccl.grow: newcomers is {newcomers}; a group grows by 1 at least")
    options = _options_of(backend, timeout)
    made = backend._grown(newcomers, options._timeout if wait is None else wait, copy.copy(options))
    if made is None:
        return pg
    made, _, store = _settle("grow", made, list(range(made.size())), 0, options, with_store=True)
    backend._abort_because(f"the group goes on as one of {made.size()} ranks")
    return _as_default(made, store, dist.get_backend(pg), options._timeout, pg.bound_device_id)


def join(
    address: str, timeout: timedelta, options: Options | None, device: torch.device | None
) -> dist.ProcessGroup:
    """See goccl.join."""
    if dist.is_initialized():
        raise ValueError("goccl.join: this process is in a process group already; destroy_process_group comes first")
    mine = native(_recorder.settings() + lines(options), timeout)
    mine.group_name = "0"  # as torch calls the default group of the others
    made = _loader.core().come(address, copy.copy(mine))
    made, _, store = _settle("join", made, list(range(made.size())), 0, mine, with_store=True)
    return _as_default(made, store, "goccl", mine._timeout, device)


def address(group: dist.ProcessGroup | None) -> str:
    """See goccl.address."""
    return _backend_of("address", _chosen("address", group))._address()


def _chosen(what: str, group: dist.ProcessGroup | None) -> dist.ProcessGroup:
    pg = group if group is not None else dist.group.WORLD
    if pg is None:
        raise ValueError(f"goccl.{what}: there is no process group yet; call init_process_group first")
    return pg


def _options_of(backend: GocclBackend, timeout: timedelta | None) -> GroupOptions:
    """The options of a group, for one that is made of it."""
    options = copy.copy(backend.options)
    if timeout is not None:
        options._timeout = timeout
    if hasattr(options, "enable_reconfigure"):  # torch 2.14 and later
        options.enable_reconfigure = False
    return options


def _as_default(
    made: GocclBackend, store: dist.Store | None, name: str, timeout: timedelta, device: torch.device | None
) -> dist.ProcessGroup:
    """Makes a group the default one, in place of that which there is."""
    made.options.global_ranks_in_group = []  # ranks of the whole job are numbered anew
    if dist.is_initialized():
        dist.destroy_process_group()
    dist.init_process_group(
        name, store=store, rank=made.rank(), world_size=made.size(), timeout=timeout,
        pg_options=Made(made), device_id=device,
    )  # fmt: skip
    world: dist.ProcessGroup = dist.group.WORLD
    return world


def _fewest(quorum: str | int) -> int:
    """The quorum as the core has it."""
    named = {"majority": 0, "any": 1}
    if quorum in named:
        return named[str(quorum)]
    if isinstance(quorum, int) and not isinstance(quorum, bool) and 1 <= quorum < 2**31:
        return quorum
    raise ValueError(f'goccl.shrink: quorum is {quorum!r}; it is "majority", "any", or a number of ranks')


def _backend_of(what: str, pg: dist.ProcessGroup) -> GocclBackend:
    """The one backend of a group."""
    backend = pg._get_backend(torch.device("cpu"))
    backend = getattr(backend, "wrapped_pg", backend)  # with TORCH_DISTRIBUTED_DEBUG=DETAIL
    names = {part.split(":")[-1] for part in dist.get_backend(pg).split(",")}
    if not isinstance(backend, _loader.core().GocclBackend) or names != {"goccl"}:
        can = {"address": "have addresses"}.get(what, f"can {what}")
        raise TypeError(
            f"goccl.{what}: only groups whose one backend is goccl {can}; got {', '.join(sorted(names))}"
        )
    return backend


def _settle(
    what: str, made: GocclBackend, members: list[int], quorum: int, options: GroupOptions, with_store: bool
) -> tuple[GocclBackend, list[int], dist.Store | None]:
    """Makes the store of a new group. Returns the group, its members' ranks in the former one, and the store.

    A member may die before all have the store. The others then shrink that group in turn; those that have it already
    learn of the death in their next operation, and do so too.
    """
    while True:
        try:
            store = _store(what, made, options._timeout) if with_store else None
            made.barrier().wait()
            return made, members, store
        except dist.DistBackendError:
            rest, kept = made._remaining([], quorum, copy.copy(options))
            if len(kept) == made.size():  # nobody has died: it was something else
                raise
            made, members = rest, [members[r] for r in kept]


def _store(what: str, made: GocclBackend, timeout: timedelta) -> dist.Store:
    """A store for a new group, which its rank 0 serves: the former one may have died with its rank."""
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
    return server or _client(what, made, int(port), timeout)


def _client(what: str, made: GocclBackend, port: int, timeout: timedelta) -> dist.Store:
    """Connects to the store of rank 0."""
    deadline = time.monotonic() + timeout.total_seconds()
    refusals = []
    for at in made._locate(0).split():
        try:  # the store itself would try this one until the timeout
            left = max(deadline - time.monotonic(), 0.1)
            socket.create_connection((at, port), timeout=min(left, 5)).close()
            return dist.TCPStore(at, port, is_master=False, wait_for_workers=False, timeout=timeout)
        except (OSError, RuntimeError) as e:
            refusals.append(f"{at}: {e}")
    raise dist.DistNetworkError(
        f"goccl.{what}: {member(made.options, made.rank(), made.size())}: cannot reach the store that rank 0 serves for "
        f"the new group, at port {port} of {'; '.join(refusals) or 'no address'}"
    )
