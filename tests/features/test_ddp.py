"""DistributedDataParallel and its options, compared with the same training in one process."""
import contextlib
import copy
import inspect

import pytest
import torch
import torch.distributed as dist
import torch.nn as nn
from reference import (WIDTH, alone, batch, build, close, loss_of, mesh, refused, same_everywhere, same_gradients,
                       same_parameters, sgd, share, train)
from torch.distributed.utils import _verify_param_shape_across_processes
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.checkpoint import checkpoint

OPTIONS = {
    "default": {},
    "a bucket for everything": {"bucket_cap_mb": 100},
    "a bucket for each parameter": {"bucket_cap_mb": 0.0001},
    "gradient_as_bucket_view": {"gradient_as_bucket_view": True, "bucket_cap_mb": 0.001},
    "static_graph": {"static_graph": True, "bucket_cap_mb": 0.001},
    "find_unused_parameters": {"find_unused_parameters": True},
    "static_graph, views, unused": {"static_graph": True, "gradient_as_bucket_view": True,
                                    "find_unused_parameters": True},
    "no buffers": {"broadcast_buffers": False},
    "bucket_cap_mb_list": {"bucket_cap_mb_list": [1, 2]},
    "batched_grad_copy": {"batched_grad_copy": True, "gradient_as_bucket_view": True},
    "lazy_bucket_allocation": {"lazy_bucket_allocation": True},
}


def known(options):
    """Returns options; skips the test if this torch's DDP lacks one of them."""
    missing = set(options) - set(inspect.signature(DDP).parameters)
    if missing:
        pytest.skip(f"DistributedDataParallel of torch {torch.__version__} has no {', '.join(sorted(missing))}")
    return options


def trains(rank, options):
    model = build()
    want, want_losses = alone(model)
    have = DDP(model, **options)
    losses = torch.tensor(train(have, sgd(have)))
    same_parameters(have.module, want)
    dist.all_reduce(losses, dist.ReduceOp.AVG)
    close(losses, torch.tensor(want_losses), what="mean loss")
    for name, parameter in have.named_parameters():
        same_everywhere(parameter, name)


@pytest.mark.parametrize("name", OPTIONS)
def test_options(world, name):
    world.run(trains, known(OPTIONS[name]))


class Branches(nn.Module):
    """Two branches, of which a step may use one, so that the parameters of the other get no gradient."""

    def __init__(self):
        super().__init__()
        self.left, self.right, self.out = nn.Linear(WIDTH, 8), nn.Linear(WIDTH, 8), nn.Linear(8, 4)

    def forward(self, inputs, branch):
        return self.out(getattr(self, branch)(inputs))


def unused(rank, options):
    """Rank 0 uses the left branch where the others use the right one; in step 2 all use the left one."""
    torch.manual_seed(0)
    model = Branches()
    want, have = copy.deepcopy(model), DDP(model, find_unused_parameters=True, **options)
    size = dist.get_world_size()
    for step in range(3):
        inputs, targets = batch(step)
        branches = ["left" if r == 0 or step == 2 else "right" for r in range(size)]
        have.zero_grad()
        want.zero_grad()
        loss_of(have(share(inputs), branches[rank]), share(targets)).backward()
        parts = zip(inputs.tensor_split(size), targets.tensor_split(size), branches)
        (sum(loss_of(want(x, branch), y) for x, y, branch in parts) / size).backward()
        for name, parameter in want.named_parameters():
            mine = have.module.get_parameter(name).grad
            if parameter.grad is None:  # unused on all ranks: untouched, or left at zero
                assert mine is None or not mine.any(), name
            else:
                close(mine, parameter.grad, what=f"step {step}: gradient of {name}")


@pytest.mark.parametrize("options", [{}, {"gradient_as_bucket_view": True}, {"skip_all_reduce_unused_params": True}],
                         ids=lambda options: ",".join(options) or "default")
def test_unused_parameters(world, options):
    if ("skip_all_reduce_unused_params" in options
            and "skip_all_reduce_unused_params" in inspect.signature(DDP).parameters):
        world.run(unused_everywhere, options)
    else:
        world.run(unused, known(options))


