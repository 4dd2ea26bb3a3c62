"""Tensor and sequence parallel layers, also together with FSDP2, compared with one process."""
import copy

import pytest
import torch
import torch.distributed as dist
import torch.nn as nn
from reference import close, loss_of, mesh, same_gradients
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (ColwiseParallel, PrepareModuleInput, PrepareModuleInputOutput,
                                               PrepareModuleOutput, RowwiseParallel, SequenceParallel, loss_parallel,
                                               parallelize_module)

WORDS, WIDTH, LENGTH = 48, 24, 12


class Block(nn.Module):
    """A transformer block around the heads, which are in Attention."""

    def __init__(self):
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(WIDTH), Attention()
        self.up, self.down = nn.Linear(WIDTH, 48), nn.Linear(48, WIDTH)

    def forward(self, rows):
        rows = rows + self.attention(self.norm(rows))
        return rows + self.down(torch.relu(self.up(rows)))


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, rows):
        heads = [layer(rows).unflatten(-1, (-1, 2)).transpose(1, 2) for layer in (self.query, self.key, self.value)]
        return self.out(nn.functional.scaled_dot_product_attention(*heads, is_causal=True).transpose(1, 2).flatten(2))


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.blocks = nn.Embedding(WORDS, WIDTH), nn.ModuleList(Block() for _ in range(2))
        self.norm, self.out = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS)

    def forward(self, words):
        rows = self.words(words)
        for block in self.blocks:
            rows = block(rows)
        return self.out(self.norm(rows))


def made():
    torch.manual_seed(0)
    return Transformer()


def words(seed=0, rows=4):
    return torch.randint(0, WORDS, (rows, LENGTH), generator=torch.Generator().manual_seed(seed))


def megatron(model, over):
    """Column-wise, then row-wise layers: activations are whole between the layers."""
    parallelize_module(model, over, {"words": RowwiseParallel(input_layouts=Replicate()),
                                     "out": ColwiseParallel(output_layouts=Replicate())})
    for block in model.blocks:
        columns = {f"attention.{name}": ColwiseParallel() for name in ("query", "key", "value")}
        parallelize_module(block, over, {**columns, "attention.out": RowwiseParallel(), "up": ColwiseParallel(),
                                         "down": RowwiseParallel()})


def sequence(model, over):
    """Between the layers the sequence is sharded over the ranks.

    It is gathered before column-wise layers, reduced and scattered after row-wise ones.
    """
    parallelize_module(model, over, {"words": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
                                     "norm": SequenceParallel(),
                                     "out": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate())})
    for block in model.blocks:
        columns = {f"attention.{name}": ColwiseParallel() for name in ("query", "key", "value")}
        parallelize_module(block, over, {
            "norm": SequenceParallel(),
            "attention": PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)),
            **columns, "attention.out": RowwiseParallel(output_layouts=Shard(1)),
            "up": ColwiseParallel(input_layouts=Shard(1)), "down": RowwiseParallel(output_layouts=Shard(1))})


PLANS = {"megatron": megatron, "sequence": sequence}


def parallel(rank, plan):
    want, have = made(), made()
    PLANS[plan](have, mesh(dist.get_world_size()))
    for model in (want, have):
        nn.functional.cross_entropy(model(words()).flatten(0, 1), words(1).flatten()).backward()
    close(have(words()), want(words()), 1e-4, "output")
    same_gradients(have, want, 1e-4)
    sharded = [name for name, parameter in have.named_parameters()
               if isinstance(parameter, DTensor) and any(isinstance(place, Shard) for place in parameter.placements)]
    assert len(sharded) >= 17, sharded


@pytest.mark.parametrize("plan", PLANS)
def test_transformer(world, plan):
    world.run(parallel, plan)


def loss(rank):
    """The logits stay sharded over the words, and so does the gradient of the loss."""
    want, have = made(), made()
    megatron(have, mesh(dist.get_world_size()))
    parallelize_module(have, mesh(dist.get_world_size()), {})
    last = copy.deepcopy(want.out)
    have.out = parallelize_module(last, mesh(dist.get_world_size()),
                                  ColwiseParallel(output_layouts=Shard(-1), use_local_output=False))
    nn.functional.cross_entropy(want(words()).flatten(0, 1), words(1).flatten()).backward()
    with loss_parallel():
        nn.functional.cross_entropy(have(words()).flatten(0, 1), words(1).flatten()).backward()
    same_gradients(have, want, 1e-4)


