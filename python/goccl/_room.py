"""Whether the limits of this process leave room for the Go runtime, which ends the process where they do not.

What is needed is tried, since limits of a container show nowhere else. It takes a millisecond or two, and is given back.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import resource
import threading
from pathlib import Path
from typing import NamedTuple


class Need(NamedTuple):
    """What is tried at the same time."""

    bytes: int
    threads: int
    files: int


# The runtime reserves 1.6 GiB of addresses. Measured on 2 cores: 6 threads after loading, up to 13 in a group over TCP; it
# starts more where there are more cores, as they are busy. A group that lacks descriptors says so itself.
TO_LOAD = Need(2 << 30, 12 + min(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1, 16), 16)
FOR_A_GROUP = Need(256 << 20, 6, 0)


def take(need: Need) -> tuple[bool, int, int]:
    """Takes all that at the same time, and gives it back.

    Returns whether there are the bytes, and how many of the threads and of the descriptors; no threads without the bytes.
    """
    started: list[threading.Thread] = []
    files: list[int] = []
    released = threading.Event()
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(mmap.mmap(-1, need.bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=0))
            mapped = True
        except (OSError, MemoryError):
            mapped = False
        with contextlib.suppress(OSError):
            while len(files) < need.files:
                files.append(os.open("/dev/null", os.O_RDONLY))
                stack.callback(os.close, files[-1])
        with contextlib.suppress(RuntimeError, MemoryError):
            while mapped and len(started) < need.threads:  # their stacks come on top of the bytes
                thread = threading.Thread(target=released.wait, name="goccl-room", daemon=True)
                thread.start()
                started.append(thread)
        released.set()
        for thread in started:
            thread.join()
    return mapped, len(started), len(files)


def lack(need: Need) -> str:
    """Returns what is missing: the limit, what is needed and what there is; an empty text if all is there."""
    mapped, threads, files = take(need)
    if not mapped:
        return (
            f"it needs {need.bytes >> 20} MiB of address space, mostly reserved only, and {_address_space()}; raise the limit "
            "(ulimit -v, RLIMIT_AS)"
        )
    if threads < need.threads:
        return (
            f"it needs {need.threads} more threads, and this process can start {threads}; raise the limit of processes "
            f"(ulimit -u, RLIMIT_NPROC, which is {_limit(resource.RLIMIT_NPROC)}) or pids.max of the control group "
            f"(podPidsLimit of Kubernetes){_pids()}, or leave more address space for their stacks (ulimit -v is "
            f"{_limit(resource.RLIMIT_AS)}, ulimit -s {_limit(resource.RLIMIT_STACK)})"
        )
    if files < need.files:
        return (
            f"it needs {need.files} more descriptors, and this process can open {files}; raise the limit of open files "
            f"(ulimit -n, RLIMIT_NOFILE), which is {_limit(resource.RLIMIT_NOFILE)}"
        )
    return ""


def _limit(which: int) -> str:
    soft = resource.getrlimit(which)[0]
    return "unlimited" if soft == resource.RLIM_INFINITY else str(soft)


def _address_space() -> str:
    soft = resource.getrlimit(resource.RLIMIT_AS)[0]
    if soft == resource.RLIM_INFINITY:
        return "the system refuses it"
    try:
        used = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    except OSError:
        return f"the limit is {soft >> 20} MiB"
    return f"the limit of {soft >> 20} MiB leaves {max(soft - used, 0) >> 20} MiB"


def _pids() -> str:
    """Returns the least pids.max of the control groups that this process can see itself in."""
    found: list[int] = []
    try:
        for line in Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines():
            _, controllers, place = line.split(":", 2)
            if controllers not in ("", "pids"):
                continue
            root = Path("/sys/fs/cgroup", controllers)
            here = root / place.lstrip("/")
            for folder in (here, *here.parents):
                if folder.is_relative_to(root) and (folder / "pids.max").exists():
                    text = (folder / "pids.max").read_text(encoding="ascii").strip()
                    found += [int(text)] if text.isdigit() else []
    except (OSError, ValueError):
        pass
    return f", which is {min(found)}" if found else ""
