"""The buckets of DistributedDataParallel are reduced during backward: a trace of the profiler shows it.

    python tests/python/test_ddp_overlap.py ddp.json    # writes rank 0's trace for ui.perfetto.dev or chrome://tracing
"""
import pathlib
import sys
import tempfile
from collections import namedtuple

import torch
from rank_pool import RankPool
from torch.nn.parallel import DistributedDataParallel

LAYERS, WIDTH, BATCH = 6, 1024, 64  # each layer is a bucket of 4 MiB
ALL_REDUCE = "goccl:all_reduce"
BACKWARD = "autograd::engine::evaluate_function: AddmmBackward0"

Span = namedtuple("Span", "start end")  # microseconds


def spans(events, name):
    return sorted(Span(e.time_range.start, e.time_range.end) for e in events if e.name == name)


def train(rank, trace):
    """Returns the spans of the all-reduces and of the layers' backward passes in one step.

    Rank 0 writes the trace if it has a name.
    """
    torch.manual_seed(rank)  # DDP makes the ranks' different weights equal
    layers = [torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)]
    model = DistributedDataParallel(torch.nn.Sequential(*layers), bucket_cap_mb=4)
    x = torch.randn(BATCH, WIDTH)

    def step():
        model.zero_grad()
        model(x).sum().backward()

    step()
    step()  # by now DDP has put the parameters into buckets in the order of their gradients
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        step()
    if trace and rank == 0:
        profile.export_chrome_trace(trace)
    events = profile.events()
    return spans(events, ALL_REDUCE), spans(events, BACKWARD), [p.grad.norm().item() for p in model.parameters()]


def overlapping(reductions, backward):
    """Returns pairs (bucket, layer) where the bucket's reduction was in flight when the layer's backward began."""
    return [(bucket, layer) for bucket, r in enumerate(reductions) for layer, b in enumerate(backward)
            if r.start < b.start < r.end]


def test_buckets_are_reduced_while_backward_goes_on(pair, tmp_path):
    trace = tmp_path / "ddp.json"
    results = pair.run(train, str(trace))
    assert results[0][2] == results[1][2], "the ranks have different gradients"
    pairs, buckets = [], len(results[0][0])
    for reductions, backward, _ in results:
        assert len(backward) == LAYERS and len(reductions) == buckets
        assert buckets >= LAYERS - 1, "too few buckets to overlap anything"
        pairs += overlapping(reductions, backward)
    # The second rank that reaches a bucket finds all data of it there and reduces it at once; the first rank has gone
    # on meanwhile.
    assert pairs, f"no bucket was reduced beside backward: {results}"
    assert min(pairs)[0] < buckets - 1, "only the last bucket overlaps"
    assert ALL_REDUCE in trace.read_text()


def main(trace):
    with tempfile.TemporaryDirectory() as folder:
        pool = RankPool(2, folder)
        reductions, backward, _ = pool.run(train, trace)[0]
        pool.close()
    begin = backward[0].start
    for name, found in (("backward of a layer", backward), ("all_reduce of a bucket", reductions)):
        for span in found:
            print(f"{name:<23} {span.start - begin:>9,.0f} … {span.end - begin:>9,.0f} µs")
    print(f"(bucket, layer) side by side: {overlapping(reductions, backward)}\ntrace: {pathlib.Path(trace).resolve()}")


if __name__ == "__main__":
    main(*sys.argv[1:])
