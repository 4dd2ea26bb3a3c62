"""torch.compile over collectives: functional ones, torch.distributed's own (which dynamo replaces), DDP and FSDP2."""
from unittest import mock

import pytest
import torch
import torch._dynamo
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
from rank_pool import RankPool
from reference import alone, build, close, mesh, same_parameters, sgd, train
from torch._dynamo.utils import counters
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel as DDP


@pytest.fixture(scope="module")
def patient(tmp_path_factory):
    """Two ranks with as much time as a C++ compiler needs."""
    pool = RankPool(2, tmp_path_factory.mktemp("patient"), timeout=500.0, patience=600.0)
    yield pool
    pool.close()


def functional(x, group):
    """Calls most functional collectives, with operations between them that can be fused."""
    size = group.size()
    total = funcol.all_reduce(x * 2, "sum", group)
    gathered = funcol.all_gather_tensor((x + 1).relu(), 0, group)
    part = funcol.reduce_scatter_tensor(gathered * 0.5, "avg", 0, group)
    exchanged = funcol.all_to_all_single(total + part, None, None, group)
    pair = funcol.all_reduce_coalesced([x.sin(), exchanged.cos()], "max", group)
    shifted = funcol.permute_tensor(pair[1].flatten(), [(r + 1) % size for r in range(size)], group)
    return shifted.view_as(x) + pair[0] + funcol.broadcast(x, 0, group)


def traditional(x, group):
    """Does the same with the calls that scripts use; dynamo turns them into functional ones."""
    size = dist.get_world_size(group)
    total = x * 2
    dist.all_reduce(total, group=group)
    gathered = torch.empty(size * x.shape[0], *x.shape[1:])
    dist.all_gather_into_tensor(gathered, (x + 1).relu(), group=group)
    part = torch.empty_like(x)
    dist.reduce_scatter_tensor(part, gathered * 0.5, op=dist.ReduceOp.AVG, group=group)
    exchanged = torch.empty_like(x)
    dist.all_to_all_single(exchanged, total + part, group=group)
    pieces = [torch.empty_like(x) for _ in range(size)]
    dist.all_gather(pieces, exchanged.cos(), group=group)
    return torch.stack(pieces).sum(0) + x.sin()


def check_same(rank, function, backend):
    """Compiled in one graph, a function returns the same as eagerly.

    This holds also for another size, and with gradients off and on.
    """
    torch._dynamo.reset()
    counters.clear()
    compiled = torch.compile(function, backend=backend, fullgraph=True)
    torch.manual_seed(rank)
    size = dist.get_world_size()
    for rows in (size, 4 * size):
        x = torch.randn(rows, 8)
        have = compiled(x, dist.group.WORLD)
        close(have, function(x.clone(), dist.group.WORLD), 1e-5, f"{function.__name__} of {rows} rows")
    assert not counters["graph_break"], dict(counters["graph_break"])
    torch._dynamo.reset()


@pytest.mark.parametrize("function", [functional, traditional])
@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("eager", marks=pytest.mark.long)])
def test_compiled_functions(pair, function, backend):
    pair.run(check_same, function, backend)


@pytest.mark.long
@pytest.mark.timeout(700)
@pytest.mark.parametrize("function", [functional, traditional])
def test_compiled_by_inductor(patient, function):
    patient.run(check_same, function, "inductor")


def check_inductor(rank):
    """Compiles one small graph with inductor: an all_reduce in place among arithmetic."""
    torch._dynamo.reset()

    def step(x):
        y = x.sin() + rank
        dist.all_reduce(y)
        return y.relu() * 2

    x = torch.arange(10.0)
    size = dist.get_world_size()
    want = ((x.sin() * size + sum(range(size))).relu() * 2)
    close(torch.compile(step, backend="inductor", fullgraph=True)(x), want, 1e-5)
    torch._dynamo.reset()


@pytest.mark.long
@pytest.mark.timeout(700)
def test_a_small_graph_by_inductor(patient):
    patient.run(check_inductor)


