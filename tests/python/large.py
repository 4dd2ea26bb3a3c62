"""Tensors of more than 2**31 elements on two ranks: make test-large.

It needs 14 GiB of free memory, and reports if there is less.
"""
import sys
import tempfile

import torch
import torch.distributed as dist
from rank_pool import RankPool

COUNT = 2**31 + 1000
NEEDED = 14 << 30


def ends(t):
    return [t[i].item() for i in (0, 2**31 - 1, 2**31, COUNT - 1)]


def move(rank):
    t = torch.zeros(COUNT, dtype=torch.uint8)
    if rank == 1:
        t[:] = 7
        t[2**31:] = 9
    dist.broadcast(t, 1)
    assert ends(t) == [7, 7, 9, 9], ends(t)


def add(rank):
    t = torch.full((COUNT,), rank + 1, dtype=torch.uint8)
    t[2**31:] = 5 * (rank + 1)
    dist.all_reduce(t)
    assert ends(t) == [3, 3, 15, 15], ends(t)


def either(rank):
    t = torch.zeros(COUNT, dtype=torch.bool)
    t[2**31 + rank:: 2] = True
    dist.all_reduce(t, op=dist.ReduceOp.BOR)
    assert ends(t) == [False, False, True, True] and not t[:2**31].any() and t[2**31:].all()


def main():
    with open("/proc/meminfo") as lines:
        free = next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable"))
    if free < NEEDED:
        print(f"skipped: {NEEDED >> 30} GiB of memory are needed, {free / 2**30:.1f} GiB are free")
        return 0
    import rank_pool

    rank_pool.PATIENCE = 600.0
    with tempfile.TemporaryDirectory() as folder:
        pool = RankPool(2, folder, timeout=600.0)
        for function in (move, add, either):
            pool.run(function)
            print(f"{function.__name__}: {COUNT} elements, right", flush=True)
        pool.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
