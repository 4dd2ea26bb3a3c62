"""One rank of the torch level: groups of goccl, gloo and torch's fake backend in the same processes.

The blocks of the backends run in random order. Started by torch_level.py: torch_rank.py RANK RANKS FOLDER SPEC (JSON).
Rank 0 prints the measurements, one JSON list on each line.
"""
import json
import os
import pathlib
import random
import statistics
import sys
import time
import warnings

import torch
import torch.distributed as dist


TOGETHER = ("all_reduce", "all_reduce_async", "burst")  # their differences matter, so their blocks alternate
IN_BLOCKS = ("all_gather", "reduce_scatter", "all_to_all", "scatter", "gather")  # the vector has a block for each rank
OF_ROOT = ("broadcast", "scatter")  # the input is rank 0's
CACHE_LINE = 64


def operation(op, tensor, group):
    """Returns a callable that does the operation once, the divisor of its time, and this rank's input or None."""
    ranks, rank = dist.get_world_size(), dist.get_rank()
    other = torch.empty_like(tensor)
    part = tensor.new_zeros(max(1, tensor.numel() // ranks))
    blocks = list(tensor.chunk(ranks)) if op in IN_BLOCKS and rank == 0 else None  # the blocks of the root
    source = part if op in ("all_gather", "gather") else tensor if op not in OF_ROOT or rank == 0 else None

    def ping_pong():
        if rank == 0:
            dist.send(tensor, 1, group=group)
            dist.recv(other, 1, group=group)
        elif rank == 1:
            dist.recv(other, 0, group=group)
            dist.send(tensor, 0, group=group)

    def burst():
        for work in [dist.all_reduce(tensor, group=group, async_op=True) for _ in range(16)]:
            work.wait()

    return {
        "all_reduce": lambda: dist.all_reduce(tensor, group=group),
        "all_reduce_async": lambda: dist.all_reduce(tensor, group=group, async_op=True).wait(),
        "burst": burst,
        "all_gather": lambda: dist.all_gather_into_tensor(other, part, group=group),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(part, tensor, group=group),
        "all_to_all": lambda: dist.all_to_all_single(other, tensor, group=group),
        "broadcast": lambda: dist.broadcast(tensor, 0, group=group),
        "scatter": lambda: dist.scatter(part, blocks, 0, group=group),
        "gather": lambda: dist.gather(part, blocks, 0, group=group),
        "reduce": lambda: dist.reduce(tensor, 0, group=group),
        "ping_pong": ping_pong,
    }[op], {"burst": 16, "ping_pong": 2}.get(op, 1), source


def toucher(tensor):
    """Returns a callable that writes to each cache line of the tensor the word that is there now."""
    if tensor is None:
        return lambda: None
    lines = tensor[::CACHE_LINE // tensor.element_size()]  # torch's memory begins at a line
    words = lines.clone()
    return lambda: lines.copy_(words)  # the shortest of torch's operations that write: it disturbs the call least


def processor_time():
    """Returns the processor seconds of each thread of this process, without Gloo's threads."""
    seconds = {}
    for task in pathlib.Path("/proc/self/task").iterdir():
        try:
            if "gloo" not in (task / "comm").read_text():
                seconds[task.name] = int((task / "schedstat").read_text().split()[0]) * 1e-9
        except OSError:
            pass  # the thread has just ended
    return seconds


class Bench:
    def __init__(self, spec):
        self.spec = spec
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        self.groups = {name: dist.new_group(backend=name) for name in spec["backends"]}
        self.control = dist.new_group(backend="gloo")
        self.of_blocks = min if spec["best"] else statistics.median
        self.dice = random.Random(spec["seed"])  # the same order on all ranks

    def say(self, *row):
        if self.rank == 0:
            print(json.dumps(row), flush=True)

    def slowest(self, value):
        tensor = torch.tensor([value], dtype=torch.float64)
        dist.all_reduce(tensor, dist.ReduceOp.MAX, group=self.control)
        return tensor.item()

    def block(self, call, turns, warm=0):
        """Runs a block; returns the microseconds of a call: the slowest rank's mean."""
        dist.barrier(group=self.control)
        for _ in range(warm):
            call()
        start = time.perf_counter()
        for _ in range(turns):
            call()
        return self.slowest((time.perf_counter() - start) / turns) * 1e6

    def alone(self, touch, turns, warm):
        """Returns the microseconds of a touch alone: processor time, that of ranks of one processor added up."""
        dist.barrier(group=self.control)
        for _ in range(warm + 1):
            touch()
        start = time.thread_time()
        for _ in range(turns):
            touch()
        cpus = torch.zeros(len(os.sched_getaffinity(0)), dtype=torch.float64)
        cpus[self.rank % len(cpus)] = (time.thread_time() - start) / turns * 1e6
        dist.all_reduce(cpus, group=self.control)
        return cpus.max().item()

    def turns(self, call):
        mean = self.block(call, 2, 1)
        mean = self.block(call, max(2, min(100, int(self.spec["block_us"] / 5 / max(mean, 0.1)))))
        return max(2, min(5000, int(self.spec["block_us"] / max(mean, 0.1))))

    def wrong(self, op, size, name):
        """Returns the number of wrong elements of an all-reduce, the maximum over the ranks."""
        tensor = torch.arange(max(1, size // 4), dtype=torch.float32) % 13
        expected = tensor * self.ranks + self.ranks * (self.ranks - 1) / 2
        tensor += self.rank
        toucher(tensor)()  # so that a touch that changes something is found
        dist.all_reduce(tensor, group=self.groups[name])
        return int(self.slowest((tensor != expected).sum().item()))

    def case(self, ops, size):
        calls, turns = {}, {}  # by operation, backend, and whether the inputs are touched before each call
        for op in ops:
            count = max(1, size // 4)
            if op in IN_BLOCKS:
                count = -(-count // self.ranks) * self.ranks
            for name, group in self.groups.items():
                # The fake backend moves no data: its time is the floor of torch's own cost, which is the same for every
                # size.
                if name == "fake" and (not op.startswith("all_reduce") or size > 1024):
                    continue
                if op == "all_reduce" and name != "fake":
                    wrong = self.wrong(op, size, name)
                    for touched in range(1 + self.spec["touch"]):
                        self.say("wrong", touched, op, size, name, wrong)
                call, divisor, source = operation(op, torch.zeros(count), group)
                calls[op, name, 0] = call, divisor, None
                if self.spec["touch"]:
                    touch = toucher(source)
                    calls[op, name, 1] = lambda call=call, touch=touch: (touch(), call()), divisor, touch
        for case, (call, *_) in calls.items():
            turns[case] = self.turns(call)
        for run in range(self.spec["runs"]):
            blocks = {case: [] for case in calls}
            for _ in range(self.spec["blocks"]):
                for case in self.dice.sample(list(calls), len(calls)):
                    call, divisor, touch = calls[case]
                    warm = max(1, min(20, turns[case] // 5))
                    both = self.block(call, turns[case], warm)
                    alone = self.alone(touch, turns[case], warm) if touch else 0.0
                    blocks[case].append((both / divisor, alone / divisor))
            for (op, name, touched), times in blocks.items():
                both, alone = map(self.of_blocks, zip(*times))
                self.say("time", touched, op, size, name, run, both - alone, alone)

    def overlap(self, size):
        """Measures a product of matrices and an asynchronous all-reduce together, relative to the sum of both alone."""
        group, tensor, a = self.groups["goccl"], torch.zeros(size // 4), torch.randn(384, 384)

        def compute(times):
            for _ in range(times):
                torch.mm(a, a)

        def together(times):
            work = dist.all_reduce(tensor, group=group, async_op=True)
            compute(times)
            work.wait()

        communicate = operation("all_reduce", tensor, group)[0]
        alone = self.block(communicate, 3, 1)
        times = max(1, int(alone / self.block(lambda: compute(10), 1, 1) * 10))
        for _ in range(self.spec["runs"]):
            both, parts = [], []
            for _ in range(self.spec["blocks"]):
                parts.append(self.block(communicate, 2) + self.block(lambda: compute(times), 2))
                both.append(self.block(lambda: together(times), 2))
            self.say("fact", "overlap", self.of_blocks(both) / self.of_blocks(parts))

    def idle(self, seconds):
        """Measures the CPU time of this process while its groups are idle, in percent of one core.

        Gloo's threads wake up at times and do not count.
        """
        dist.barrier(group=self.control)
        before, start = processor_time(), time.perf_counter()
        time.sleep(seconds)
        spent, passed = processor_time(), time.perf_counter() - start
        percent = sum(used - before.get(thread, 0) for thread, used in spent.items()) / passed * 100
        self.say("fact", "idle_cpu_percent", self.slowest(percent))


def main(rank, ranks, folder, spec):
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    spec = json.loads(spec)
    if "fake" in spec["backends"]:
        from torch.testing._internal.distributed import fake_pg  # noqa: F401  (registers the backend)
    if "goccl" in spec["backends"]:
        import goccl  # noqa: F401
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=int(rank), world_size=int(ranks))
    bench = Bench(spec)
    together = [op for op in spec["ops"] if op in TOGETHER]
    for ops in [together] * bool(together) + [[op] for op in spec["ops"] if op not in TOGETHER]:
        for size in spec["sizes"]:
            bench.case(ops, size)
    if spec["extra"]:
        bench.overlap(64 << 20)
        bench.idle(10)
    bench.say("end")
    dist.barrier(group=bench.control)
    sys.stdout.flush()
    os._exit(0)  # skips the orderly shutdown of the groups of three backends, which is not needed


if __name__ == "__main__":
    main(*sys.argv[1:])
