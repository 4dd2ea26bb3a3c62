"""Sequences that are spread over the ranks: ring attention, attention over gathered keys, rings of batched sends.

The results are compared with those of whole sequences.
"""
import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
import torch.nn.functional as F
from reference import close, mesh, refused
from torch.distributed.tensor.experimental import context_parallel
from torch.distributed.tensor.experimental._context_parallel import _attention as ring

BATCH, HEADS, WIDTH = 2, 2, 8


def sequences(length, count=3):
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(BATCH, HEADS, length, WIDTH, generator=generator) for _ in range(count)]


def whole(query, key, value, gradient, causal):
    """Returns output and gradients of the whole sequence."""
    inputs = [each.clone().requires_grad_() for each in (query, key, value)]
    output = F.scaled_dot_product_attention(*inputs, is_causal=causal)
    output.backward(gradient)
    return output, *(each.grad for each in inputs)


class settings:
    """Sets torch's own switches of ring attention temporarily."""

    def __init__(self, balance, rotate):
        self.values = {"enable_load_balance": balance, "rotate_method": ring._RotateMethod[rotate]}

    def __enter__(self):
        self.before = {name: getattr(ring._cp_options, name) for name in self.values}
        for name, value in self.values.items():
            setattr(ring._cp_options, name, value)

    def __exit__(self, *failure):
        for name, value in self.before.items():
            setattr(ring._cp_options, name, value)


def rotates(rank, causal, balance, rotate):
    """torch's ring attention with the kernel for CPU: keys go around the ring, forward and backward.

    Balanced, a rank has two pieces, an early and a late one.
    """
    size = dist.get_world_size()
    length = 4 * 2 * size
    *inputs, gradient = sequences(length, 4)
    want = whole(*inputs, gradient, causal)
    pieces = torch.arange(length).chunk(2 * size)
    mine = torch.cat([pieces[rank], pieces[2 * size - 1 - rank]] if balance
                     else [pieces[2 * rank], pieces[2 * rank + 1]])
    query, key, value, upstream = (each[:, :, mine].contiguous() for each in (*inputs, gradient))
    aten = torch.ops.aten
    with settings(balance, rotate):
        output, logsumexp, *_ = ring._templated_ring_attention(
            dist.group.WORLD, 2, aten._scaled_dot_product_flash_attention_for_cpu, query, key, value, is_causal=causal)
        gradients = ring._templated_ring_attention_backward(
            dist.group.WORLD, 2, aten._scaled_dot_product_flash_attention_for_cpu_backward.default, upstream,
            "grad_out", query, key, value, output, logsumexp, is_causal=causal, dropout_p=0.0)
    for have, expected, name in zip((output, *gradients), want, ("output", "gradient of query", "of key", "of value")):
        close(have, expected[:, :, mine], 1e-4, name)


@pytest.mark.parametrize("rotate", ["ALL_TO_ALL", "ALL_GATHER"])
@pytest.mark.parametrize("causal, balance", [(False, False), (True, False), (True, True)],
                         ids=["full", "causal", "balanced"])
def test_ring_attention(world, causal, balance, rotate):
    world.run(rotates, causal, balance, rotate)


def context(rank):
    """context_parallel shards its buffers; attention inside it has rules for kernels of GPUs only.

    custom_ops of torch/distributed/tensor/experimental/_context_parallel/_attention.py has no rule for
    _scaled_dot_product_flash_attention_for_cpu, so DTensor's own rules decide: DTensor refuses the operator, or shards
    another dimension than the sequence.
    """
    size = dist.get_world_size()
    buffers = sequences(4 * 2 * size)
    originals = [buffer.clone() for buffer in buffers]
    over = mesh(size)
    with context_parallel(over, buffers=buffers, buffer_seq_dims=[2, 2, 2]):
        assert all(buffer.shape[2] == 8 for buffer in buffers)
        parts = [torch.cat([original.chunk(2 * size, 2)[index] for index in (rank, 2 * size - 1 - rank)], 2)
                 for original in originals]
        for buffer, part in zip(buffers, parts):
            close(buffer, part, 0)
        refused("sharding strategy|No implementation|not supported|only supports",
                lambda: F.scaled_dot_product_attention(*buffers, is_causal=True))
    for buffer, original in zip(buffers, originals):
        close(buffer, original, 0)


