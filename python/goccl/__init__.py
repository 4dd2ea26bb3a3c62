"""goccl: a process group backend for torch.distributed whose core is written in Go.

Importing this module only registers the backend: it starts no thread, and loads no library until the first process
group is made. (Where there are NVIDIA GPUs it sets ``CUDA_DEVICE_MAX_CONNECTIONS``, if nobody has.) Under a minor
release of torch that it was not built for, the import fails with the command that builds it. ::

    import torch.distributed as dist
    import goccl

    dist.init_process_group("goccl")

From torch 2.14 on the import can be left out: torch finds the backend by its name.

Settings come from environment variables whose names begin with ``GOCCL_``, or, for one group, from :class:`Options`.
Communication failures are raised as ``torch.distributed.DistBackendError`` (as ``DistNetworkError`` if the network
fails while a group is made), wrong arguments as ``RuntimeError``, invalid settings as ``ValueError``.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, SupportsIndex, overload

import torch
import torch.distributed as dist

from . import _queues, _shim
from ._version import __version__
from .zoptions import Options

if TYPE_CHECKING:
    from ._C import Options as GroupOptions
    from torch._C._distributed_c10d import Backend as C10dBackend

__all__ = [
    "Options", "address", "empty", "flight_record", "grow", "join", "mem_pool", "monitored_barrier", "register", "shrink",
    "sync_state", "use_by_default", "version", "__version__",
]


def version() -> str:
    """Returns the version of goccl, for example ``"0.1.0"``, without loading anything."""
    return __version__


def _create(backend_options: object, pg_options: Options | GroupOptions | None) -> C10dBackend:
    from ._group import create

    return create(backend_options, pg_options)


def register() -> None:
    """Registers the backend ``"goccl"`` with torch.distributed; calling it again has no effect.

    Importing goccl does this already. torch (2.14 and later) calls it through the entry point group
    ``torch.distributed.backends`` when the name is first used.
    """
    if "GOCCL" in dist.Backend._plugins:
        return
    _queues.ask_for_all()  # before CUDA begins
    devices = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
    dist.Backend.register_backend("goccl", _create, extended_api=True, devices=devices)
    dist.is_goccl_available = lambda: True  # type: ignore[attr-defined]


def use_by_default() -> None:
    """Makes goccl the backend of CPU tensors if no backend is named, as in ``init_process_group()``; torch uses gloo.

    It applies to groups that this process makes afterwards. ``docs/torch.md`` lists what such a group lacks before
    torch 2.14.
    """
    dist.Backend.default_device_backend_map["cpu"] = "goccl"


def empty(
    *size: int | Sequence[int],
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
    requires_grad: bool = False,
) -> torch.Tensor:
    """Returns an uninitialized tensor in registered memory, which ranks on the same host read in place.

    all_gather, all_reduce, reduce_scatter, all_to_all and broadcast of such tensors, and of views of them at any
    offset, save the copy into shared memory: in groups whose ranks are all on one host, for large enough tensors
    (``docs/registered.md``). Results have the same bits as with other tensors, and ranks need not agree on which
    tensors are registered.

    Otherwise it is like any other tensor. Its memory is given back with its last reference, also after
    destroy_process_group; a process forked from this one shares the memory instead of having a copy of it. It may be
    called before init_process_group.

    Args:
        size: the sizes of the dimensions, as of ``torch.empty``: ``empty(2, 3)`` or ``empty((2, 3))``.
        dtype: the default type if None.
        device: the CPU if None, or a CUDA device, which needs ``GOCCL_CUDA_REGISTERED`` bytes for such tensors. The
            tensor is then one of :func:`mem_pool`, so torch's allocator looks after its streams as ever.
        requires_grad: as of ``torch.empty``.

    Raises:
        RuntimeError: if there is no such memory (``GOCCL_REGISTERED=0``, or not on Linux; on CUDA devices
            ``GOCCL_CUDA_REGISTERED=0``).
        torch.OutOfMemoryError: if that of a CUDA device is used up.
        ValueError: if the size exceeds all registered memory.
        torch.distributed.DistBackendError: if registered memory is used up; the message names the exhausted resource.
    """
    from . import _loader, _registered
    from ._options import lines

    sizes: list[int] = []
    for part in size:
        sizes += [int(part)] if isinstance(part, SupportsIndex) else [int(n) for n in part]
    dtype = dtype or torch.get_default_dtype()
    if device is not None and torch.device(device).type != "cpu":
        return _registered.empty(sizes, dtype, device).requires_grad_(requires_grad)
    tensor: torch.Tensor = _loader.core().empty(sizes, dtype, lines(None))
    return tensor.requires_grad_(requires_grad)


def mem_pool(device: torch.device | str | None = None) -> torch.cuda.MemPool:
    """Returns the pool of a CUDA device whose memory is registered: ranks on the same host read its tensors in place.

    Tensors that are made in ``with torch.cuda.use_mem_pool(goccl.mem_pool()):`` are like others, but for where they are
    (``docs/registered.md``). Each call returns the same pool. The first one takes ``GOCCL_CUDA_REGISTERED`` bytes of the
    device, if no group has yet, and may wait for all streams; it is best made at the start.

    Args:
        device: a CUDA device; the current one if None.

    Raises:
        RuntimeError: if there is none (``GOCCL_CUDA_REGISTERED=0``), or torch has no CUDA.
    """
    from . import _registered

    return _registered.pool(device)[2]


def flight_record() -> dict[str, Any]:
    """Returns the last operations of this process's groups in the form of torch's flight recorder.

    Its keys are version, pg_config, pg_status and entries. Each group records its last 4,096 operations
    (``GOCCL_RECORDER``), without the Python stacks of their callers. A failure writes the same record to a file, for
    ``python -m torch.distributed.flight_recorder.fr_trace`` (``docs/torch.md``).
    """
    from . import _loader

    record: dict[str, Any] = pickle.loads(_loader.core().trace())
    return record


def monitored_barrier(
    group: dist.ProcessGroup | None = None,
    timeout: timedelta | float | None = None,
    wait_all_ranks: bool = False,
) -> None:
    """A barrier that reports which ranks did not arrive.

    The same as ``torch.distributed.monitored_barrier``, which refuses every backend but gloo before torch 2.14.

    Args:
        group: the process group; the default one if None. Ranks outside it return at once.
        timeout: how long rank 0 of the group waits for the others, as a timedelta or in seconds; the group's own
            timeout if None.
        wait_all_ranks: whether rank 0 waits for every rank and names all missing ranks, not only the first.

    Raises:
        torch.distributed.DistBackendError: on rank 0 if ranks did not arrive in time, naming them; on the ranks that
            arrived, with rank 0's message.
    """
    if group is dist.GroupMember.NON_GROUP_MEMBER:
        return
    pg = group if group is not None else dist.group.WORLD
    if pg is None:
        raise ValueError("goccl.monitored_barrier: there is no process group yet; call init_process_group first")
    if isinstance(timeout, (int, float)):
        timeout = timedelta(seconds=timeout)
    if timeout is None:
        pg.monitored_barrier(wait_all_ranks=wait_all_ranks)
    else:
        pg.monitored_barrier(timeout, wait_all_ranks=wait_all_ranks)


def shrink(
    group: dist.ProcessGroup | None = None,
    without: Sequence[int] = (),
    timeout: timedelta | float | None = None,
    quorum: str | int = "majority",
) -> dist.ProcessGroup:
    """Makes a process group of the ranks that are left of one, for example after the death of some.

    All that are left call it, whether or not the group has failed. They settle among themselves which ranks are lost:
    those that have died, or cannot be reached by some, also while this runs. No store is needed for that. Then the
    former group is destroyed. The order of the remaining ranks stays.

    Ranks that are silent, or listed in without, may live and do the same, for example where the network is cut into two
    parts. So at most one part goes on: that with more than half of the ranks that may live, or with half of them and
    among these the lowest rank. Ranks that are known to be dead do not count: of a process of the same host that is
    certain. The other ranks get an error that names those that may have gone on. A rank that was left out (it was
    stopped, say) and calls this later gets an error that says by whom, and cannot go on.

    The default group is followed by a new default group, in which ranks of the whole job are numbered anew: all other
    groups of the process are destroyed too. Its rank 0 serves its store. Data parallel modules, device meshes and
    other things that hold a group have to be made again.

    Args:
        group: the process group, whose one backend is goccl; the default one if None.
        without: more ranks of the group to leave out, which do not call this.
        timeout: how long to wait for the others, and the timeout of the new group, as a timedelta or in seconds; that
            of the group if None.
        quorum: which ranks may go on, the same on all: "majority", as above; "any", whatever others do, so that two
            parts of a network that is cut both go on; or the number of ranks that must be left at least.

    Returns:
        The new process group.

    Raises:
        ValueError: if there is no group, without names this rank or no rank of the group, or quorum is none.
        TypeError: if the group has other backends.
        torch.distributed.DistBackendError: if ranks neither call this in time nor have died; if too few are left; or if
            others have gone on without this one. It names the ranks.
        torch.distributed.DistNetworkError: if the store of the new default group cannot be reached.
    """
    from . import _members

    return _members.shrink(group, without, _span(timeout), quorum)


def address(group: dist.ProcessGroup | None = None) -> str:
    """Returns the text by which new processes find a group when it grows: what they give to :func:`join`.

    It is one line of printable characters, which leads to some ranks of the group, this one first, and also to groups
    that are made of it by :func:`shrink` and :func:`grow`, as long as one of these ranks is there. Whoever has it can
    join, if the network and ``GOCCL_SECRET_FILE`` let him: keep it as you keep the group's store to yourself.

    Args:
        group: the process group, whose one backend is goccl; the default one if None.

    Raises:
        ValueError: if there is no group.
        TypeError: if the group has other backends.
        NotImplementedError: if ``GOCCL_TRANSPORT`` leaves out TCP, by which new processes come.
    """
    from . import _members

    return _members.address(group)


def grow(
    group: dist.ProcessGroup | None = None,
    newcomers: int = 1,
    wait: timedelta | float | None = None,
    timeout: timedelta | float | None = None,
) -> dist.ProcessGroup:
    """Makes the default group larger by new processes, which call :func:`join`.

    All ranks call it, between two operations. Then they wait for newcomers, which come to any of them, and take those
    that have come: no store is needed for that. The ranks keep their numbers, and newcomers get the next ones. A
    newcomer that dies meanwhile is left out. If a rank of the group dies, all others get an error that names it, and the
    group is as it was: call :func:`shrink`, and then this again.

    The new group is the default one, and has a store that its rank 0 serves; all other groups of the process are
    destroyed. Data parallel modules, device meshes and other things that hold a group have to be made again.
    :func:`sync_state` gives newcomers what they lack.

    Args:
        group: the default process group, whose one backend is goccl.
        newcomers: the most that are taken, the same on all ranks. Others wait for the next call.
        wait: how long newcomers are waited for, once all ranks have called this, as a timedelta or in seconds; that is
            decided by rank 0. With 0 those are taken that wait already. The timeout if None.
        timeout: how long to wait for the other ranks, and the timeout of the new group; that of the group if None.

    Returns:
        The new process group, or the group as it is if nobody has come.

    Raises:
        ValueError: if there is no group, or it is not the default one, or newcomers is less than 1.
        TypeError: if the group has other backends.
        torch.distributed.DistBackendError: if ranks do not call this in time, or have died. It names them.
        torch.distributed.DistNetworkError: if the store of the new group cannot be reached.
    """
    from . import _members

    return _members.grow(group, newcomers, _span(wait), _span(timeout))


def join(
    address: str,
    timeout: timedelta | float = dist.constants.default_pg_timeout,
    pg_options: Options | None = None,
    device_id: torch.device | None = None,
) -> dist.ProcessGroup:
    """Joins a running job, in place of ``init_process_group``: this process gets a rank in its default group.

    It waits until the ranks of the group call :func:`grow`; if that fails because others die, for the next call.

    Args:
        address: what :func:`address` says at one of the ranks.
        timeout: how long to wait, and the timeout of the group, as a timedelta or in seconds.
        pg_options: settings of this group, which are as on the other ranks.
        device_id: as of ``init_process_group``.

    Returns:
        The default process group.

    Raises:
        ValueError: if this process is in a group already, or the address or a setting is none.
        torch.distributed.DistBackendError: if it does not get into the group in time, or its settings are other ones.
        torch.distributed.DistNetworkError: if the store of the new group cannot be reached.
    """
    from . import _members

    return _members.join(address, _span(timeout), pg_options, device_id)


def sync_state(
    module: torch.nn.Module | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    extra: Any = None,
    group: dist.ProcessGroup | None = None,
    source: int = 0,
) -> Any:
    """Gives ranks that lack it the state of a training, for example newcomers after :func:`grow` and :func:`join`.

    All ranks of the group call it. One rank broadcasts its state; those that have another one load it. Then all compare
    digests of what they have.

    Args:
        module: whose ``state_dict`` is sent, and loaded; on all ranks or on none. Of a data parallel module give the one
            inside.
        optimizer: likewise.
        extra: what else belongs to it, such as the number of steps: what pickle takes.
        group: the process group; the default one if None.
        source: the rank of the group that has the state. Ranks keep their numbers as a group grows, so 0 is none of the
            newcomers.

    Returns:
        The extra of the source, on all ranks.

    Raises:
        ValueError: if there is no group, or ranks give different things.
        RuntimeError: if ranks have another state in the end, which it names, on all ranks.
        torch.distributed.DistBackendError: if the communication fails.
    """
    from . import _state

    return _state.sync_state(module, optimizer, extra, group, source)


@overload
def _span(given: timedelta | float) -> timedelta: ...
@overload
def _span(given: None) -> None: ...
def _span(given: timedelta | float | None) -> timedelta | None:
    return timedelta(seconds=given) if isinstance(given, (int, float)) else given


if (_folder := _shim.folder()) is not None:
    __path__.append(str(_folder))  # goccl._C is there
register()
