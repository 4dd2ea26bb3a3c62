"""Communication hooks of DistributedDataParallel: their effect on gradients, compared with training in one process."""
import copy
import inspect
import traceback

import goccl
import pytest
import torch
import torch.distributed as dist
import torch.nn as nn
from common import TORCH
from reference import (WIDTH, alone, batch, build, close, loss_of, refused, same_gradients, same_parameters, sgd,
                       share, train)
from torch.distributed.algorithms.ddp_comm_hooks import (
    DDPCommHookType, default_hooks, quantization_hooks, register_ddp_comm_hook)
from torch.distributed.algorithms.ddp_comm_hooks.debugging_hooks import noop_hook
from torch.distributed.algorithms.ddp_comm_hooks.optimizer_overlap_hooks import (
    _hook_then_optimizer, _OptimizerHookState)
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import (
    PowerSGDState, batched_powerSGD_hook, powerSGD_hook)
from torch.distributed.optim import _apply_optimizer_in_backward
from torch.distributed.optim.functional_adam import _FunctionalAdam
from torch.distributed.optim.functional_sgd import _FunctionalSGD
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.nn.parallel.distributed import _BufferCommHookLocation


def unnamed(hook):
    """Returns the hook under another name.

    _check_comm_hook of torch/nn/parallel/distributed.py refuses bf16 without a GPU by its name.
    """
    def same(state, bucket):
        return hook(state, bucket)
    return same


def power(**options):
    """Returns a state with rank 29.

    This is enough for each of the matrices, so the approximation is exact except for rounding.
    """
    return PowerSGDState(None, matrix_approximation_rank=29, start_powerSGD_iter=2, min_compression_rate=0, **options)


# Name: the state, the hook, the tolerance of the parameters after five steps.
HOOKS = {
    "allreduce": lambda: (None, default_hooks.allreduce_hook, 1e-5),
    "fp16_compress": lambda: (None, default_hooks.fp16_compress_hook, 1e-3),
    "bf16_compress": lambda: (None, unnamed(default_hooks.bf16_compress_hook), 5e-3),
    "fp16_compress_wrapper(allreduce)":
        lambda: (None, default_hooks.fp16_compress_wrapper(default_hooks.allreduce_hook), 1e-3),
    "bf16_compress_wrapper(allreduce)":
        lambda: (None, unnamed(default_hooks.bf16_compress_wrapper(default_hooks.allreduce_hook)), 5e-3),
    "powerSGD": lambda: (power(), powerSGD_hook, 1e-3),
    "powerSGD, same shapes together": lambda: (power(batch_tensors_with_same_shape=True), powerSGD_hook, 1e-3),
    "powerSGD, cold start": lambda: (power(warm_start=False, use_error_feedback=False), powerSGD_hook, 1e-3),
    "fp16_compress_wrapper(powerSGD)": lambda: (power(), default_hooks.fp16_compress_wrapper(powerSGD_hook), 2e-2),
    "quantization_pertensor": lambda: (None, quantization_hooks.quantization_pertensor_hook, 2e-3),
    "quantization_perchannel": lambda: (None, quantization_hooks.quantization_perchannel_hook, 2e-3),
    "chain": lambda: (None, chain, 1e-5),
    "set_buffer": lambda: (None, other_buffer, 1e-5),
}


# These hooks call collectives in callbacks, which threads run for several buckets at a time.
CHAINED = {name for name in HOOKS if "powerSGD" in name or "quantization" in name} | {"chain"}
# With warm_start=False the last callback of a bucket clears what powerSGD_hook.py keeps of all buckets
# (state.p_memory_dict.clear()), so it works only if each bucket is done before the next one begins.
ONE_BY_ONE = {"powerSGD, cold start"}


def chain(state, bucket):
    """The second of two reductions starts in the callback of the first."""
    def second(future):
        work = dist.all_reduce(future.value()[0] / 2, async_op=True)
        return work.get_future().wait()[0]

    # After the first reduction every rank has the same sum; the second takes the mean of these sums.
    size = dist.get_world_size()
    return (dist.all_reduce(bucket.buffer() / size, async_op=True).get_future().then(second)
            .then(lambda f: f.value() * 2 / size))


def other_buffer(state, bucket):
    """Replaces the bucket's tensor, as a hook may."""
    bucket.set_buffer(bucket.buffer().clone())
    return default_hooks.allreduce_hook(state, bucket)


