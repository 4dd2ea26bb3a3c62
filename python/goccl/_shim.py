"""Finds the shim (goccl._C) for the installed torch, whose C++ interfaces differ from one minor release to the next.

A wheel has one for each release that goccl was tested with, an installation from source that of the torch it was
installed beside. For another torch GOCCL_BUILD=1 compiles one into the user's cache, where it is found from then on.
"""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module, metadata
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from urllib.parse import unquote, urlsplit

import torch

from ._version import __version__, minor, shim_folder

_HERE = Path(__file__).resolve().parent
_SOURCES = _HERE / "csrc", _HERE / "exports"  # the shim's own, and goccl.h
_NAME = "_C" + EXTENSION_SUFFIXES[0]


def rebuild_command() -> str:
    """Returns the command that builds and installs goccl for the installed torch."""
    source = f"--no-binary goccl goccl=={__version__}"
    try:
        origin = metadata.distribution("goccl").read_text("direct_url.json")
        url = urlsplit(json.loads(origin or "{}").get("url", ""))
        if url.scheme == "file" and (Path(unquote(url.path)) / "setup.py").is_file():
            source = unquote(url.path)
    except metadata.PackageNotFoundError:
        source = "<the directory of goccl's setup.py>"
    return f"{sys.executable} -m pip install --no-build-isolation --force-reinstall --no-deps {source}"


def built() -> dict[str, str]:
    """Returns the releases of torch that the package has shims for, by their minors; none if goccl was not built."""
    try:
        return dict(import_module("goccl._build").torch)
    except ImportError:
        return {}


def folder() -> Path | None:
    """Returns the folder of the shim for the installed torch, None if goccl was not built.

    Raises:
        ImportError: if there is no shim for this torch, and GOCCL_BUILD is not 1; the message has the command to build
            one. With GOCCL_BUILD=1 if the compiler fails.
    """
    here = minor(torch.__version__)
    shims = built()
    if not shims:
        return None
    if here in shims:
        return _HERE / shim_folder(here)
    ask = os.environ.get("GOCCL_BUILD", "").strip()
    cached = _cache()
    if (cached / _NAME).is_file():
        return cached
    if ask == "1":
        return _build(cached)
    raise ImportError(
        f"goccl {__version__} was built for torch {', '.join(shims)}, but torch {torch.__version__} is installed, and "
        f"their C++ interfaces differ. Build it for this one: {rebuild_command()} (or set GOCCL_BUILD=1: the next "
        "import compiles what is missing, with a C++ compiler and Python's headers, and keeps it)"
    )


def _cache() -> Path:
    """Returns the folder of a shim made from these sources for this very torch, there or not."""
    import hashlib

    digest = hashlib.sha256(torch.__version__.encode())
    for source in sorted(each for part in _SOURCES if part.is_dir() for each in part.iterdir() if each.is_file()):
        digest.update(source.read_bytes())
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "goccl" / f"{__version__}-torch{torch.__version__.split('+')[0]}-{digest.hexdigest()[:12]}"


def _build(folder: Path) -> Path:
    """Compiles the shim into a folder. Ranks that come meanwhile wait for it."""
    import fcntl  # only here: where there is a shim, a process that may no longer read Python's files gets along

    from . import _compile

    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (folder / _NAME).is_file():
                print(f"goccl {__version__}: compiles its shim for torch {torch.__version__} into {folder}, which takes "
                      "some minutes, once", file=sys.stderr, flush=True)
                made = folder / "new.so"
                _compile.shim(torch.__version__, Path(torch.__file__).parent / "include", *_SOURCES, made, folder / "objects",
                              quiet=True)
                made.rename(folder / _NAME)  # nobody finds half of it
    except (_compile.Failed, OSError) as e:
        raise ImportError(f"goccl {__version__}: no shim could be made for torch {torch.__version__} in {folder}: {e}") from e
    return folder
