"""Who remembers the last operations of a group, for when one fails: the core, or torch's flight recorder where it is asked for."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch.distributed.distributed_c10d as c10d

if TYPE_CHECKING:
    from ._C import Options as GroupOptions

OPERATIONS = 4096  # that a group of the Python package remembers


def _first(environ: Mapping[str, str], *names: str) -> str | None:
    return next((environ[name] for name in names if environ.get(name)), None)


def torch_records(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether torch's recorder was asked for, or turned off: its own variables are set. It notes the Python stack of each call."""
    return _first(environ, "TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE") is not None


def settings(environ: Mapping[str, str] = os.environ) -> str:
    """The lines of the core's options that turn its recorder on; before the caller's, which win."""
    return "" if torch_records(environ) else f"GOCCL_RECORDER={OPERATIONS}\n"


def connect(options: GroupOptions, environ: Mapping[str, str] = os.environ) -> None:
    """Has a failure of the group leave a file where torch's recorder would; and torch's recorder connected only if it was asked for."""
    records = getattr(c10d, "_FR_SELF_RECORDING_BACKENDS", set())  # torch 2.15 attaches its recorder to others
    if torch_records(environ):
        records.discard("goccl")
        return
    records.add("goccl")
    if (_first(environ, "TORCH_FR_DUMP_ON_TIMEOUT", "TORCH_NCCL_DUMP_ON_TIMEOUT") or "1").lower() in ("0", "false", "no", "n"):
        return
    folder = os.path.join(os.path.expanduser("~"), ".cache", "torch")
    options.trace_prefix = _first(environ, "TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE") or os.path.join(
        folder, "comm_lib_trace_rank_"
    )
