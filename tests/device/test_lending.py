"""Tensors in registered memory of a device, which the devices of other ranks read in place."""
import gc
import os

import pytest
import sim
import torch
import torch.distributed as dist

import goccl

SIZE = 16 << 20


@pytest.fixture(scope="module")
def lenders(worlds):
    """Two ranks that have registered memory on their devices."""
    return worlds(2, route="windows", registered=str(SIZE))


def _empty(rank):
    for size in ((3,), (2, 3), ((4, 5),), (2, 0)):
        made = goccl.empty(*size, device="sim")
        assert made.shape == torch.empty(*size).shape and made.device == torch.device("sim", 0)
        assert made.dtype == torch.float32 and made.is_contiguous()
    made = goccl.empty(10, dtype=torch.float64, device="sim:0", requires_grad=True)
    assert made.requires_grad and made.dtype == torch.float64
    made.detach().fill_(3)
    assert made.tolist() == [3] * 10
    assert goccl.mem_pool("sim") is goccl.mem_pool("sim:0")
    with torch.sim.use_mem_pool(goccl.mem_pool("sim")):
        other = torch.ones(1000, device="sim")
    assert other.sum().item() == 1000


def test_empty(lenders):
    lenders.checked(_empty)


def _used_up(rank):
    made = goccl.empty(SIZE // 8, device="sim")
    with pytest.raises(torch.OutOfMemoryError, match=r"on sim:0 for \[4194304\] of .*; a larger GOCCL_CUDA_REGISTERED"):
        goccl.empty(SIZE // 4, device="sim")
    del made
    gc.collect()
    whole = goccl.empty(SIZE // 4, device="sim")  # what was freed is given back first
    del whole
    torch.sim.empty_cache()


def test_used_up(lenders):
    lenders.checked(_used_up)


def _in_place(rank):
    count = 100_000
    copies = {}
    for kind, make in (("ordinary", torch.empty), ("registered", goccl.empty)):
        a = make(count, device="sim").fill_(rank)
        torch.sim.synchronize()
        sim.set_faults()
        dist.broadcast(a, 0)
        copies[kind] = sim.calls("cuMemcpyAsync")
        a.add_(1)  # at once: nobody reads it any more
        assert a.tolist() == [1] * count
    return copies


def test_broadcast_reads_it_in_place(lenders):
    """The root copies nothing: the other one reads its tensor."""
    root, other = lenders.checked(_in_place)
    assert root["registered"] == 0 and root["ordinary"] > 0
    assert other == {"ordinary": 0, "registered": 0}  # a kernel finds where the data is


def _collectives(rank):
    count = 50_000
    ranks = range(dist.get_world_size())
    a = goccl.empty(count, device="sim").copy_(torch.arange(count) % 1000 + rank)
    want = sum(torch.arange(count) % 1000 + r for r in ranks)
    dist.all_reduce(a)
    assert torch.equal(a.cpu(), want.float())
    a.fill_(rank)
    view = a[7:40_007]  # at any offset
    dist.all_reduce(view, op=dist.ReduceOp.AVG)
    assert view.tolist() == [sum(ranks) / len(ranks)] * 40_000 and a[:7].tolist() == [rank] * 7

    part = goccl.empty(count, device="sim").fill_(rank + 1)
    gathered = torch.empty(count * len(ranks), device="sim")
    dist.all_gather_into_tensor(gathered, part)
    part.fill_(-1)
    assert gathered.view(len(ranks), -1).cpu().eq(torch.tensor([[r + 1] for r in ranks])).all()

    whole = goccl.empty(count * len(ranks), device="sim").fill_(rank + 1)
    scattered = torch.empty(count, device="sim")
    dist.reduce_scatter_tensor(scattered, whole)
    whole.fill_(-1)
    assert scattered.tolist() == [sum(ranks) + len(ranks)] * count

    to, back = goccl.empty(count * len(ranks), device="sim").fill_(rank), goccl.empty(count * len(ranks), device="sim")
    dist.all_to_all_single(back, to)
    to.fill_(-1)
    assert back.view(len(ranks), -1).cpu().eq(torch.tensor([[r] for r in ranks])).all()


def test_collectives(lenders):
    lenders.checked(_collectives)


def _dropped(rank):
    for turn in range(5):
        a = goccl.empty(60_000, device="sim").fill_(rank + turn)
        work = dist.all_reduce(a, async_op=True)
        del a
        b = goccl.empty(60_000, device="sim").fill_(-1)
        if turn % 2:
            work.wait()
        del work
        assert b.tolist() == [-1] * 60_000


def test_dropped_while_it_is_read(lenders):
    """Memory gets another use when no stream uses it any more, also if nobody waits for the operation."""
    lenders.checked(_dropped)


def _allocate_tensor(rank):
    backend = dist.group.WORLD._get_backend(torch.device("sim"))
    assert backend.supports_tensor_alloc(torch.device("sim", 0))
    made = backend.allocate_tensor(100_000, dtype=torch.float32, device=torch.device("sim", 0)).fill_(1)
    torch.sim.synchronize()
    sim.set_faults()
    dist.broadcast(made, 0)
    assert sim.calls("cuMemcpyAsync") == 0
    assert made.sum().item() == 100_000


def test_allocate_tensor(lenders):
    lenders.checked(_allocate_tensor)


def _fsdp(rank):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("sim", (dist.get_world_size(),))
    results = []
    for registered in (False, True):
        torch.manual_seed(1)
        model = torch.nn.Sequential(torch.nn.Linear(300, 301), torch.nn.Linear(301, 300)).to("sim")
        for layer in [*model, model]:
            fully_shard(layer, mesh=mesh)
            if registered:
                if not hasattr(layer, "set_allocate_memory_from_process_group_for_comm"):
                    return  # torch before 2.9
                layer.set_allocate_memory_from_process_group_for_comm(True)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(2):
            torch.manual_seed(rank)
            with sim.lenient():
                model(torch.randn(8, 300).to("sim")).square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()
        results.append([p.to_local().detach().cpu() for p in model.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def test_fsdp(lenders):
    """FSDP2 has the buffers of its collectives there, with the same results."""
    lenders.checked(_fsdp)


def _none(rank):
    assert os.environ["GOCCL_CUDA_REGISTERED"] == "0"
    with pytest.raises(RuntimeError, match="there is no registered memory on cuda:0: GOCCL_CUDA_REGISTERED=0"):
        goccl.empty(3, device="sim")
    backend = dist.group.WORLD._get_backend(torch.device("sim"))
    assert backend.allocate_tensor(10, dtype=torch.float32, device=torch.device("sim", 0)).fill_(2).tolist() == [2] * 10


def test_none(pair):
    """Without the option the error says so, and what torch allocates is ordinary memory."""
    pair.checked(_none)
