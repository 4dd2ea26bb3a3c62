"""Every schedule of torch.distributed.pipelining, compared with the same model in one process."""
import copy

import pytest
import torch
import torch.distributed as dist
import torch.nn as nn
from reference import close, mesh, same_gradients, share
from torch.distributed import pipelining
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import schedules

CPU = torch.device("cpu")
WIDTH, ROWS = 10, 24


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, rows):
        return torch.tanh(self.linear(rows))


def layers(count):
    torch.manual_seed(0)
    return nn.Sequential(*(Layer() for _ in range(count)))


def rows(seed):
    return torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(seed))


def loops(rank, size, each):
    """Returns the stages of a rank when stages go around the ranks."""
    return [rank + turn * size for turn in range(each)]


def vee(rank, size, each):
    """Returns the stages of a rank when stages go through the ranks and back."""
    return [rank, 2 * size - 1 - rank]


# Schedule: number of stages of a rank, their placement, micro-batches for each rank.
SCHEDULES = {
    "ScheduleGPipe": (1, loops, 2),
    "Schedule1F1B": (1, loops, 2),
    "ScheduleInterleaved1F1B": (2, loops, 2),
    "ScheduleLoopedBFS": (2, loops, 2),
    "ScheduleInterleavedZeroBubble": (2, loops, 2),
    "ScheduleZBVZeroBubble": (2, vee, 2),
    "ScheduleDualPipeV": (2, vee, 2),
}


def chunks_of(size, per_rank):
    """Returns the number of micro-batches, which divides the number of rows."""
    return {2: 4, 3: 6, 4: 8}[size] * per_rank // 2


def pipes(rank, name, steps, group_ranks=None):
    each, place, per_rank = SCHEDULES[name]
    group = dist.new_group(group_ranks) if group_ranks else None
    if group is not None and rank not in group_ranks:
        dist.barrier()
        return
    size, me = dist.get_world_size(group), dist.get_rank(group)
    model = layers(size * each)
    want = copy.deepcopy(model)
    mine = [pipelining.PipelineStage(model[index], index, size * each, CPU, group=group)
            for index in place(me, size, each)]
    chunks = chunks_of(size, per_rank)
    schedule = getattr(pipelining, name, None) or getattr(schedules, name)
    schedule = schedule(mine if each > 1 else mine[0], chunks, loss_fn=nn.functional.mse_loss)
    first, last = (any(stage.is_first for stage in mine), any(stage.is_last for stage in mine))
    for step in range(steps):
        x, y = rows(step), rows(100 + step)
        losses = []
        model.zero_grad()
        want.zero_grad()
        output = schedule.step(*((x,) if first else ()), **({"target": y, "losses": losses} if last else {}))
        expected = want(x)
        loss = nn.functional.mse_loss(expected, y)
        loss.backward()
        if last:
            close(output, expected, 1e-5, "output")
            close(torch.stack(losses).mean(), loss, 1e-5, "loss")
        for stage in mine:
            same_gradients(stage.submod, want[stage.stage_index], 1e-5)
    if group is not None:
        dist.barrier()
        dist.destroy_process_group(group)


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules(world, name):
    world.run(pipes, name, 2)


@pytest.mark.parametrize("name", ["Schedule1F1B", pytest.param("ScheduleZBVZeroBubble", marks=pytest.mark.long)])
def test_in_group_of_some_ranks(quartet, name):
    quartet.run(pipes, name, 1, [3, 1])


def shapes_change(rank):
    """Stages with different widths, two outputs, and evaluation without backward."""
    size = dist.get_world_size()

    class Wide(nn.Module):
        def __init__(self, index):
            super().__init__()
            self.linear = nn.Linear(4 + index, 5 + index)

        def forward(self, rows, passed):
            return self.linear(rows), passed + rows.sum(1)

    torch.manual_seed(0)
    model = [Wide(index) for index in range(size)]
    stage = pipelining.PipelineStage(model[rank], rank, size, CPU)
    schedule = pipelining.ScheduleGPipe(stage, 4)
    x, passed = torch.randn(8, 4), torch.zeros(8)
    with torch.no_grad():
        output = schedule.eval(x, passed) if rank == 0 else schedule.eval()
    for layer in model:
        x, passed = layer(x, passed)
    if rank == size - 1:
        close(output[0], x, 1e-5)
        close(output[1], passed, 1e-5)


def test_eval_and_shapes(world):
    world.run(shapes_change)


class Words(nn.Module):
    """A model that the tracing front end splits."""

    def __init__(self, size):
        super().__init__()
        self.table, self.layers, self.out = nn.Embedding(30, WIDTH), layers(size), nn.Linear(WIDTH, 30)

    def forward(self, words, scale):
        return self.out(self.layers(self.table(words) * scale))


def traced(rank):
    """pipelining.pipeline() cuts a traced model at given layers; the parts are stages, with arguments by name."""
    size = dist.get_world_size()
    torch.manual_seed(0)
    model = Words(size)
    want = copy.deepcopy(model)
    words = torch.randint(0, 30, (8, 5), generator=torch.Generator().manual_seed(1))
    target, scale = torch.randint(0, 30, (8, 5), generator=torch.Generator().manual_seed(2)), torch.full((8, 1, 1), 0.5)
    cuts = {f"layers.{index}": pipelining.SplitPoint.BEGINNING for index in range(1, size)}
    pipe = pipelining.pipeline(model, mb_args=(words.chunk(4)[0],), mb_kwargs={"scale": scale.chunk(4)[0]},
                               split_spec=cuts)
    assert pipe.num_stages == size

    def loss(output, wanted):
        return nn.functional.cross_entropy(output.flatten(0, 1), wanted.flatten())
    stage = pipe.build_stage(rank, CPU)
    schedule = pipelining.Schedule1F1B(stage, 4, loss_fn=loss)
    losses = []
    output = schedule.step(*((words,) if rank == 0 else ()), **({"scale": scale} if rank == 0 else {}),
                           **({"target": target, "losses": losses} if rank == size - 1 else {}))
    expected = want(words, scale)
    loss(expected, target).backward()
    if rank == size - 1:
        close(output, expected, 1e-5, "output")
        close(torch.stack(losses).mean(), loss(expected, target), 1e-5, "loss")
    for name, parameter in stage.submod.named_parameters():
        close(parameter.grad, want.get_parameter(name).grad, 1e-5, name)


def test_traced_model(world):
    world.run(traced)


def with_fsdp(rank):
    """Two dimensions: a pipeline of two stages, each sharded over two ranks."""
    grid = mesh(2, 2, names=("pipe", "data"))
    model = layers(2)
    want = copy.deepcopy(model)
    index = grid["pipe"].get_local_rank()
    part = fully_shard(model[index], mesh=grid["data"], reshard_after_forward=False)
    stage = pipelining.PipelineStage(part, index, 2, CPU, group=grid.get_group("pipe"))
    schedule = pipelining.ScheduleGPipe(stage, 4, loss_fn=nn.functional.mse_loss)
    x, y = (share(rows(seed), grid.get_group("data")) for seed in (0, 1))
    schedule.step(*((x,) if index == 0 else ()), **({"target": y} if index == 1 else {}))
    nn.functional.mse_loss(want(rows(0)), rows(1)).backward()
    same_gradients(part, want[index], 1e-5)


def test_with_fsdp(quartet):
    quartet.run(with_fsdp)
