"""Compiles the shim, which is the extension goccl._C, for one release of torch, with the headers of that release alone.

It is what setup.py uses, what makes the shims of a wheel (ci/wheels.py), and what GOCCL_BUILD=1 runs when goccl is
imported (_shim.py). So it needs nothing but Python.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sysconfig
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

# The libraries of torch that the shim takes symbols from. They are in the process before it, so all that the linker has
# to know is their names.
LIBRARIES = "libc10.so", "libtorch_cpu.so", "libtorch_python.so"

# torch has the C++ library of the system. Where a linker finds only the static one, or is told to take it, the shim
# would have a second one, whose streams and locales are not those of torch, and crash.
LINK = ("-l:libstdc++.so.6",)

FLAGS = "-O2", "-g0", "-fvisibility=hidden", "-Wall"


class Failed(Exception):
    """The compiler or the linker has said no. The message is what they said."""


def shim(
    release: str, headers: Path, sources: Path, include: Path, output: Path, objects: Path,
    compiler: Sequence[str] = (), flags: Sequence[str] = FLAGS, link: Sequence[str] = LINK, quiet: bool = False,
) -> None:
    """Compiles the shim; files that are up to date are kept.

    Args:
        release: of torch, as "2.15.0".
        headers: torch's folder "include".
        sources: the folder with the shim's .cpp and .h.
        include: the folder with goccl.h.
        output: the library.
        objects: a folder for what is made on the way, for this torch and this Python alone.
        compiler: the command; CXX, or g++.
        flags: for compiler and linker.
        link: for the linker alone.
        quiet: whether commands, and warnings, are not printed.

    Raises:
        Failed: with what the compiler says.
    """
    command = [*(compiler or compiler_here())]
    objects.mkdir(parents=True, exist_ok=True)
    output.parent.mkdir(parents=True, exist_ok=True)
    standard = "-std=c++17" if release.startswith("2.11.") else "-std=c++20"
    folders = [sources, include, Path(sysconfig.get_paths()["include"])]
    of_torch = [headers, headers / "torch/csrc/api/include"]
    compile_one = [
        *command, *flags, *shlex.split(os.environ.get("CXXFLAGS", "")), standard, "-fPIC", "-pthread", "-DNDEBUG",
        "-DTORCH_API_INCLUDE_EXTENSION_H", "-DTORCH_EXTENSION_NAME=_C",
        *(f"-I{folder}" for folder in folders), *(word for folder in of_torch for word in ("-isystem", str(folder))),
    ]
    files = sorted(sources.glob("*.cpp"))
    made = [objects / (file.stem + ".o") for file in files]
    with ThreadPoolExecutor(_jobs()) as pool:
        list(pool.map(lambda file, to: _object(compile_one, file, to, quiet), files, made))
    _run([*command, "-shared", *flags, *map(str, made), f"-L{_stubs(command, objects / 'torch', quiet)}", "-Wl,--no-as-needed",
          *(f"-l:{name}" for name in LIBRARIES), *shlex.split(os.environ.get("LDFLAGS", "")), *link, "-pthread",
          "-o", str(output)], quiet)


def compiler_here() -> list[str]:
    """Returns the command of the C++ compiler.

    Raises:
        Failed: if there is none, or no Python.h for it.
    """
    command = shlex.split(os.environ.get("CXX", "")) or ["g++"]
    if shutil.which(command[0]) is None:
        raise Failed(f"the C++ compiler {command[0]} is missing: apt-get install g++")
    headers = Path(sysconfig.get_paths()["include"])
    if not (headers / "Python.h").is_file():
        raise Failed(f"the headers of Python are missing ({headers}/Python.h): apt-get install python3-dev")
    return command


def _jobs() -> int:
    # One of them takes about 1.5 GB. MAX_JOBS is what torch's own extensions go by.
    return int(os.environ.get("MAX_JOBS", "0")) or len(os.sched_getaffinity(0))


def _object(command: Sequence[str], source: Path, to: Path, quiet: bool) -> None:
    read, done = to.with_suffix(".d"), to.with_suffix(".command")
    words = [*command, "-c", str(source), "-o", str(to), "-MD", "-MF", str(read)]
    line = shlex.join(words)
    if not _up_to_date(to, read, done, line):
        done.unlink(missing_ok=True)
        _run(words, quiet)
        done.write_text(line, encoding="utf-8")


def _up_to_date(to: Path, read: Path, done: Path, line: str) -> bool:
    """Whether an object is the command's, and newer than all that the compiler read for it."""
    try:
        if done.read_text(encoding="utf-8") != line:
            return False
        files = re.split(r"(?<!\\)\s+", read.read_text(encoding="utf-8").partition(":")[2].replace("\\\n", " ").strip())
        made = to.stat().st_mtime_ns
        return all(os.stat(file.replace("\\ ", " ")).st_mtime_ns <= made for file in files)
    except OSError:
        return False


def _stubs(command: Sequence[str], folder: Path, quiet: bool) -> Path:
    """Makes libraries with the names of torch's and nothing in them."""
    folder.mkdir(exist_ok=True)
    for name in LIBRARIES:
        if not (folder / name).exists():
            _run([*command, "-shared", "-nostdlib", f"-Wl,-soname,{name}", "-x", "c", os.devnull,
                  "-o", str(folder / name)], quiet)
    return folder


def _run(command: Sequence[str], quiet: bool) -> None:
    if not quiet:
        print(shlex.join(command), flush=True)
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise Failed(f"{shlex.join(command)}\nended with {done.returncode}:\n{done.stdout}")
    if done.stdout and not quiet:
        print(done.stdout, flush=True)
