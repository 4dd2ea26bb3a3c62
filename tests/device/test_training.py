"""DistributedDataParallel, FSDP2, DTensor and DeviceMesh on a device, against the same training in one process."""
import copy

import pytest
import reference
import sim
import torch
import torch.distributed as dist
from reference import build
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel


def train(model):
    """Trains on this rank's part of the batches, which is on the device."""
    reference.train(model, adam(model), part=lambda rows: reference.share(rows).to("sim"))


def adam(model):
    return torch.optim.AdamW(model.parameters(), lr=0.01)


def same(found, tolerance=1e-5):
    wanted, _ = reference.alone(build(), adam)
    reference.same_parameters(found, wanted, tolerance)


def _ddp(rank, options):
    bucket = {"bucket_cap_mb": 0.001}  # several buckets
    model = DistributedDataParallel(build().to("sim"), device_ids=[0], **bucket, **options)
    train(model)
    same(model.module)


@pytest.mark.parametrize("options", [{}, {"gradient_as_bucket_view": True}, {"static_graph": True}], ids=str)
def test_ddp(pair, quartet, options):
    pair.checked(_ddp, options)
    quartet.checked(_ddp, options)


def _ddp_hook(rank):
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    model = DistributedDataParallel(build().to("sim"), device_ids=[0], bucket_cap_mb=0.001)
    model.register_comm_hook(None, default_hooks.bf16_compress_hook)
    train(model)
    same(model.module, 2e-2)


def test_ddp_hook(pair):
    pair.checked(_ddp_hook)


def _fsdp(rank, options):
    model = build().to("sim")
    mesh = init_device_mesh("sim", (dist.get_world_size(),))
    for layer in model:
        if isinstance(layer, torch.nn.Linear):
            fully_shard(layer, mesh=mesh, **options)
    fully_shard(model, mesh=mesh, **options)
    mixed = "mp_policy" in options
    with sim.lenient():
        train(model)
        same(model, 2e-2 if mixed else 1e-5)


@pytest.mark.parametrize("options", [
    {}, {"reshard_after_forward": False},
    {"mp_policy": MixedPrecisionPolicy(torch.bfloat16, torch.float32, torch.float32)}], ids=["f32", "stay", "bf16"])
def test_fsdp2(pair, quartet, options):
    pair.checked(_fsdp, options)
    quartet.checked(_fsdp, options)


def _dtensor(rank):
    mesh = init_device_mesh("sim", (2, 2), mesh_dim_names=("dp", "tp"))
    torch.manual_seed(1)
    a, b = torch.randn(8, 6), torch.randn(6, 4)
    x = distribute_tensor(a.to("sim"), mesh, [Shard(0), Replicate()])
    w = distribute_tensor(b.to("sim"), mesh, [Replicate(), Shard(1)])
    y = (x @ w).redistribute(mesh, [Replicate(), Replicate()])
    torch.testing.assert_close(y.to_local().cpu(), a @ b)
    total = (x @ w).sum().full_tensor()
    torch.testing.assert_close(total.cpu(), (a @ b).sum())
    t = torch.full((3,), float(rank), device="sim")
    dist.all_reduce(t, group=mesh.get_group("tp"))
    assert t.tolist() == [1.0 if rank < 2 else 5.0] * 3


def test_mesh_and_dtensor(quartet):
    quartet.checked(_dtensor)


def _functional(rank):
    import torch.distributed._functional_collectives as collectives

    t = torch.full((4,), rank + 1.0, device="sim")
    n = dist.get_world_size()
    assert collectives.all_reduce(t, "sum", dist.group.WORLD).cpu().tolist() == [n * (n + 1) / 2] * 4
    gathered = collectives.all_gather_tensor(t, 0, dist.group.WORLD)
    assert collectives.wait_tensor(gathered).cpu().tolist() == [r + 1.0 for r in range(n) for _ in range(4)]


def test_functional_collectives(pair):
    pair.checked(_functional)


def _copy(rank):
    """A model that was trained and copied has its parameters' values on every rank."""
    model = copy.deepcopy(build().to("sim"))
    for p in model.parameters():
        with torch.no_grad():
            p.mul_(rank + 1)
        dist.broadcast(p.data, 0)
    same_as = build()
    for p, q in zip(model.parameters(), same_as.parameters(), strict=True):
        torch.testing.assert_close(p.cpu(), q)


def test_broadcast_of_parameters(pair):
    pair.checked(_copy)
