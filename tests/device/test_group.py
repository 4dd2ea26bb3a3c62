"""What a group and the simulated device have to do with each other."""
import copy

import sim
import torch
import torch.distributed as dist
from common import until


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


def test_groups_give_everything_back(worlds):
    """Ranks of their own, which have no group any more afterwards."""
    assert worlds(2).checked(_leaks) == [[], []]
