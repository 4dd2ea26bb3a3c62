"""Aids to find mistakes: TORCH_DISTRIBUTED_DEBUG, monitored barriers, DDP's logging, the profiler."""

import pytest
import torch
import torch.distributed as dist
from common import TORCH, seconds
from reference import alone, build, same_parameters, sgd, share, train
from torch.nn.parallel import DistributedDataParallel as DDP

import goccl

CPU = torch.device("cpu")


def at_level(level, function, *args):
    """Calls function at this level of TORCH_DISTRIBUTED_DEBUG, with a group that is made at it."""
    before = dist.get_debug_level()
    dist.set_debug_level(level)
    try:
        group = dist.new_group()
        function(group, *args)
        dist.barrier()
        dist.destroy_process_group(group)
    finally:
        dist.set_debug_level(before)


def use_wrapped(group):
    """Every call passes through torch's wrapper, which compares the ranks' arguments first."""
    rank, size = group.rank(), group.size()
    assert type(group._get_backend(CPU)).__name__ == "_ProcessGroupWrapper"
    assert type(group._get_backend(CPU).wrapped_pg).__name__ == "GocclBackend"
    for asynchronous in (False, True):
        t = torch.full((5,), float(rank))
        work = dist.all_reduce(t, group=group, async_op=asynchronous)
        if asynchronous:
            work.wait()
        assert t.eq(sum(range(size))).all()
    out = torch.empty(size * 2)
    dist.all_gather_into_tensor(out, torch.full((2,), float(rank)), group=group)
    assert out.view(size, 2)[:, 1].tolist() == list(range(size))
    part = torch.empty(2)
    dist.reduce_scatter_tensor(part, torch.ones(2 * size), group=group)
    assert part.tolist() == [size] * 2
    pieces = [torch.empty(1) for _ in range(size)]
    dist.all_gather(pieces, torch.tensor([float(rank)]), group=group)
    dist.all_to_all_single(torch.empty(size), torch.ones(size), group=group)
    dist.broadcast(t, src=0, group=group)
    dist.scatter(part, [torch.full((2,), float(r)) for r in range(size)] if rank == 0 else None, src=0, group=group)
    assert part.tolist() == [rank] * 2
    got = [None] * size
    dist.all_gather_object(got, {"of": rank}, group=group)
    assert got == [{"of": r} for r in range(size)]
    if rank == 0:
        dist.send(torch.ones(3), group=group, group_dst=1)
    elif rank == 1:
        dist.recv(torch.ones(3), group=group, group_src=0)
    dist.barrier(group=group)

    # Mistakes are found before any data moves, and the error names the calls of both sides; the group stays usable.
    with pytest.raises(RuntimeError, match="Detected mismatch between collectives on ranks"):
        dist.all_reduce(torch.ones(4 + (rank == 1)), group=group)
    with pytest.raises(RuntimeError, match="Detected mismatch between collectives on ranks.*(ALLREDUCE|BROADCAST)"):
        if rank == 1:
            dist.broadcast(torch.ones(4), group=group, group_src=0)
        else:
            dist.all_reduce(torch.ones(4), group=group)
    with pytest.raises(RuntimeError, match="Detected mismatch"):
        dist.all_reduce(torch.ones(4, dtype=torch.float64 if rank == 0 else torch.float32), group=group)
    t = torch.full((5,), float(rank))
    dist.all_reduce(t, group=group)
    assert t.eq(sum(range(size))).all()


def train_logged(group):
    """Trains one step with DDP at this level; checks the parameters and DDP's own log."""
    want, _ = alone(build(0), steps=2)
    model = DDP(build(0), process_group=group)
    train(model, sgd(model), 2)
    same_parameters(model.module, want)
    log = model._get_ddp_logging_data()
    assert log["world_size"] == group.size() and log["rank"] == group.rank()
    assert log["num_parameter_tensors"] == 6
    assert log["backend_name"] == "custom"  # ProcessGroup::getBackendName knows the type of a plugin, but not its name
    assert log["bucket_sizes"] == str(sum(p.numel() for p in want.parameters()) * 4)


