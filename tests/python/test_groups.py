"""The life of groups: making, missing ranks, options, sub-groups, closing, using again."""
import copy

import pytest
import torch
import torch.distributed as dist
from common import seconds
from rank_pool import RankPool

import goccl

CPU = torch.device("cpu")


def check_subgroups(rank):
    """Roots, peers and numbers are those of the sub-group."""
    group = dist.new_group([0, 2])
    everyone = [dist.new_group([r]) for r in range(3)]
    if rank != 1:
        t = torch.tensor([float(rank)])
        dist.all_reduce(t, group=group)
        assert t.item() == 2.0
        t = torch.tensor([float(rank)])
        dist.broadcast(t, 2, group=group)
        assert t.item() == 2.0
        out = [torch.zeros(1), torch.zeros(1)]
        dist.all_gather(out, torch.tensor([float(rank)]), group=group)
        assert [o.item() for o in out] == [0.0, 2.0]
        if rank == 0:
            dist.send(torch.tensor([5.0]), 2, group=group)
        else:
            assert dist.recv(t, 0, group=group) == 0 and t.item() == 5.0
    t = torch.tensor([float(rank)])
    dist.all_reduce(t, group=everyone[rank])
    assert t.item() == rank
    dist.barrier()


def test_subgroups(trio):
    trio.run(check_subgroups)


def check_missing(rank):
    """Rank 1 does not make the second group: the others name it, by its ranks in the group and in the world."""
    if rank == 1:
        dist.barrier()
        return
    store = dist.distributed_c10d._get_default_store()
    options = dist.distributed_c10d._DistributedBackendOptions()
    options.store, options.group_rank, options.group_size = dist.PrefixStore("missing", store), {0: 0, 2: 1}[rank], 3
    options.timeout, options.group_id, options.global_ranks_in_group = seconds(1), "tp", [0, 2, 1]
    with pytest.raises(dist.DistBackendError) as caught:
        goccl._create(options, None)
    text = str(caught.value)
    assert "rank 2 (global rank 1) (of 3) did not come to group tp within 1 s" in text, text
    dist.barrier()


def test_missing_ranks_are_named(trio):
    trio.run(check_missing)


def test_all_missing_ranks_are_named(python):
    out = python("""
        import datetime, goccl, torch.distributed as dist
        try:
            dist.init_process_group("goccl", store=dist.HashStore(), rank=1, world_size=4, timeout=datetime.timedelta(seconds=1))
        except dist.DistBackendError as e:
            print(e)
    """)
    assert "ranks 0, 2, 3 (of 4) did not come to group" in out and "within 1 s" in out


def check_again_with_the_same_store(rank, folder):
    """The names of the groups are the same each time, and so are the keys in the store."""
    store = dist.FileStore(f"{folder}/again", 2)
    for i in range(3):
        dist.init_process_group("goccl", store=store, rank=rank, world_size=2, timeout=seconds(20))
        t = torch.tensor([float(i)])
        dist.all_reduce(t)
        assert t.item() == 2.0 * i
        dist.destroy_process_group()


def test_made_again_with_the_same_store(tmp_path):
    pool = RankPool(2, tmp_path, group=False)
    pool.run(check_again_with_the_same_store, str(tmp_path))
    pool.close()


def check_over_tcp_store(rank, port):
    """Users have a TCPStore; while a group waits in it, other ranks may use it."""
    store = dist.TCPStore("127.0.0.1", port, 2, is_master=rank == 0, timeout=seconds(20))
    dist.init_process_group("goccl", store=store, rank=rank, world_size=2, timeout=seconds(20))
    dist.barrier()
    dist.destroy_process_group()


def test_tcp_store(tmp_path):
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    pool = RankPool(2, tmp_path, group=False)
    pool.run(check_over_tcp_store, port)
    pool.close()


def check_destroyed(rank):
    group = dist.new_group([0, 1])
    backend = group._get_backend(CPU)
    dist.barrier(group=group)
    dist.destroy_process_group(group)
    backend.shutdown()  # a second shutdown does nothing
    for call in (lambda: backend.allreduce(torch.ones(1)), lambda: backend.set_timeout(seconds(3)),
                 lambda: backend.barrier()):
        with pytest.raises(dist.DistBackendError, match="was shut down"):
            call()
    backend.abort()
    dist.barrier()


