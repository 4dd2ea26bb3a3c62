"""FullyShardedDataParallel (FSDP1), compared with the same training in one process."""
import contextlib
import copy
import functools

import pytest
import torch
import torch.distributed as dist
import torch.nn as nn
from reference import alone, batch, build, close, loss_of, mesh, refused, sgd, share, train
from torch.distributed.algorithms._comm_hooks import default_hooks
from torch.distributed.fsdp import (BackwardPrefetch, CPUOffload, FullOptimStateDictConfig, FullStateDictConfig,
                                    FullyShardedDataParallel, MixedPrecision, ShardedOptimStateDictConfig,
                                    ShardedStateDictConfig, ShardingStrategy, StateDictType)
from torch.distributed.fsdp.wrap import ModuleWrapPolicy, size_based_auto_wrap_policy

CPU = torch.device("cpu")
F16, BF16 = torch.float16, torch.bfloat16


def fsdp(model, **options):
    """Returns the model under FSDP1 on CPU, for which FSDP1 needs a device_id; each linear layer is a unit."""
    options.setdefault("auto_wrap_policy", ModuleWrapPolicy([nn.Linear]))
    options.setdefault("use_orig_params", True)
    return FullyShardedDataParallel(model, device_id=CPU, **options)


def same_as(have, want, tolerance=1e-5):
    with FullyShardedDataParallel.summon_full_params(have):
        for (name, mine), expected in zip(have.named_parameters(), want.parameters(), strict=True):
            close(mine, expected, tolerance, name)


# Options, and the tolerance of the parameters.
OPTIONS = {
    "FULL_SHARD": ({}, 1e-5),
    "SHARD_GRAD_OP": ({"sharding_strategy": ShardingStrategy.SHARD_GRAD_OP}, 1e-5),
    "NO_SHARD": ({"sharding_strategy": ShardingStrategy.NO_SHARD}, 1e-5),
    "flat parameters": ({"use_orig_params": False}, 1e-5),
    "one unit": ({"auto_wrap_policy": None}, 1e-5),
    "wrap by size": ({"auto_wrap_policy": functools.partial(size_based_auto_wrap_policy, min_num_params=300)}, 1e-5),
    "prefetch early": ({"backward_prefetch": BackwardPrefetch.BACKWARD_PRE, "forward_prefetch": True}, 1e-5),
    "prefetch late": ({"backward_prefetch": BackwardPrefetch.BACKWARD_POST, "limit_all_gathers": False}, 1e-5),
    "no prefetch": ({"backward_prefetch": None}, 1e-5),
    "bf16": ({"mixed_precision": MixedPrecision(param_dtype=BF16, reduce_dtype=BF16, buffer_dtype=BF16)}, 2e-2),
    "fp16": ({"mixed_precision": MixedPrecision(param_dtype=F16, reduce_dtype=F16, keep_low_precision_grads=False)},
             5e-3),
    "bf16, reduced in f32": ({"mixed_precision": MixedPrecision(param_dtype=BF16, reduce_dtype=torch.float32)}, 2e-2),
    "f32, reduced in fp16": ({"mixed_precision": MixedPrecision(reduce_dtype=F16)}, 1e-3),
    "NO_SHARD, bf16": ({"sharding_strategy": ShardingStrategy.NO_SHARD,
                        "mixed_precision": MixedPrecision(reduce_dtype=BF16)}, 1e-2),
}


def trains(rank, name):
    options, tolerance = OPTIONS[name]
    model = build()
    want, _ = alone(model)
    have = fsdp(model, **options)
    optimizer = sgd(have)
    for step in range(3):
        inputs, targets = batch(step)
        optimizer.zero_grad()
        output = have(share(inputs))
        loss_of(output.float(), share(targets)).backward()
        optimizer.step()
    same_as(have, want, tolerance)


@pytest.mark.parametrize("name", OPTIONS)
def test_options(world, name):
    world.run(trains, name)


