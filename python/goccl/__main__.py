"""The command line: ``goccl ...`` and ``python -m goccl ...`` run the Go program that is installed with this package."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def main() -> None:
    program = Path(__file__).resolve().parent / "bin" / "goccl"
    if not program.is_file():
        sys.exit(f"goccl: {program} is missing; install goccl again (pip install --no-build-isolation .)")
    os.execv(program, ["goccl", *sys.argv[1:]])


if __name__ == "__main__":
    main()
