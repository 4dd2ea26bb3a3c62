"""Expert parallel: a mixture of experts whose experts are on different ranks, and an exchange of tokens with them.

    torchrun --nproc-per-node 2 examples/expert_parallel.py
    torchrun --nproc-per-node 2 examples/expert_parallel.py --device cuda   # both ranks on one GPU, if there is one
    python examples/expert_parallel.py                                      # one process, no communication: the same losses

A router sends each token to one of eight small networks, so the number of tokens that a rank has for another rank
differs at every step: an all-to-all with uneven splits, and the reverse all-to-all in backward. The rest of the model
is data parallel. An auxiliary loss keeps the experts about equally busy. The data: scikit-learn's handwritten digits,
where an image is one token.
"""
import time

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy, one_hot

import launch

WIDTH, EXPERTS, AUXILIARY = 64, 8, 0.01


class AllToAll(torch.autograd.Function):
    """Sends sent[r] rows to rank r and receives received[r] rows from it. The gradients take the reverse way."""

    @staticmethod
    def forward(ctx, rows, sent, received):
        ctx.sent, ctx.received = sent, received
        out = rows.new_empty(sum(received), *rows.shape[1:])
        dist.all_to_all_single(out, rows.contiguous(), received, sent)
        return out

    @staticmethod
    def backward(ctx, gradient):
        back = gradient.new_empty(sum(ctx.sent), *gradient.shape[1:])
        dist.all_to_all_single(back, gradient.contiguous(), ctx.sent, ctx.received)
        return back, None, None


class MixtureOfExperts(nn.Module):
    """Maps [tokens, WIDTH] to the same shape, and returns the auxiliary loss too.

    Each rank has EXPERTS / ranks of the experts.
    """

    def __init__(self, rank, ranks):
        super().__init__()
        self.ranks = ranks
        self.router = nn.Linear(WIDTH, EXPERTS)
        experts = [nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH))
                   for _ in range(EXPERTS)]
        self.experts = nn.ModuleList(experts[rank * EXPERTS // ranks:(rank + 1) * EXPERTS // ranks])

    def forward(self, tokens):
        chances = self.router(tokens).softmax(-1)
        chance, expert = chances.max(-1)
        counts = one_hot(expert, EXPERTS).sum(0)  # this rank's tokens for each expert
        auxiliary = self.auxiliary_loss(chances, counts)

        # This rank's tokens in the order of their experts, and so of the ranks that have the experts.
        order = expert.argsort(stable=True)
        rows = tokens[order]
        if self.ranks > 1:
            coming = torch.empty_like(counts)  # [rank, expert of this rank]: the number of tokens that arrive
            dist.all_to_all_single(coming, counts)
            coming = coming.view(self.ranks, -1)
            sent, received = counts.view(self.ranks, -1).sum(1).tolist(), coming.sum(1).tolist()
            rows = self.run(AllToAll.apply(rows, sent, received), coming)
            rows = AllToAll.apply(rows, received, sent)
        else:
            rows = self.run(rows, counts.view(1, -1))
        return tokens + chance[:, None] * rows[order.argsort()], auxiliary

    def run(self, rows, coming):
        """Runs this rank's experts on the received rows.

        From each rank come the rows for the first expert, then for the next one, …
        """
        pieces = list(rows.split(coming.flatten().tolist()))
        experts = len(self.experts)
        done = [None] * len(pieces)
        for i, expert in enumerate(self.experts):
            mine = pieces[i::experts]  # all rows for this expert, from all ranks
            done[i::experts] = expert(torch.cat(mine)).split([len(piece) for piece in mine])
        return torch.cat(done)

    def auxiliary_loss(self, chances, counts):
        """Returns EXPERTS · Σ (share of the tokens) · (mean chance).

        This is smallest where all experts get equal tokens and chances.
        """
        total = counts.clone()
        if self.ranks > 1:
            # The counts of all ranks, as one process has them; they are constants, so no gradient is lost.
            dist.all_reduce(total)
        return EXPERTS * (total / total.sum() * chances.mean(0)).sum()


class Model(nn.Module):
    def __init__(self, rank, ranks):
        super().__init__()
        self.first, self.mixture, self.last = nn.Linear(64, WIDTH), MixtureOfExperts(rank, ranks), nn.Linear(WIDTH, 10)

    def forward(self, images):
        hidden, auxiliary = self.mixture(self.first(images).relu())
        return self.last(hidden), auxiliary


def mean_gradients(model, ranks):
    """Makes the gradients those of the mean loss over all ranks.

    An expert's gradient already has the tokens of all ranks, other gradients only those of one rank.
    """
    for name, parameter in model.named_parameters():
        if "experts" not in name:
            dist.all_reduce(parameter.grad)
        parameter.grad /= ranks


def train(steps=120, device=launch.CPU, batch=128, lr=2e-3, seed=0):
    """Trains and reports. batch is the number of images in the global batch, of all ranks together."""
    rank, ranks = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    if batch % ranks or EXPERTS % ranks:
        raise ValueError(f"a batch of {batch}, or {EXPERTS} experts, cannot be shared by {ranks} ranks")
    images, labels = (torch.tensor(part, device=device) for part in load_digits(return_X_y=True))
    images = images.float() / 16

    torch.manual_seed(seed)  # the same weights on every rank, which keeps some of the experts
    model = Model(rank, ranks).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)

    losses, start = [], time.perf_counter()
    dice = torch.Generator().manual_seed(seed)  # every rank draws the same random numbers, and takes its part
    for _ in range(steps):
        chosen = torch.randint(len(images), (batch,), generator=dice).chunk(ranks)[rank]
        scores, auxiliary = model(images[chosen])
        loss = cross_entropy(scores, labels[chosen]) + AUXILIARY * auxiliary
        optimizer.zero_grad()
        loss.backward()
        if ranks > 1:
            mean_gradients(model, ranks)
        optimizer.step()
        losses.append(loss.detach())
    launch.synchronize(device)
    seconds = time.perf_counter() - start

    losses = torch.stack(losses)
    if ranks > 1:
        dist.all_reduce(losses, op=dist.ReduceOp.AVG)  # each rank has the losses of its parts
    shared = [losses, *(p for name, p in model.named_parameters() if "experts" not in name)]
    return {"ranks": ranks, "losses": losses.tolist(), "seconds": seconds, "digests": launch.digests(shared)}


if __name__ == "__main__":
    launch.run(__doc__, train, steps=120)
