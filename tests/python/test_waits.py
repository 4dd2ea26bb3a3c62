"""Waits with a timeout that run out: they raise, and nothing else happens to the operation, the group or the others."""
import gc
import threading

import pytest
import torch
import torch.distributed as dist
from common import seconds

CPU = torch.device("cpu")
LARGE = 1_000_000  # elements of a message that nobody sends without a receiver


def filled(n, value):
    return torch.full((n,), float(value))


def coalesced(group):
    a, b = filled(5, 1), filled(7, 1)
    with dist._coalescing_manager(group, CPU, async_ops=True) as block:
        dist.all_reduce(a, group=group)
        dist.all_reduce(b, group=group)
    return block.works[0], [(a, 2), (b, 2)]


def coalesced_list(group):
    a, b = filled(5, 1), filled(7, 1)
    return group.allreduce_coalesced([a, b], dist.AllreduceCoalescedOptions()), [(a, 2), (b, 2)]


def messages(group):
    rank = group.rank()
    sent, got = filled(LARGE, rank), filled(LARGE, 9)
    operations = [dist.P2POp(dist.isend, sent, group_peer=1 - rank, group=group),
                  dist.P2POp(dist.irecv, got, group_peer=1 - rank, group=group)]
    return dist.batch_isend_irecv(operations)[0], [(got, 1 - rank)]


def message(group):
    """Rank 0 receives."""
    t = filled(LARGE, 2 * group.rank())
    return (group.recv if group.rank() == 0 else group.send)([t], 1 - group.rank(), 0), [(t, 2)]


def message_back(group):
    """Rank 0 sends."""
    t = filled(LARGE, 2 if group.rank() == 0 else 9)
    return (group.send if group.rank() == 0 else group.recv)([t], 1 - group.rank(), 0), [(t, 2)]


def copied_back(group):
    t = filled(20, 1)[::2]
    return group.allreduce([t]), [(t, 2)]


def sparse(group):
    t = filled(4, 1).to_sparse()
    return group.allreduce([t]), [(t, 2)]


def gathered(group):
    blocks = [filled(100_000, 9) for _ in range(2)]
    return group.allgather([blocks], [filled(100_000, group.rank())]), list(zip(blocks, (0, 1), strict=True))


KINDS = {
    "all_reduce": lambda group: (group.allreduce([t := filled(5, 1)]), [(t, 2)]),
    "long": lambda group: (group.allreduce([t := filled(LARGE, 1)]), [(t, 2)]),
    "barrier": lambda group: (group.barrier(), []),
    "all_gather": gathered, "strided": copied_back, "sparse": sparse, "recv": message, "send": message_back,
    "batch": messages, "coalesced": coalesced_list, "block": coalesced,
}


def runs_out(work, ms=20):
    with pytest.raises(dist.DistBackendError, match=rf"timeout: the time of this wait is over.*\(this wait had {ms} ms\)"):
        work.wait(seconds(ms / 1000))
    assert not work.is_completed() and not work.is_success()


def check_waits_that_run_out(rank):
    """Rank 0 waits before rank 1 calls."""
    meet, group = dist.new_group([0, 1]), dist.new_group([0, 1])
    for name, call in KINDS.items():
        if rank == 0:
            work, outputs = call(group)
            future = work.get_future() if name in ("all_reduce", "block") else None
            runs_out(work)
            thread = threading.Thread(target=runs_out, args=(work, 10))  # which has no slices for signals
            thread.start()
            thread.join()
            runs_out(work, 80)  # several slices
            assert future is None or not future.done()
            dist.barrier(group=meet)
            assert work.wait(), name
            assert work.is_completed() and work.is_success() and work.wait(seconds(0.001))
            if future:
                assert len(future.wait()) == len(outputs)
        else:
            dist.barrier(group=meet)
            work, outputs = call(group)
            assert work.wait(seconds(20)), name
        for t, value in outputs:
            assert t.to_dense().eq(value).all(), (name, t)
    for each in (group, meet):
        dist.barrier(group=each)
        dist.destroy_process_group(each)


def test_a_wait_that_runs_out_changes_nothing(pair):
    pair.run(check_waits_that_run_out)


def check_dropped(rank):
    """Memory of an operation that was waited for in vain, and then dropped, stays until the operation has ended."""
    meet, group = dist.new_group([0, 1]), dist.new_group([0, 1])
    if rank == 0:
        kept = filled(LARGE, 1)
        work = group.allreduce([kept[:]])
        runs_out(work)
        del work
        gc.collect()
        dist.barrier(group=meet)
    else:
        dist.barrier(group=meet)
        kept = filled(LARGE, 1)
        group.allreduce([kept]).wait()
    dist.all_reduce(filled(1, 1), group=group)  # ends after the one that was dropped
    assert kept.eq(2).all()
    for each in (group, meet):
        dist.destroy_process_group(each)


def test_an_operation_that_is_dropped_after_such_a_wait(pair):
    pair.run(check_dropped)


def check_own_timeout(rank):
    """What still ends the operation, and with it the group, is the timeout of the call or of the group."""
    for asked in (False, True):
        group = dist.new_group([0, 1], timeout=seconds(20 if asked else 0.4))
        if rank == 0:
            options = dist.AllreduceOptions()
            if asked:
                options.timeout = seconds(0.4)
            work = group.allreduce([torch.ones(3)], options)
            runs_out(work)
            with pytest.raises(dist.DistBackendError, match=r"timeout \(rank 1\)"):
                work.wait(seconds(20))
            with pytest.raises(dist.DistBackendError, match=r"timeout \(rank 1\)"):
                work.wait(seconds(0.01))
            assert work.is_completed() and not work.is_success()
        dist.barrier()
        dist.destroy_process_group(group)


def test_only_the_timeout_of_the_operation_ends_it(pair):
    pair.run(check_own_timeout)