def hooked(rank, name, options, futures="callbacks"):
    state, hook, tolerance = HOOKS[name]()
    model = build()
    want, _ = alone(model, steps=5)
    group = dist.new_group(pg_options=goccl.Options(futures=futures)) if futures == "wait" else None
    if group is not None and isinstance(state, PowerSGDState):
        state.process_group = group
    have = DDP(model, process_group=group, **options)
    have.register_comm_hook(state, hook)
    train(have, sgd(have), steps=5)
    same_parameters(have.module, want, tolerance)
    if group is not None:
        dist.barrier(group)
        dist.destroy_process_group(group)


def can_quantize(name):
    """Skips what quantization_hooks.py of older torch cannot do.

    It expects one tensor in the future of all_gather, as with NCCL.
    """
    if name.lower().startswith("quanti") and "fut.wait()[0]" in inspect.getsource(quantization_hooks):
        pytest.skip(f"the quantization hooks of torch {torch.__version__} work with NCCL's futures only")


@pytest.mark.parametrize("name", HOOKS)
@pytest.mark.parametrize("options", [{}, pytest.param({"gradient_as_bucket_view": True, "bucket_cap_mb": 0.001},
                                                      marks=pytest.mark.long)],
                         ids=["default", "views"])
def test_hooks(world, name, options):
    can_quantize(name)
    world.run(hooked, name, options, "wait" if "bucket_cap_mb" in options and name in ONE_BY_ONE else "callbacks")


@pytest.mark.parametrize("name", sorted(CHAINED))
def test_chained_hooks_with_several_buckets(world, name):
    can_quantize(name)
    world.run(hooked, name, {"bucket_cap_mb": 0.001}, "wait" if name in ONE_BY_ONE else "callbacks")


def batched(rank):
    """Treats a whole bucket as one matrix."""
    model = build()
    want, _ = alone(model, steps=5)
    have = DDP(model)
    have.register_comm_hook(power(), batched_powerSGD_hook)
    try:
        train(have, sgd(have), steps=5)
    except AssertionError:
        # _orthogonalize of powerSGD_hook.py asserts three dimensions, batched_powerSGD_hook passes two.
        assert "in _orthogonalize" in traceback.format_exc()
        return
    same_parameters(have.module, want, 1e-2)


def test_batched_powerSGD(pair):
    pair.run(batched)


def by_name(rank, kind):
    model, kind = DDP(build()), DDPCommHookType[kind]
    if kind is DDPCommHookType.BF16_COMPRESS:
        try:
            register_ddp_comm_hook(kind, model, None)
        # From _check_comm_hook of torch/nn/parallel/distributed.py, unless torch was built with CUDA.
        except TypeError as error:
            assert "BF16 all reduce communication hook required" in str(error)
            return
    else:
        register_ddp_comm_hook(kind, model, None)
    train(model, sgd(model))


@pytest.mark.parametrize("kind", [kind.name for kind in DDPCommHookType])
def test_by_name(pair, kind):
    """register_ddp_comm_hook accepts each of its names, and trains."""
    can_quantize(kind)
    pair.run(by_name, kind)


def builtin(rank, kind, tolerance, options):
    model = build()
    want, _ = alone(model)
    have = DDP(model, **options)
    have._register_builtin_comm_hook(getattr(dist.BuiltinCommHookType, kind))
    train(have, sgd(have))
    same_parameters(have.module, want, tolerance)


@pytest.mark.parametrize("kind, tolerance", [("ALLREDUCE", 1e-5), ("FP16_COMPRESS", 1e-3)])
@pytest.mark.parametrize("options", [{}, {"gradient_as_bucket_view": True, "bucket_cap_mb": 0.001}],
                         ids=["default", "views"])
def test_builtin(world, kind, tolerance, options):
    world.run(builtin, kind, tolerance, options)


def noop(rank):
    """Gradients stay those of each rank."""
    model = build()
    want, have = copy.deepcopy(model), DDP(model)
    have.register_comm_hook(None, noop_hook)
    inputs, targets = batch(0)
    for each in (want, have):
        loss_of(each(share(inputs)), share(targets)).backward()
    same_gradients(have.module, want, 0)


def test_noop(world):
    world.run(noop)


def optimizes(rank, functional, alike, options):
    """The optimizer runs on each bucket in the callback of its reduction; .step is never called."""
    model = build()
    want, _ = alone(model, lambda model: alike(model.parameters(), lr=0.05))
    have = DDP(model, **options)
    state = _OptimizerHookState(functional([], lr=0.05, _allow_empty_param_list=True))
    have.register_comm_hook(None, _hook_then_optimizer(default_hooks.allreduce_hook, state))
    for step in range(3):
        inputs, targets = batch(step)
        have.zero_grad()
        loss_of(have(share(inputs)), share(targets)).backward()
    same_parameters(have.module, want, 1e-4)


