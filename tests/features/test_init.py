"""The default group: every way to make it, make it again, and end it; errors of wrong arguments and wrong order."""
import os
import socket
import time

import pytest
import torch
import torch.distributed as dist
from common import seconds
from rank_pool import RankPool

import goccl

CPU = torch.device("cpu")


@pytest.fixture
def bare(tmp_path):
    """Two ranks without a group."""
    pool = RankPool(2, tmp_path, group=False, patience=100.0)
    yield pool
    pool.close()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def use_and_end(rank):
    """Runs one collective in the default group and one in a sub-group, then ends the groups."""
    t = torch.tensor([float(rank)])
    dist.all_reduce(t)
    assert t.item() == 1.0 and dist.get_backend() == "goccl"
    group = dist.new_group([0, 1])
    dist.broadcast(t, src=1, group=group)
    dist.destroy_process_group()
    assert not dist.is_initialized()


def tcp_store(rank, port):
    return dist.TCPStore("127.0.0.1", port, 2, is_master=rank == 0, timeout=seconds(60))


def check_ways(rank, folder, ports):
    common = {"rank": rank, "world_size": 2}
    dist.init_process_group("goccl", init_method=f"file://{folder}/init", **common)
    use_and_end(rank)
    dist.init_process_group("goccl", init_method=f"tcp://127.0.0.1:{ports[0]}", **common)
    use_and_end(rank)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(ports[1]), RANK=str(rank), WORLD_SIZE="2")
    try:
        dist.init_process_group("goccl")
        use_and_end(rank)
    finally:
        for name in ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE"):
            del os.environ[name]
    store = tcp_store(rank, ports[2])
    dist.init_process_group("cpu:goccl", store=dist.PrefixStore("mine", store), **common)
    assert type(dist.group.WORLD._get_backend(CPU)).__name__ == "GocclBackend"
    use_and_end_of_mapped(rank)
    dist.init_process_group("goccl", store=store, pg_options=goccl.Options(transport="tcp"), **common)
    use_and_end(rank)
    dist.init_process_group("goccl", store=dist.HashStore(), rank=0, world_size=1)  # a group of one rank
    dist.all_reduce(torch.ones(1))
    dist.destroy_process_group()


def use_and_end_of_mapped(rank):
    t = torch.tensor([float(rank)])
    dist.all_reduce(t)
    assert t.item() == 1.0
    dist.destroy_process_group()


def test_ways_to_make_it(bare, tmp_path):
    bare.run(check_ways, str(tmp_path), [free_port() for _ in range(3)])


def check_again(rank, folder, port):
    """Makes the group twenty times with one TCPStore and as often with one FileStore.

    The names of groups and keys are the same each time.
    """
    stores = [tcp_store(rank, port), dist.FileStore(f"{folder}/store", 2)]
    descriptors = None
    for life in range(20):
        for store in stores:
            dist.init_process_group("goccl", store=store, rank=rank, world_size=2, timeout=seconds(60))
            groups = [dist.new_group([0, 1]) for _ in range(2)]
            works = [dist.all_reduce(torch.full((300,), float(life)), group=group, async_op=True) for group in groups]
            t = torch.tensor([float(life + rank)])
            dist.all_reduce(t)
            assert t.item() == 2 * life + 1
            for work in works:
                work.wait()
            dist.destroy_process_group()
        if life == 2:
            descriptors = len(os.listdir("/proc/self/fd"))
    assert len(os.listdir("/proc/self/fd")) <= descriptors + 2, "file descriptors are left over"


def test_twenty_lives(bare, tmp_path):
    bare.run(check_again, str(tmp_path), free_port())


def begin(rank, folder, name, **options):
    dist.init_process_group("goccl", store=dist.FileStore(f"{folder}/{name}", 2), rank=rank, world_size=2,
                            **{"timeout": seconds(60), **options})


