"""Tensor parallel with sequence parallel: every rank sees every image, and computes a part of each layer.

    torchrun --nproc-per-node 2 examples/tensor_parallel.py
    torchrun --nproc-per-node 2 examples/tensor_parallel.py --device cuda   # both ranks on one GPU, if there is one
    python examples/tensor_parallel.py                                      # one process, no communication: the same losses

A small transformer reads scikit-learn's handwritten digits row by row: 8 tokens an image. Column-wise layers are split
by their outputs, so that each rank has some heads of attention and some units of the layer after it. The row-wise layer
that follows is split by its inputs, and sums over ranks. No data is sent between the two. In layers that treat every
token separately (norms, additions) each rank has some of the tokens. This is sequence parallel; it makes the sum a
reduce-scatter and the way back an all-gather.
"""
import time

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (ColwiseParallel, PrepareModuleInput, RowwiseParallel, SequenceParallel,
                                               parallelize_module)
from torch.nn.functional import cross_entropy, scaled_dot_product_attention

import launch

WIDTH, HEADS, LAYERS = 64, 4, 2  # heads and the 8 tokens must be divisible by the number of ranks


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x):
        # -1: the number of heads that this rank has.
        q, k, v = (part.unflatten(-1, (-1, WIDTH // HEADS)).transpose(1, 2)
                   for part in (self.q(x), self.k(x), self.v(x)))
        return self.out(scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(WIDTH), Attention()
        self.norm2 = nn.LayerNorm(WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Reader(nn.Module):
    """Maps [images, 8 rows, 8 pixels] to scores of the ten digits."""

    def __init__(self):
        super().__init__()
        self.row, self.place = nn.Linear(8, WIDTH), nn.Parameter(torch.randn(8, WIDTH) / 8)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 10)

    def forward(self, images):
        x = self.blocks(self.row(images) + self.place)
        return self.head(self.norm(x).mean(1))


def parallelize(model, ranks, device):
    """Splits the layers over the ranks.

    The layouts specify where a tensor is whole and where its tokens (dimension 1) are split.
    """
    mesh = init_device_mesh(device.type, (ranks,))
    tokens, whole = Shard(1), Replicate()

    def change(before, after):
        return PrepareModuleInput(input_layouts=before, desired_input_layouts=after, use_local_output=True)

    plan = {"blocks": change(whole, tokens)}  # each rank keeps its tokens: communication only in backward
    for i in range(LAYERS):
        plan |= {
            f"blocks.{i}.norm1": SequenceParallel(use_local_output=True),
            f"blocks.{i}.attention": change(tokens, whole),  # an all-gather
            f"blocks.{i}.attention.q": ColwiseParallel(),
            f"blocks.{i}.attention.k": ColwiseParallel(),
            f"blocks.{i}.attention.v": ColwiseParallel(),
            f"blocks.{i}.attention.out": RowwiseParallel(output_layouts=tokens),  # a reduce-scatter
            f"blocks.{i}.norm2": SequenceParallel(use_local_output=True),
            f"blocks.{i}.mlp": change(tokens, whole),
            f"blocks.{i}.mlp.0": ColwiseParallel(),
            f"blocks.{i}.mlp.2": RowwiseParallel(output_layouts=tokens),
        }
    plan["norm"] = change(tokens, whole)  # all tokens, for the mean over them
    return parallelize_module(model, mesh, plan)


def train(steps=80, device=launch.CPU, batch=64, lr=0.02, seed=0):
    """Trains and reports."""
    ranks = dist.get_world_size() if dist.is_initialized() else 1
    if HEADS % ranks:
        raise ValueError(f"{HEADS} heads cannot be shared by {ranks} ranks")
    images, labels = (torch.tensor(part, device=device) for part in load_digits(return_X_y=True))
    images = images.float().view(-1, 8, 8) / 16

    torch.manual_seed(seed)  # the same weights on every rank, which keeps its part of them
    model = Reader().to(device)
    if ranks > 1:
        parallelize(model, ranks, device)
    # Not all parameters at once, which is the default on GPUs: some are whole and some are split.
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9, foreach=False)

    losses, start = [], time.perf_counter()
    dice = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        chosen = torch.randint(len(images), (batch,), generator=dice)  # the same images on every rank
        loss = cross_entropy(model(images[chosen]), labels[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    seconds = time.perf_counter() - start

    digests = launch.digests([torch.tensor(losses), *model.parameters()])
    return {"ranks": ranks, "losses": losses, "seconds": seconds, "digests": digests}


if __name__ == "__main__":
    launch.run(__doc__, train, steps=80)