def test_use_after_destroy(pair):
    pair.run(check_destroyed)


def check_options(rank):
    group = dist.new_group([0, 1], pg_options=goccl.Options(timeout=7, transport="tcp"))
    backend = group._get_backend(CPU)
    assert backend.name() == "goccl"
    options = backend.options
    assert options.backend == "goccl" and options._timeout == seconds(7)
    assert "GOCCL_TRANSPORT=tcp" in options.lines.split("\n")
    for other in (copy.copy(options), copy.deepcopy(options)):
        assert type(other) is type(options)
        assert (other.lines, other._timeout, other.group_name) == (options.lines, options._timeout, options.group_name)
        other.lines = "GOCCL_DEBUG=INFO"
        assert options.lines != other.lines
    backend.set_timeout(seconds(9))
    assert backend.options._timeout == seconds(9)
    # The options of one group make another group; its timeout stays as it was set.
    again = dist.new_group([0, 1], pg_options=copy.deepcopy(options), timeout=seconds(11))
    assert again._get_backend(CPU).options._timeout == seconds(7)
    assert dist.new_group([0, 1], timeout=seconds(11))._get_backend(CPU).options._timeout == seconds(11)
    dist.barrier(group=again)


def test_options(pair):
    pair.run(check_options)


def check_capabilities(rank):
    backend = dist.group.WORLD._get_backend(CPU)
    assert backend.supports_coalescing and backend.supports_splitting
    backend._set_sequence_number_for_group()
    ops = [dist.P2POp(dist.isend, torch.full((2,), float(rank)), 1 - rank)]
    t = torch.zeros(2)
    ops.append(dist.P2POp(dist.irecv, t, 1 - rank))
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    assert t.tolist() == [1.0 - rank] * 2


def test_capabilities(pair):
    pair.run(check_capabilities)


def check_monitored_barrier(rank):
    goccl.monitored_barrier()
    goccl.monitored_barrier(timeout=5, wait_all_ranks=True)
    group = dist.new_group([0, 1, 2], timeout=seconds(20))
    goccl.monitored_barrier(group, timeout=seconds(10))
    # Rank 1 is late for the next barrier; what this one leaves behind does not disturb the barrier after it.
    if rank == 0:
        with pytest.raises(dist.DistBackendError,
                           match=r"\[Rank 0\]: Rank 1 failed to pass monitoredBarrier in 1000 ms"):
            goccl.monitored_barrier(group, timeout=1)
    elif rank == 2:
        with pytest.raises(dist.DistBackendError,
                           match="Rank 2 successfully reached monitoredBarrier.*(?s:.*)Rank 1 failed"):
            goccl.monitored_barrier(group, timeout=20)
    dist.barrier()
    if rank == 1:
        with pytest.raises(dist.DistBackendError, match="Rank 1 successfully reached monitoredBarrier"):
            goccl.monitored_barrier(group, timeout=20)
    goccl.monitored_barrier(group, timeout=20)


def test_monitored_barrier(trio):
    trio.run(check_monitored_barrier)


def check_all_missing(rank):
    group = dist.new_group([0, 1, 2], timeout=seconds(20))
    if rank == 0:
        with pytest.raises(dist.DistBackendError, match="Ranks 1, 2 failed to pass monitoredBarrier in 500 ms"):
            goccl.monitored_barrier(group, timeout=0.5, wait_all_ranks=True)
        with pytest.raises(dist.DistBackendError, match="Rank 0 timed out in monitoredBarrier after 0 ms"):
            goccl.monitored_barrier(group, timeout=0)
    dist.barrier()


def test_monitored_barrier_names_all(trio):
    trio.run(check_all_missing)


def test_monitored_barrier_without_a_group():
    with pytest.raises(ValueError, match="init_process_group"):
        goccl.monitored_barrier()


def test_monitored_barrier_outside_of_the_group():
    goccl.monitored_barrier(dist.GroupMember.NON_GROUP_MEMBER)
