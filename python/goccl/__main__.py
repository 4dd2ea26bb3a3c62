"""The command line: ``goccl ...`` and ``python -m goccl ...`` run the Go program installed with this package."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def main() -> None:
    program = Path(__file__).resolve().parent / "bin" / "goccl"
    if not program.is_file():
        sys.exit(f"goccl: {program} is missing; install goccl again (pip install --no-build-isolation .)")
    arguments = sys.argv[1:]
    if arguments[:1] == ["doctor"]:  # it inspects this Python
        arguments[1:1] = ["--python", sys.executable]
    os.execv(program, ["goccl", *arguments])


if __name__ == "__main__":
    main()
