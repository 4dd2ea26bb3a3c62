"""fully_shard (FSDP2), compared with the same training in one process."""
import copy

import pytest
import torch
import torch.distributed as dist
import torch.nn as nn
from reference import (WIDTH, alone, batch, build, close, loss_of, mesh, refused, same_gradients, same_parameters, sgd,
                       share, train)
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Shard

F16, BF16, F32 = torch.float16, torch.bfloat16, torch.float32


def flat():
    return mesh(dist.get_world_size())


def sharded(model, over=None, **options):
    """Makes each linear layer a unit, and the remaining layers another one."""
    over = over or flat()
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=over, **options)
    return fully_shard(model, mesh=over, **options)


def precision(param=None, reduce=None):
    return {"mp_policy": MixedPrecisionPolicy(param_dtype=param, reduce_dtype=reduce, output_dtype=F32)}


def nothing(model):
    pass


def each(method, *args):
    """Returns a function that calls the method of every unit of a model."""
    def prepare(model):
        for module in model.modules():
            if isinstance(module, FSDPModule):
                getattr(module, method)(*args)
    return prepare


def prefetching(model):
    first, middle, last = model[0], model[2], model[4]
    first.set_modules_to_forward_prefetch([middle, last])
    last.set_modules_to_backward_prefetch([middle, first])


# Options, a call before training, the factor by which the effective learning rate is larger, the tolerance of the
# parameters.
OPTIONS = {
    "f32": ({}, nothing, 1, 1e-5),
    "bf16, reduced in f32": (precision(BF16, F32), nothing, 1, 2e-2),
    "bf16": (precision(BF16, BF16), nothing, 1, 2e-2),
    "f16": (precision(F16, F16), nothing, 1, 5e-3),
    "f32, reduced in f16": (precision(None, F16), nothing, 1, 1e-3),
    "f32, reduced in bf16": (precision(None, BF16), nothing, 1, 1e-2),
    "stay unsharded after forward": ({"reshard_after_forward": False}, nothing, 1, 1e-5),
    "offload": ({"offload_policy": CPUOffloadPolicy(pin_memory=False)}, nothing, 1, 1e-5),
    "divide factor": ({}, each("set_gradient_divide_factor", 24.0), "ranks / 24", 1e-5),
    "divide factor, f16": (precision(F16, F16), each("set_gradient_divide_factor", 24.0), "ranks / 24", 5e-3),
    "divide factor, bf16": (precision(BF16, BF16), each("set_gradient_divide_factor", 24.0), "ranks / 24", 2e-2),
    "sums only": ({}, each("set_force_sum_reduction_for_comms", True), 1, 1e-5),
    "sums only, divide factor": ({}, lambda model: (each("set_gradient_divide_factor", 24.0)(model),
                                                    each("set_force_sum_reduction_for_comms", True)(model)),
                                 "ranks / 24", 1e-5),
    "memory of the group": ({}, each("set_allocate_memory_from_process_group_for_comm", True), 1, 1e-5),
    "prefetch": ({}, prefetching, 1, 1e-5),
    "unshard in the call": ({}, each("_set_unshard_async_op", True), 1, 1e-5),
    "two buffers": ({}, each("set_reduce_scatter_max_input_buffers", 2), 1, 1e-5),
    "a group for reduce_scatter": ({}, each("set_separate_reduce_scatter_group", True), 1, 1e-5),
}
NEWER = {"two buffers": "set_reduce_scatter_max_input_buffers",
         "a group for reduce_scatter": "set_separate_reduce_scatter_group",
         "sums only": "set_force_sum_reduction_for_comms",
         "sums only, divide factor": "set_force_sum_reduction_for_comms",
         "memory of the group": "set_allocate_memory_from_process_group_for_comm"}


def trains(rank, name, over=None):
    options, prepare, factor, tolerance = OPTIONS[name]
    factor = dist.get_world_size() / 24 if factor == "ranks / 24" else factor
    model = build()
    want, _ = alone(model, lambda model: sgd(model, lr=0.1 * factor))
    have = sharded(model, over and mesh(*over, names=("replicate", "shard")), **options)
    prepare(have)
    train(have, sgd(have))
    same_parameters(have, want, tolerance)


@pytest.mark.parametrize("name", OPTIONS)
def test_options(world, name):
    if name in NEWER and not hasattr(FSDPModule, NEWER[name]):
        pytest.skip(f"FSDPModule of torch {torch.__version__} has no {NEWER[name]}")
    world.run(trains, name)


