"""Forked DataLoader workers beside training, and the rules for a fork of a rank."""
import multiprocessing
import os
import time

import pytest
import torch
import torch.distributed as dist
from reference import BATCH, alone, batch, build, loss_of, same_parameters, sgd
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset

STEPS = 3


class Rows(Dataset):
    """This rank's rows of reference.batch, one after the other; made in the workers."""

    def __init__(self, rank, size):
        self.rank, self.each = rank, BATCH // size

    def __len__(self):
        return STEPS * self.each

    def __getitem__(self, i):
        inputs, targets = batch(i // self.each)
        row = self.rank * self.each + i % self.each
        return inputs[row], targets[row], os.getpid()


class Communicating(Dataset):
    """Its workers use the group, which is an error."""

    def __len__(self):
        return 4

    def __getitem__(self, i):
        t = torch.ones(3)
        dist.all_reduce(t)
        return t


def check_training(rank):
    """DDP reads from two workers that live through all epochs.

    They are forked while operations are in flight, which succeed.
    """
    size = dist.get_world_size()
    want, _ = alone(build(0), steps=STEPS)
    rows = Rows(rank, size)
    loader = DataLoader(rows, batch_size=rows.each, num_workers=2, persistent_workers=True,
                        multiprocessing_context="fork")
    model = DDP(build(0))
    start = {name: value.clone() for name, value in model.module.state_dict().items()}
    workers = set()
    for _ in range(2):
        model.module.load_state_dict(start)
        optimizer = sgd(model)
        flying = [dist.all_reduce(torch.full((50_000,), float(i)), async_op=True) for i in range(5)]
        tensors = [work.result()[0] for work in flying]
        for inputs, targets, pids in loader:
            workers |= set(pids.tolist())
            optimizer.zero_grad()
            loss_of(model(inputs), targets).backward()
            optimizer.step()
        for work in flying:
            work.wait()
        assert all(t.eq(size * i).all() for i, t in enumerate(tensors))
        same_parameters(model.module, want)
    assert len(workers) == 2 and os.getpid() not in workers
    del loader
    dist.barrier()


def test_training_with_workers(pair):
    pair.run(check_training)


def check_refused(rank):
    """A worker that communicates gets an error with the reason and the remedy; the rank stays usable."""
    for kept in (False, True):
        loader = DataLoader(Communicating(), num_workers=1, persistent_workers=kept, multiprocessing_context="fork")
        with pytest.raises(dist.DistBackendError, match="fork") as caught:
            next(iter(loader))
        assert "spawn" in str(caught.value) and "worker process 0" in str(caught.value)
        del loader
    t = torch.tensor([float(rank)])
    dist.all_reduce(t)
    assert t.item() == 1.0


def test_workers_that_communicate_are_refused(pair):
    pair.run(check_refused)


def in_child(work, results):
    said = []
    peer = 1 - dist.get_rank()
    for call in (work.wait, dist.barrier, lambda: dist.new_group([0, 1]), lambda: dist.send(torch.ones(1), peer)):
        try:
            call()
            said.append("no error")
        except dist.DistBackendError as e:
            said.append("refused" if "fork" in str(e) else str(e))
    results.put(said)


def check_fork_in_flight(rank):
    """Forks repeatedly while an operation waits for the peer: the children are refused, the operation succeeds."""
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    t = torch.full((100_000,), 1.0)
    if rank == 0:
        work = dist.all_reduce(t, async_op=True)
        children = [context.Process(target=in_child, args=(work, results)) for _ in range(3)]
        for child in children:
            child.start()
        assert [results.get(timeout=60) for _ in children] == [["refused"] * 4] * 3
        for child in children:
            child.join(60)
        assert [child.exitcode for child in children] == [0] * 3
        dist.send(torch.ones(1), 1)
    else:
        dist.recv(torch.ones(1), 0)
        time.sleep(0.1)  # rank 0 waits meanwhile
        work = dist.all_reduce(t, async_op=True)
    work.wait()
    assert t.eq(2.0).all()
    dist.barrier()


def test_forks_with_work_in_flight(pair):
    pair.run(check_fork_in_flight)
