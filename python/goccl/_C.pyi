from datetime import timedelta

import torch
from torch._C._distributed_c10d import Backend, Store, Work

class Options(Backend.Options):
    """What a group was made with. ``copy`` and ``deepcopy`` make independent ones."""

    lines: str
    """``NAME=value``, one a line."""
    told: timedelta
    """The timeout that the lines ask for, which wins over every other; zero if none."""

    trace_prefix: str
    """Of the file that a failure leaves, before the rank in the whole job; empty for none."""

    def __init__(self, timeout: timedelta, lines: str = "") -> None: ...
    def __copy__(self) -> Options: ...
    def __deepcopy__(self, memo: dict[int, object]) -> Options: ...

class GocclBackend(Backend):
    """The backend of one process group; ``group._get_backend(torch.device("cpu"))`` gives it."""

    @property
    def options(self) -> Options: ...
    def _abort_because(self, reason: str) -> None: ...
    def _become(self, next: GocclBackend) -> None: ...
    def perform_nocolor_split(self, device: object) -> None:
        """Does nothing: ranks outside of a new group have no part in making it."""

class GocclWork(Work):
    """What an operation with ``async_op=True`` returns."""

def load(path: str) -> str:
    """Opens libgoccl by its absolute path and returns its version."""

def create(store: Store, rank: int, size: int, options: Options, shim_version: str) -> GocclBackend:
    """Makes a group and waits for its other ranks, at most the timeout of the options."""

def empty(size: list[int], dtype: torch.dtype, lines: str) -> torch.Tensor:
    """An uninitialized tensor in registered memory. The lines count where no group was made yet."""

def trace() -> bytes:
    """What the groups of this process remember of their last operations, as torch's flight recorder pickles it."""

def stop() -> None:
    """Before the interpreter ends: lets running hooks return, closes every group of this process, ends the threads that complete futures."""
