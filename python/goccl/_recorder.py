"""Chooses which recorder keeps a group's last operations: the core's, or torch's if it was requested."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch.distributed.distributed_c10d as c10d

if TYPE_CHECKING:
    from ._C import Options as GroupOptions

OPERATIONS = 4096  # recorded by a group of the Python package


def _first(environ: Mapping[str, str], *names: str) -> str | None:
    return next((environ[name] for name in names if environ.get(name)), None)


def torch_records(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether torch's own variables request its recorder, or turn it off. It records the Python stack of each call."""
    return _first(environ, "TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE") is not None


def settings(environ: Mapping[str, str] = os.environ) -> str:
    """Returns the option lines that turn the core's recorder on. The caller's lines follow and override them."""
    return "" if torch_records(environ) else f"GOCCL_RECORDER={OPERATIONS}\n"


def connect(options: GroupOptions, file: str, environ: Mapping[str, str] = os.environ) -> None:
    """Makes a failure of the group, or a signal, write a file: without a name, where torch's recorder would write its own.

    If torch's recorder was requested, it is connected to the group, and goccl writes none. Torch's variables that turn
    off the file of a failure leave that of a signal.
    """
    # torch 2.15 attaches its recorder to all backends that are not in this set.
    records = getattr(c10d, "_FR_SELF_RECORDING_BACKENDS", set())
    if torch_records(environ):
        records.discard("goccl")
        return
    records.add("goccl")
    folder = os.path.join(os.path.expanduser("~"), ".cache", "torch")
    options.trace_prefix = (
        file
        or _first(environ, "TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
        or os.path.join(folder, "comm_lib_trace_rank_")
    )
    options.trace_failures = (
        _first(environ, "TORCH_FR_DUMP_ON_TIMEOUT", "TORCH_NCCL_DUMP_ON_TIMEOUT") or "1"
    ).lower() not in ("0", "false", "no", "n")
