"""Two dimensions at once: FSDP2 between the rows of a mesh of ranks, tensor parallel inside each row.

    torchrun --nproc-per-node 4 examples/two_d_parallel.py    # 2 × 2; with --device cuda on one GPU, if there is one
    torchrun --nproc-per-node 2 examples/two_d_parallel.py    # 2 × 1: FSDP2 alone
    python examples/two_d_parallel.py                         # one process, no communication: the same losses

With several hosts a row is a host: tensor parallel, which sends the most data, stays inside a host. Ranks of one row
see the same part of the batch, and each computes a part of every layer; the weights of that part are sharded over the
ranks of a column. A mesh with names has the groups for both. The data: scikit-learn's handwritten digits.
"""
import time

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.functional import cross_entropy

import launch

WIDTH, LAYERS = 64, 3


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.down(self.up(self.norm(x)).relu())


def parallelize(model, mesh):
    """Applies tensor parallel first, then FSDP2 to the part of each layer that a rank still has."""
    for layer in model:
        if isinstance(layer, Block):
            parallelize_module(layer, mesh["tensor"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
            fully_shard(layer, mesh=mesh["data"])
    fully_shard(model, mesh=mesh["data"])


def train(steps=80, device=launch.CPU, batch=64, lr=0.02, seed=0):
    """Trains and reports. batch is the size of the global batch."""
    ranks = dist.get_world_size() if dist.is_initialized() else 1
    columns = 2 if ranks >= 4 and ranks % 2 == 0 else 1
    row, rows = 0, ranks // columns
    if batch % rows:
        raise ValueError(f"a batch of {batch} cannot be shared by {rows} rows")
    images, labels = (torch.tensor(part, device=device) for part in load_digits(return_X_y=True))
    images = images.float() / 16

    torch.manual_seed(seed)  # the same weights on every rank, which keeps its part of them
    model = nn.Sequential(nn.Linear(64, WIDTH), *(Block() for _ in range(LAYERS)), nn.Linear(WIDTH, 10)).to(device)
    if ranks > 1:
        mesh = init_device_mesh(device.type, (rows, columns), mesh_dim_names=("data", "tensor"))
        row = mesh["data"].get_local_rank()
        parallelize(model, mesh)
    # Not all parameters at once, which is the default on GPUs: they are split over different groups.
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9, foreach=False)

    losses, start = [], time.perf_counter()
    # Every rank draws the same random numbers, and takes the part of its row.
    dice = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        chosen = torch.randint(len(images), (batch,), generator=dice).chunk(rows)[row]
        loss = cross_entropy(model(images[chosen]), labels[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    launch.synchronize(device)
    seconds = time.perf_counter() - start

    losses = torch.stack(losses)
    if ranks > 1:
        # Each row has the losses of its parts.
        dist.all_reduce(losses, op=dist.ReduceOp.AVG, group=mesh["data"].get_group())
    return {"ranks": ranks, "mesh": [rows, columns], "losses": losses.tolist(), "seconds": seconds,
            "digests": launch.digests([losses])}


if __name__ == "__main__":
    launch.run(__doc__, train, steps=80, more=lambda report: ", on a mesh of {} × {}".format(*report["mesh"]))
