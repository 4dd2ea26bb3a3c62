"""Fully sharded data parallel (FSDP2): each rank keeps a part of weights, gradients, optimizer state and checkpoint.

    torchrun --nproc-per-node 2 examples/fsdp2.py
    torchrun --nproc-per-node 2 examples/fsdp2.py --bf16             # computes in bfloat16; weights and sums in float32
    torchrun --nproc-per-node 2 examples/fsdp2.py --folder ckpt      # keeps the checkpoint that is written half-way …
    torchrun --nproc-per-node 4 examples/fsdp2.py --folder ckpt --resume  # … from which any number of ranks continues
    torchrun --nproc-per-node 2 examples/fsdp2.py --device cuda      # both ranks on one GPU, if there is one
    python examples/fsdp2.py                                         # one process, no communication: the same losses

Before a block runs, its weights are all-gathered; after its backward the gradients are reduce-scattered, so that each
rank gets the mean of the part that it keeps. Nothing else of the training loop changes. The data: scikit-learn's
handwritten digits.
"""
import tempfile
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from sklearn.datasets import load_digits
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.functional import cross_entropy

import launch

WIDTH, LAYERS = 96, 4


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(),
                                   nn.Linear(2 * WIDTH, WIDTH))

    def forward(self, x):
        return x + self.inner(x)


def build(ranks, device, bf16, lr, seed):
    """Returns the model, sharded if there is more than one rank, and its optimizer."""
    torch.manual_seed(seed)  # the same weights on every rank, of which each keeps its part
    model = nn.Sequential(nn.Linear(64, WIDTH), *(Block() for _ in range(LAYERS)), nn.Linear(WIDTH, 10)).to(device)
    if ranks > 1:
        mesh = init_device_mesh(device.type, (ranks,))
        policy = (MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32) if bf16
                  else MixedPrecisionPolicy())
        for layer in model:
            if isinstance(layer, Block):  # a unit of communication: only the block that runs has whole weights
                fully_shard(layer, mesh=mesh, mp_policy=policy)
        fully_shard(model, mesh=mesh, mp_policy=policy)  # the remaining layers: the first and the last one
    # After sharding, so that its state covers only this rank's parts.
    return model, torch.optim.AdamW(model.parameters(), lr=lr)


def fit(model, optimizer, device, first, last, batch):
    """Trains from step first to step last; returns the losses of this rank's parts of the batches."""
    rank, ranks = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    images, labels = (torch.tensor(part, device=device) for part in load_digits(return_X_y=True))
    images = images.float() / 16
    losses = []
    for step in range(first, last):
        # The step alone determines the images: a run that continues from a checkpoint sees the same ones.
        chosen = torch.randint(len(images), (batch,), generator=torch.Generator().manual_seed(step)).chunk(ranks)[rank]
        loss = cross_entropy(model(images[chosen]).float(), labels[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses


def save(folder, model, optimizer):
    """Writes a checkpoint: every rank writes its part to its own files."""
    weights, state = get_state_dict(model, optimizer)
    dcp.save({"weights": weights, "state": state}, checkpoint_id=folder)


def load(folder, model, optimizer):
    """Reads a checkpoint: every rank reads its part, also if other ranks, or another number of ranks, wrote it."""
    weights, state = get_state_dict(model, optimizer)  # determines what to read; the values are replaced
    dcp.load({"weights": weights, "state": state}, checkpoint_id=folder)
    set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=state)


def train(folder, resume=False, steps=80, device=launch.CPU, batch=64, lr=1e-3, bf16=False, seed=0):
    """Trains, with a checkpoint in folder half-way, and repeats the second half from it.

    With resume it trains only from the checkpoint.

    batch is the size of the global batch, of all ranks together.
    """
    ranks = dist.get_world_size() if dist.is_initialized() else 1
    if batch % ranks:
        raise ValueError(f"a batch of {batch} cannot be shared by {ranks} ranks")
    if bf16 and ranks == 1:
        raise ValueError("mixed precision is a part of fully_shard here: bf16 needs two ranks or more")
    start, half, losses = time.perf_counter(), steps // 2, []
    if not resume:
        model, optimizer = build(ranks, device, bf16, lr, seed)
        losses = fit(model, optimizer, device, 0, half, batch)
        save(folder, model, optimizer)
        losses += fit(model, optimizer, device, half, steps, batch)

    again, optimizer = build(ranks, device, bf16, lr, seed + 1)  # other weights, so that a load without effect is found
    load(folder, again, optimizer)
    resumed = fit(again, optimizer, device, half, steps, batch)
    launch.synchronize(device)
    seconds = time.perf_counter() - start

    losses = torch.stack(losses + resumed)
    if ranks > 1:
        dist.all_reduce(losses, op=dist.ReduceOp.AVG)  # each rank has the losses of its parts
    report = {"ranks": ranks, "losses": losses[:steps - half if resume else steps].tolist(), "seconds": seconds,
              "digests": launch.digests(again.parameters())}
    if not resume:
        report["resumed_equal"] = torch.equal(losses[half:steps], losses[steps:])
    return report


def main():
    parser = launch.parser(__doc__, steps=80)
    parser.add_argument("--bf16", action="store_true", help="compute in bfloat16")
    parser.add_argument("--folder", help="the checkpoint; a temporary one if left out")
    parser.add_argument("--resume", action="store_true", help="go on from the checkpoint in --folder")
    options = parser.parse_args()

    with launch.group(options) as device, tempfile.TemporaryDirectory() as folder:
        folder = [options.folder or folder]
        if dist.is_initialized():
            dist.broadcast_object_list(folder)  # all ranks use rank 0's folder
        report = train(folder[0], options.resume, options.steps, device, bf16=options.bf16)
        if dist.is_initialized():
            dist.barrier()  # no folder is removed while another rank reads it
        equal = ("" if options.resume
                 else f"\nFrom the checkpoint the same losses: {'yes' if report['resumed_equal'] else 'NO'}")
        launch.show(report, options.json, equal)


if __name__ == "__main__":
    main()
