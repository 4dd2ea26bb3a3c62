"""Loads the extension (goccl._C) and libgoccl, when the first process group is made."""

from __future__ import annotations

import atexit
import os
import threading
from importlib import import_module
from pathlib import Path
from types import ModuleType

import torch
import torch.distributed as dist

from . import _room, _shim
from ._shim import rebuild_command
from ._version import __version__

_HERE = Path(__file__).resolve().parent
_lock = threading.Lock()
_core: ModuleType | None = None
_forked = False


def core() -> ModuleType:
    """Returns the extension, with libgoccl loaded.

    Raises:
        ImportError: if goccl was not built, or was built for another torch; the message has the command to build it.
            If a limit of the process leaves too little, the message names it.
        torch.distributed.DistBackendError: in a fork of a process that has used goccl.
    """
    global _core
    if _forked:
        raise dist.DistBackendError(
            "goccl: this process was forked from one that uses goccl, and a Go library does not survive a fork; start "
            "processes that communicate with the 'spawn' or 'forkserver' method of multiprocessing"
        )
    with _lock:
        if _core is None:
            _core = _load()
            os.register_at_fork(after_in_child=_after_fork_in_child)
            atexit.register(_stop)
        return _core


def _load() -> ModuleType:
    if _shim.folder() is None:
        raise ImportError(f"goccl {__version__} in {_HERE} was not built. Build it: {rebuild_command()}")
    library = _HERE / "libgoccl.so"
    if not library.is_file():
        raise ImportError(f"goccl {__version__}: {library} is missing. Install it again: {rebuild_command()}")
    try:
        extension = import_module("goccl._C")
    except ImportError as e:
        raise _not_loaded(e) from e
    if lack := _room.lack(_room.TO_LOAD):
        raise ImportError(f"goccl {__version__}: {library} cannot be loaded: {lack}")
    try:
        found = extension.load(str(library))
    except RuntimeError as e:
        raise _not_loaded(e) from e
    if found != __version__:
        raise ImportError(
            f"goccl {__version__}: {library} is of version {found}. Install it again: {rebuild_command()}"
        )
    return extension


def _not_loaded(why: Exception) -> ImportError:
    built = ", ".join(_shim.built().values())
    return ImportError(
        f"goccl {__version__} (built for torch {built}) cannot be loaded with torch {torch.__version__}: {why}. "
        f"Build it again: {rebuild_command()}"
    )


def _after_fork_in_child() -> None:
    global _forked
    _forked = True


def _stop() -> None:
    """Ends hooks, closes the open groups, and ends the shim's threads, while Python can still run callbacks."""
    if _core is not None and not _forked:
        _core.stop()