@pytest.mark.parametrize("name", ["f32", "bf16", "f16", "divide factor", "offload", "sums only",
                                  *(pytest.param(name, marks=pytest.mark.long)
                                    for name in ("bf16, reduced in f32", "memory of the group"))])
def test_hybrid(quartet, name):
    """Sharded over pairs, replicated over two of them."""
    quartet.run(trains, name, (2, 2))


def reshards_partly(rank):
    """Parameters are sharded over four ranks, and over two after forward."""
    model = build()
    want, _ = alone(model)
    have = sharded(model, reshard_after_forward=2)
    train(have, sgd(have))
    same_parameters(have, want)


def test_reshard_after_forward_into_pairs(quartet):
    quartet.run(reshards_partly)


def clips(rank, norm):
    model = build()
    want, have = copy.deepcopy(model), sharded(model)
    optimizers = sgd(have), sgd(want)
    for step in range(3):
        inputs, targets = batch(step)
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss_of(have(share(inputs)), share(targets)).backward()
        loss_of(want(inputs), targets).backward()
        total = nn.utils.clip_grad_norm_(have.parameters(), 0.05, norm_type=norm)
        close(total, nn.utils.clip_grad_norm_(want.parameters(), 0.05, norm_type=norm), 1e-4, "norm")
        for optimizer in optimizers:
            optimizer.step()
    same_parameters(have, want)


@pytest.mark.parametrize("norm", [2.0, 1.0, float("inf")])
def test_clip_grad_norm(world, norm):
    if world.size == 3 and norm == float("inf"):
        pytest.skip("the last of three ranks has nothing of four rows: torch has no infinity norm of an empty tensor")
    world.run(clips, norm)


def accumulates(rank, shape, method):
    """Accumulates gradients of three batches.

    They are reduced only with the last one (over the replicas, for set_requires_all_reduce).
    """
    model = build()
    want, have = copy.deepcopy(model), sharded(model, mesh(*shape, names=("replicate", "shard")[-len(shape):]))
    for step in range(3):
        getattr(have, method)(step == 2)
        have.set_is_last_backward(step == 2)
        have.set_reshard_after_backward(step == 2)
        inputs, targets = batch(step)
        loss_of(have(share(inputs)), share(targets)).backward()
        loss_of(want(inputs), targets).backward()
    same_gradients(have, want)


def test_requires_gradient_sync(world):
    world.run(accumulates, (world.size,), "set_requires_gradient_sync")


@pytest.mark.parametrize("method", ["set_requires_gradient_sync", "set_requires_all_reduce"])
def test_accumulation_of_replicas(quartet, method):
    quartet.run(accumulates, (2, 2), method)


def all_reduce_hook(rank):
    """A hook reduces over the replicas, where the mesh contains only the shards, as HSDP does."""
    grid = mesh(2, 2, names=("replicate", "shard"))
    model = build()
    want, _ = alone(model)
    have = sharded(model, grid["shard"])

    def hook(gradient):
        dist.all_reduce(gradient, dist.ReduceOp.AVG, group=grid.get_group("replicate"))
    each("set_all_reduce_hook", hook)(have)
    # Without native HSDP the hook needs a stream, and foreach_reduce of _fsdp_collectives.py uses it with the CPU's
    # handle.
    train(have, sgd(have))
    same_parameters(have, want)


def test_all_reduce_hook(quartet):
    quartet.run(all_reduce_hook)


def custom(rank):
    """User-defined communication: all_gather with a list, reduce_scatter in float64."""
    from torch.distributed.fsdp._fully_shard._fsdp_api import AllGather, ReduceScatter

    calls = []

    class Memory:
        def allocate(self, size, *, dtype, device):
            return torch.empty(*size, dtype=dtype, device=device)

    class Gather(Memory, AllGather):
        def __call__(self, output_tensor, input_tensor, group, async_op=False):
            calls.append("gather")
            return dist.all_gather(list(output_tensor.chunk(dist.get_world_size(group))), input_tensor, group, async_op)

    class Reduce(Memory, ReduceScatter):
        def __call__(self, output_tensor, input_tensor, group, op, async_op=False):
            calls.append("reduce")
            output = torch.empty_like(output_tensor, dtype=torch.float64)
            dist.reduce_scatter_tensor(output, input_tensor.double(), op, group)
            output_tensor.copy_(output)

    model = build()
    want, _ = alone(model)
    have = sharded(model)
    each("set_custom_all_gather", Gather())(have)
    each("set_custom_reduce_scatter", Reduce())(have)
    train(have, sgd(have))
    same_parameters(have, want)
    assert calls.count("reduce") == 9 and calls.count("gather") >= 9, calls


