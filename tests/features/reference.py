"""A small model, its data, and its training in one process, with which the ranks' results are compared."""
import copy
import re

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh

STEPS, BATCH, WIDTH = 3, 12, 16  # BATCH is the batch size of all ranks together: 2, 3 and 4 divide it

_meshes = {}


def mesh(*shape, names=None):
    """Returns the CPU mesh of this shape, made once, since torch's caches keep the first of equal meshes."""
    key = shape, names
    if key not in _meshes:
        _meshes[key] = init_device_mesh("cpu", shape, mesh_dim_names=names)
    return _meshes[key]


def build(seed=0, width=WIDTH):
    """Returns three linear layers of sizes that no number of ranks divides evenly."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(width, 29), nn.Tanh(), nn.Linear(29, 13), nn.Tanh(), nn.Linear(13, 4))


def batch(step, rows=BATCH, width=WIDTH):
    """Returns the inputs (rows, width) and targets (rows, 4) of one step, for all ranks together."""
    generator = torch.Generator().manual_seed(1000 + step)
    return torch.randn(rows, width, generator=generator), torch.randn(rows, 4, generator=generator)


def share(tensor, group=None):
    """Returns this rank's equal part of the rows."""
    return tensor.tensor_split(dist.get_world_size(group))[dist.get_rank(group)]


def sgd(model, lr=0.1, **options):
    return torch.optim.SGD(model.parameters(), lr=lr, **options)


def loss_of(output, target):
    return nn.functional.mse_loss(output, target)


def train(model, optimizer, steps=STEPS, part=share):
    """Trains the given number of steps, each on part(batch); returns the losses."""
    losses = []
    for step in range(steps):
        inputs, targets = batch(step)
        loss = loss_of(model(part(inputs)), part(targets))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return [loss.item() for loss in losses]  # on a device the host waits only here


def alone(model, make_optimizer=sgd, steps=STEPS):
    """Returns a copy of the model after training on whole batches in this process, and its losses."""
    model = copy.deepcopy(model)
    return model, train(model, make_optimizer(model), steps, part=lambda rows: rows)


def whole(tensor):
    """Returns the full value of a tensor or DTensor, without its history."""
    tensor = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    return tensor.detach()


def close(have, want, tolerance=1e-5, what="tensor"):
    """Checks that have and want have the same shape and differ by at most tolerance, absolute and relative.

    Tolerance 0 requires equal values.
    """
    have, want = whole(have).cpu(), whole(want).cpu()
    torch.testing.assert_close(have.to(want.dtype), want, rtol=tolerance, atol=tolerance,
                               msg=lambda text: f"{what}: {text}")


def same_parameters(have, want, tolerance=1e-5):
    """Checks that all parameters and buffers of two models of the same structure are close.

    DTensors and plain tensors may be mixed.
    """
    have, want = dict(have.state_dict()), dict(want.state_dict())
    assert have.keys() == want.keys(), (have.keys(), want.keys())
    for name in want:
        close(have[name], want[name], tolerance, name)


def same_gradients(have, want, tolerance=1e-5):
    for (name, a), (_, b) in zip(have.named_parameters(), want.named_parameters(), strict=True):
        assert (a.grad is None) == (b.grad is None), f"{name}: one of the gradients is missing"
        if b.grad is not None:
            close(a.grad, b.grad, tolerance, f"gradient of {name}")


def same_everywhere(tensor, what="tensor", group=None):
    """Checks that all ranks of the group hold the same bits."""
    tensor = whole(tensor).contiguous()
    parts = [torch.empty_like(tensor) for _ in range(dist.get_world_size(group))]
    dist.all_gather(parts, tensor, group=group)
    for rank, part in enumerate(parts):
        close(part, tensor, 0, f"{what} of rank {rank}")


def refused(pattern, function, *args, error=Exception, **kwargs):
    """Checks that function raises error with a message that matches pattern."""
    try:
        function(*args, **kwargs)
    except error as raised:
        assert re.search(pattern, str(raised)), f"another message than {pattern!r}: {raised}"
        return
    raise AssertionError(f"nothing was raised where {pattern!r} was expected")
