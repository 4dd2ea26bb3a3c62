"""DTensor: redistribution, partial values, operators, random numbers and losses on sharded tensors.

The results are compared with those of plain tensors.
"""
import copy
import itertools

import pytest
import torch
import torch.distributed as dist
import torch.nn as nn
from common import TORCH
from reference import build, close, mesh, refused, same_everywhere
from torch.distributed.tensor import (DTensor, Partial, Replicate, Shard, distribute_module, distribute_tensor, empty,
                                      full, ones, rand, randn, zeros)
from torch.distributed.tensor._random import is_rng_supported_mesh
from torch.distributed.tensor.experimental import local_map
from torch.distributed.tensor.parallel import loss_parallel


def numbers(*shape, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def line():
    return mesh(dist.get_world_size())


def moves(rank, shape, dtype):
    """Redistributes from every placement to every other, and back to the whole."""
    value = (numbers(*shape) * 10).to(dtype)
    places = [Replicate(), *(Shard(dim) for dim in range(len(shape)))]
    for before, after in itertools.product(places, places):
        start = distribute_tensor(value, line(), [before])
        close(start.redistribute(placements=[after]), value, 0, f"{before} to {after}")
        close(start.redistribute(placements=[after], async_op=True), value, 0, f"{before} to {after}, async")


@pytest.mark.parametrize("shape", [(12, 24), (7, 5, 3), (1, 2), (3,), (0, 4)],
                         ids=lambda shape: "x".join(map(str, shape)))
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool, torch.bfloat16],
                         ids=lambda dtype: str(dtype)[6:])
def test_redistribute(world, shape, dtype):
    world.run(moves, shape, dtype)


# The combination of all ranks' values, which are stacked on dimension 0.
PARTIALS = {
    "sum": lambda values: values.sum(0),
    "avg": lambda values: values.mean(0),
    "max": lambda values: values.amax(0),
    "min": lambda values: values.amin(0),
    "product": lambda values: values.prod(0),
}


def reduces(rank, kind, shape):
    everyone = torch.stack([numbers(*shape, seed=r) for r in range(dist.get_world_size())])
    want = PARTIALS[kind](everyone)
    start = DTensor.from_local(everyone[rank].clone(), line(), [Partial(kind)])
    for after in [Replicate(), *(Shard(dim) for dim in range(len(shape)))]:
        have = start.redistribute(placements=[after])
        close(have, want, 1e-5, f"Partial({kind}) to {after}")
        close(DTensor.from_local(everyone[rank].clone(), line(), [Partial(kind)]), want, 1e-5, "full_tensor")


@pytest.mark.parametrize("kind", PARTIALS)
@pytest.mark.parametrize("shape", [(12, 8), (7, 5)], ids=["even", "uneven"])
def test_partial(world, kind, shape):
    world.run(reduces, kind, shape)


def grid_moves(rank, rows, columns):
    """Redistributes from every pair of placements to every other on a mesh of two dimensions, also partial sums."""
    grid = mesh(2, 2, names=("a", "b"))
    value = numbers(rows, columns)
    places = list(itertools.product([Replicate(), Shard(0), Shard(1)], repeat=2))
    for before, after in itertools.product(places, places):
        close(distribute_tensor(value, grid, before).redistribute(placements=after), value, 0, f"{before} to {after}")
    everyone = [numbers(rows, columns, seed=r) for r in range(4)]
    for after in places:
        close(DTensor.from_local(everyone[rank], grid, [Partial(), Partial()]).redistribute(placements=after),
              sum(everyone), 1e-5, f"sums to {after}")


@pytest.mark.parametrize("rows, columns", [(12, 20), (5, 7)], ids=["even", "uneven"])
def test_two_dimensions(quartet, rows, columns):
    quartet.run(grid_moves, rows, columns)


def gradients(rank):
    """redistribute, full_tensor and from_local are differentiable."""
    value = numbers(12, 6)
    for before, after in itertools.product([Replicate(), Shard(0), Shard(1)], repeat=2):
        start = distribute_tensor(value, line(), [before]).requires_grad_()
        start.redistribute(placements=[after]).pow(2).sum().backward()
        close(start.grad, 2 * value, 1e-5, f"{before} to {after}")
    local = numbers(3, 4, seed=rank).requires_grad_()
    DTensor.from_local(local, line(), [Shard(0)]).full_tensor().pow(3).sum().backward()
    close(local.grad, 3 * local.detach() ** 2, 1e-4, "full_tensor")


def test_gradients(world):
    world.run(gradients)


OPERATORS = {
    "matmul": lambda a, b: a @ b,
    "addmm": lambda a, b: torch.addmm(a, a, b),
    "einsum": lambda a, b: torch.einsum("ij,kj->ik", a, b),
    "add": lambda a, b: a + b,
    "where": lambda a, b: torch.where(a > b, a, b),
    "softmax": lambda a, b: torch.softmax(a * b, -1),
    "mean": lambda a, b: (a * b).mean(0),
    "norm": lambda a, b: torch.linalg.vector_norm(a * b),
    "max": lambda a, b: (a - b).amax(1),
    "cat": lambda a, b: torch.cat([a, b]),
    "layer_norm": lambda a, b: torch.nn.functional.layer_norm(a * b, (12,)),
    "transpose": lambda a, b: (a + b).t().reshape(24, 6),
}


