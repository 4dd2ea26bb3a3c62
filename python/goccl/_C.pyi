from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
from torch._C._distributed_c10d import Backend, Store, Work
from torch.futures import Future

class Options(Backend.Options):
    """The options of a group. ``copy`` and ``deepcopy`` make independent ones."""

    lines: str
    """``NAME=value``, one per line."""
    told: timedelta
    """The timeout set in the lines, which overrides every other; zero if none."""

    trace_prefix: str
    """The path of the file that a failure or a signal leaves, without the rank in the whole job at its end; empty for
    none."""

    trace_failures: bool
    """Whether a failure leaves it, too."""

    strangers: bool
    """Whether the numbers of its members in the whole job may stand for other processes than in other groups."""

    blocking_wait: bool
    """Whether ``wait()`` of an operation on a device waits for the device."""

    wait_futures: bool
    """Whether ``get_future()`` of an operation on the host waits for its end."""

    def __init__(self, timeout: timedelta, lines: str = "") -> None: ...
    def __copy__(self) -> Options: ...
    def __deepcopy__(self, memo: dict[int, object]) -> Options: ...

class GocclBackend(Backend):
    """The backend of one process group; ``group._get_backend(torch.device("cpu"))`` gives it."""

    @property
    def options(self) -> Options: ...
    def _remaining(self, without: list[int], quorum: int, options: Options) -> tuple[GocclBackend, list[int]]:
        """Makes a group of the ranks that are left, without those listed, if they are a quorum (0: a majority).
        Returns it, and its members' ranks here."""
    def _grown(self, newcomers: int, wait: timedelta, options: Options) -> GocclBackend | None:
        """Makes a group of this one's ranks and of at most this number of newcomers. None if nobody has come."""
    def _address(self) -> str:
        """The text by which new processes find this group."""
    def _locate(self, rank: int) -> str:
        """The IP addresses at which this process may reach that of a rank, on a line each, nearest first."""
    def _abort_because(self, reason: str) -> None: ...
    def _become(self, next: GocclBackend) -> None: ...
    def _use_store(self, store: Store) -> None:
        """Sets where groups of devices meet, for a group that was made without this store."""
    def perform_nocolor_split(self, device: object) -> None:
        """Does nothing: ranks outside of a new group take no part in making it."""

class Lineage:
    """What all ranks know of a future."""

class GocclWork(Work):
    """The result of an operation with ``async_op=True``."""

class SparseWork(GocclWork):
    """The same of sparse tensors."""

class BatchWork(Work):
    """Several operations that were issued as one."""

class DeviceWork(Work):
    """The result of an operation on tensors of a device: ``wait()`` makes the current stream wait for it."""

def then(future: Future[Any], lineage: Lineage, callback: Callable[[Future[Any]], Any]) -> Future[Any]:
    """``then`` of a future with a lineage."""

def add_done_callback(future: Future[Any], lineage: Lineage, callback: Callable[[Future[Any]], None]) -> None:
    """``add_done_callback`` of a future with a lineage."""

def load(path: str) -> str:
    """Opens libgoccl by its absolute path and returns its version."""

def use_device_type(name: str) -> None:
    """Serves the tensors of this type of device, by its name in torch, instead of CUDA's. For tests."""

def create(store: Store, rank: int, size: int, options: Options) -> GocclBackend:
    """Makes a group and waits for its other ranks, for at most the timeout of the options."""

def come(address: str, options: Options) -> GocclBackend:
    """Joins a running group, for at most the timeout of the options."""

def cannot_join(store: Store, rank: int, size: int, options: Options, why: str) -> None:
    """Tells the other ranks that this one cannot join a group, and why: they fail at once."""

def library_path() -> str:
    """Returns the path of the library that is loaded."""

def device_arena(device: str, lines: str) -> int:
    """Makes the registered memory of a device ("cuda:0"), if the process has none yet, and returns its bytes."""

def empty(size: list[int], dtype: torch.dtype, lines: str) -> torch.Tensor:
    """Returns an uninitialized tensor in registered memory. The lines count only if no group was made yet."""

def trace() -> bytes:
    """Returns the recorded last operations of this process's groups, pickled as torch's flight recorder does it."""

def stop() -> None:
    """Called before the interpreter ends: waits for running hooks, closes every group of this process, and ends the
    threads that complete futures."""
