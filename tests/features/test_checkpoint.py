"""Distributed checkpoints: saved on some ranks, loaded on others, in the background, with planners and failures."""
import copy
import os

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from reference import alone, build, close, mesh, same_parameters, sgd, train
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save, torch_save_to_dcp
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    get_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
    set_state_dict,
)
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel as DDP

STEPS = 2


def adam(model):
    return torch.optim.AdamW(model.parameters(), lr=0.01)


def sharded(seed, *shape):
    """Returns a model under FSDP2, or hybrid sharding for two dimensions."""
    model = build(seed)
    ranks = mesh(*shape, names=("copies", "shards") if len(shape) == 2 else None)
    for layer in model:
        if list(layer.parameters()):
            fully_shard(layer, mesh=ranks)
    return fully_shard(model, mesh=ranks)


class Steps:
    """A part of the state that is not a tensor, with the protocol of torch.distributed.checkpoint.stateful."""

    def __init__(self, count=0):
        self.count, self.notes = count, {}

    def state_dict(self):
        return {"count": self.count, "notes": {"text": "at step", "list": [1, 2.5, None]}}

    def load_state_dict(self, state):
        self.count, self.notes = state["count"], state["notes"]


def save_sharded(rank, folder):
    """Trains two steps of FSDP2 with AdamW, then saves model, optimizer and a part that is not a tensor."""
    model = sharded(0, dist.get_world_size())
    optimizer = adam(model)
    train(model, optimizer, STEPS)
    weights, moments = get_state_dict(model, optimizer)
    dcp.save({"model": weights, "optim": moments, "steps": Steps(STEPS)}, checkpoint_id=folder)


def load_into(model, folder):
    """Loads the checkpoint into the model and a new optimizer, and compares both with training in one process.

    Then trains one more step.
    """
    optimizer, steps = adam(model), Steps()
    weights, moments = get_state_dict(model, optimizer)
    state = {"model": weights, "optim": moments, "steps": steps}
    dcp.load(state, checkpoint_id=folder)
    assert (steps.count, steps.notes) == (STEPS, {"text": "at step", "list": [1, 2.5, None]})
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optim"])
    want = build(0)
    its_optimizer = adam(want)
    train(want, its_optimizer, STEPS, part=lambda rows: rows)
    bare = model.module if isinstance(model, DDP) else model
    same_parameters(bare, want)
    have = dict(zip((n for n, _ in bare.named_parameters()), (optimizer.state[p] for p in bare.parameters()),
                    strict=True))
    for name, parameter in want.named_parameters():
        for key, value in its_optimizer.state[parameter].items():
            close(have[name][key], value, what=f"{key} of {name}")
    train(model, optimizer, 1)
    train(want, its_optimizer, 1, part=lambda rows: rows)
    same_parameters(bare, want)


def load_sharded(rank, folder, *shape):
    load_into(sharded(5, *shape), folder)


def load_replicated(rank, folder):
    load_into(DDP(build(6)), folder)


def test_two_ranks_save_and_others_load(pair, trio, tmp_path):
    """FSDP2 on 2 ranks saves; FSDP2 on 3 ranks, DDP on 2 and one process load."""
    folder = str(tmp_path / "saved")
    pair.run(save_sharded, folder)
    trio.run(load_sharded, folder, 3)
    pair.run(load_replicated, folder)
    dcp_to_torch_save(folder, tmp_path / "whole.pt")  # in this process, without a group
    state = torch.load(tmp_path / "whole.pt", weights_only=False)
    want, _ = alone(build(0), adam, STEPS)
    for name, value in want.state_dict().items():
        close(state["model"][name], value)
    torch_save_to_dcp(tmp_path / "whole.pt", tmp_path / "again")
    pair.run(load_sharded, str(tmp_path / "again"), 2)


@pytest.mark.long
def test_other_meshes(pair, quartet, tmp_path):
    """From 2 ranks to HSDP on 2 × 2 and to 4 ranks; from 4 ranks to 2."""
    folder = str(tmp_path / "saved")
    pair.run(save_sharded, folder)
    quartet.run(load_sharded, folder, 2, 2)
    quartet.run(load_sharded, folder, 4)
    folder = str(tmp_path / "four")
    quartet.run(save_sharded, folder)
    pair.run(load_sharded, folder, 2)


