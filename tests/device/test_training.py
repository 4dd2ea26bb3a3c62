"""Training on the simulated device: the result is that of one process on the host, and all accesses are in order."""
import copy

import pytest
import sim
import torch
import torch.distributed as dist
from common import until
from torch.nn.parallel import DistributedDataParallel

ROWS, STEPS = 4, 3


def network():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(8, 33), torch.nn.ReLU(), torch.nn.Linear(33, 17), torch.nn.Tanh(),
                               torch.nn.Linear(17, 4))


def train(model, device, rows):
    """Some steps with the given rows of each batch."""
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    generator = torch.Generator().manual_seed(2)
    total = ROWS * dist.get_world_size()
    for _ in range(STEPS):
        x = torch.randn(total, 8, generator=generator)
        y = torch.randint(0, 4, (total,), generator=generator)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x[rows].to(device)), y[rows].to(device)).backward()
        optimizer.step()


def expected():
    model = network()
    train(model, "cpu", slice(None))
    return list(model.parameters())


def own(rank):
    return slice(ROWS * rank, ROWS * (rank + 1))


def check_parameters(found):
    for p, q in zip(found, expected(), strict=True):
        torch.testing.assert_close(p.detach().cpu(), q.detach(), rtol=1e-4, atol=1e-5)


def _ddp(rank, options):
    model = DistributedDataParallel(network().to("sim"), device_ids=[0], **options)
    train(model, "sim", own(rank))
    check_parameters(model.parameters())


DDP = [{}, {"bucket_cap_mb": 0.0005}, {"gradient_as_bucket_view": True, "bucket_cap_mb": 0.001}, {"static_graph": True}]


@pytest.mark.parametrize("options", DDP, ids=str)
def test_ddp(pair, options):
    pair.checked(_ddp, options)


def test_ddp_on_four(quartet):
    quartet.checked(_ddp, {"bucket_cap_mb": 0.0005})


def _ddp_hook(rank):
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    model = DistributedDataParallel(network().to("sim"), bucket_cap_mb=0.0005)
    model.register_comm_hook(None, default_hooks.allreduce_hook)
    train(model, "sim", own(rank))
    check_parameters(model.parameters())


def test_ddp_with_a_hook(pair):
    pair.checked(_ddp_hook)


def _fsdp(rank, options):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("sim", (dist.get_world_size(),))
    with sim.lenient():
        model = network().to("sim")
        for layer in (model[0], model[2]):
            fully_shard(layer, mesh=mesh, **options)
        fully_shard(model, mesh=mesh, **options)
        train(model, "sim", own(rank))
        check_parameters([p.full_tensor() for p in model.parameters()])
        torch.sim.synchronize()
        del model


@pytest.mark.parametrize("options", [{}, {"reshard_after_forward": False}], ids=str)
def test_fsdp2(pair, options):
    pair.checked(_fsdp, options)


def test_fsdp2_on_four(quartet):
    quartet.checked(_fsdp, {})


def _tensor_parallel(rank):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    torch.manual_seed(5)
    model = torch.nn.Sequential(torch.nn.Linear(8, 12), torch.nn.ReLU(), torch.nn.Linear(12, 4))
    same = copy.deepcopy(model).to("sim")
    mesh = init_device_mesh("sim", (dist.get_world_size(),))
    parallelize_module(same, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    x = torch.randn(5, 8)
    found, wanted = same(x.to("sim")), model(x)
    found.sum().backward()
    wanted.sum().backward()
    torch.testing.assert_close(found.cpu(), wanted)
    for p, q in zip(same.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(p.grad.full_tensor().cpu(), q.grad)


def test_tensor_parallel(pair):
    pair.checked(_tensor_parallel)


def _polled(rank, told):
    a = torch.full((100,), float(rank), device="sim")
    work = dist.all_reduce(a, async_op=True)
    until(work.is_completed, "the operation hangs")
    if told:
        sim.order()
    b = a + 1  # without wait()
    torch.sim.synchronize()
    found = sim.reports()
    sim.forget()
    work.wait()
    return b.tolist() == [2.0] * 100, found


def test_what_the_host_has_seen_is_told(pair):
    """A group has its own context, so the driver cannot see that the host has asked it."""
    assert pair.run(_polled, True) == [(True, [])] * 2
    for right, found in pair.run(_polled, False):
        assert right and found and found[0].startswith("race: "), found


def _leaks(rank):
    dist.all_reduce(torch.ones(3, device="sim"))
    dist.destroy_process_group()
    return sim.leaks()


def test_groups_give_everything_back(pair):
    """The last test of the module: the ranks have no group any more."""
    assert pair.checked(_leaks) == [[], []]
