"""Trains a small character-level transformer on Python's own help texts, data parallel, and lets it write a few lines.

    torchrun --nproc-per-node 2 examples/transformer.py
    torchrun --nproc-per-node 2 examples/transformer.py --device cuda   # both ranks on one GPU, if there is one
    python examples/transformer.py                                      # one process, no communication: the same losses

Every rank has the whole model and computes a part of each batch; DistributedDataParallel averages the gradients while
backward is still running. The same ranks give the same bits in every run, whatever the algorithm: goccl guarantees that
without an option (docs/determinism.md). Between different numbers of ranks only the order of the sums differs, so their
losses agree except for rounding.
"""
import time
# 700 KB of English about Python, part of every Python installation: the text that help("if") prints.
from pydoc_data.topics import topics

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention
from torch.nn.parallel import DistributedDataParallel

import launch

CONTEXT = 64  # number of characters that the model sees
WIDTH, HEADS, LAYERS = 64, 4, 2


class Block(nn.Module):
    """Attention to earlier characters, then a layer that works on each character; both add to their input."""

    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        batch, length, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        seen = scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm2(x))


class Transformer(nn.Module):
    def __init__(self, letters):
        super().__init__()
        self.letter, self.place = nn.Embedding(letters, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, letters)

    def forward(self, text):
        """Maps [batch, length] numbers of letters to [batch, length, letters] scores of the next letters."""
        x = self.letter(text) + self.place(torch.arange(text.shape[1], device=text.device))
        return self.head(self.norm(self.blocks(x)))


@torch.no_grad()
def write(model, letters, start, length, seed, device):
    """Returns the text that the model writes after start."""
    dice = torch.Generator().manual_seed(seed)
    text = [letters.index(letter) for letter in start]
    for _ in range(length):
        scores = model(torch.tensor([text[-CONTEXT:]], device=device))[0, -1].cpu()
        # 0.7 makes likely letters more frequent.
        text.append(torch.multinomial((scores / 0.7).softmax(0), 1, generator=dice).item())
    return "".join(letters[i] for i in text)


def train(steps=300, device=launch.CPU, batch=32, lr=6e-3, seed=0):
    """Trains and reports. batch is the number of sequences in the global batch, of all ranks together."""
    rank, ranks = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    if batch % ranks:
        raise ValueError(f"a batch of {batch} cannot be shared by {ranks} ranks")
    text = "\n".join(topics[name] for name in sorted(topics))
    letters = sorted(set(text))
    number = {letter: i for i, letter in enumerate(letters)}
    text = torch.tensor([number[letter] for letter in text])

    torch.manual_seed(seed)  # the same weights on every rank; DistributedDataParallel would also send those of rank 0
    plain = model = Transformer(len(letters)).to(device)
    if ranks > 1:
        model = DistributedDataParallel(model, gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)

    losses, start = [], time.perf_counter()
    # Every rank draws the same random numbers, and takes its part of the places.
    dice = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        places = torch.randint(len(text) - CONTEXT, (batch,), generator=dice).chunk(ranks)[rank]
        window = text[places[:, None] + torch.arange(CONTEXT + 1)].to(device)
        scores = model(window[:, :-1])
        loss = cross_entropy(scores.flatten(0, 1), window[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()  # when it returns, the gradients are those of the mean over all ranks
        optimizer.step()
        losses.append(loss.detach())
    launch.synchronize(device)
    seconds = time.perf_counter() - start

    losses = torch.stack(losses)
    if ranks > 1:
        dist.all_reduce(losses, op=dist.ReduceOp.AVG)  # each rank has the loss of its part
    return {"ranks": ranks, "losses": losses.tolist(), "seconds": seconds,
            "digests": launch.digests(plain.parameters()),
            "sample": write(plain, letters, "The ", 160, seed, device) if rank == 0 else ""}


if __name__ == "__main__":
    launch.run(__doc__, train, steps=300, more=lambda report: f"\nIt writes: {report['sample']}")