def test_loss_parallel(world):
    world.run(loss)


def prepared(rank):
    """PrepareModuleInput, PrepareModuleOutput and both in one lay out tensors as layers need them."""
    over = mesh(dist.get_world_size())
    inputs = torch.randn(12, 8, generator=torch.Generator().manual_seed(1))
    mine = inputs.tensor_split(dist.get_world_size())[rank]

    class Doubled(nn.Module):
        def forward(self, rows, factor=None):
            assert rows.placements == (Shard(1),), rows.placements
            return rows * factor if factor is not None else rows * 2

    into = {"input_layouts": (Shard(0), None), "desired_input_layouts": (Shard(1), None)}
    out = {"output_layouts": (Shard(1),), "desired_output_layouts": (Shard(0),)}
    styles = [[PrepareModuleInput(**into), PrepareModuleOutput(**out)], [PrepareModuleInputOutput(**into, **out)]]
    for chain in styles:
        model = Doubled()
        for style in chain:
            model = parallelize_module(model, over, style)
        source = mine.clone().requires_grad_()
        have = model(source, None)
        close(have, 2 * mine, 0)
        have.sum().backward()
        close(source.grad, torch.full_like(mine, 2.0), 0)
    model = parallelize_module(Doubled(), over, PrepareModuleInput(
        input_kwarg_layouts={"rows": Shard(0)}, desired_input_kwarg_layouts={"rows": Shard(1)}, use_local_output=False))
    close(model(rows=mine), 2 * inputs, 0)


def test_prepare_module(world):
    world.run(prepared)


def with_data(rank, plan):
    """Two dimensions: tensor parallel within pairs, FSDP2 across them."""
    grid = mesh(2, 2, names=("data", "tensor"))
    want, have = made(), made()
    PLANS[plan](have, grid["tensor"])
    for block in have.blocks:
        fully_shard(block, mesh=grid["data"])
    fully_shard(have, mesh=grid["data"])
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in (want, have)]
    for step in range(2):
        inputs, targets = words(step), words(10 + step)
        part = grid["data"].get_local_rank()
        for optimizer in optimizers:
            optimizer.zero_grad()
        nn.functional.cross_entropy(want(inputs).flatten(0, 1), targets.flatten()).backward()
        nn.functional.cross_entropy(have(inputs.chunk(2)[part]).flatten(0, 1),
                                    targets.chunk(2)[part].flatten()).backward()
        same_gradients(have, want, 1e-4)
        # Otherwise the gradients of the norms have another mesh than the others, and clip_grad_norm_ cannot combine
        # them.
        if plan == "sequence":
            norms = [nn.utils.clip_grad_norm_(model.parameters(), 1.0) for model in (have, want)]
            close(norms[0], norms[1], 1e-4, "norm")
        for optimizer in optimizers:
            optimizer.step()


@pytest.mark.parametrize("plan", PLANS)
def test_with_fsdp(quartet, plan):
    quartet.run(with_data, plan)


def with_replicas(rank):
    """Tensor parallel within pairs, data parallel across them: gradients are averaged explicitly, on local tensors."""
    grid = mesh(2, 2, names=("data", "tensor"))
    torch.manual_seed(0)
    want = nn.Sequential(nn.Linear(8, 12), nn.ReLU(), nn.Linear(12, 4))
    have = parallelize_module(copy.deepcopy(want), grid["tensor"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    inputs, targets = torch.randn(8, 8), torch.randn(8, 4)
    part = grid["data"].get_local_rank()
    loss_of(want(inputs), targets).backward()
    loss_of(have(inputs.chunk(2)[part]), targets.chunk(2)[part]).backward()
    for parameter in have.parameters():
        dist.all_reduce(parameter.grad.to_local(), dist.ReduceOp.AVG, group=grid.get_group("data"))
    same_gradients(have, want)


def test_with_replicas(quartet):
    quartet.run(with_replicas)
