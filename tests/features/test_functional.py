"""Functional collectives (torch.distributed._functional_collectives), eagerly: values, gradients, groups, waiting."""
import inspect
import threading

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
from reference import close, mesh


def rows(rank, n=12):
    """Returns the input of a rank: (n, 2)."""
    return torch.arange(2.0 * n).view(n, 2) + 100 * rank


def parts(size):
    return [rows(r) for r in range(size)]


def check_values(rank):
    size = dist.get_world_size()
    x, everything = rows(rank), parts(size)
    for group in (dist.group.WORLD, list(range(size)), mesh(size), (mesh(size), 0)):
        total = sum(everything)
        for op, want in (("sum", total), ("avg", total / size), ("max", everything[-1]), ("min", everything[0]),
                         ("product", torch.stack(everything).prod(0))):
            close(funcol.all_reduce(x, op, group), want, 1e-6, op)
        close(x, rows(rank), 0, "input")
        close(funcol.broadcast(x, size - 1, group), everything[-1], 0)
        close(funcol.all_gather_tensor(x, 0, group), torch.cat(everything, 0), 0)
        close(funcol.all_gather_tensor(x, 1, group), torch.cat(everything, 1), 0)
        close(funcol.reduce_scatter_tensor(x, "sum", 0, group), total.tensor_split(size, 0)[rank], 0)
        close(funcol.reduce_scatter_tensor(x, "avg", 0, group), total.tensor_split(size, 0)[rank] / size, 1e-6)
        # Rank r sends row block p of its input to rank p.
        exchanged = torch.cat([part.tensor_split(size, 0)[rank] for part in everything])
        close(funcol.all_to_all_single(x, None, None, group), exchanged, 0)
        # Every rank sends r rows to rank r, so none to rank 0.
        to, of = list(range(size)), [rank] * size
        close(funcol.all_to_all_single(x[:sum(to)], of, to, group),
              torch.cat([part[sum(to[:rank]):sum(to[:rank]) + rank] for part in everything]), 0)
        turned = [(r + 1) % size for r in range(size)]
        close(funcol.permute_tensor(x.flatten(), turned, group), everything[(rank - 1) % size].flatten(), 0)

        both = funcol.all_reduce_coalesced([x, x[:1] * 2], "sum", group)
        close(both[0], total, 0)
        close(both[1], total[:1] * 2, 0)
        both = funcol.all_gather_into_tensor_coalesced([x, x[:1]], group)
        close(both[0], torch.cat(everything), 0)
        close(both[1], torch.cat([part[:1] for part in everything]), 0)
        both = funcol.reduce_scatter_tensor_coalesced([x, 2 * x], "sum", [0, 0], group)
        close(both[0], total.tensor_split(size)[rank], 0)
        close(both[1], 2 * total.tensor_split(size)[rank], 0)

    # A view that is not contiguous, another type, an empty tensor.
    close(funcol.all_reduce(x.t(), "sum", dist.group.WORLD), sum(everything).t(), 0)
    small = [part.to(torch.int16)[::2] for part in everything]
    if "must be contiguous" in inspect.getsource(funcol.all_gather_tensor):  # in older torch
        small = [part.contiguous() for part in small]
    close(funcol.all_gather_tensor(small[rank], 0, dist.group.WORLD), torch.cat(small), 0)
    assert funcol.all_reduce(torch.empty(0), "sum", dist.group.WORLD).shape == (0,)
    flags = funcol.all_gather_tensor(torch.tensor([rank == 0]), 0, dist.group.WORLD)
    assert flags.tolist() == [r == 0 for r in range(size)]


def test_values(world):
    world.run(check_values)