def unused_everywhere(rank, options):
    """No rank uses the right branch: its parameters are not reduced, the others are."""
    torch.manual_seed(0)
    model = Branches()
    want, have = copy.deepcopy(model), DDP(model, find_unused_parameters=True, **options)
    for step in range(3):
        inputs, targets = batch(step)
        for each, part in ((want, lambda rows: rows), (have, share)):
            each.zero_grad()
            loss_of(each(part(inputs), "left"), part(targets)).backward()
        same_gradients(have.module, want)


def accumulates(rank, options):
    model = build()
    want, have = copy.deepcopy(model), DDP(model, **options)
    for step in range(4):
        with have.no_sync() if step % 2 == 0 else contextlib.nullcontext():
            inputs, targets = batch(step)
            loss_of(have(share(inputs)), share(targets)).backward()
        loss_of(want(inputs), targets).backward()
    same_gradients(have.module, want)


@pytest.mark.parametrize("options", [{}, {"gradient_as_bucket_view": True, "bucket_cap_mb": 0.001}],
                         ids=["copies", "views"])
def test_no_sync(world, options):
    world.run(accumulates, options)


def joins(rank, divide_by_initial):
    """Rank r has 2 + r batches. A step averages over the ranks that still have a batch, or over all ranks."""
    model = build()
    size = dist.get_world_size()
    want, have = copy.deepcopy(model), DDP(model)
    optimizer = sgd(have)
    with have.join(divide_by_initial_world_size=divide_by_initial):
        for step in range(2 + rank):
            inputs, targets = batch(step)
            optimizer.zero_grad()
            loss_of(have(share(inputs)), share(targets)).backward()
            optimizer.step()
    optimizer = sgd(want)
    for step in range(1 + size):
        inputs, targets = batch(step)
        losses = [loss_of(want(x), y)
                  for r, (x, y) in enumerate(zip(inputs.tensor_split(size), targets.tensor_split(size)))
                  if step < 2 + r]
        optimizer.zero_grad()
        (sum(losses) / (size if divide_by_initial else len(losses))).backward()
        optimizer.step()
    same_parameters(have.module, want)
    same_everywhere(have.module[0].weight)


@pytest.mark.parametrize("divide_by_initial", [True, False])
def test_join_with_uneven_inputs(world, divide_by_initial):
    world.run(joins, divide_by_initial)


def join_complains(rank):
    """With throw_on_early_termination all ranks raise when the first rank has no more inputs."""
    model = DDP(build())

    def loop():
        with model.join(throw_on_early_termination=True):
            for step in range(1 + rank):
                model(batch(step)[0]).sum().backward()
    refused("exhausted all inputs|at least one rank", loop, error=RuntimeError)


def test_join_throws_on_early_termination(pair):
    pair.run(join_complains)


def buffers(rank):
    """After construction all ranks have the parameters and buffers of rank 0; each forward sends its buffers again."""
    torch.manual_seed(rank)
    model = DDP(nn.Sequential(nn.BatchNorm1d(WIDTH), nn.Linear(WIDTH, 4)))
    for name, value in model.state_dict().items():
        same_everywhere(value, name)
    torch.manual_seed(100 + rank)
    model(torch.randn(5, WIDTH))  # the running statistics differ from here on
    mean = model.module[0].running_mean.clone()
    dist.broadcast(mean, 0)
    model.eval()
    model.train()
    seen = []
    model.module[0].register_forward_pre_hook(lambda module, args: seen.append(module.running_mean.clone()))
    model(torch.randn(5, WIDTH))
    close(seen[0], mean, 0, "buffer in the second forward")


def test_buffers_are_broadcast(world):
    world.run(buffers)


def no_init_sync(rank):
    """init_sync=False leaves the parameters of each rank as they are; gradients are averaged as usual."""
    model = DDP(build(seed=rank), init_sync=False)
    close(model.module[0].weight, build(seed=rank)[0].weight, 0)
    inputs, targets = batch(0)
    loss_of(model(share(inputs)), share(targets)).backward()
    parts = [build(seed=r) for r in range(dist.get_world_size())]
    for r, part in enumerate(parts):
        loss_of(part(inputs.tensor_split(len(parts))[r]), targets.tensor_split(len(parts))[r]).backward()
    for name, parameter in model.module.named_parameters():
        close(parameter.grad, sum(part.get_parameter(name).grad for part in parts) / len(parts), what=name)


def test_init_sync_off(world):
    world.run(no_init_sync)