def operates(rank, name):
    """Calls the operator on operands with every placement."""
    operator = OPERATORS[name]
    a, b = numbers(12, 12, seed=1), numbers(12, 12, seed=2)
    for left, right in itertools.product([Replicate(), Shard(0), Shard(1)], repeat=2):
        have = operator(distribute_tensor(a, line(), [left]), distribute_tensor(b, line(), [right]))
        close(have, operator(a, b), 1e-4, f"{left}, {right}")


@pytest.mark.parametrize("name", OPERATORS)
def test_operators(world, name):
    if name == "transpose" and TORCH < (2, 13):
        pytest.skip(f"DTensor of torch {torch.__version__} does not flatten all dimensions that are sharded")
    world.run(operates, name)


def factories(rank):
    """Makes tensors as DTensors. Random ones need a device whose generator DTensor can set, which the CPU is not."""
    over = line()
    close(full((3, 5), 2.5, device_mesh=over, placements=[Shard(0)]), torch.full((3, 5), 2.5), 0)
    close(zeros(5, 3, device_mesh=over, placements=[Shard(1)]), torch.zeros(5, 3), 0)
    assert empty(12, 3, device_mesh=over, placements=[Shard(0)]).to_local().shape == (12 // over.size(), 3)
    # torch/distributed/tensor/_random.py: is_rng_supported_mesh needs get_rng_state of the device's module, which
    # torch.cpu lacks.
    if not is_rng_supported_mesh(over):
        for make in (rand, randn):
            refused("", make, 8, 4, device_mesh=over, placements=[Shard(0)], error=AssertionError)
    dropped = nn.functional.dropout(ones(4 * over.size(), 64, device_mesh=over, placements=[Shard(0)]),
                                    0.5).full_tensor()
    same_everywhere(dropped, "dropout")
    assert 0.3 < (dropped == 0).float().mean() < 0.7 and set(dropped.unique().tolist()) == {0.0, 2.0}


def test_factories(world):
    world.run(factories)


def modules(rank):
    """distribute_module broadcasts and shards rank 0's parameters; inputs and outputs pass through its functions."""
    def shards(name, module, over):
        for key, parameter in list(module.named_parameters(recurse=False)):
            module.register_parameter(key, nn.Parameter(distribute_tensor(parameter, over, [Shard(0)])))

    want = build(seed=0)
    have = distribute_module(build(seed=rank), line(), shards,
                             input_fn=lambda module, inputs, over: distribute_tensor(inputs[0], over, [Replicate()]),
                             output_fn=lambda module, outputs, over: outputs.full_tensor())
    for mine, expected in zip(have.parameters(), want.parameters()):
        close(mine, expected, 0)
    inputs = numbers(5, 16)
    close(have(inputs), want(inputs), 1e-5)


def test_distribute_module(world):
    world.run(modules)


def losses(rank, weighted):
    """Computes the cross entropy over classes that are spread over the ranks."""
    logits, target = numbers(6, 8 * dist.get_world_size()), torch.arange(6) * 3 % 8
    weight = torch.linspace(0.5, 2, logits.shape[1]) if weighted else None
    for reduction in ("mean", "sum", "none"):
        plain = logits.clone().requires_grad_()
        want = nn.functional.cross_entropy(plain, target, weight, reduction=reduction)
        want.sum().backward()
        mine = distribute_tensor(logits, line(), [Shard(1)]).requires_grad_()
        with loss_parallel():
            have = nn.functional.cross_entropy(mine, target, weight, reduction=reduction)
            (have if reduction != "none" else have.sum()).backward()
        close(have, want, 1e-5, reduction)
        close(mine.grad, plain.grad, 1e-5, f"gradient, {reduction}")
        assert mine.grad.placements == (Shard(1),)


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
def test_loss_parallel(world, weighted):
    world.run(losses, weighted)


def mapped(rank):
    """local_map applies a function of local tensors to DTensors, with a partial result."""
    def product(a, b):
        return a @ b
    a, b = numbers(6, 12, seed=1), numbers(12, 8, seed=2)
    over = line()
    run = local_map(product, out_placements=[Partial()], in_placements=([Shard(1)], [Shard(0)]), device_mesh=over)
    close(run(distribute_tensor(a, over, [Shard(1)]), distribute_tensor(b, over, [Shard(0)])), a @ b, 1e-5)


def test_local_map(world):
    world.run(mapped)


def optimizers(rank):
    """An optimizer on DTensors, with clipping of the norm, gives the same as on plain tensors, also after a copy."""
    foreach = False if TORCH < (2, 12) else None  # torch 2.11 scales only those that are sharded like the first

    def trained(parameters):
        optimizer = torch.optim.AdamW(parameters, lr=0.01)
        for _ in range(3):
            optimizer.zero_grad()
            (parameters[0] @ parameters[1]).pow(2).sum().backward()
            nn.utils.clip_grad_norm_(parameters, 1.0, foreach=foreach)
            optimizer.step()
        return parameters
    values = [numbers(12, 8, seed=1), numbers(8, 12, seed=2)]
    want = trained([nn.Parameter(value.clone()) for value in values])
    have = trained([nn.Parameter(distribute_tensor(value, line(), [Shard(dim)])) for dim, value in enumerate(values)])
    for mine, expected in zip(copy.deepcopy(have), want):
        close(mine, expected, 1e-4)


def test_optimizers(world):
    world.run(optimizers)
