"""Differentiable collectives: torch.distributed.nn.functional and functional collectives; values and gradients."""
import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
import torch.distributed.nn.functional as differentiable
import torch.nn as nn
from reference import close, refused


def world_of():
    return {"group": dist.group.WORLD}  # the default argument would be the group at import time


def inputs(rank, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(rank))


def weights(rank, *shape):
    """Returns the factors of a rank's output values in its loss; all differ, so that every gradient differs."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(100 + rank))


def gather_to_one(x, rank, size):
    parts = differentiable.gather(x, dst=size - 1, **world_of())
    return torch.stack(parts) if rank == size - 1 else torch.stack(parts) * 0


# For each name the call of a rank, and a function from all ranks' inputs to all ranks' outputs. Every input is (2 ·
# size, 3).
CALLS = {
    "all_reduce": (lambda x, rank, size: differentiable.all_reduce(x, **world_of()), lambda xs: [sum(xs)] * len(xs)),
    "broadcast": (lambda x, rank, size: differentiable.broadcast(x, 1, **world_of()), lambda xs: [xs[1]] * len(xs)),
    "reduce": (lambda x, rank, size: differentiable.reduce(x, 0, **world_of()) * (rank == 0),
               lambda xs: [sum(xs)] + [xs[0] * 0] * (len(xs) - 1)),
    "all_gather": (lambda x, rank, size: torch.stack(differentiable.all_gather(x, **world_of())),
                   lambda xs: [torch.stack(xs)] * len(xs)),
    "gather": (gather_to_one, lambda xs: [torch.stack(xs) * 0] * (len(xs) - 1) + [torch.stack(xs)]),
    "scatter": (lambda x, rank, size: differentiable.scatter(list(x.chunk(size)), 0, **world_of()),
                lambda xs: list(xs[0].chunk(len(xs)))),
    "reduce_scatter": (lambda x, rank, size: differentiable.reduce_scatter(torch.empty(2, 3), list(x.chunk(size)),
                                                                           **world_of()),
                       lambda xs: list(sum(xs).chunk(len(xs)))),
    "all_to_all": (lambda x, rank, size: torch.cat(differentiable.all_to_all(
                       [torch.empty(2, 3) for _ in range(size)], list(x.chunk(size)), **world_of())),
                   lambda xs: [torch.cat([x.chunk(len(xs))[r] for x in xs]) for r in range(len(xs))]),
    "all_to_all_single": (lambda x, rank, size: differentiable.all_to_all_single(torch.empty_like(x), x, **world_of()),
                          lambda xs: [torch.cat([x.chunk(len(xs))[r] for x in xs]) for r in range(len(xs))]),
    "funcol.all_gather": (lambda x, rank, size: funcol.all_gather_tensor_autograd(x, 0, dist.group.WORLD),
                          lambda xs: [torch.cat(xs)] * len(xs)),
    "funcol.all_gather on 1": (lambda x, rank, size: funcol.all_gather_tensor_autograd(x, 1, dist.group.WORLD),
                               lambda xs: [torch.cat(xs, 1)] * len(xs)),
    "funcol.reduce_scatter": (
        lambda x, rank, size: funcol.reduce_scatter_tensor_autograd(x, "sum", 0, dist.group.WORLD),
        lambda xs: list(sum(xs).chunk(len(xs)))),
    "funcol.all_to_all": (lambda x, rank, size: funcol.all_to_all_single_autograd(x, None, None, dist.group.WORLD),
                          lambda xs: [torch.cat([x.chunk(len(xs))[r] for x in xs]) for r in range(len(xs))]),
}


def differentiates(rank, name):
    call, everyone = CALLS[name]
    size = dist.get_world_size()
    plain = [inputs(r, 2 * size, 3).requires_grad_() for r in range(size)]
    wanted = everyone(plain)
    sum((output * weights(r, *output.shape)).sum() for r, output in enumerate(wanted)).backward()
    mine = inputs(rank, 2 * size, 3).requires_grad_()
    output = call(mine, rank, size)
    close(output, wanted[rank], 1e-5, "output")
    (output * weights(rank, *output.shape)).sum().backward()
    expected = plain[rank].grad if plain[rank].grad is not None else torch.zeros_like(mine)
    close(mine.grad, expected, 1e-5, "gradient")


@pytest.mark.parametrize("name", CALLS)
def test_differentiable(world, name):
    world.run(differentiates, name)


def base_gather(rank):
    """_all_gather_base has a backward pass only for NCCL: torch/distributed/nn/functional.py, _AllGatherBase."""
    size = dist.get_world_size()
    mine = inputs(rank, 3).requires_grad_()
    output = differentiable._all_gather_base(torch.empty(3 * size), mine, **world_of())
    close(output, torch.cat([inputs(r, 3) for r in range(size)]), 0)
    refused("Backend not supported!", output.sum().backward)


def test_all_gather_base(world):
    world.run(base_gather)


def contrastive(rank):
    """A loss over all pairs of a batch that is spread over the ranks, as in CLIP: gradients pass through the gather."""
    size = dist.get_world_size()
    torch.manual_seed(0)
    encoder = nn.Linear(6, 4)
    rows = [inputs(r, 5, 6) for r in range(size)]

    def loss(features):
        features = nn.functional.normalize(features, dim=1)
        return nn.functional.cross_entropy(features @ features.t() * 5, torch.arange(len(features)))
    gathered = torch.cat(differentiable.all_gather(encoder(rows[rank]), **world_of()))
    loss(gathered).backward()
    mine = encoder.weight.grad.clone()
    dist.all_reduce(mine, dist.ReduceOp.AVG)
    encoder.zero_grad()
    loss(encoder(torch.cat(rows))).backward()
    # Each rank's loss is that of the whole batch, so the gather's backward adds size equal parts.
    close(mine, encoder.weight.grad, 1e-4)


def test_contrastive_loss(world):
    world.run(contrastive)


def normalizes(rank):
    # forward of torch/nn/modules/batchnorm.py accepts only CUDA and similar devices; DDP also refuses such modules on
    # CPU.
    norm = nn.SyncBatchNorm.convert_sync_batchnorm(nn.BatchNorm1d(4))
    refused("expected input tensor to be on|SyncBatchNorm expected", norm, inputs(rank, 5, 4))
    refused("SyncBatchNorm layers only work with GPU modules", nn.parallel.DistributedDataParallel, norm)
    norm.eval()
    close(norm(inputs(rank, 5, 4)), nn.BatchNorm1d(4).eval()(inputs(rank, 5, 4)))


def test_sync_batch_norm_is_refused_on_cpu(pair):
    pair.run(normalizes)


def normalizes_directly(rank):
    """The communication of SyncBatchNorm: sizes, means and deviations in one gather.

    The output has another shape than the inputs.
    """
    size = dist.get_world_size()
    everyone = [inputs(r, 3 + r, 4) for r in range(size)]
    mine = everyone[rank]
    sent = torch.cat([mine.mean(0), mine.var(0, unbiased=False), torch.tensor([float(len(mine))])])
    arrived = torch.empty(1, size * 9)
    dist.all_gather_into_tensor(arrived, sent)
    mean, variance, count = arrived.view(size, 9).split([4, 4, 1], dim=1)
    total = (mean * count).sum(0) / count.sum()
    spread = ((variance + (mean - total) ** 2) * count).sum(0) / count.sum()
    whole = torch.cat(everyone)
    close(total, whole.mean(0), 1e-5)
    close(spread, whole.var(0, unbiased=False), 1e-5)


def test_statistics_of_sync_batch_norm(world):
    world.run(normalizes_directly)
