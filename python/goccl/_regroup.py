"""Groups made from a group (split, merge, shrink), and other members for a group (reconfigure).

Their ranks meet over the store and make a new group; those of shrink do without a store, which may have died with its
rank. The new group shares nothing with the former one, which goes on (or is aborted) independently. The extension calls
these functions when torch calls the methods of its backend.
"""

from __future__ import annotations

import copy
from datetime import timedelta
from typing import TYPE_CHECKING

import torch.distributed as dist

from . import _loader
from ._boot import member

if TYPE_CHECKING:
    from ._C import GocclBackend
    from ._C import Options as GroupOptions

_SHRINK_ABORT = 1  # SHRINK_ABORT of torch.distributed


def split(backend: GocclBackend, store: dist.Store, ranks: list[int], options: object) -> GocclBackend | None:
    """Makes a group of some ranks of this one, in the order of their new numbers; None on the other ranks.

    Raises:
        TypeError: if the options are options of another backend.
        ValueError: if a number is not a rank of this group, or is listed twice.
    """
    mine = _options_for(backend, options)
    what = f"goccl split: {member(backend.options, backend.rank(), backend.size())}"
    for rank in ranks:
        if not 0 <= rank < backend.size():
            raise ValueError(f"{what}: {rank} is no rank of this group of {backend.size()}")
        if ranks.count(rank) > 1:
            raise ValueError(f"{what}: rank {rank} is listed twice")
    mine.global_ranks_in_group = _in_job(backend, ranks)
    return _create(store, ranks.index(backend.rank()), len(ranks), mine) if backend.rank() in ranks else None


def merge(backend: GocclBackend, store: dist.Store, options: object, rank: int, size: int) -> GocclBackend:
    """Makes a group of the ranks of several groups; rank is this process's rank in it.

    Raises:
        TypeError: if the options are options of another backend.
    """
    mine = _options_for(backend, options)
    mine.global_ranks_in_group = []  # the numbers of the other groups are not known here
    mine.strangers = True
    return _create(store, rank, size, mine)


def shrink(backend: GocclBackend, excluded: list[int], flags: int, options: object) -> GocclBackend:
    """Makes a group of the remaining ranks, which call this. The excluded ranks may be gone.

    Raises:
        TypeError: if the options are options of another backend.
        ValueError: if the flags are unknown, or excluded names this rank or a number that is not a rank of this group.
        NotImplementedError: if the options have other settings than this group.
        torch.distributed.DistBackendError: if ranks do not call it in time, which are named, or if other ranks than
            the excluded ones have died: torch numbers the ranks without asking which are left.
    """
    size, rank = backend.size(), backend.rank()
    what = f"goccl shrink: {member(backend.options, rank, size)}"
    gone = sorted(set(excluded))
    if flags & ~_SHRINK_ABORT:
        raise ValueError(f"{what}: unknown flags {flags}; there are SHRINK_DEFAULT (0) and SHRINK_ABORT (1)")
    if not gone or gone[0] < 0 or gone[-1] >= size:
        raise ValueError(f"{what}: {excluded} are not ranks of this group of {size}")
    if rank in gone:
        raise ValueError(f"{what}: this rank is to be excluded, and only those that stay call this")
    mine = _options_for(backend, options)
    if mine.lines != backend.options.lines:
        raise NotImplementedError(f"{what}: the smaller group keeps the settings of this one, but for its timeout")
    mine.group_name = mine.group_name or backend.options.group_name
    if flags & _SHRINK_ABORT:
        backend._abort_because(f"the group is made anew without ranks {excluded}")
    made, members = backend._remaining(gone, 1, mine)  # the caller says who goes on
    died = sorted(set(range(size)) - set(members) - set(gone))
    if died:
        made.shutdown()
        raise dist.DistBackendError(
            f"{what}: ranks {died} have died and are not among those to exclude, {gone}; torch needs all of them "
            "there, goccl.shrink finds them by itself"
        )
    return made


def reconfigure(
    backend: GocclBackend, store: dist.Store, own: str, handles: list[str] | set[str], uuid: int, timeout: timedelta
) -> None:
    """Gives the group other members: the ranks of the handles, in their order. A set has no order, so its handles are
    ordered by their numbers in the whole job. If it fails, the group keeps its members.

    Raises:
        ValueError: if a handle is malformed or listed twice, this rank's is missing, or the uuid was used before.
        torch.distributed.DistBackendError: if other ranks did not arrive in time.
    """
    ordered = sorted(handles) if isinstance(handles, set) else handles  # the numbers have leading zeros
    if len(set(ordered)) < len(ordered):
        raise ValueError("goccl reconfigure: a handle is listed twice")
    for handle in ordered:
        if not handle.startswith("goccl:"):
            raise ValueError(f"goccl reconfigure: {handle} is no handle of a goccl group")
    what = f"goccl reconfigure: {member(backend.options, backend.rank(), backend.size())}"
    if own not in ordered:
        raise ValueError(
            f"{what}: the handle of this rank, {own}, is not among the {len(ordered)} given; handles change with every "
            "reconfiguration, so ask for them again before the next"
        )
    rank = ordered.index(own)
    store = dist.PrefixStore(f"goccl/reconfigure/{uuid}", store)
    claimed = store.compare_set(f"claimed/{rank}", "", own).decode()
    if claimed != own:
        raise ValueError(
            f"{what}: uuid {uuid} was used before (by {claimed}); every reconfiguration needs a number of its own"
        )
    mine = copy.copy(backend.options)
    mine.global_ranks_in_group = [int(handle.split(":")[1]) for handle in ordered]
    mine._timeout = timeout
    mine.enable_reconfigure = False
    backend._become(_create(store, rank, len(ordered), mine))


def _options_for(backend: GocclBackend, given: object) -> GroupOptions:
    """Returns a copy of the given options, or of this group's: older versions of torch pass the parent's own."""
    if given is not None and not isinstance(given, _loader.core().Options):
        raise TypeError(
            "goccl: the options of a group made from a goccl group must be goccl's own, as goccl.Options(...).native() "
            f"or copy.deepcopy(backend.options) gives them; "
            f"got those of {getattr(given, 'backend', type(given).__name__)}"
        )
    mine: GroupOptions = copy.copy(given or backend.options)  # type: ignore[assignment]
    if mine.told > timedelta():
        mine._timeout = mine.told
    if hasattr(mine, "enable_reconfigure"):  # torch 2.14 and later
        mine.enable_reconfigure = False
    return mine


def _in_job(backend: GocclBackend, ranks: list[int]) -> list[int]:
    """Returns the numbers in the whole job of ranks of this group; the group lists none if they are the same."""
    of_job = backend.options.global_ranks_in_group
    return [of_job[r] if r < len(of_job) else r for r in ranks]


def _create(store: dist.Store, rank: int, size: int, options: GroupOptions) -> GocclBackend:
    made: GocclBackend = _loader.core().create(store=store, rank=rank, size=size, options=options)
    return made
