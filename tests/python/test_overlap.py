"""Tensors of one call that share memory: results are those of gloo.

gloo copies all inputs first and writes all results in order.
"""
import pytest
import torch
import torch.distributed as dist

from common import since

CPU = torch.device("cpu")


def filled(value, n=2):
    return torch.full((n,), float(value))


def ramp(value, n=6):
    return torch.arange(float(n)) * value


def all_reduce_coalesced(group, tensors, options=None):
    return group.allreduce_coalesced(tensors, options or dist.AllreduceCoalescedOptions())


def rooted(kind):
    options = kind()
    options.rootRank = 0
    return options


# Each case returns the works of its calls, and the tensors that are compared afterwards. r is the rank, counted from 1.
def the_same_tensor(group, r):
    t = filled(r)
    return [all_reduce_coalesced(group, [t, t])], t


def overlapping_views(group, r):
    x = ramp(r)
    return [all_reduce_coalesced(group, [x[:4], x[2:], x[1:3]])], x


def views_in_another_order(group, r):
    x = ramp(r)
    return [all_reduce_coalesced(group, [x[3:], x[:2], x[1:4]])], x


def strided_views(group, r):
    x = ramp(r, 12).view(4, 3)
    return [all_reduce_coalesced(group, [x[:, 1], x[1], x[:, 2]])], x


def gathered_into_one(group, r):
    t = torch.zeros(2)
    return [group._get_backend(CPU).allgather_coalesced([[t, t], [t, t]], [filled(r), filled(10 * r)])], t


def gathered_blocks(group, r):
    x = torch.zeros(5)
    outputs = [[x[0:2], x[3:5]], [x[1:3], x[2:4]]]
    return [group._get_backend(CPU).allgather_coalesced(outputs, [filled(r), filled(10 * r)])], x


def gathered_over_inputs(group, r):
    a, b = filled(r), filled(10 * r)
    outputs = [[b, torch.zeros(2)], [a, torch.zeros(2)]]
    return [group._get_backend(CPU).allgather_coalesced(outputs, [a, b])], a, b


def wholes(group, r):
    x = torch.zeros(6)
    return [group.allgather_into_tensor_coalesced([x[:4], x[2:]], [filled(r), filled(10 * r)])], x


def wholes_in_another_order(group, r):
    x = torch.zeros(3, 2)
    return [group.allgather_into_tensor_coalesced([x[1:], x[:2]], [filled(r).view(1, 2), filled(10 * r).view(1, 2)])], x


def strided_wholes(group, r):
    x = torch.zeros(4, 3)
    return [group.allgather_into_tensor_coalesced(
        [x[:, :2], x[:, 1:]], [filled(r, 4).view(2, 2), filled(10 * r, 4).view(2, 2)])], x


def wholes_over_inputs(group, r):
    x, y = ramp(r), torch.zeros(4)
    return [group.allgather_into_tensor_coalesced([x[:4], y], [x[4:], x[1:3]])], x, y


def wholes_in_place(group, r):
    x, y = ramp(r, 4), ramp(10 * r, 4)
    inputs = [t[2 * r - 2:2 * r] for t in (x, y)]
    return [group.allgather_into_tensor_coalesced([x, y], inputs)], x, y


def scattered(group, r):
    x, out = ramp(r, 4), torch.zeros(3)
    return [group.reduce_scatter_tensor_coalesced([out[:2], out[1:]], [x, x + 1])], out


def scattered_over_inputs(group, r):
    x, y = ramp(r, 4), ramp(r, 4) + 5
    return [group.reduce_scatter_tensor_coalesced([y[:2], x[1:3]], [x, y])], x, y


def scattered_from_the_same(group, r):
    x, a, b = ramp(r, 4), torch.zeros(2), torch.zeros(2)
    return [group.reduce_scatter_tensor_coalesced([a, b], [x, x])], a, b


def list_of_all_gather(group, r):
    x = torch.zeros(3)
    return [group.allgather([[x[:2], x[1:]]], [filled(r)])], x


