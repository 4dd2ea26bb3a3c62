"""Pipeline parallel: each rank has some of the layers, and the batch passes through the ranks in small parts.

    torchrun --nproc-per-node 2 examples/pipeline.py
    torchrun --nproc-per-node 2 examples/pipeline.py --device cuda   # both ranks on one GPU, if there is one
    python examples/pipeline.py                                      # one process, no communication: the same losses

torch.distributed.pipelining sends activations to the next rank and gradients back. In the 1F1B schedule a rank that has
received the first parts alternates one forward and one backward, so it keeps few activations. The data: scikit-learn's
breast cancer table, 569 tumours with 30 measurements each, benign or not.
"""
import time

import torch
import torch.distributed as dist
from sklearn.datasets import load_breast_cancer
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.nn.functional import cross_entropy

import launch

WIDTH, LAYERS = 64, 8
# Parts of a batch, at least as many as ranks: more parts mean less idle time at the beginning and the end of a batch.
PARTS = 8


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH))

    def forward(self, x):
        return x + self.inner(x)


def train(steps=80, device=launch.CPU, batch=128, lr=1e-3, seed=0):
    """Trains and reports."""
    rank, ranks = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    if ranks > PARTS:
        raise ValueError(f"a batch of {PARTS} parts cannot keep {ranks} ranks busy")
    table, labels = (torch.tensor(part) for part in load_breast_cancer(return_X_y=True))
    table, labels = ((table - table.mean(0)) / table.std(0)).float().to(device), labels.to(device)

    torch.manual_seed(seed)  # the same weights on every rank, which keeps some of the layers
    layers = [nn.Linear(30, WIDTH), *(Block() for _ in range(LAYERS)), nn.Linear(WIDTH, 2)]
    model = nn.Sequential(*layers[rank * len(layers) // ranks:(rank + 1) * len(layers) // ranks]).to(device)
    if ranks > 1:
        stage = PipelineStage(model, rank, ranks, device)
        schedule = Schedule1F1B(stage, n_microbatches=PARTS, loss_fn=cross_entropy)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)

    losses, start = torch.zeros(steps, device=device), time.perf_counter()
    dice = torch.Generator().manual_seed(seed)  # every rank draws the same random numbers
    for step in range(steps):
        chosen = torch.randint(len(table), (batch,), generator=dice)
        optimizer.zero_grad()
        if ranks == 1:
            loss = cross_entropy(model(table[chosen]), labels[chosen])
            loss.backward()
            losses[step] = loss.detach()
        elif rank == 0:  # the first rank has the input …
            schedule.step(table[chosen])
        elif rank == ranks - 1:  # … the last one knows the expected output
            of_parts = []
            schedule.step(target=labels[chosen], losses=of_parts)
            losses[step] = torch.stack(of_parts).detach().mean()
        else:
            schedule.step()
        optimizer.step()  # each rank updates its own layers
    launch.synchronize(device)
    seconds = time.perf_counter() - start

    if ranks > 1:
        dist.broadcast(losses, src=ranks - 1)
    digests = launch.digests([losses])  # the weights differ between ranks
    return {"ranks": ranks, "losses": losses.tolist(), "seconds": seconds, "digests": digests}


if __name__ == "__main__":
    launch.run(__doc__, train, steps=80)