def check_gradients(rank, backend):
    """Compiles forward and backward of one step of sequence parallelism: gather, multiply, reduce and scatter."""
    torch._dynamo.reset()
    group, size = dist.group.WORLD, dist.get_world_size()

    def step(x, w):
        whole = funcol.wait_tensor(funcol.all_gather_tensor_autograd(x, 0, group))
        return funcol.wait_tensor(funcol.reduce_scatter_tensor_autograd(whole @ w, "sum", 0, group))

    torch.manual_seed(0)
    xs, ws = torch.randn(size, 2, 5), torch.randn(size, 5, 3)
    alone_x, alone_w = xs.clone().requires_grad_(), ws.clone().requires_grad_()
    want = sum(alone_x.flatten(0, 1) @ alone_w[r] for r in range(size))  # the rows of all ranks
    want.square().sum().backward()
    x, w = xs[rank].clone().requires_grad_(), ws[rank].clone().requires_grad_()
    have = torch.compile(step, backend=backend, fullgraph=True)(x, w)
    have.square().sum().backward()
    close(have, want[2 * rank:2 * rank + 2], 1e-5, "output")
    close(x.grad, alone_x.grad[rank], 1e-5, "gradient of x")
    close(w.grad, alone_w.grad[rank], 1e-5, "gradient of w")
    torch._dynamo.reset()


def test_gradients(pair):
    pair.run(check_gradients, "aot_eager")


@pytest.mark.long
@pytest.mark.timeout(700)
def test_gradients_by_inductor(patient):
    patient.run(check_gradients, "inductor")


def check_ddp(rank, backend, optimizer):
    """Uses DDP around and inside torch.compile, with buckets so small that optimize_ddp splits the graph."""
    torch._dynamo.reset()
    want, _ = alone(build(0))
    with (torch._dynamo.config.patch(optimize_ddp=optimizer),
          mock.patch.object(dist, "_DEFAULT_FIRST_BUCKET_BYTES", 500)):
        model = DDP(build(0), bucket_cap_mb=0.001)
        compiled = torch.compile(model, backend=backend)
        train(compiled, sgd(model))
        same_parameters(model.module, want, 1e-5)
        inside = DDP(torch.compile(build(0), backend=backend))
        train(inside, sgd(inside))
        same_parameters(inside.module._orig_mod, want, 1e-5)
    torch._dynamo.reset()


def test_ddp(pair):
    pair.run(check_ddp, "aot_eager", "ddp_optimizer")


@pytest.mark.long
@pytest.mark.timeout(700)
@pytest.mark.parametrize("optimizer", ["ddp_optimizer", "python_reducer_without_compiled_forward", "no_optimization"])
def test_ddp_by_inductor(patient, optimizer):
    patient.run(check_ddp, "inductor", optimizer)


def check_fsdp(rank, backend):
    """FSDP2 under compile: its hooks break the graph where torch cannot trace them, and the parameters stay correct."""
    torch._dynamo.reset()
    want, _ = alone(build(0))
    model = build(0)
    for layer in model:
        if list(layer.parameters()):
            fully_shard(layer.compile(backend=backend) or layer, mesh=mesh(dist.get_world_size()))
    fully_shard(model, mesh=mesh(dist.get_world_size()))
    train(model, sgd(model))
    same_parameters(model, want, 1e-5)
    torch._dynamo.reset()


def test_fsdp(pair):
    pair.run(check_fsdp, "aot_eager")


@pytest.mark.long
@pytest.mark.timeout(700)
def test_fsdp_by_inductor(patient):
    patient.run(check_fsdp, "inductor")


@torch.compiler.disable
def ranks_as_objects():
    """Gathers the ranks as objects.

    Dynamo does not trace object collectives (_get_object_coll_device in distributed_c10d.py inspects the group).
    """
    objects = [None] * dist.get_world_size()
    dist.all_gather_object(objects, dist.get_rank())
    dist.barrier()
    return objects


def check_not_traced(rank):
    """Calls that dynamo does not replace run unchanged, between two graphs; async_op returns a real work there."""
    torch._dynamo.reset()

    def step(x):
        y = x * 2
        objects = ranks_as_objects()
        work = dist.all_reduce(y, async_op=True)
        work.wait()
        return y + sum(objects)

    x = torch.ones(5)
    size = dist.get_world_size()
    close(torch.compile(step, backend="aot_eager")(x), torch.full((5,), 2.0 * size + sum(range(size))), 0)
    torch._dynamo.reset()


def test_what_is_not_traced(pair):
    pair.run(check_not_traced)
