"""Times of all_reduce on two ranks, beside Gloo with the same tensors in the same run, and NCCL with one rank.

    python speed.py [--device cuda] [--sizes 8,65536] [--seconds 60]

The libraries take turns at every size. A time is that of a call until the device has finished, of the slower rank;
what counts is the median.
"""
import argparse
import os
import statistics
import time

import torch
import torch.distributed as dist
from ranks import Ranks, is_rank, join, place, synchronize
from results import FAIL, INFO, PASS, ROUTE, of_route, tell

SIZES = [8, 64, 1 << 10, 8 << 10, 64 << 10, 1 << 20, 8 << 20, 64 << 20, 256 << 20]
AT, FACTOR, OVER_WINDOWS = 64 << 20, 3.0, 5.0
BAR = "all_reduce of 64 MiB f32, 2 ranks: at least {:.0f} x Gloo"
WARM, ROUNDS, CALLS = 2, 9, 20  # rounds of some calls


def timed(group: dist.ProcessGroup | None, tensor: torch.Tensor, calls: int, device: str) -> float:
    synchronize(device)
    start = time.perf_counter()
    for _ in range(calls):
        dist.all_reduce(tensor, group=group)
        synchronize(device)
    return (time.perf_counter() - start) / calls * 1e6


def shown(size: int) -> str:
    for unit, factor in ("MiB", 1 << 20), ("KiB", 1 << 10):
        if size >= factor:
            return f"{size // factor} {unit}"
    return f"{size} B"


def rate(size: int, micros: float) -> str:
    return f"{size / micros / 1000:.2f} GB/s"


def measure(groups: dict, sizes: list[int], device: str, seconds: float) -> dict[int, dict[str, float]]:
    """Returns the median by size and library; with less time for all sizes, fewer rounds."""
    result, end = {}, time.monotonic() + seconds
    for index, size in enumerate(sizes):
        tensor = torch.ones(max(1, size // 4), device=place(device))
        left = torch.tensor([end - time.monotonic()])
        dist.all_reduce(left, dist.ReduceOp.MIN)  # ranks agree on how to go on
        share = left.item() / (len(sizes) - index)
        times = {name: [] for name in groups}
        calls, rounds, start = 1, 0, time.monotonic()
        while rounds < WARM + ROUNDS:
            for name, group in groups.items():
                tensor.fill_(1)
                times[name].append(timed(group, tensor, calls, device))
            rounds += 1
            slowest = torch.tensor([max(each[-1] for each in times.values()), time.monotonic() - start])
            dist.all_reduce(slowest, dist.ReduceOp.MAX)
            calls = max(1, min(CALLS, int(share * 1e6 / (ROUNDS + WARM) / len(groups) / slowest[0].item())))
            if slowest[1].item() > share and rounds >= WARM + 1:
                break
        medians = torch.tensor([statistics.median(each[min(WARM, rounds - 1):]) for each in times.values()],
                               dtype=torch.float64)
        dist.all_reduce(medians, dist.ReduceOp.MAX)
        result[size] = dict(zip(groups, medians.tolist()))
    return result


def beside_gloo(options: argparse.Namespace) -> None:
    rank, size, _ = join(options.device)
    groups = {"goccl": None, "gloo": dist.new_group(backend="gloo")}
    for bytes_, micros in measure(groups, options.sizes, options.device, options.seconds).items():
        if rank != 0:
            continue
        factor = micros["gloo"] / micros["goccl"]
        text = (f"goccl {micros['goccl']:.1f} µs ({rate(bytes_, micros['goccl'])}), "
                f"gloo {micros['gloo']:.1f} µs ({rate(bytes_, micros['gloo'])}), {factor:.2f} x")
        tell(of_route(f"all_reduce, 2 ranks, {shown(bytes_)}"), INFO, text, bytes=bytes_, **micros)
        if bytes_ == AT:
            want = OVER_WINDOWS if os.environ.get(ROUTE) == "windows" else FACTOR
            tell(of_route(BAR.format(want)), PASS if factor >= want else FAIL, text, factor=factor)
    dist.destroy_process_group()


def nccl(options: argparse.Namespace) -> None:
    join("cuda", bind=True, backend="cpu:gloo,cuda:nccl")
    for bytes_, micros in measure({"nccl": None}, options.sizes, "cuda", options.seconds).items():
        text = f"{micros['nccl']:.1f} µs ({rate(bytes_, micros['nccl'])})"
        tell(f"all_reduce, NCCL with one rank, {shown(bytes_)}", INFO, text, bytes=bytes_, **micros)
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--sizes", type=lambda text: [int(each) for each in text.split(",")], default=SIZES)
    parser.add_argument("--seconds", type=float, default=60, help="for all sizes")
    parser.add_argument("--nccl", action="store_true", help="NCCL with one rank instead")
    options = parser.parse_args()
    if is_rank():
        (nccl if options.nccl else beside_gloo)(options)
    elif failure := Ranks(1 if options.nccl else 2, limit=options.seconds + 40).finish():
        raise SystemExit(failure)


if __name__ == "__main__":
    main()
