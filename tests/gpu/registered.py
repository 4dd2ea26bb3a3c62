"""Tensors in registered memory of a GPU (goccl.empty, goccl.mem_pool), which ranks read in place.

    python registered.py

The same calls with ordinary tensors must have the same bits; what both take is told.
"""
import os
import statistics
import time

import torch
import torch.distributed as dist
from ranks import Ranks, is_rank, join
from results import FAIL, INFO, PASS, tell

BAR = "tensors in registered memory of the GPU have the bits of ordinary ones"
COUNTS = [1, 1003, 1 << 18, 3_000_001, 16 << 20]
TIMES = 7


def timed(tensor: torch.Tensor) -> float:
    times = []
    for _ in range(TIMES):
        torch.cuda.synchronize()
        dist.barrier()
        start = time.perf_counter()
        dist.all_reduce(tensor)
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) * 1e6)
    return statistics.median(times)


def rank_of() -> None:
    os.environ.setdefault("GOCCL_CUDA_REGISTERED", "1G")
    import goccl

    rank, size, _ = join("cuda", bind=True)
    wrong = []
    for count in COUNTS:
        torch.manual_seed(count + rank)
        plain = torch.randn(count, device="cuda")
        lent = goccl.empty(count, device="cuda").copy_(plain)
        with torch.cuda.use_mem_pool(goccl.mem_pool()):
            pooled = torch.empty(count * size, device="cuda")
        gathered = torch.empty(count * size, device="cuda")
        dist.all_gather_into_tensor(gathered, plain)
        dist.all_gather_into_tensor(pooled, lent)
        same = torch.equal(gathered, pooled)
        for tensor in (plain, lent):
            dist.all_reduce(tensor)
        if not same or not torch.equal(plain, lent):
            wrong.append(count)
    every = [None] * size
    dist.all_gather_object(every, wrong)
    micros = torch.tensor([timed(tensor) for tensor in (torch.zeros(COUNTS[-1], device="cuda"),
                                                        goccl.empty(COUNTS[-1], device="cuda").zero_())])
    dist.all_reduce(micros, dist.ReduceOp.MAX)
    if rank == 0:
        tell(BAR, FAIL if any(every) else PASS, f"all_reduce and all_gather of {COUNTS} elements" +
             (f"; not with {every}" if any(every) else ""))
        tell("all_reduce of 64 MiB in registered memory, 2 ranks", INFO,
             f"{micros[1].item():.0f} µs, of ordinary memory {micros[0].item():.0f} µs")
    del lent, pooled
    dist.destroy_process_group()


def main() -> None:
    if is_rank():
        rank_of()
    elif failure := Ranks(2, limit=50).finish():
        raise SystemExit(failure)


if __name__ == "__main__":
    main()