def check_endings(rank, folder):
    """Pending works, sub-groups after their parent, ranks that end at different times, calls after the end."""
    begin(rank, folder, "pending")
    group = dist.new_group()
    works = [dist.all_reduce(torch.ones(100_000), group=g, async_op=True) for _ in range(8) for g in (group, None)]
    futures = [work.get_future() for work in works[:4]]
    never = torch.zeros(3)
    waiting = dist.irecv(never, 1 - rank, group=group)  # nothing is sent
    dist.barrier()
    dist.destroy_process_group()
    for work in works:  # ended, with success or not, and none of them hangs
        assert work.is_completed()
    with pytest.raises(dist.DistBackendError, match="closed|shut down|left|abort"):
        waiting.wait()
    for future in futures:
        assert future.done()
    del works, futures, waiting

    # One rank ends long before the other: its outstanding sends are delivered, and the other can end too.
    begin(rank, folder, "late")
    t = torch.full((1000,), 1.0 + rank)
    dist.all_reduce(t)
    if rank == 0:
        dist.send(t, 1)
        dist.destroy_process_group()
    else:
        time.sleep(0.5)
        got = torch.zeros(1000)
        dist.recv(got, 0)
        assert got.eq(3.0).all()
        with pytest.raises(dist.DistBackendError, match="rank 0"):
            dist.barrier()
        dist.destroy_process_group()

    # Ends a sub-group alone, then the same one again, then everything; rank 1 in the other order.
    begin(rank, folder, "order")
    groups = [dist.new_group() for _ in range(3)]
    for group in groups if rank == 0 else groups[::-1]:
        dist.barrier(group=group, async_op=True)
    keep = groups[1]
    for group in groups[:2] if rank == 0 else groups[1::-1]:
        dist.destroy_process_group(group)
    with pytest.raises(ValueError, match="Invalid process group"):
        dist.destroy_process_group(keep)
    with pytest.raises((ValueError, dist.DistBackendError), match="[Pp]rocess group"):
        dist.all_reduce(torch.ones(1), group=keep)
    dist.barrier()
    backend = groups[2]._get_backend(CPU)
    dist.destroy_process_group()
    with pytest.raises(dist.DistBackendError, match="was shut down"):
        backend.barrier()
    for call in (dist.barrier, dist.get_rank, lambda: dist.new_group([0, 1]), dist.destroy_process_group):
        with pytest.raises((ValueError, AssertionError),
                           match="not been initialized|Invalid process group|uninitialized|None"):
            call()


def test_endings(bare, tmp_path):
    bare.run(check_endings, str(tmp_path))


def check_timeouts(rank, folder):
    """The timeouts of the group, of a sub-group, and one set later; each error names the rank that did not call."""
    begin(rank, folder, "timeouts", timeout=seconds(20))
    backend = dist.group.WORLD._get_backend(CPU)
    assert backend.options._timeout == seconds(20)
    by_timeout = dist.new_group(timeout=seconds(0.6))
    by_options = dist.new_group(pg_options=goccl.Options(timeout=0.5))
    set_later = dist.new_group()
    set_later._get_backend(CPU).set_timeout(seconds(0.4))
    if rank == 0:
        for group, given in ((by_timeout, 0.6), (by_options, 0.5), (set_later, 0.4)):
            begun = time.monotonic()
            with pytest.raises(dist.DistBackendError, match=r"all_reduce.*timeout \(rank 1\)"):
                dist.all_reduce(torch.ones(5), group=group)
            assert given - 0.05 <= time.monotonic() - begun
    dist.barrier()  # the default group is not affected
    dist.destroy_process_group()
    with pytest.raises((ValueError, TypeError, RuntimeError), match="timeout"):
        begin(rank, folder, "none", timeout=5.0)


def test_timeouts(bare, tmp_path):
    bare.run(check_timeouts, str(tmp_path))


def check_refused(rank, folder):
    """Errors of torch's own checks, of its own kinds, and of goccl's checks."""

    def refused(text, error=(ValueError, AssertionError, RuntimeError), **options):
        with pytest.raises(error, match=text):
            dist.init_process_group("goccl", **options)
        assert not dist.is_initialized()

    store = dist.HashStore()
    refused("world_size", store=store, rank=0)
    refused("rank", store=store, world_size=2)
    refused("[Rr]ank", store=store, rank=2, world_size=2)
    refused("Cannot specify both", store=store, init_method="tcp://127.0.0.1:1", rank=0, world_size=1)
    refused("RANK expected", init_method="env://")
    refused("No rendezvous handler for carrier", init_method="carrier://", rank=0, world_size=1)
    refused("rank 1 .of 2. did not come", dist.DistBackendError, store=store, rank=0, world_size=2,
            timeout=seconds(0.3))
    refused("pg_options must be a goccl.Options", TypeError, store=dist.HashStore(), rank=0, world_size=1,
            pg_options=object())
    refused("GOCCL_TRANSPORT", store=dist.HashStore(), rank=0, world_size=1,
            pg_options=goccl.Options(transport="pigeon"))
    begin(rank, folder, "twice")
    with pytest.raises(ValueError, match="initialize the default process group twice"):
        begin(rank, folder, "twice")
    use_and_end(rank)


def test_wrong_arguments(bare, tmp_path):
    bare.run(check_refused, str(tmp_path))
