"""One rank of bench-guard's torch level: measures the cases that it reads from its standard input.

Started by guard.py: guard_rank.py RANK RANKS STORE.
"""
import json
import sys
import time

import torch
import torch.distributed as dist
from torch_rank import operation

import goccl  # noqa: F401  (needed before torch 2.14)


def main(rank, ranks, store):
    torch.set_num_threads(1)
    dist.init_process_group("goccl", init_method=f"file://{store}", rank=int(rank), world_size=int(ranks))
    calls = {}
    print("0", flush=True)  # the rank is ready
    for line in sys.stdin:
        op, size, turns, warm = json.loads(line)
        if (op, size) not in calls:
            calls[op, size] = operation(op, torch.zeros(size // 4), None)[0]
        call = calls[op, size]
        for _ in range(warm):
            call()
        dist.barrier()
        start = time.perf_counter()
        for _ in range(turns):
            call()
        print((time.perf_counter() - start) / turns * 1e6, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