def test_context_parallel(world):
    world.run(context)


def unshards(rank):
    """context_parallel_unshard puts the pieces of the ranks back in order."""
    from torch.distributed.tensor.experimental._attention import context_parallel_unshard

    size = dist.get_world_size()
    buffer = sequences(8 * size, 1)[0]
    original = buffer.clone()
    with context_parallel(mesh(size), buffers=[buffer], buffer_seq_dims=[2], no_restore_buffers={buffer}):
        part = buffer.clone()
    close(context_parallel_unshard(mesh(size), [part], [2])[0], original, 0)


def test_unshard(world):
    world.run(unshards)


def gathers(rank):
    """Each rank has a piece of the queries, and gathers keys and values.

    Gradients are scattered back to the ranks that own them.
    """
    size = dist.get_world_size()
    query, key, value, gradient = sequences(6 * size, 4)
    want = whole(query, key, value, gradient, False)
    mine = [each.chunk(size, 2)[rank].clone().requires_grad_() for each in (query, key, value)]
    keys, values = (funcol.all_gather_tensor_autograd(each, 2, dist.group.WORLD) for each in mine[1:])
    output = F.scaled_dot_product_attention(mine[0], keys, values)
    output.backward(gradient.chunk(size, 2)[rank])
    for have, expected in zip((output, *(each.grad for each in mine)), want):
        close(have, expected.chunk(size, 2)[rank], 1e-4)


def test_gathered_keys(world):
    world.run(gathers)


def heads(rank):
    """Ulysses: all_to_all exchanges a piece of the sequence with all heads for the whole sequence with some heads."""
    size = dist.get_world_size()
    inputs = [torch.randn(size * 2, size * 5, WIDTH, generator=torch.Generator().manual_seed(seed))
              for seed in range(4)]
    *plain, gradient = inputs
    plain = [each.clone().requires_grad_() for each in plain]
    want = F.scaled_dot_product_attention(*plain, is_causal=True)
    want.backward(gradient)

    def to_heads(piece):  # (heads, part, width) to (heads / size, length, width)
        arrived = funcol.all_to_all_single_autograd(piece, None, None, dist.group.WORLD)
        return torch.cat(arrived.chunk(size, 0), 1)

    def to_sequence(piece):
        return funcol.all_to_all_single_autograd(torch.cat(piece.chunk(size, 1), 0), None, None, dist.group.WORLD)
    mine = [each.chunk(size, 1)[rank].contiguous().requires_grad_() for each in inputs[:3]]
    output = to_sequence(F.scaled_dot_product_attention(*(to_heads(each) for each in mine), is_causal=True))
    output.backward(gradient.chunk(size, 1)[rank].contiguous())
    close(output, want.chunk(size, 1)[rank], 1e-4)
    for have, expected in zip(mine, plain):
        close(have.grad, expected.grad.chunk(size, 1)[rank], 1e-4)


def test_heads_by_all_to_all(world):
    world.run(heads)


def passes_on(rank):
    """Blocks of keys go around the ring by batched point-to-point calls; attention is put together from its parts."""
    size = dist.get_world_size()
    query, key, value = sequences(5 * size)
    want = F.scaled_dot_product_attention(query, key, value).chunk(size, 2)[rank]
    mine = query.chunk(size, 2)[rank]
    block = torch.stack([key.chunk(size, 2)[rank], value.chunk(size, 2)[rank]])
    weights, total, top = 0, 0, torch.full((*mine.shape[:3], 1), float("-inf"))
    for turn in range(size):
        incoming = torch.empty_like(block)
        works = dist.batch_isend_irecv([dist.P2POp(dist.isend, block, (rank + 1) % size),
                                        dist.P2POp(dist.irecv, incoming, (rank - 1) % size)])
        scores = mine @ block[0].transpose(-1, -2) / WIDTH ** 0.5
        higher = torch.maximum(top, scores.amax(-1, keepdim=True))
        part = torch.exp(scores - higher)
        weights = weights * torch.exp(top - higher) + part @ block[1]
        total = total * torch.exp(top - higher) + part.sum(-1, keepdim=True)
        top = higher
        for work in works:
            work.wait()
        block = incoming
    close(weights / total, want, 1e-4)


def test_ring_of_keys(world):
    world.run(passes_on)
