"""What ranks tell each other when they meet, but for the meeting itself (boot.cpp, package member)."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from typing import TYPE_CHECKING, Any

import torch.distributed as dist

if TYPE_CHECKING:
    from ._C import Options as GroupOptions


def member(options: GroupOptions, rank: int, size: int) -> str:
    """A group and a rank of it, for messages: "group dp, rank 0 of 2"."""
    return f"group {options.group_name or '(unnamed)'}, rank {rank} of {size}"


def without_library(given: Any, why: Exception) -> None:
    """Tells the other ranks that this one cannot join a group because it cannot load the library.

    It writes what the library would write, a verdict on the first round that has none (package member), and waits up to a
    second if this is the first rank: the store may end with it.
    """
    rank, size, store = given.group_rank, given.group_size, given.store
    by = {"rank": rank, "size": size, "attempt": 0, "host": socket.gethostname(), "pid": os.getpid()}
    verdict = {"kind": "failed", "by": by, "at": time.time_ns(), "why": str(why)[:1000]}
    text = json.dumps(verdict)
    with contextlib.suppress(Exception):  # that the store fails; the caller says why there is no group
        turn = 1
        while store.compare_set(f"goccl/verdict/{turn}", "", text).decode() != text:
            turn += 1
        keys = [f"goccl/read/{turn}/{r}" for r in range(size) if r != rank]
        deadline = time.monotonic() + 1
        while rank == 0 and keys and not store.check(keys) and time.monotonic() < deadline:
            time.sleep(0.005)
