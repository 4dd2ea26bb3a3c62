"""DDP, FSDP2, and DDP with SyncBatchNorm (for GPUs only) on two ranks end with the losses of one process.

    python training.py [--device cuda]
"""
import argparse

import torch
import torch.distributed as dist
import torch.nn as nn
from ranks import Ranks, is_rank, join, place, synchronize
from results import FAIL, PASS, tell
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

ROWS, TOLERANCE = 32, 1e-4
KINDS = "DDP", "FSDP2"
SYNCHRONIZED = "SyncBatchNorm"


def build(width: int, where: torch.device, kind: str = "") -> nn.Sequential:
    torch.manual_seed(0)
    norm = [nn.BatchNorm1d(4 * width + 1)] if kind == SYNCHRONIZED else []
    return nn.Sequential(nn.Linear(width, 4 * width + 1), *norm, nn.GELU(), nn.Linear(4 * width + 1, width + 1),
                         nn.GELU(), nn.Linear(width + 1, 10)).to(where)


def batch(step: int, width: int, rank: int, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the rank's rows of the inputs and targets of a step."""
    generator = torch.Generator().manual_seed(step)
    return (torch.randn(ROWS, width, generator=generator).chunk(size)[rank],
            torch.randint(10, (ROWS,), generator=generator).chunk(size)[rank])


def train(model: nn.Module, width: int, steps: int, rank: int, size: int, where: torch.device) -> list[float]:
    """Returns the losses of steps on the rank's rows of each batch."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for step in range(steps):
        inputs, targets = (tensor.to(where) for tensor in batch(step, width, rank, size))
        loss = nn.functional.cross_entropy(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return [loss.item() for loss in losses]


def distributed(kind: str, model: nn.Module, device: str, size: int) -> nn.Module:
    if kind == SYNCHRONIZED:
        model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
    if kind in ("DDP", SYNCHRONIZED):
        return DistributedDataParallel(model, bucket_cap_mb=1)
    mesh = init_device_mesh(device, (size,))
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def name_of(kind: str) -> str:
    return f"{kind} on two ranks has the losses of one process"


def rank_of(options: argparse.Namespace) -> None:
    rank, size, _ = join(options.device)
    width, steps, where = options.width, options.steps, place(options.device)
    for kind in KINDS + ((SYNCHRONIZED,) if options.device == "cuda" else ()):
        alone = train(build(width, where, kind), width, steps, 0, 1, where)
        model = distributed(kind, build(width, where, kind), options.device, size)
        mine = train(model, width, steps, rank, size, where)
        synchronize(options.device)
        every = [None] * size
        dist.all_gather_object(every, mine)
        means = [sum(losses) / size for losses in zip(*every)]
        worst = max(abs(mean - want) / abs(want) for mean, want in zip(means, alone))
        if rank == 0:
            tell(name_of(kind), PASS if worst < TOLERANCE else FAIL,
                 f"{steps} steps, last loss {means[-1]:.6f}, alone {alone[-1]:.6f}, largest difference {worst:.1e}",
                 difference=worst)
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--steps", type=int, default=20)
    options = parser.parse_args()
    if is_rank():
        rank_of(options)
    elif failure := Ranks(2, limit=70).finish():
        raise SystemExit(failure)


if __name__ == "__main__":
    main()
