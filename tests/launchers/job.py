"""One rank of a job that a launcher has started: job.py sums, job.py fails RANK STATUS, or job.py waits FILE.

Each line of its output is "rank R …".
"""
import os
import signal
import sys
import time

import torch
import torch.distributed as dist

import goccl  # noqa: F401 # torch 2.13 and older do not find it by its name


def main():
    what, *more = sys.argv[1:]
    dist.init_process_group("goccl")
    rank, size = dist.get_rank(), dist.get_world_size()
    total = torch.ones(1000)
    dist.all_reduce(total)
    if what == "sums":
        print(f"rank {rank} of {size}, local {os.environ['LOCAL_RANK']}: {total[0]:.0f}", flush=True)
    elif what == "fails":
        if rank == int(more[0]):
            os._exit(int(more[1]))
        try:
            dist.barrier()
        except dist.DistBackendError as e:
            print(f"rank {rank} was told: {e}", flush=True)
            sys.exit(1)
    elif what == "waits":  # until SIGTERM
        ended = []
        signal.signal(signal.SIGTERM, lambda *_: ended.append(1))
        with open(f"{more[0]}.{rank}", "w"):
            pass
        while not ended:
            time.sleep(0.05)
        print(f"rank {rank} ends on SIGTERM", flush=True)
    dist.destroy_process_group()


main()