def hybrid(rank, by_mesh):
    """Sharded over two ranks, replicated over two pairs.

    _HYBRID_SHARD_ZERO2 gives other results than one process on CPU, with gloo by the same amount.
    """
    model = build()
    want, _ = alone(model)
    if by_mesh:
        options = {"device_mesh": mesh(2, 2, names=("replicate", "shard"))}
    else:
        pairs, across = ([dist.new_group([0, 1]), dist.new_group([2, 3])],
                         [dist.new_group([0, 2]), dist.new_group([1, 3])])
        options = {"process_group": (pairs[rank // 2], across[rank % 2])}
    have = fsdp(model, sharding_strategy=ShardingStrategy.HYBRID_SHARD, **options)
    train(have, sgd(have))
    same_as(have, want)


@pytest.mark.parametrize("by_mesh", [True, pytest.param(False, marks=pytest.mark.long)], ids=["mesh", "groups"])
def test_hybrid(quartet, by_mesh):
    quartet.run(hybrid, by_mesh)


def needs_device(rank):
    # _init_device_handle of torch/distributed/fsdp/_init_utils.py: without device_id it looks for the accelerator.
    refused("accelerator|CUDA|NVIDIA", lambda: FullyShardedDataParallel(build())(batch(0)[0]))


def test_without_device(pair):
    if torch.accelerator.is_available():
        pytest.skip("torch finds an accelerator, which FSDP1 would take")
    pair.run(needs_device)


def clips(rank, strategy, norm):
    """clip_grad_norm_ covers the shards of all ranks; it returns the norm of the whole gradient."""
    model = build()
    want = copy.deepcopy(model)
    have = fsdp(model, sharding_strategy=ShardingStrategy[strategy])
    optimizers = sgd(have), sgd(want)
    for step in range(3):
        inputs, targets = batch(step)
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss_of(have(share(inputs)), share(targets)).backward()
        loss_of(want(inputs), targets).backward()
        total = have.clip_grad_norm_(0.05, norm_type=norm)
        close(total, nn.utils.clip_grad_norm_(want.parameters(), 0.05, norm_type=norm), 1e-4, "norm")
        for optimizer in optimizers:
            optimizer.step()
    same_as(have, want)


@pytest.mark.parametrize("strategy, norm", [("FULL_SHARD", 2.0), ("FULL_SHARD", float("inf")), ("SHARD_GRAD_OP", 1.0),
                                            ("NO_SHARD", 2.0)])
def test_clip_grad_norm(world, strategy, norm):
    world.run(clips, strategy, norm)


def accumulates(rank, synced):
    """Accumulates gradients of two batches, with no_sync for the first one or without."""
    model = build()
    want, have = copy.deepcopy(model), fsdp(model)
    for step in range(2):
        inputs, targets = batch(step)
        with have.no_sync() if step == 0 and not synced else contextlib.nullcontext():
            loss_of(have(share(inputs)), share(targets)).backward()
        loss_of(want(inputs), targets).backward()
    sgd(have).step()
    sgd(want).step()
    same_as(have, want)


@pytest.mark.parametrize("synced", [True, False], ids=["synced", "no_sync"])
def test_accumulation(world, synced):
    world.run(accumulates, synced)


KINDS = {
    "FULL": (StateDictType.FULL_STATE_DICT, FullStateDictConfig, FullOptimStateDictConfig, {}),
    "FULL on rank 0": (StateDictType.FULL_STATE_DICT, FullStateDictConfig, FullOptimStateDictConfig,
                       # With offload_to_cpu, which copies nothing, torch 2.13 reads freed memory.
                       {"rank0_only": True}),
    "SHARDED": (StateDictType.SHARDED_STATE_DICT, ShardedStateDictConfig, ShardedOptimStateDictConfig, {}),
}


def saves(rank, name, by_mesh):
    """Saves model and optimizer after two steps and loads them into new ones; both continue alike.

    Adam's two states would be one in a full state of CPU tensors: _allgather_orig_param_states of
    torch/distributed/fsdp/_optim_utils.py gathers all states into one buffer and takes them out by cpu(), which copies
    nothing on CPU. SGD has one state.
    """
    kind, config, optimizer_config, options = KINDS[name]

    def made(model):
        return torch.optim.Adam(model.parameters(), lr=0.01) if name == "SHARDED" else sgd(model, momentum=0.9)
    over = {"device_mesh": mesh(dist.get_world_size())} if by_mesh else {}
    first, second = fsdp(build(), **over), fsdp(build(seed=1), **over)
    optimizer, other = made(first), made(second)
    train(first, optimizer, steps=2)
    settings = kind, config(**options), optimizer_config(**options)
    with FullyShardedDataParallel.state_dict_type(first, *settings):
        state, optimizer_state = first.state_dict(), FullyShardedDataParallel.optim_state_dict(first, optimizer)
    if options.get("rank0_only"):
        assert bool(state) == (rank == 0)
        states = [state, optimizer_state]
        dist.broadcast_object_list(states, 0)
        state, optimizer_state = states
        settings = kind, config(), optimizer_config()
    if kind is StateDictType.FULL_STATE_DICT:
        want, _ = alone(build(), made, steps=2)
        for key, value in want.state_dict().items():
            close(state[key], value, 1e-4, key)
    with FullyShardedDataParallel.state_dict_type(second, *settings):
        second.load_state_dict(state)
        other.load_state_dict(FullyShardedDataParallel.optim_state_dict_to_load(
            second, other, copy.deepcopy(optimizer_state)))
    train(first, optimizer, steps=2)
    train(second, other, steps=2)
    for have, want in zip(second.parameters(), first.parameters()):
        close(have, want, 0)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("by_mesh", [False, True], ids=["groups", "mesh"])
def test_state_dict(world, name, by_mesh):
    if name == "SHARDED" and not by_mesh:
        world.run(shards_of_groups)
    else:
        world.run(saves, name, by_mesh)


def shards_of_groups(rank):
    """Without a mesh the sharded state consists of ShardedTensors, whose pieces record their rank."""
    model = fsdp(build())
    with FullyShardedDataParallel.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
        state = model.state_dict()
        for name, parameter in build().named_parameters():
            metadata = state[name].metadata()
            assert metadata.size == parameter.shape, name
            assert sum(shard.shard_sizes.numel() if hasattr(shard.shard_sizes, "numel")
                       else torch.Size(shard.shard_sizes).numel()
                       for shard in metadata.shards_metadata) == parameter.numel()
            for shard in state[name].local_shards():
                where = tuple(slice(offset, offset + size)
                              for offset, size in zip(shard.metadata.shard_offsets, shard.metadata.shard_sizes))
                close(shard.tensor, parameter[where], 0, name)
        model.load_state_dict(state)


def wants_gpu(rank, options):
    refused("requires them to be on GPU|NVIDIA|CUDA|accelerator", lambda: fsdp(build(), **options)(batch(0)[0]))


# From _check_module_states_for_sync_module_states of torch/distributed/fsdp/_init_utils.py, and pin_memory in its
# _flat_param.py.
@pytest.mark.parametrize("options", [{"sync_module_states": True}, {"cpu_offload": CPUOffload(offload_params=True)}],
                         ids=["sync", "offload"])
def test_needs_accelerator(pair, options):
    if torch.accelerator.is_available():
        pytest.skip("torch finds an accelerator")
    pair.run(wants_gpu, options)


# Hook, the class of its state, the sharding strategy.
HOOKS = {
    "allreduce": (default_hooks.allreduce_hook, default_hooks.DefaultState, "NO_SHARD"),
    "reduce_scatter": (default_hooks.reduce_scatter_hook, default_hooks.DefaultState, "FULL_SHARD"),
    "fp16_compress": (default_hooks.fp16_compress_hook, default_hooks.LowPrecisionState, "FULL_SHARD"),
    "bf16_compress": (default_hooks.bf16_compress_hook, default_hooks.LowPrecisionState, "FULL_SHARD"),
}


def hooked(rank, name):
    hook, state, strategy = HOOKS[name]
    model = build()
    want, _ = alone(model)
    have = fsdp(model, sharding_strategy=ShardingStrategy[strategy])
    have.register_comm_hook(state(dist.group.WORLD), hook)
    if state is default_hooks.LowPrecisionState:
        # _decompress of torch/distributed/algorithms/_comm_hooks/default_hooks.py: record_stream of a CPU tensor.
        refused("record_stream|unknown parameter type", train, have, sgd(have))
    else:
        train(have, sgd(have))
        same_as(have, want)


@pytest.mark.parametrize("name", HOOKS)
def test_comm_hooks(world, name):
    world.run(hooked, name)
