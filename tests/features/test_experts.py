"""Expert parallel layers: tokens are sent to the ranks of their experts and back, with gradients.

The results are compared with those of one process.
"""
import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
import torch.distributed.nn.functional as differentiable
import torch.nn as nn
from reference import close

WIDTH, TOKENS = 8, 11


def by_funcol(tokens, arriving, leaving):
    return funcol.all_to_all_single_autograd(tokens, arriving, leaving, dist.group.WORLD)


def by_nn(tokens, arriving, leaving):
    output = tokens.new_empty(sum(arriving), *tokens.shape[1:])
    return differentiable.all_to_all_single(output, tokens, arriving, leaving, group=dist.group.WORLD)


def by_list(tokens, arriving, leaving):
    outputs = [tokens.new_empty(count, *tokens.shape[1:]) for count in arriving]
    return torch.cat(differentiable.all_to_all(outputs, list(tokens.split(leaving)), group=dist.group.WORLD))


class Exchange(torch.autograd.Function):
    """The exchange as most libraries write it themselves."""

    @staticmethod
    def forward(context, tokens, arriving, leaving):
        context.counts = arriving, leaving
        output = tokens.new_empty(sum(arriving), *tokens.shape[1:])
        dist.all_to_all_single(output, tokens.contiguous(), arriving, leaving)
        return output

    @staticmethod
    def backward(context, gradient):
        arriving, leaving = context.counts
        return Exchange.apply(gradient, leaving, arriving), None, None


EXCHANGES = {"funcol": by_funcol, "nn.functional": by_nn, "lists": by_list, "own": Exchange.apply}


def moe(rank, name, crowded):
    """Every rank has two experts.

    Tokens are sorted by expert; counts are exchanged first, as they differ between ranks.
    """
    exchange, size = EXCHANGES[name], dist.get_world_size()
    torch.manual_seed(0)
    experts = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(2 * size))
    gate = nn.Linear(WIDTH, 2 * size)
    everyone = [torch.randn(TOKENS + r, WIDTH, generator=torch.Generator().manual_seed(r)) for r in range(size)]

    def choose(rows):
        scores = torch.softmax(gate(rows), -1)
        if crowded:  # all tokens go to the last expert, so most ranks get none
            return scores[:, -1], torch.full((len(rows),), 2 * size - 1)
        return scores.max(-1)

    def whole(rows):
        score, chosen = choose(rows)
        return torch.stack([experts[expert](row) for row, expert in zip(rows, chosen.tolist())]) * score[:, None]

    tokens = everyone[rank].clone().requires_grad_()
    score, chosen = choose(tokens)
    order = chosen.argsort(stable=True)
    counts = torch.bincount(chosen, minlength=2 * size)
    theirs = torch.empty_like(counts)
    dist.all_to_all_single(theirs, counts)
    leaving, arriving = counts.view(size, 2).sum(1).tolist(), theirs.view(size, 2).sum(1).tolist()
    arrived = exchange(tokens[order], arriving, leaving)
    expert_of = torch.cat([torch.tensor([0, 1]).repeat_interleave(pair) for pair in theirs.view(size, 2)])
    worked = torch.empty_like(arrived)
    for local in (0, 1):
        worked = worked.index_put((torch.nonzero(expert_of == local)[:, 0],),
                                  experts[2 * rank + local](arrived[expert_of == local]))
    back = exchange(worked, leaving, arriving)
    output = torch.empty_like(back).index_put((order,), back) * score[:, None]
    output.pow(2).sum().backward()
    mine = {index: experts[index].weight.grad for index in (2 * rank, 2 * rank + 1)}
    gate_gradient = gate.weight.grad.clone()
    dist.all_reduce(gate_gradient)
    have = output.detach(), tokens.grad.clone()

    experts.zero_grad()
    gate.zero_grad()
    sources = [rows.clone().requires_grad_() for rows in everyone]
    outputs = [whole(rows) for rows in sources]
    sum(result.pow(2).sum() for result in outputs).backward()
    close(have[0], outputs[rank], 1e-4, "output")
    close(have[1], sources[rank].grad, 1e-4, "gradient of the tokens")
    close(gate_gradient, gate.weight.grad, 1e-3, "gradient of the gate")
    for index, gradient in mine.items():
        want = experts[index].weight.grad
        close(torch.zeros(WIDTH, WIDTH) if gradient is None else gradient,
              torch.zeros(WIDTH, WIDTH) if want is None else want, 1e-3, f"gradient of expert {index}")


@pytest.mark.parametrize("name", EXCHANGES)
@pytest.mark.parametrize("crowded", [False, True], ids=["spread", "crowded"])
def test_experts(world, name, crowded):
    world.run(moe, name, crowded)