def in_subgroup(rank):
    """Two groups of ranks, in reversed order, train independently."""
    half = dist.get_world_size() // 2
    groups = [dist.new_group(list(reversed(range(half)))), dist.new_group(list(reversed(range(half, 2 * half))))]
    mine = groups[rank >= half]
    model = build(seed=7 if rank < half else 8)
    want, _ = alone(model)
    have = DDP(model, process_group=mine)
    train(have, sgd(have), part=lambda rows: share(rows, mine))
    same_parameters(have.module, want)
    dist.barrier()
    dist.destroy_process_group(mine)


def test_process_group(quartet):
    quartet.run(in_subgroup)


def on_mesh(rank):
    model = build()
    want, _ = alone(model)
    have = DDP(model, device_mesh=mesh(dist.get_world_size()))
    train(have, sgd(have))
    same_parameters(have.module, want)


def test_device_mesh(world):
    world.run(on_mesh)


def delayed(rank):
    """The last layer's gradients are reduced together, when the gradient of the first layer is ready."""
    model = build()
    want = copy.deepcopy(model)
    late = [(name, parameter) for name, parameter in model.named_parameters() if name.startswith("4.")]
    have = DDP(model, delay_all_reduce_named_params=late, param_to_hook_all_reduce=model[0].weight)
    for step in range(2):
        inputs, targets = batch(step)
        loss_of(have(share(inputs)), share(targets)).backward()
        loss_of(want(inputs), targets).backward()
        # _delayed_all_reduce_hook of torch/nn/parallel/distributed.py drops its Work, so no thread waits for it.
        dist.barrier()
        same_gradients(have.module, want)
        have.zero_grad()
        want.zero_grad()


def test_delay_all_reduce(world):
    world.run(delayed)


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.out = nn.Embedding(50, 8, sparse=True), nn.Linear(8, 1)

    def forward(self, words):
        return self.out(self.table(words).mean(1))


def sparse(rank, options):
    """Gradients of a sparse embedding are averaged as sparse tensors.

    Ranks touch different rows, some of them the same.
    """
    torch.manual_seed(0)
    model = Words()
    size = dist.get_world_size()
    want, have = copy.deepcopy(model), DDP(model, **options)
    optimizers = sgd(want), sgd(have)
    for step in range(2):
        words = torch.randint(0, 50, (6 * size, 5), generator=torch.Generator().manual_seed(step))
        for optimizer in optimizers:
            optimizer.zero_grad()
        have(share(words)).pow(2).mean().backward()
        want(words).pow(2).mean().backward()
        assert have.module.table.weight.grad.is_sparse
        close(have.module.table.weight.grad.to_dense(), want.table.weight.grad.to_dense(), what="sparse gradient")
        for optimizer in optimizers:
            optimizer.step()
    same_parameters(have.module, want)


@pytest.mark.parametrize("options", [{}, {"find_unused_parameters": True}], ids=["default", "find_unused_parameters"])
def test_sparse_embedding(world, options):
    world.run(sparse, options)


class Checkpointed(nn.Module):
    """Recomputes the middle layers in backward; with twice, a second time with the same parameters."""

    def __init__(self, model, reentrant, twice=False):
        super().__init__()
        self.model, self.reentrant, self.twice = model, reentrant, twice

    def forward(self, inputs):
        first, *middle, last = self.model
        hidden = first(inputs)
        for _ in range(1 + self.twice):
            if self.reentrant is None:
                hidden = nn.Sequential(*middle[:1])(hidden)
            else:
                hidden = checkpoint(nn.Sequential(*middle[:1]), hidden, use_reentrant=self.reentrant)
        return last(nn.Sequential(*middle[1:])(hidden))


def checkpointed(rank, reentrant, options):
    torch.manual_seed(0)
    layers = nn.ModuleList([nn.Linear(WIDTH, 20), nn.Linear(20, 20), nn.Tanh(), nn.Linear(20, 4)])
    twice = bool(options.get("static_graph"))
    want, _ = alone(Checkpointed(copy.deepcopy(layers), None, twice))
    have = DDP(Checkpointed(layers, reentrant, twice), **options)
    train(have, sgd(have))
    same_parameters(have.module.model, want.model)


@pytest.mark.parametrize("reentrant, options", [(True, {}), (False, {}), (True, {"static_graph": True}),
                                                (False, {"static_graph": True})])
def test_activation_checkpointing(world, reentrant, options):
    world.run(checkpointed, reentrant, options)


