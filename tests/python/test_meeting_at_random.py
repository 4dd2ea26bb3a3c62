"""Ranks that come, fail and come again at random moments: in the end all meet, in one group, over a store that holds
everything that came before."""
import multiprocessing
import os
import random
import threading
import time

import pytest
import torch
import torch.distributed as dist
from test_meeting import attempt

CONTEXT = multiprocessing.get_context("forkserver")
ROUNDS = pytest.mark.parametrize("rounds", [2, pytest.param(200, marks=pytest.mark.long)])
PATIENCE = 20  # seconds in which ranks that go on trying must have met


def pids(group, size):
    """The processes of a group's ranks, by rank, and that it adds right; ends the group."""
    try:
        all_pids = torch.zeros(size, dtype=torch.int64)
        group._allgather_base(all_pids, torch.tensor([os.getpid()])).wait()
        total = torch.tensor([1.5])
        group.allreduce([total]).wait()
        assert total.item() == 1.5 * size
        return all_pids.tolist()
    finally:
        group.shutdown()


def meet(store, rank, size, timeouts=None):
    """Comes until it has met others, and returns their processes; the first attempts have these timeouts."""
    end = time.monotonic() + PATIENCE
    while True:
        group = attempt(store, rank, size, timeouts.pop(0) if timeouts else PATIENCE)
        try:
            if isinstance(group, Exception):
                raise group
            return pids(group, size)
        except (dist.DistBackendError, dist.DistNetworkError) as e:
            assert "frame #" not in str(e)
            assert time.monotonic() < end, f"rank {rank} does not meet the others: {e}"


@ROUNDS
def test_retries(rounds):
    """Three ranks come at random moments; some give up after a while, and all that fail come again."""
    store, dice = dist.HashStore(), random.Random(1)
    for number in range(rounds):
        results, size = {}, 3

        def come(rank, delay, timeouts):
            time.sleep(delay)
            results[rank] = meet(store, rank, size, timeouts)

        ranks = [threading.Thread(target=come, daemon=True, args=(
            rank, dice.uniform(0, 0.3), [dice.uniform(0.02, 0.3) for _ in range(dice.randrange(3))])) for rank in range(size)]
        for rank in ranks:
            rank.start()
        for rank in ranks:
            rank.join(2 * PATIENCE)
        assert results == {rank: [os.getpid()] * size for rank in range(size)}, f"round {number}"


def come(path, rank, size):
    torch.set_num_threads(1)
    meet(dist.FileStore(path, size), rank, size)


@ROUNDS
def test_restarts(rounds, tmp_path):
    """A rank is killed at random moments of its coming, and started again; the other one meets the last process."""
    dice, path, size = random.Random(2), str(tmp_path / "store"), 2
    for number in range(rounds):
        mine = number % size
        store = dist.FileStore(path, size)

        def start():
            process = CONTEXT.Process(target=come, args=(path, 1 - mine, size), daemon=True)
            process.start()
            return process

        def disturb():
            nonlocal last, settled
            for left in reversed(range(1 + dice.randrange(2))):
                time.sleep(dice.uniform(0, 1.2))  # to start takes most of this
                last.kill()
                last.join(30)
                with lock:
                    last, settled = start(), left == 0

        last, settled, lock = start(), False, threading.Lock()
        killer = threading.Thread(target=disturb, daemon=True)
        killer.start()
        while True:
            met = meet(store, mine, size)
            assert met[mine] == os.getpid()
            with lock:
                if settled and met[1 - mine] == last.pid:
                    break
        killer.join(30)
        last.join(30)
        assert last.exitcode == 0, f"round {number}"
