"""One rank of a check between hosts. Started by hosts_checks.py: hosts_rank.py RANK RANKS FOLDER MODE.

Prints JSON lines. Rank 0 reads commands from its standard input in modes that have periods.
"""
import gc
import json
import os
import pathlib
import random
import select
import sys
import time

import torch
import torch.distributed as dist

import goccl  # noqa: F401  (needed before torch 2.14)

MIB = 1 << 20
BEGUN = 0.0
SIZES = [8] * 40 + [64 << 10] * 30 + [MIB] * 20 + [16 * MIB] * 4 + [64 * MIB]  # of a block of all_reduces


def say(**what):
    print(json.dumps(what), flush=True)


def holds():
    """What this process holds: descriptors, threads, MiB of memory."""
    gc.collect()
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    return {"descriptors": len(os.listdir("/proc/self/fd")), "threads": len(os.listdir("/proc/self/task")),
            "mib": pages * os.sysconf("SC_PAGE_SIZE") // MIB}


def asked():
    """A command that rank 0 was given, or nothing."""
    return sys.stdin.readline().strip() if select.select([sys.stdin], [], [], 0)[0] else ""


def together(word):
    """Whether rank 0 has read something. All ranks find the same."""
    flag = torch.tensor([len(word)], dtype=torch.float64)
    dist.all_reduce(flag)
    return flag.item() > 0


def sums(rank, ranks):
    """Sums of many sizes until rank 0 is told to end; each result is compared."""
    dice = random.Random(1)  # the same on all ranks
    buffers = {size: torch.empty(size // 4) for size in set(SIZES)}
    wrong = calls = 0
    before = None
    while True:
        for size in dice.sample(SIZES, len(SIZES)):
            value = calls % 1000
            tensor = buffers[size].fill_(value + rank)
            dist.all_reduce(tensor)
            wrong += int((tensor != ranks * value + ranks * (ranks - 1) / 2).sum())
            calls += 1
        if before is None:
            before = holds()
            say(ready=True)
        if together(asked() if rank == 0 else ""):
            break
    say(calls=calls, wrong=wrong, before=before, after=holds())


def rates(rank, ranks):
    """The median time of an all_reduce of 64 KiB, in periods that rank 0 begins and ends."""
    tensor = torch.ones(16 << 10)
    times = []
    while True:
        for _ in range(100):
            begun = time.perf_counter()
            dist.all_reduce(tensor)
            times.append(time.perf_counter() - begun)
        tensor.fill_(1)
        word = asked() if rank == 0 else ""
        if together(word):
            say(us=sorted(times)[len(times) // 2] * 1e6, calls=len(times))
            times.clear()
            if together(word if word == "end" else ""):
                return


def joins(rank, ranks):
    """The time from the making of the group to the end of its first all_reduce."""
    tensor = torch.ones(2)
    dist.all_reduce(tensor)
    say(seconds=time.perf_counter() - BEGUN, right=tensor.tolist() == [ranks, ranks])


def losses(rank, ranks):
    """The losses of ten steps of DDP, as the bits of their numbers."""
    torch.manual_seed(7)
    net = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 512), torch.nn.GELU(),
                              torch.nn.Linear(512, 8))
    model = torch.nn.parallel.DistributedDataParallel(net, bucket_cap_mb=0.2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    torch.manual_seed(100 + rank)
    seen = []
    for _ in range(10):
        x, y = torch.randn(32, 64), torch.randint(8, (32,))
        loss = torch.nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total = loss.detach().clone()
        dist.all_reduce(total)
        seen.append(total.item().hex())
    say(losses=seen)


def overlap(rank, ranks):
    """The median times of computing alone, communicating alone, and of a step of DDP that does both.

    The batch is so large that computing takes twice as long as communicating: the forward pass, a third of it, has
    nothing to communicate.
    """
    layers, width, batch = 16, 1024, 320
    net = torch.nn.Sequential(*[torch.nn.Linear(width, width, bias=False) for _ in range(layers)])
    model = torch.nn.parallel.DistributedDataParallel(net, bucket_cap_mb=4, gradient_as_bucket_view=True)
    x = torch.randn(batch, width)  # until the batch is chosen
    gradients = [torch.zeros(width * width) for _ in range(layers)]

    def step():
        model(x).square().mean().backward()

    def compute():
        with model.no_sync():
            step()

    def communicate():
        for work in [dist.all_reduce(gradient, async_op=True) for gradient in gradients]:
            work.wait()

    def seconds(call):
        dist.barrier()
        begun = time.perf_counter()
        call()
        return time.perf_counter() - begun

    for call in compute, communicate, step:
        call()
    both = torch.tensor([seconds(communicate), seconds(compute)])
    dist.all_reduce(both)
    x = torch.randn(int(batch * 2 * both[0] / both[1]), width)
    times = {call: [] for call in (compute, communicate, step)}
    for _ in range(7):
        for call, taken in times.items():
            taken.append(seconds(call))
    used = time.process_time()
    communicate()
    say(processor=time.process_time() - used,
        **{call.__name__: sorted(taken)[len(taken) // 2] for call, taken in times.items()})


def main():
    global BEGUN
    rank, ranks, folder, mode = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
    torch.set_num_threads(1)
    while rank > 0 and mode == "joins" and not pathlib.Path(folder, "go").exists():
        time.sleep(0.01)  # rank 0 is there first
    BEGUN = time.perf_counter()
    backend = os.environ.get("BACKEND", "goccl")
    dist.init_process_group(backend, store=dist.FileStore(f"{folder}/store", ranks), rank=rank, world_size=ranks)
    {"sums": sums, "rates": rates, "joins": joins, "losses": losses, "overlap": overlap}[mode](rank, ranks)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