def check_waiting(rank):
    """The result is an AsyncCollectiveTensor, which waits at the first use, in any order and on any thread."""
    size = dist.get_world_size()
    many = [funcol.all_reduce(torch.full((1000,), float(i + rank)), "sum", dist.group.WORLD) for i in range(20)]
    assert all(isinstance(t, funcol.AsyncCollectiveTensor) for t in many)
    want = [size * i + sum(range(size)) for i in range(20)]
    assert (many[7] + 1).eq(want[7] + 1).all() and not isinstance(many[7] + 1, funcol.AsyncCollectiveTensor)
    assert type(many[3].wait()) is torch.Tensor and many[3].trigger_wait().eq(want[3]).all()
    assert type(many[5].view(10, 100)) is funcol.AsyncCollectiveTensor  # a view does not wait, like its base
    assert many[5].view(10, 100).sum(1).eq(100 * want[5]).all()
    seen = []
    thread = threading.Thread(target=lambda: seen.append(funcol.wait_tensor(many[11])[0].item()))
    thread.start()
    thread.join(30)
    assert seen == [want[11]]
    assert [t.tolist()[-1] for t in reversed(many)] == want[::-1]
    # Results that are never used do no harm.
    for _ in range(5):
        funcol.all_reduce(torch.ones(10), "sum", dist.group.WORLD)
    out = torch.ops._c10d_functional.all_reduce_(torch.ones(4), "sum", dist.group.WORLD.group_name)
    assert torch.ops._c10d_functional.wait_tensor(out).eq(size).all()
    dist.barrier()


def test_results_wait_where_they_are_used(world):
    world.run(check_waiting)


def check_gradients(rank):
    """A gradient follows the chain rule for the sum of the losses of all ranks."""
    size, group = dist.get_world_size(), dist.group.WORLD
    weights = [torch.arange(1.0, 1 + 24 * size).view(12 * size, 2) * (r + 1) for r in range(size)]

    x = rows(rank).requires_grad_()
    funcol.wait_tensor(funcol.all_gather_tensor_autograd(x, 0, group)).mul(weights[rank]).sum().backward()
    close(x.grad, sum(weights).tensor_split(size)[rank], 1e-6, "all_gather")

    x = rows(rank).requires_grad_()
    out = funcol.wait_tensor(funcol.reduce_scatter_tensor_autograd(x, "sum", 0, group))
    n = out.shape[0]
    out.mul(weights[rank][:n]).sum().backward()
    close(x.grad, torch.cat([w[:n] for w in weights]), 1e-6, "reduce_scatter")

    x = rows(rank).requires_grad_()
    to, of = list(range(size)), [rank] * size
    out = funcol.wait_tensor(funcol.all_to_all_single_autograd(x[:sum(to)], of, to, group))
    out.mul(weights[rank][:len(out)]).sum().backward()
    want = torch.cat([weights[r][rank * r:rank * r + r] for r in range(size)] + [torch.zeros(12 - sum(to), 2)])
    close(x.grad, want, 1e-6, "all_to_all")
    dist.barrier()


def test_gradients(world):
    world.run(check_gradients)


def check_subgroup(rank):
    """Uses the dimensions of a mesh, by their groups and by their names."""
    ranks = mesh(2, 2, names=("outer", "inner"))
    x = torch.tensor([float(rank)])
    close(funcol.all_reduce(x, "sum", (ranks, 0)), torch.tensor([float(2 * (rank % 2) + 2)]), 0)
    close(funcol.all_reduce(x, "sum", ranks["inner"]), torch.tensor([float(4 * (rank // 2) + 1)]), 0)
    close(funcol.all_gather_tensor(x, 0, ranks.get_group("outer")), torch.tensor([rank % 2, rank % 2 + 2.0]), 0)
    close(funcol.all_reduce(funcol.all_reduce(x, "sum", (ranks, 0)), "sum", (ranks, 1)), torch.tensor([6.0]), 0)


def test_dimensions_of_a_mesh(quartet):
    quartet.run(check_subgroup)


def check_refused(rank):
    """Wrong arguments are refused alike on all ranks, and no operation is in flight afterwards."""
    group = dist.group.WORLD
    with pytest.raises((ValueError, AssertionError, RuntimeError), match="divisible|multiple"):
        funcol.reduce_scatter_tensor(torch.zeros(7), "sum", 0, group)
    with pytest.raises((ValueError, RuntimeError, KeyError), match="no_such"):
        funcol.wait_tensor(funcol.all_reduce(torch.zeros(1), "no_such", group))
    with pytest.raises(RuntimeError, match="AVG|avg"):
        funcol.wait_tensor(funcol.all_reduce(torch.zeros(3, dtype=torch.int32), "avg", group))
    dist.barrier()


def test_wrong_arguments(pair):
    pair.run(check_refused)