@pytest.mark.parametrize("functional, alike", [(_FunctionalSGD, torch.optim.SGD), (_FunctionalAdam, torch.optim.Adam)],
                         ids=["SGD", "Adam"])
@pytest.mark.parametrize("options", [{}, {"bucket_cap_mb": 0.001}], ids=["default", "buckets"])
def test_hook_then_optimizer(world, functional, alike, options):
    world.run(optimizes, functional, alike, options)


def optimizes_in_backward(rank):
    model = build()
    _apply_optimizer_in_backward(torch.optim.SGD, model.parameters(), {"lr": 0.1})
    have = DDP(model)
    # _apply_optim_in_backward_hook of torch/distributed/algorithms/ddp_comm_hooks/optimizer_overlap_hooks.py makes a
    # torch.Stream().
    refused("accelerator|CUDA|Stream", have, batch(0)[0])


def test_apply_optimizer_in_backward(pair):
    pair.run(optimizes_in_backward)


def fails(rank):
    """backward raises the exception of a hook or of its callback, on that rank, and the group stays usable."""
    def raises(state, bucket):
        raise KeyError("no such bucket")

    def raises_later(state, bucket):
        def callback(future):
            raise ValueError("not today")
        return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(callback)

    def returns_a_tensor(state, bucket):
        return bucket.buffer()

    for hook, said in ((raises, "no such bucket"), (raises_later, "not today"), (returns_a_tensor, "[Ff]uture")):
        model = DDP(build())
        model.register_comm_hook(None, hook)
        refused(said, model(batch(0)[0]).sum().backward)
        dist.barrier()


def test_failing_hooks(world):
    world.run(fails)


def buckets(rank):
    """A hook sees every parameter once, in the order of backward, and the last bucket is marked as such."""
    seen = []

    def hook(state, bucket):
        seen.append((bucket.index(), bucket.is_last(), [tuple(gradient.shape) for gradient in bucket.gradients()]))
        assert sum(parameter.numel() for parameter in bucket.parameters()) == bucket.buffer().numel()
        return default_hooks.allreduce_hook(state, bucket)

    model = DDP(build(), bucket_cap_mb=0.001)
    model.register_comm_hook(None, hook)
    for step in range(2):
        model(batch(step)[0]).sum().backward()
    for first in (0, len(seen) - [last for _, last, _ in seen][::-1].index(True) - 1):
        assert seen[first][1] or seen[first][0] == 0
    shapes = sorted(shape for _, _, gradients in seen for shape in gradients)
    assert shapes == sorted(2 * [tuple(parameter.shape) for parameter in model.parameters()])
    assert sum(last for _, last, _ in seen) == 2


def test_buckets(pair):
    pair.run(buckets)


def buffer_hook(rank, location):
    """A hook averages buffers, where torch would broadcast those of rank 0."""
    def average(state, named_buffers):
        futures = []
        for name, value in named_buffers.items():
            if value.is_floating_point():
                if TORCH < (2, 12):
                    value = value.data  # otherwise DDP of this version counts the change, and backward refuses it
                value.div_(dist.get_world_size())
                futures.append(dist.all_reduce(value, async_op=True).get_future())
        if location == _BufferCommHookLocation.POST_FORWARD:
            return futures
        for future in futures:
            future.wait()
        return None

    model = DDP(nn.Sequential(nn.BatchNorm1d(WIDTH), nn.Linear(WIDTH, 4)))
    model._register_buffer_comm_hook(None, average, location)
    inputs = batch(0)[0]
    local = nn.BatchNorm1d(WIDTH)
    means = []
    for part in inputs.tensor_split(dist.get_world_size()):
        local.reset_running_stats()
        local(part)
        means.append(local.running_mean.clone())
    model(share(inputs)).sum().backward()
    if location == _BufferCommHookLocation.PRE_FORWARD:
        close(model.module[0].running_mean, means[rank], what="before the second forward")
        seen = []
        model.module[0].register_forward_pre_hook(lambda module, args: seen.append(module.running_mean.clone()))
        model(share(inputs))
        close(seen[0], sum(means) / len(means), what="in the second forward")
    else:
        close(model.module[0].running_mean, sum(means) / len(means), what="after backward")


@pytest.mark.parametrize("location", ["PRE_FORWARD", "POST_FORWARD"])
def test_buffer_hook(world, location):
    world.run(buffer_hook, _BufferCommHookLocation[location])
