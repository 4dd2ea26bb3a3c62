"""Times of short all_reduces of 2, 4 and 8 ranks that share the GPU under NVIDIA's MPS, where kernels of several
processes run at the same time: over windows, and as kernels that wait for each other (GOCCL_CUDA_INTERPRET=1).

    python mps.py [--device cuda] [--sizes 8,65536] [--ranks 2,4,8]
"""
import argparse
import os
import shutil
import subprocess
import sys
import tempfile

import torch.distributed as dist
from ranks import Ranks, is_rank, join
from results import INFO, NOT_RUN, ROUTE, tell
from speed import measure, rate, shown

SIZES = [8, 8 << 10, 64 << 10, 1 << 20]
RANKS = [2, 4, 8]
WAYS = {"0": "over windows", "1": "interpreted"}
INTERPRET = "GOCCL_CUDA_INTERPRET"
SECONDS = 3.0  # for the sizes of one group
CONTROL = "nvidia-cuda-mps-control"


def rank_of(options: argparse.Namespace) -> None:
    rank, size, _ = join(options.device)
    way = WAYS[os.environ[INTERPRET]]
    for bytes_, micros in measure({"goccl": None}, options.sizes, options.device, SECONDS).items():
        if rank == 0:
            tell(f"all_reduce under MPS, {size} ranks, {shown(bytes_)}, {way}", INFO,
                 f"{micros['goccl']:.1f} µs ({rate(bytes_, micros['goccl'])})", bytes=bytes_, **micros)
    dist.destroy_process_group()


def groups(options: argparse.Namespace) -> str:
    """Runs all groups, and returns what went wrong."""
    if options.device == "cuda":
        os.environ[ROUTE] = "windows"
    failures = []
    for size in options.ranks:
        for way in WAYS:
            os.environ[INTERPRET] = way
            if failure := Ranks(size, limit=SECONDS + 30).finish():
                failures.append(failure)
    return "\n".join(failures)


def under_mps(options: argparse.Namespace) -> str:
    """Starts MPS for the processes of this check only, and ends it."""
    with tempfile.TemporaryDirectory(prefix="goccl-mps-") as folder:
        os.environ["CUDA_MPS_PIPE_DIRECTORY"] = os.environ["CUDA_MPS_LOG_DIRECTORY"] = folder
        subprocess.run([CONTROL, "-d"], check=True, timeout=20)
        try:
            return groups(options)
        finally:
            subprocess.run([CONTROL], input="quit\n", text=True, check=False, timeout=20)


def main() -> None:
    def numbers(text: str) -> list[int]:
        return [int(each) for each in text.split(",")]

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--sizes", type=numbers, default=SIZES)
    parser.add_argument("--ranks", type=numbers, default=RANKS)
    options = parser.parse_args()
    if is_rank():
        rank_of(options)
        return
    if options.device != "cuda":
        failure = groups(options)
    elif shutil.which(CONTROL) is None:
        tell("all_reduce under MPS", NOT_RUN, f"{CONTROL} is not installed")
        return
    else:
        failure = under_mps(options)
    if failure:
        sys.exit(failure)


if __name__ == "__main__":
    main()
