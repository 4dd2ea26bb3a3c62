"""``python -m goccl ...`` runs the command goccl, a program of its own that is installed where scripts are."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from importlib import metadata
from pathlib import Path


def program() -> Path | None:
    """Returns the command that came with this package: where its installation says, or where scripts go."""
    try:
        listed = [Path(str(file.locate())) for file in metadata.files("goccl") or () if file.name == "goccl"]
    except metadata.PackageNotFoundError:
        listed = []
    beside = Path(__file__).resolve().parent.parent / "bin/goccl"  # pip install --target
    for each in (*listed, beside, Path(sysconfig.get_path("scripts")) / "goccl"):
        if each.is_file() and os.access(each, os.X_OK):
            return each
    found = shutil.which("goccl")
    return Path(found) if found else None


def main() -> None:
    command = program()
    if command is None:
        sys.exit(f"goccl: the command is missing in {sysconfig.get_path('scripts')}; install goccl again")
    arguments = sys.argv[1:]
    if arguments[:1] == ["doctor"]:  # it inspects this Python
        arguments[1:1] = ["--python", sys.executable]
    os.execv(command, ["goccl", *arguments])


if __name__ == "__main__":
    main()
