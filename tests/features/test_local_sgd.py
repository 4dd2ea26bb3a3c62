"""Local SGD: parameters that are averaged from time to time, by hooks, averagers and PostLocalSGDOptimizer."""
import collections
import copy

import pytest
import torch
import torch.distributed as dist
from reference import batch, build, close, loss_of, same_everywhere, same_parameters, sgd, share
from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import PostLocalSGDState, post_localSGD_hook
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.algorithms.model_averaging.hierarchical_model_averager import HierarchicalModelAverager
from torch.distributed.algorithms.model_averaging.utils import average_parameters
from torch.distributed.optim import PostLocalSGDOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP


def mean(models):
    """Sets the parameters of all models to their mean."""
    with torch.no_grad():
        for parameters in zip(*(model.parameters() for model in models)):
            value = sum(parameters) / len(parameters)
            for parameter in parameters:
                parameter.copy_(value)


def step_alone(model, optimizer, step, ranks):
    """Trains one step on the mean loss of these ranks' parts of the batch."""
    inputs, targets = batch(step)
    size = dist.get_world_size()
    optimizer.zero_grad()
    (sum(loss_of(model(inputs.tensor_split(size)[r]), targets.tensor_split(size)[r]) for r in ranks)
     / len(ranks)).backward()
    optimizer.step()


def step_together(model, optimizer, step):
    inputs, targets = batch(step)
    optimizer.zero_grad()
    loss_of(model(share(inputs)), share(targets)).backward()
    optimizer.step()


def averager(rank, warmup, period):
    """Every rank trains independently; from step warmup on, each period-th step ends with the mean of all ranks."""
    size = dist.get_world_size()
    mine = build()
    everyone = [copy.deepcopy(mine) for _ in range(size)]
    averages, optimizer = PeriodicModelAverager(period=period, warmup_steps=warmup), sgd(mine)
    optimizers = [sgd(model) for model in everyone]
    for step in range(6):
        step_together(mine, optimizer, step)
        averages.average_parameters(mine.parameters())
        for r, model in enumerate(everyone):
            step_alone(model, optimizers[r], step, [r])
        if step >= warmup and (step - warmup) % period == 0:
            mean(everyone)
            same_everywhere(mine[0].weight)
        same_parameters(mine, everyone[rank])


@pytest.mark.parametrize("warmup, period", [(0, 1), (1, 2), (2, 3)])
def test_periodic_averager(world, warmup, period):
    world.run(averager, warmup, period)


def in_subgroup(rank):
    """average_parameters averages over the ranks of a group; the other ranks keep their parameters."""
    group = dist.new_group([1, 0])
    model = build(seed=rank)
    average_parameters(model.parameters(), group)
    if rank < 2:
        for have, first, second in zip(model.parameters(), build(seed=0).parameters(), build(seed=1).parameters()):
            close(have, (first + second) / 2)
        dist.destroy_process_group(group)
    else:
        same_parameters(model, build(seed=rank), 0)


def test_average_parameters_of_a_group(quartet):
    quartet.run(in_subgroup)


def hierarchical(rank):
    """Pairs average in every second step, all four ranks in every fourth."""
    mine = build()
    everyone = [copy.deepcopy(mine) for _ in range(4)]
    averages, optimizer = HierarchicalModelAverager(collections.OrderedDict([(2, 2), (4, 4)])), sgd(mine)
    optimizers = [sgd(model) for model in everyone]
    for step in range(8):
        step_together(mine, optimizer, step)
        averages.average_parameters(mine.parameters())
        for r, model in enumerate(everyone):
            step_alone(model, optimizers[r], step, [r])
        if step % 4 == 0:
            mean(everyone)
        elif step % 2 == 0:
            mean(everyone[:2])
            mean(everyone[2:])
        same_parameters(mine, everyone[rank])


def test_hierarchical_averager(quartet):
    quartet.run(hierarchical)


def post_local(rank, local_gradients):
    """DDP over all ranks in the first two steps, then over pairs (or each rank alone).

    Every second step ends with the mean of all ranks.
    """
    model = build()
    groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    everyone = [copy.deepcopy(model) for _ in range(4)]
    optimizers = [sgd(each) for each in everyone]
    have = DDP(model)
    have.register_comm_hook(PostLocalSGDState(None, groups[rank // 2], 2,
                                              post_local_gradient_allreduce=local_gradients),
                            post_localSGD_hook)
    optimizer = PostLocalSGDOptimizer(sgd(have), PeriodicModelAverager(period=2, warmup_steps=2))
    for step in range(6):
        step_together(have, optimizer, step)
        for r, each in enumerate(everyone):
            together = [0, 1, 2, 3] if step < 2 else [r & ~1, r | 1] if local_gradients else [r]
            step_alone(each, optimizers[r], step, together)
        if step >= 2 and step % 2 == 0:
            mean(everyone)
        same_parameters(have.module, everyone[rank])
    saved = optimizer.state_dict()
    assert saved["step"] == 6
    other = PostLocalSGDOptimizer(sgd(have), PeriodicModelAverager(period=2, warmup_steps=2))
    other.load_state_dict(saved)
    assert other.averager.step == 6
    dist.barrier()
    dist.destroy_process_group(groups[rank // 2])


@pytest.mark.parametrize("local_gradients", [True, False], ids=["pairs", "apart"])
def test_post_local_sgd(quartet, local_gradients):
    quartet.run(post_local, local_gradients)