def test_custom_communication(world):
    if not hasattr(FSDPModule, "set_custom_reduce_scatter"):
        pytest.skip(f"FSDPModule of torch {torch.__version__} has no set_custom_reduce_scatter")
    world.run(custom)


class Uneven(nn.Module):
    """Parameters of which most ranks have no part: some shared by two layers, one frozen, one on dimension 1."""

    def __init__(self):
        super().__init__()
        self.inward, self.outward = nn.Linear(WIDTH, 5, bias=False), nn.Linear(5, WIDTH, bias=False)
        self.again = nn.Linear(WIDTH, 5, bias=False)
        self.again.weight = self.inward.weight
        self.scale = nn.Parameter(torch.tensor([0.5]))
        self.frozen = nn.Parameter(torch.randn(3, WIDTH), requires_grad=False)
        self.last = nn.Linear(5, 4)

    def forward(self, inputs):
        hidden = self.outward(torch.tanh(self.inward(inputs))) * self.scale + self.frozen.sum(0)
        return self.last(self.again(hidden))


def uneven(rank, dimension):
    torch.manual_seed(0)
    model = Uneven()
    want, _ = alone(model, lambda m: torch.optim.SGD([p for p in m.parameters() if p.requires_grad], lr=0.1))

    def placement(parameter):
        return Shard(1) if parameter.dim() == 2 and parameter.shape[1] % dist.get_world_size() == 0 else Shard(0)
    have = fully_shard(model, mesh=flat(), shard_placement_fn=placement if dimension else None)
    assert have.again.weight is have.inward.weight and isinstance(have.scale, DTensor)
    train(have, torch.optim.SGD([p for p in have.parameters() if p.requires_grad], lr=0.1))
    same_parameters(have, want)


@pytest.mark.parametrize("dimension", [0, 1])
def test_uneven_shared_and_frozen_parameters(world, dimension):
    world.run(uneven, dimension)


def from_meta(rank):
    """A model made on the meta device gets its memory after sharding."""
    with torch.device("meta"):
        model = build()
    have = sharded(model)
    have.to_empty(device="cpu")
    source = build(seed=3)
    for mine, value in zip(have.parameters(), source.parameters()):
        mine.data.copy_(torch.distributed.tensor.distribute_tensor(value.data, flat(), mine.placements))
    same_parameters(have, source, 0)
    want, _ = alone(source)
    train(have, sgd(have))
    same_parameters(have, want)


def test_meta_device(world):
    world.run(from_meta)


def by_hand(rank):
    """unshard, async and not, and reshard register the parameters accordingly."""
    have, want = sharded(build()), build()
    handle = have[0].unshard(async_op=True)
    handle.wait()
    assert not isinstance(have[0].weight, DTensor)
    close(have[0].weight, want[0].weight, 0)
    have[0].reshard()
    assert isinstance(have[0].weight, DTensor)
    have[2].unshard()
    close(have[2].weight, want[2].weight, 0)
    have[2].reshard()


def test_unshard_and_reshard(world):
    world.run(by_hand)


def checkpointed(rank):
    """Activations are recomputed in backward, for which parameters are gathered again."""
    from torch.distributed._composable import checkpoint

    model = build()
    want, _ = alone(model)
    for layer in model:
        if isinstance(layer, nn.Linear):
            checkpoint(layer)
    have = sharded(model)
    train(have, sgd(have))
    same_parameters(have, want)


def test_activation_checkpointing(world):
    world.run(checkpointed)


def compiled(rank, backend):
    """The model is compiled; FSDP's hooks stay outside the graphs."""
    torch._dynamo.reset()
    model = build()
    want, _ = alone(model)
    have = sharded(model)
    fast = torch.compile(have, backend=backend)
    optimizer = sgd(have)
    train(fast, optimizer)
    same_parameters(have, want)


@pytest.mark.parametrize("backend", ["eager", pytest.param("aot_eager", marks=pytest.mark.long),
                                     pytest.param("inductor", marks=pytest.mark.long)])
def test_compile(world, backend):
    world.run(compiled, backend)


def pinned(rank):
    """pin_memory needs an accelerator, and the error says so."""
    refused("accelerator|CUDA|NVIDIA", lambda: sharded(build(), offload_policy=CPUOffloadPolicy(pin_memory=True)))


def test_pinned_offload(pair):
    """torch/distributed/fsdp/_fully_shard/_fsdp_param.py calls pin_memory() if the policy requires it."""
    if torch.accelerator.is_available():
        pytest.skip("torch finds an accelerator, which has pinned memory")
    pair.run(pinned)