def list_of_all_gather_and_its_input(group, r):
    t, u = filled(r), torch.zeros(2)
    return [group.allgather([[u, t] if r == 1 else [t, u]], [t])], t, u


def list_of_gather(group, r):
    x, t = torch.zeros(3), filled(r)
    return [group.gather([[x[1:], x[:2]]] if r == 1 else [], [t], rooted(dist.GatherOptions))], x


def list_of_scatter(group, r):
    x, t = ramp(r, 3), torch.zeros(2)
    return [group.scatter([t], [[x[1:], x[:2]]] if r == 1 else [], rooted(dist.ScatterOptions))], t


def list_of_reduce_scatter(group, r):
    x, t = ramp(r, 3), torch.zeros(2)
    return [group.reduce_scatter([t], [[x[:2], x[1:]]], dist.ReduceScatterOptions())], t


def lists_of_all_to_all(group, r):
    a, b = filled(r), filled(10 * r)
    return [group.alltoall([b, a], [a, b])], a, b


def one_output_of_all_to_all(group, r):
    t = torch.zeros(3)
    return [group.alltoall([t[1:], t[:2]], [filled(r), filled(10 * r)])], t


def a_coalescing_block(group, r):
    t = filled(r)
    with dist._coalescing_manager(group=group, async_ops=True) as manager:
        dist.all_reduce(t, group=group)
        dist.all_reduce(t, group=group)
    return manager.works, t


def blocks_of_all_gathers(group, r):
    x = torch.zeros(6)
    with dist._coalescing_manager(group=group, async_ops=True) as manager:
        dist.all_gather_into_tensor(x[2:], filled(r), group=group)
        dist.all_gather_into_tensor(x[:4], filled(10 * r), group=group)
    return manager.works, x


CASES = [the_same_tensor, overlapping_views, views_in_another_order, strided_views, gathered_into_one,
         gathered_blocks, gathered_over_inputs, wholes, wholes_in_another_order, strided_wholes, wholes_over_inputs,
         wholes_in_place, scattered, scattered_over_inputs, scattered_from_the_same,
         list_of_all_gather, list_of_all_gather_and_its_input, list_of_gather, list_of_scatter,
         list_of_reduce_scatter, lists_of_all_to_all, one_output_of_all_to_all, a_coalescing_block,
         blocks_of_all_gathers]

groups = {}


def check_like_gloo(rank, case):
    if not groups:
        groups.update(gloo=dist.new_group(backend="gloo"), goccl=dist.group.WORLD)
    results = {}
    for name, group in groups.items():
        works, *results[name] = case(group, rank + 1)
        for work in works:
            work.wait()
    assert all(map(torch.equal, results["goccl"], results["gloo"])), results


@pytest.mark.parametrize("case", [
    pytest.param(case,
                 marks=since((2, 12), "gloo's alltoall of lists came with torch 2.12")
                 if "all_to_all" in case.__name__ else (),
                 id=case.__name__)
    for case in CASES])
def test_shared_memory_is_as_with_gloo(pair, case):
    pair.run(check_like_gloo, case)


def check_another_block(rank):
    """The output is the memory of the other rank's block. gloo may overwrite it before it is sent."""
    t, u = filled(rank + 1), filled(7)
    dist.reduce_scatter(t, [u, t] if rank == 0 else [t, u])
    assert t.tolist() == [[9.0] * 2, [8.0] * 2][rank]
    t = filled(rank + 1)
    dist.scatter(t, [u, t] if rank == 0 else None)
    assert t.tolist() == [[7.0] * 2, [1.0] * 2][rank]


def test_output_over_the_block_of_another_rank(pair):
    pair.run(check_another_block)


def check_outputs(rank):
    """The value of the future consists of the user's tensors, not of the copies."""
    x = torch.zeros(6)
    outputs = [x[:4], x[2:]]
    work = dist.group.WORLD.allgather_into_tensor_coalesced(outputs, [filled(rank), filled(rank)])
    assert all(v is t for v, t in zip(work.get_future().wait(), outputs, strict=True))


def test_futures_where_memory_is_shared(pair):
    pair.run(check_outputs)