def save_dtensors(rank, folder):
    whole = torch.arange(7 * 10, dtype=torch.float64).view(7, 10)
    state = {name: distribute_tensor(whole * (i + 1), mesh(2), [placement])
             for i, (name, placement) in enumerate(
                    {"rows": Shard(0), "columns": Shard(1), "copies": Replicate()}.items())}
    # Plain values are the same on all ranks and saved once; several types.
    state |= {"half": torch.arange(5, dtype=torch.bfloat16), "scalar": torch.tensor(2.5), "bytes": b"\0\1", "number": 3}
    dcp.save(state, checkpoint_id=folder)


def load_dtensors(rank, folder, order):
    """Loads each tensor into another placement, on another mesh."""
    whole = torch.arange(7 * 10, dtype=torch.float64).view(7, 10)
    placements = [[Shard(1), Shard(0)], [Replicate(), Shard(1)], [Shard(0), Replicate()]]
    state = {name: distribute_tensor(torch.zeros(7, 10, dtype=torch.float64), mesh(2, 2), placements[(i + order) % 3])
             for i, name in enumerate(["rows", "columns", "copies"])}
    state |= {"half": torch.zeros(5, dtype=torch.bfloat16), "scalar": torch.tensor(0.0), "bytes": b"", "number": 0}
    dcp.load(state, checkpoint_id=folder)
    for i, name in enumerate(["rows", "columns", "copies"]):
        assert isinstance(state[name], DTensor)
        close(state[name], whole * (i + 1), 0, name)
    assert state["half"].tolist() == [0, 1, 2, 3, 4] and state["scalar"].item() == 2.5
    assert (state["bytes"], state["number"]) == (b"\0\1", 3)


@pytest.mark.long
def test_placements_change(pair, quartet, tmp_path):
    pair.run(save_dtensors, str(tmp_path))
    for order in range(3):
        quartet.run(load_dtensors, str(tmp_path), order)


def check_async(rank, folder, kind):
    """The saved state is that at the call, although training goes on meanwhile; the saver has its own group."""
    group = dist.new_group()
    model = DDP(build(0))
    optimizer = adam(model)
    train(model, optimizer, STEPS)
    state = {"model": model.module.state_dict(), "optim": get_optimizer_state_dict(model, optimizer),
             "steps": Steps(STEPS)}
    options = ({"async_checkpointer_type": dcp.state_dict_saver.AsyncCheckpointerType.PROCESS} if kind == "process"
               else {})
    first = dcp.async_save(state, checkpoint_id=folder, process_group=group, **options)
    train(model, optimizer, 3)
    first.result(timeout=90)
    second = dcp.async_save({"model": model.module.state_dict()}, checkpoint_id=folder + "-2", process_group=group,
                            **options)
    second.result(timeout=90)
    loaded = {"model": build(9).state_dict()}
    dcp.load(loaded, checkpoint_id=folder + "-2")
    for name, value in model.module.state_dict().items():
        close(loaded["model"][name], value, 0)
    load_into(DDP(build(4)), folder)
    dist.barrier()
    dist.destroy_process_group(group)


def test_async_save_by_a_thread(pair, tmp_path):
    pair.run(check_async, str(tmp_path / "saved"), "thread")


@pytest.mark.long
def test_async_save_by_a_process(pair, tmp_path):
    """goccl trains beside torch's saving process.

    That process makes its own gloo group (checkpoint/_async_process_executor.py).
    """
    pair.run(check_async, str(tmp_path / "saved"), "process")


class Failing(dcp.DefaultSavePlanner):
    """Raises on one rank in one of the steps of a save."""

    def __init__(self, step, bad):
        super().__init__()
        self.step, self.bad = step, bad

    def maybe_fail(self, step):
        if self.step == step and dist.get_rank() == self.bad:
            raise ValueError(f"{step} went wrong here")

    def create_local_plan(self):
        self.maybe_fail("local plan")
        return super().create_local_plan()

    def create_global_plan(self, plans):
        self.maybe_fail("global plan")
        assert len(plans) == dist.get_world_size()
        return super().create_global_plan(plans)

    def resolve_data(self, item):
        self.maybe_fail("writing")
        return super().resolve_data(item)


class Renaming(dcp.DefaultLoadPlanner):
    """Loads "new.x" from the value that was saved as "old.x"."""

    def set_up_planner(self, state_dict, metadata=None, is_coordinator=False):
        super().set_up_planner({"old." + name[4:]: value for name, value in state_dict.items()}, metadata,
                               is_coordinator)


