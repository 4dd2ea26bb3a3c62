"""CUDA graphs of collectives: 1,000 replays of three graphs in turn are right, and so is a graph of a whole DDP step.

    python graphs.py [--device cuda]
"""
import argparse
import collections.abc
import time

import torch
import torch.distributed as dist
import torch.nn as nn
from ranks import Ranks, is_rank, join, place, synchronize
from results import FAIL, INFO, PASS, of_route, tell
from torch.nn.parallel import DistributedDataParallel
from training import TOLERANCE, batch, build

REPLAYED, TRAINED = "1,000 replays of CUDA graphs are right", "a DDP step in a CUDA graph has the losses of one process"
WIDTH, STEPS = 128, 20


class Graph:
    """What call puts into a stream, to be executed again and again by replay."""

    def __init__(self, device: str, call: collections.abc.Callable[[], object]) -> None:
        synchronize(device)
        if device == "cuda":
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                call()
            self.replay, self.destroy = graph.replay, graph.reset
        else:
            import sim

            stream = torch.get_device_module(device).Stream()
            with torch.get_device_module(device).stream(stream), sim.captured(stream) as graph:
                call()
            self.replay, self.destroy = lambda: (graph.launch(), stream.synchronize()), graph.destroy


def replays(options: argparse.Namespace, rank: int, size: int) -> tuple[int, float]:
    """Returns how many results were wrong, and the microseconds of a replay."""
    device, where = options.device, place(options.device)
    first, second = torch.zeros(1 << 18, device=where), torch.zeros(100_000, device=where)
    gathered = torch.zeros(size * 100_000, device=where)
    swapped = torch.zeros(size * 1000, device=where)
    blocks = torch.zeros(size * 1000, device=where)
    for tensor in (first, second):
        dist.all_reduce(tensor)

    def gather() -> None:
        work = dist.all_gather_into_tensor(gathered, second, async_op=True)
        dist.all_reduce(first, op=dist.ReduceOp.AVG)
        work.wait()

    graphs = [Graph(device, lambda: dist.all_reduce(first)), Graph(device, gather),
              Graph(device, lambda: dist.all_to_all_single(swapped, blocks))]
    own, wrong, begin = torch.arange(size, device=where).repeat_interleave(1000).float(), 0, time.perf_counter()
    for k in range(options.replays):
        first.fill_(rank + k)
        second.fill_(rank - k)
        blocks.copy_(own + 10.0 * rank + k)
        if device != "cuda":  # where a graph has a stream of its own
            synchronize(device)
        for graph in graphs:
            graph.replay()
        if k % 10 == 9:  # the sum, which the second graph has left as it is
            wrong += not first.eq(size * (size - 1) / 2 + size * k).all().item()
            wrong += not gathered.view(size, -1).eq(torch.arange(size, device=where)[:, None] - k).all().item()
            want = 10.0 * torch.arange(size, device=where)[:, None] + rank + k
            wrong += not swapped.view(size, -1).eq(want).all().item()
            dist.all_reduce(first)  # in between, not in a graph
    synchronize(device)
    taken = (time.perf_counter() - begin) / (len(graphs) * options.replays) * 1e6
    for graph in graphs:
        graph.destroy()
    return wrong, taken


def trained(model: nn.Module, rank: int, size: int, where: torch.device, in_graph: bool) -> list[float]:
    """Returns the losses of steps, each a replay of one graph or not. The parameters begin as they are."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    inputs, targets = (tensor.to(where) for tensor in batch(0, WIDTH, rank, size))

    def step() -> torch.Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()
        return loss

    begin = {name: value.detach().clone() for name, value in model.state_dict().items()}
    run = step
    if in_graph:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # DDP builds its buckets, and torch its workspaces
            for _ in range(11):
                step()
        torch.cuda.current_stream().wait_stream(side)
        model.load_state_dict(begin)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            static = step()

        def run() -> torch.Tensor:
            graph.replay()
            return static

    losses = []
    for k in range(STEPS):
        for to, new in zip((inputs, targets), batch(k, WIDTH, rank, size)):
            to.copy_(new)
        losses.append(run().detach().clone())
    return [loss.item() for loss in losses]


def train(rank: int, size: int, where: torch.device) -> None:
    alone = trained(build(WIDTH, where), 0, 1, where, False)
    with torch.cuda.stream(torch.cuda.Stream()):
        model = DistributedDataParallel(build(WIDTH, where))
    torch.cuda.synchronize()
    every = [None] * size
    dist.all_gather_object(every, trained(model, rank, size, where, True))
    means = [sum(losses) / size for losses in zip(*every)]
    worst = max(abs(mean - want) / abs(want) for mean, want in zip(means, alone))
    if rank == 0:
        tell(of_route(TRAINED), PASS if worst < TOLERANCE else FAIL,
             f"{STEPS} steps, largest difference {worst:.1e}", difference=worst)


def rank_of(options: argparse.Namespace) -> None:
    rank, size, _ = join(options.device)
    every = [None] * size
    dist.all_gather_object(every, replays(options, rank, size))
    if rank == 0:
        wrong, taken = sum(each[0] for each in every), max(each[1] for each in every)
        tell(of_route(REPLAYED), FAIL if wrong else PASS, f"{options.replays} replays of three graphs on {size} ranks"
             + (f", {wrong} results wrong" if wrong else ""), wrong=wrong)
        tell(of_route("a replay of a CUDA graph"), INFO, f"{taken:.1f} µs", microseconds=taken)
    if options.device == "cuda":
        train(rank, size, place(options.device))
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--replays", type=int, default=1000)
    options = parser.parse_args()
    if is_rank():
        rank_of(options)
    elif failure := Ranks(2, limit=60).finish():
        raise SystemExit(failure)


if __name__ == "__main__":
    main()