def unused(group):
    """At DETAIL DDP names the parameters that got no gradient."""

    class Part(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.forgotten = torch.nn.Linear(16, 4), torch.nn.Linear(16, 4)

        def forward(self, x):
            return self.used(x)

    model = DDP(Part(), process_group=group)
    with pytest.raises(RuntimeError, match="forgotten.weight"):
        train(model, sgd(model), 2, part=share)


def check_levels(rank):
    at_level(dist.DebugLevel.DETAIL, use_wrapped)
    at_level(dist.DebugLevel.DETAIL, train_logged)
    at_level(dist.DebugLevel.DETAIL, unused)
    at_level(dist.DebugLevel.INFO, train_logged)


def test_debug_levels(world):
    world.run(check_levels)


def check_monitored(rank):
    """Rank 0 names all missing ranks; a rank that waits for them learns why it failed."""
    barrier = dist.monitored_barrier if TORCH >= (2, 14) else goccl.monitored_barrier
    if TORCH < (2, 14):
        # monitored_barrier in distributed_c10d.py compares the backend's name.
        with pytest.raises(ValueError, match="only implemented for GLOO"):
            dist.monitored_barrier()
    barrier(timeout=seconds(30))
    group = dist.new_group()
    if rank == 0:
        with pytest.raises(RuntimeError, match="Ranks 2, 3 failed to pass monitoredBarrier in 1500 ms") as caught:
            barrier(group, timeout=seconds(1.5), wait_all_ranks=True)
        assert isinstance(caught.value, dist.DistBackendError)
    elif rank == 1:
        with pytest.raises(RuntimeError, match="Rank 1 successfully reached monitoredBarrier"):
            barrier(group, timeout=seconds(30), wait_all_ranks=True)
    dist.barrier()
    dist.destroy_process_group(group)
    group = dist.new_group([0, 3, 2])  # 0, 2, 3
    if rank == 0:
        # Ranks are counted in the group.
        with pytest.raises(RuntimeError, match=r"Ranks? 1.*failed to pass monitoredBarrier"):
            barrier(group, timeout=seconds(0.5))
    dist.barrier()
    if rank != 1:
        dist.destroy_process_group(group)


def test_monitored_barrier(quartet):
    quartet.run(check_monitored)


def check_profiler(rank):
    """Each operation, synchronous or not, also of DDP, is an event "goccl:operation" with the sizes of its inputs."""
    model = DDP(build(0))
    t, out, works = torch.ones(8, 3), torch.empty(16, 3), []
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as profile:
        train(model, sgd(model), 1)
        dist.all_reduce(t)
        works.append(dist.all_gather_into_tensor(out, t, async_op=True))
        works.append(dist.broadcast(t, 0, async_op=True))
        for work in works:
            work.wait()
        dist.reduce_scatter_tensor(t, out)
        dist.all_to_all_single(out[:8], t)
        dist.reduce(t, 1)
        if rank == 0:
            dist.send(t, 1)
        else:
            dist.recv(t, 0)
        dist.barrier()
    events = [event for event in profile.events() if event.name.startswith("goccl:")]
    names = {event.name for event in events}
    wanted = {"all_reduce", "_all_gather_base", "broadcast", "_reduce_scatter_base", "all_to_all", "reduce", "barrier",
              "recv" if rank else "send"}
    assert names >= {f"goccl:{name}" for name in wanted}, names
    sizes = [list(event.input_shapes[0]) for event in events if event.name == "goccl:all_reduce" and event.input_shapes]
    assert [8, 3] in sizes and [sum(p.numel() for p in model.parameters())] in sizes, sizes
    assert all(event.count == 1 and event.time_range.elapsed_us() >= 0 for event in events)


def test_profiler(pair):
    pair.run(check_profiler)