def check_planners(rank, folder):
    state = {"old.rows": distribute_tensor(torch.arange(12.0).view(6, 2), mesh(3), [Shard(0)]),
             "old.number": torch.tensor(7)}
    # A step of a planner that fails on one rank raises on all ranks, and the exception names the rank and the reason.
    for step, bad in (("local plan", 1), ("global plan", 0), ("writing", 2)):
        with pytest.raises(dcp.api.CheckpointException, match=f"{step} went wrong here") as caught:
            dcp.save(state, checkpoint_id=f"{folder}/bad", planner=Failing(step, bad))
        assert set(caught.value.failures) == {bad}, (step, caught.value.failures)
    dcp.save(state, checkpoint_id=f"{folder}/good", planner=Failing("never", -1))

    renamed = {"new.rows": distribute_tensor(torch.zeros(6, 2), mesh(3), [Shard(0)]), "new.number": torch.tensor(0)}
    dcp.load(renamed, checkpoint_id=f"{folder}/good", planner=Renaming())
    close(renamed["new.rows"], torch.arange(12.0).view(6, 2), 0)
    assert renamed["new.number"].item() == 7

    with pytest.raises(dcp.api.CheckpointException, match="Missing key in checkpoint state_dict: other"):
        dcp.load({"other": torch.zeros(1)}, checkpoint_id=f"{folder}/good")
    partly = {"other": torch.zeros(1), "old.number": torch.tensor(0)}
    dcp.load(partly, checkpoint_id=f"{folder}/good", planner=dcp.DefaultLoadPlanner(allow_partial_load=True))
    assert partly["old.number"].item() == 7 and partly["other"].item() == 0
    with pytest.raises(dcp.api.CheckpointException, match="[Ss]ize mismatch"):
        dcp.load({"old.number": torch.zeros(4)}, checkpoint_id=f"{folder}/good")
    dist.barrier()


def test_planners(trio, tmp_path):
    trio.run(check_planners, str(tmp_path))


def check_coordinator(rank, folder):
    """Uses a group in which another rank coordinates: plans are gathered to it and scattered from it."""
    group = dist.new_group([1, 2])
    if rank != 0:
        dcp.save({"of everyone": torch.full((3,), 4.0)}, checkpoint_id=folder, process_group=group)
        state = {"of everyone": torch.zeros(3)}
        dcp.load(state, checkpoint_id=folder, process_group=group)
        assert state["of everyone"].tolist() == [4.0] * 3
        dist.destroy_process_group(group)
    dist.barrier()
    assert sorted(name for name in os.listdir(folder) if name.startswith(".")) == [".metadata"]


def test_save_by_a_subgroup(trio, tmp_path):
    trio.run(check_coordinator, str(tmp_path / "saved"))


def check_state_dicts(rank):
    """Gathers full states to rank 0, and sends them into a sharded model and optimizer (broadcast_from_rank0)."""
    want, _ = alone(build(0), sgd, STEPS)
    model = sharded(0, dist.get_world_size())
    train(model, sgd(model), STEPS)
    full = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    assert (list(full) == list(want.state_dict())) if rank == 0 else not full
    for name, value in full.items():
        close(value, want.state_dict()[name])

    other = sharded(3, dist.get_world_size())
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    set_model_state_dict(other, full if rank == 0 else {}, options=options)
    same_parameters(other, model, 0)
    optimizer = adam(model)
    train(model, optimizer, 1)
    weights, moments = get_state_dict(model, optimizer,
                                      options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    its_optimizer = adam(other)
    set_model_state_dict(other, weights if rank == 0 else {}, options=options)
    set_optimizer_state_dict(other, its_optimizer, copy.deepcopy(moments) if rank == 0 else {}, options=options)
    same_parameters(other, model, 0)
    train(model, optimizer, 1)
    train(other, its_optimizer, 1)
    same_parameters(other, model, 0)

    replicated = DDP(build(2))
    set_model_state_dict(replicated, want.state_dict())
    same_parameters(replicated.module, want, 0)
    assert list(get_model_state_dict(replicated)) == list(want.state_dict())  # without "module."


def test_state_dicts(pair):
    pair.run(check_state_dicts)


@pytest.mark.long
def test_state_dicts_on_three_ranks(trio):
    trio.run(check_state_dicts)