def several(rank):
    """Two models with overlapping backward passes, as in a GAN; the second is used twice in a forward."""
    maker, judge = build(1, 16), build(2, 4)
    want_maker, want_judge = copy.deepcopy(maker), copy.deepcopy(judge)
    first, second = DDP(maker), DDP(judge, broadcast_buffers=False)
    inputs, targets = batch(0)

    def loss(generate, decide, x, y):
        return (decide(generate(x)) - decide(y)).pow(2).mean()
    for step in range(2):
        loss(first, second, share(inputs), share(targets)).backward()
        loss(want_maker, want_judge, inputs, targets).backward()
    same_gradients(first.module, want_maker)
    same_gradients(second.module, want_judge)


def test_several_models(world):
    world.run(several)


def mixed_precision(rank, param, reduce):
    """Parameters, buckets and the reduction have 16 bits; parameters and gradients of the optimizer have 32."""
    from torch.nn.parallel.distributed import _MixedPrecision

    model = build()
    want, _ = alone(model)

    def made():
        have = DDP(model, mixed_precision=_MixedPrecision(param_dtype=param, reduce_dtype=reduce, buffer_dtype=param))
        train(have, sgd(have), part=lambda rows: share(rows).to(param) if rows.shape[1] == 4 else share(rows))
        return have
    # torch/nn/parallel/distributed.py: DDP's __init__ makes a torch.Stream(), which needs an accelerator.
    refused("accelerator|CUDA|Stream", made)


@pytest.mark.parametrize("param, reduce", [(torch.float16, torch.float16), (torch.bfloat16, torch.float32)])
def test_mixed_precision(pair, param, reduce):
    pair.run(mixed_precision, param, reduce)


def logs(rank):
    """Checks what the Reducer's logger reports of the group and of the buckets."""
    model = DDP(build(), bucket_cap_mb=0.001)
    model._set_ddp_runtime_logging_sample_rate(1)
    train(model, sgd(model))
    data = model._get_ddp_logging_data()
    assert (data["backend_name"] in ("goccl", "custom") and data["world_size"] == dist.get_world_size()
            and data["rank"] == rank), data
    assert data["iteration"] >= 2 and data["num_parameter_tensors"] == 6, data
    buckets = [int(size) for size in data["rebuilt_bucket_sizes"].split(", ")]
    assert sum(buckets) == 4 * sum(parameter.numel() for parameter in model.parameters()), data
    assert len(buckets) > 1, data
    assert data["avg_backward_comm_time"] > 0 and data["avg_backward_compute_time"] > 0, data


def test_logging(pair):
    pair.run(logs)


def mismatched(rank):
    """When DDP is made, it compares the shapes of each rank's parameters with those of rank 0."""
    group = dist.new_group()
    if rank == 0:
        _verify_param_shape_across_processes(group, list(nn.Linear(4, 3).parameters()))
    else:
        refused("appears not to match sizes", DDP, nn.Linear(4 + rank, 3), process_group=group, error=RuntimeError)
    dist.barrier()
    dist.destroy_process_group(group)


def test_shapes_are_verified(pair):
    pair.run(mismatched)


def compiled(rank, backend, mode):
    """The compiled model is cut at the buckets, or reduces its gradients in its own graph."""
    torch._dynamo.reset()
    first_bucket, dist._DEFAULT_FIRST_BUCKET_BYTES = dist._DEFAULT_FIRST_BUCKET_BYTES, 1000
    torch._dynamo.config.optimize_ddp = mode
    try:
        model = build()
        want, _ = alone(model)
        have = DDP(model, bucket_cap_mb=0.002)
        reducer = (torch._dynamo.compiled_autograd._enable(torch.compile(backend=backend)) if mode == "python_reducer"
                   else contextlib.nullcontext())
        with reducer:
            train(torch.compile(have, backend=backend), sgd(have))
        same_parameters(have.module, want)
    finally:
        torch._dynamo.config.optimize_ddp = True
        dist._DEFAULT_FIRST_BUCKET_BYTES = first_bucket


@pytest.mark.long
@pytest.mark.parametrize("backend, mode", [("eager", "ddp_optimizer"), ("aot_eager", "ddp_optimizer"),
                                           ("inductor", "ddp_optimizer"), ("aot_eager", "python_reducer"),
                                           ("aot_eager", "no_optimization")])
def test_compile(world, backend, mode):
    world.run(compiled, backend, mode)
