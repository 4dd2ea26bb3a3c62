"""Makes the backend of one process group. torch.distributed calls create, which package goccl registers."""

from __future__ import annotations

from datetime import timedelta
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import torch.distributed as dist

from . import _boot, _loader, _recorder, _room
from ._options import futures_wait, lines, record_file, timeout_of, waits_block
from .zoptions import Options

if TYPE_CHECKING:
    from ._C import GocclBackend
    from ._C import Options as GroupOptions


def native(settings: str, timeout: timedelta) -> GroupOptions:
    """Converts settings, given as lines, to torch's form of options. A timeout in them overrides the given one."""
    told = timeout_of(settings)
    options: GroupOptions = _loader.core().Options(told or timeout, settings)
    if told:
        options.told = told
    options.blocking_wait = waits_block(settings)
    options.wait_futures = futures_wait(settings)
    _recorder.connect(options, record_file(settings))
    return options


class Made(NamedTuple):
    """The pg_options of a group whose backend has been made already."""

    backend: GocclBackend


def create(backend_options: Any, pg_options: Options | GroupOptions | Made | None) -> GocclBackend:
    """Makes the group and waits for its other ranks.

    Args:
        backend_options: torch's DistributedBackendOptions: store, rank, size, timeout, name, global ranks.
        pg_options: the caller's argument of init_process_group or new_group.

    Raises:
        TypeError: if pg_options are options of another backend.
        torch.distributed.DistBackendError: if other ranks did not arrive in time; it names them.
        torch.distributed.DistNetworkError: if the store, or a rank that arrived, cannot be reached.
    """
    if isinstance(pg_options, Made):
        pg_options.backend._use_store(backend_options.store)
        return pg_options.backend
    try:
        core = _loader.core()
    except Exception as e:
        if not _later(backend_options):
            _boot.without_library(backend_options, e)
        raise
    try:
        options = _options(core, pg_options, backend_options)
    except Exception as e:
        if not _later(backend_options):  # the others wait for this rank
            rank, size = backend_options.group_rank, backend_options.group_size
            core.cannot_join(backend_options.store, rank, size, _identified(core.Options(backend_options.timeout), backend_options), str(e))
        raise
    return core.create(
        store=backend_options.store,
        rank=backend_options.group_rank,
        size=backend_options.group_size,
        options=options,
    )


def _options(core: ModuleType, pg_options: Options | GroupOptions | None, backend_options: Any) -> GroupOptions:
    """The group's options, if this process can make one."""
    if lack := _room.lack(_room.FOR_A_GROUP):
        raise dist.DistBackendError(f"goccl: no group can be made: {lack}")
    if isinstance(pg_options, core.Options):  # options of another group, copied by torch
        settings = pg_options.lines
    elif pg_options is None or isinstance(pg_options, Options):
        settings = _recorder.settings() + lines(pg_options)
    else:
        raise TypeError(
            f"goccl: pg_options must be a goccl.Options or None; got {type(pg_options).__module__}."
            f"{type(pg_options).__qualname__}"
        )
    options = _identified(native(settings, backend_options.timeout), backend_options)
    if _later(backend_options):
        options.enable_reconfigure = True
    return options


def _later(backend_options: Any) -> bool:
    """Whether the group gets its members later, and so meets nobody now (torch 2.14 and later)."""
    return bool(getattr(backend_options, "enable_reconfigure", False))


def _identified(options: GroupOptions, backend_options: Any) -> GroupOptions:
    options.group_name = backend_options.group_id
    options.global_ranks_in_group = list(backend_options.global_ranks_in_group or [])
    return options
