"""How the ranks of a group find each other: each puts its address into the store and collects those of the others."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch.distributed as dist

from . import _loader

if TYPE_CHECKING:
    from ._C import Options as GroupOptions

_MOST_NAMED = 32  # ranks named in a message
_LOOK = 0.05  # seconds between two looks at which ranks have died
_AT_ONCE = 256  # values of some KiB that one call of the store returns


def member(options: GroupOptions, rank: int, size: int) -> str:
    """A group and a rank of it, for messages: "group dp, rank 0 of 2"."""
    return f"group {options.group_name or '(unnamed)'}, rank {rank} of {size}"


def exchange(store: dist.Store, own: bytes, rank: int, size: int, options: GroupOptions) -> list[bytes]:
    """Puts this rank's address into the store, and returns the addresses of all ranks, by rank.

    The extension calls it to make a group.

    Raises:
        torch.distributed.DistBackendError: if ranks did not arrive within the timeout of the options, or are known to
            have died; it names them.
        torch.distributed.DistNetworkError: if the store fails.
    """
    deadline = time.monotonic() + options._timeout.total_seconds()
    what = f"goccl: {member(options, rank, size)}: join"
    try:
        # The same store and group name may be used again after destroy_process_group: each rank counts its attempts,
        # and the keys of earlier attempts are left alone.
        attempt = store.add(f"goccl/gen/{rank}", 1)
        keys = [f"goccl/addr/{attempt}/{r}" for r in range(size)]
        store.set(keys[rank], own)
        # The last rank to come says so: the others poll one key, however many ranks there are.
        complete = f"goccl/complete/{attempt}"
        if store.add(f"goccl/count/{attempt}", 1) == size:
            store.set(complete, b"")
        found, dead = _await(store, complete, deadline, lambda: _dead(store, keys, options))
        missing = [] if found or dead else [r for r in range(size) if not store.check([keys[r]])]
        if not missing and not dead:
            return _read(store, keys)
    except Exception as e:
        raise dist.DistNetworkError(
            f"{what}: the store, over which ranks exchange their addresses, "
            f"failed; is the process that serves it (rank 0, as a rule) alive? {e}"
        ) from e
    if dead:
        texts = "; ".join(f"{_named([r], options.global_ranks_in_group)}: {dead[r]}" for r in list(dead)[:_MOST_NAMED])
        raise dist.DistBackendError(f"{what}: peer lost: {texts}")
    raise dist.DistBackendError(
        f"{what}: timeout: "
        f"{_named(missing, options.global_ranks_in_group)} (of {size}) did not "
        f"come to group {options.group_name} within {options._timeout.total_seconds():g} s: not started, still busy, "
        "or failed before the call of init_process_group or new_group; look at the output there, or raise the timeout"
    )


def _dead(store: dist.Store, keys: list[str], options: GroupOptions) -> dict[int, str]:
    """The ranks that will not come, since this process's other groups know that they have died, and how. Those whose
    addresses are there are left to the joining, which finds that nobody is there."""
    if options.strangers:
        return {}
    lost: dict[int, str] = {}  # by the number in the whole job
    for of_group, lines in _loader.core().lost():
        for rank, why in (line.split(" ", 1) for line in lines.splitlines()):
            lost[of_group[int(rank)] if of_group else int(rank)] = why
    if not lost:
        return {}
    of_job = options.global_ranks_in_group or range(len(keys))  # none are listed if they are the same
    return {r: lost[of_job[r]] for r in range(len(keys)) if of_job[r] in lost and not store.check([keys[r]])}


def _read(store: dist.Store, keys: list[str]) -> list[bytes]:
    """The values of keys that exist, read in a few calls where the store can do that."""
    if not store.has_extended_api():
        return [store.get(key) for key in keys]
    values: list[bytes] = []
    for at in range(0, len(keys), _AT_ONCE):
        values += store.multi_get(keys[at : at + _AT_ONCE])
    return values


def _await(
    store: dist.Store, key: str, deadline: float, look: Callable[[], dict[int, str]]
) -> tuple[bool, dict[int, str]]:
    """Whether the key exists before the deadline. Now and then it calls look, and returns early with what that returns
    if it is not empty.

    It polls the store: a wait in the store would block every other thread that uses the same client, and a separate
    client (clone) sometimes takes seconds to connect.
    """
    pause = 100e-6
    next_look = time.monotonic() + _LOOK
    while not store.check([key]):
        now = time.monotonic()
        if now >= deadline:
            return False, {}
        if now >= next_look:
            next_look = now + _LOOK
            if found := look():
                return False, found
        time.sleep(pause)
        pause = min(2 * pause, 20e-3)
    return True, {}


def _named(missing: list[int], of_job: list[int]) -> str:
    """Names the ranks, with their numbers in the whole job if those differ."""
    names = [
        f"{r} (global rank {of_job[r]})" if r < len(of_job) and of_job[r] != r else str(r)
        for r in missing[:_MOST_NAMED]
    ]
    more = f" and {len(missing) - _MOST_NAMED} more" if len(missing) > _MOST_NAMED else ""
    return f"{'rank' if len(missing) == 1 else 'ranks'} {', '.join(names)}{more}"
