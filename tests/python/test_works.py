"""Work and Future: completion, failure, and Works that are dropped before they have ended."""
import gc
import os
import threading
import time
import warnings

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives
from common import has_exception, seconds, until
from torch.distributed.distributed_c10d import AllgatherOptions

SHORT = seconds(1)


def world():
    return dist.group.WORLD


def check_synchronous(rank):
    options = dist.AllreduceOptions()
    options.asyncOp = False
    t, strided = torch.ones(3), torch.ones(6)[::2]
    os.environ["TORCH_FR_BUFFER_SIZE"] = "0"  # otherwise torch 2.15 records every group, and needs a Work for that
    group = dist.new_group([0, 1])
    del os.environ["TORCH_FR_BUFFER_SIZE"]
    assert group.allreduce([t], options) is None and t.tolist() == [2.0] * 3
    assert group.allreduce([strided], options) is None and strided.tolist() == [2.0] * 3
    with torch.profiler.profile():
        work = group.allreduce([t], options)
    assert work.is_completed() and work.is_success() and t.tolist() == [4.0] * 3
    assert work.wait() and not has_exception(work)
    assert work.get_future().done() and work.get_future().wait()[0] is t
    assert work.result()[0] is t


def test_a_synchronous_operation_has_ended_when_it_returns(pair):
    """It returns no Work then, as with NCCL; a profiler needs a Work, which is finished."""
    pair.run(check_synchronous)


def check_future(rank):
    t = torch.ones(3)
    work = dist.all_reduce(t, async_op=True)
    future = work.get_future()
    doubled = future.then(lambda f: f.value()[0] * 2)
    assert doubled.wait().tolist() == [4.0] * 3
    assert work.is_completed() and work.is_success() and work.wait()
    assert work.get_future().done()


def test_future_has_the_outputs(pair):
    pair.run(check_future)


def check_future_of_lists(rank):
    out = [torch.zeros(2), torch.zeros(2)]
    value = dist.all_gather(out, torch.full((2,), float(rank)), async_op=True).get_future().wait()
    assert [v.tolist() for v in value] == [[0.0] * 2, [1.0] * 2]
    ts = [torch.ones(1), torch.ones(2)]
    value = world().allreduce_coalesced(ts).get_future().wait()
    assert [v.tolist() for v in value] == [[2.0], [2.0, 2.0]]


def test_future_of_several_outputs(pair):
    pair.run(check_future_of_lists)


def check_futures_of_every_operation(rank):
    """The value is the list of this rank's outputs.

    For a send, and for a reduce on a rank that is not the root, it is the tensors that were passed.
    """
    t, blocks, whole = (lambda: torch.ones(2)), (lambda: [torch.zeros(2), torch.zeros(2)]), torch.zeros(4)
    backend = world()._get_backend(torch.device("cpu"))
    reduced, a, b, lists = t(), blocks(), blocks(), [blocks(), blocks()]
    root = dist.GatherOptions()
    root.rootRank = 0
    gathered = [blocks()] if rank == 0 else []
    scattered, scattering = torch.zeros(2), [[t(), t()]] if rank == 0 else []
    peer = 1 - rank
    told, sent = torch.zeros(2), torch.full((2,), 4.0)
    for work, expected in [
        (world().broadcast([reduced]), [reduced]),
        (world().reduce([reduced]), [reduced]),
        (world().allgather([a], [t()]), a),
        (backend._allgather_base(whole, t()), [whole]),
        (world().allgather_into_tensor_coalesced([whole], [t()]), [whole]),
        (world().gather(gathered, [t()], root), gathered[0] if rank == 0 else []),
        (world().scatter([scattered], scattering, dist.ScatterOptions()), [scattered]),
        (world().reduce_scatter([reduced], [blocks()], dist.ReduceScatterOptions()), [reduced]),
        (backend._reduce_scatter_base(reduced, whole), [reduced]),
        (world().alltoall(b, blocks()), b),
        (world().alltoall_base(whole, torch.ones(4), [], [], dist.AllToAllOptions()), [whole]),
        (world().send([sent], peer, 0), [sent]),
        (world().recv([told], peer, 0), [told]),
        (world().barrier(), []),
    ]:
        value = work.get_future().wait()
        assert len(value) == len(expected) and all(v is e for v, e in zip(value, expected)), (value, expected)
        assert work.get_future_result().wait() == 0 and work.result() == value
    assert told.tolist() == [4.0] * 2


def test_futures_of_every_operation(pair):
    pair.run(check_futures_of_every_operation)


def check_timing(rank):
    group = dist.new_group()
    work = dist.all_reduce(torch.ones(3), group=group, async_op=True)
    work.wait()
    with pytest.raises(RuntimeError, match="enableCollectivesTiming"):
        work._get_duration()
    group._enable_collectives_timing()
    if rank == 1:
        time.sleep(0.2)
    work = dist.all_reduce(torch.ones(3), group=group, async_op=True)
    if rank == 0:  # the end is noticed when it comes, not when a caller asks
        until(lambda: work._get_duration() if work.is_success() else 0, "the operation did not end")
        took = work._get_duration()
        time.sleep(0.05)
        assert work._get_duration() == took and 50 < took < 20_000, took
    work.wait()
    assert work._get_duration() > 0


def test_duration(pair):
    pair.run(check_timing)


def check_results(rank):
    group = dist.new_group()
    work = dist.all_reduce(torch.ones(2), group=group, async_op=True)
    assert work.get_future_result().wait() == 0 and work.get_future_result().wait() == 0
    if rank == 0:
        options = dist.AllreduceOptions()
        options.timeout = seconds(0.3)
        work = group.allreduce([torch.ones(2)], options)
        assert work.get_future_result().wait() == 1, "timeout"
        with pytest.raises(dist.DistBackendError, match="timeout"):
            work.wait()
        if hasattr(work, "get_timeout"):
            assert work.get_timeout() == options.timeout
    dist.barrier()


def test_the_future_of_how_it_ended(pair):
    pair.run(check_results)


def timed_operations(rank):
    """Each operation of a rank whose peer does not call it, with its own timeout."""
    t = torch.ones(2)

    def two():
        return [torch.ones(2), torch.ones(2)]

    def limited(kind, **fields):
        o = kind()
        o.timeout = seconds(0.15)
        for name, value in fields.items():
            setattr(o, name, value)
        return o

    return {
        "allreduce": lambda g, **a: g.allreduce([t], limited(dist.AllreduceOptions, **a)),
        "allreduce_coalesced":
            lambda g, **a: g.allreduce_coalesced(two(), limited(dist.AllreduceCoalescedOptions, **a)),
        "sparse": lambda g, **a: g.allreduce([t.to_sparse()], limited(dist.AllreduceOptions, **a)),
        "reduce": lambda g, **a: g.reduce([t], limited(dist.ReduceOptions, rootRank=0, **a)),
        "allgather": lambda g, **a: g.allgather([two()], [t], limited(AllgatherOptions, **a)),
        "allgather_coalesced": lambda g, **a: g._get_backend(torch.device("cpu")).allgather_coalesced(
            [two(), two()], two(), limited(AllgatherOptions, **a)),
        "gather": lambda g, **a: g.gather([two()], [t], limited(dist.GatherOptions, rootRank=0, **a)),
        "broadcast": lambda g, **a: g.broadcast([t], limited(dist.BroadcastOptions, rootRank=1, **a)),
        "scatter": lambda g, **a: g.scatter([t], [], limited(dist.ScatterOptions, rootRank=1, **a)),
        "reduce_scatter": lambda g, **a: g.reduce_scatter([t], [two()], limited(dist.ReduceScatterOptions, **a)),
        "reduce_scatter_tensor_coalesced": lambda g, **a: g.reduce_scatter_tensor_coalesced(
            [torch.ones(1), torch.ones(1)], two(), limited(dist.ReduceScatterOptions, **a)),
        "alltoall": lambda g, **a: g.alltoall(two(), two(), limited(dist.AllToAllOptions, **a)),
        "alltoall_base": lambda g, **a: g.alltoall_base(torch.ones(2), t, [], [], limited(dist.AllToAllOptions, **a)),
        "barrier": lambda g, **a: g.barrier(limited(dist.BarrierOptions, **a)),
    }


def check_own_timeouts(rank, name):
    for asynchronous in (True, False):
        group = dist.new_group(timeout=seconds(60))
        if rank == 0:
            start = time.monotonic()
            with pytest.raises(dist.DistBackendError, match="timeout"):
                work = timed_operations(rank)[name](group, asyncOp=asynchronous)
                assert asynchronous, "a synchronous call came back"
                work.wait()
            assert time.monotonic() - start < 30
        dist.barrier()


@pytest.mark.parametrize("name", timed_operations(0))
def test_own_timeout_of_an_operation(pair, name):
    pair.run(check_own_timeouts, name)


def check_wait_completes_future(rank):
    """The future is completed exactly once, and callbacks run once, whichever thread is first."""
    called = []
    for i in range(200):
        work = dist.all_reduce(torch.ones(8), async_op=True)
        future = work.get_future()
        future.add_done_callback(lambda f, i=i: called.append(i))
        (work if i % 2 else future).wait()
    until(lambda: len(called) == 200, f"{len(called)} of 200 callbacks ran")
    assert sorted(called) == list(range(200))


def test_wait_and_completer_do_not_complete_twice(pair):
    pair.run(check_wait_completes_future)


def check_polling(rank):
    """A caller that asks repeatedly whether an operation has ended moves the operation on."""
    tensors = [torch.ones(n) for n in (1, 1000, 1_000_000)]
    works = [dist.all_reduce(t, async_op=True) for t in tensors]
    for work, t in zip(reversed(works), reversed(tensors)):
        until(work.is_completed, "a polled operation did not end")
        assert work.is_success() and t.sum() == 2 * t.numel()


def test_polling_ends_operations(pair):
    pair.run(check_polling)


def check_many_in_flight(rank):
    """The operations are waited for in order, in reverse, by futures, or not at all."""
    for order in (list, reversed):
        tensors = [torch.ones(10) for _ in range(50)]
        works = [dist.all_reduce(t, async_op=True) for t in tensors]
        futures = [work.get_future() for work in works[::3]]
        for work in order(works[::2]):
            assert work.wait()
        for future in order(futures):
            assert future.wait()[0].tolist() == [2.0] * 10
        until(lambda: all(t.tolist() == [2.0] * 10 for t in tensors), "an operation that nobody waits for did not end")
        dist.barrier()


def test_many_in_flight(pair):
    pair.run(check_many_in_flight)


def check_waiting_threads(rank):
    for _ in range(20):
        work = dist.all_reduce(torch.ones(100)[::2], async_op=True)
        seen = []
        threads = [threading.Thread(target=lambda: seen.append(work.wait())) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert seen == [True] * 4


def test_several_threads_wait_for_one_work(pair):
    pair.run(check_waiting_threads)


def check_future_without_work(rank):
    """The caller holds neither the Work nor the tensor."""
    future = dist.all_reduce(torch.ones(100_000), async_op=True).get_future()
    gc.collect()
    assert future.wait()[0].sum() == 200_000


def test_future_outlives_its_work(pair):
    pair.run(check_future_without_work)


def check_dropped(rank):
    """Works for which no thread waits still write to memory, which must stay valid, and fill strided tensors."""
    kept = [torch.ones(50)[::2] for _ in range(20)]
    for t in kept:
        dist.all_reduce(t, async_op=True)
        dist.all_reduce(torch.ones(10_000), async_op=True)
    dist.barrier()
    until(lambda: all(t.tolist() == [2.0] * 25 for t in kept), "a dropped operation was not finished")


def test_dropped_works_are_finished(pair):
    pair.run(check_dropped)


def check_strided_copy_back_once(rank):
    wide = torch.ones(4, 2)
    work = dist.all_reduce(wide[:, 0], async_op=True)
    future = work.get_future()
    work.wait()
    wide[:, 0] = 7.0  # the user may write again: a second copy would undo this
    future.wait()
    del work, future
    dist.barrier()
    assert wide[:, 0].tolist() == [7.0] * 4


def test_results_are_copied_back_once(pair):
    pair.run(check_strided_copy_back_once)


def check_sequence_numbers(rank):
    first = world()._get_backend(torch.device("cpu"))._get_sequence_number_for_group()
    works = [dist.all_reduce(torch.ones(1), async_op=True) for _ in range(3)]
    for work in works:
        work.wait()
    dist.barrier()
    assert world()._get_backend(torch.device("cpu"))._get_sequence_number_for_group() == first + 4


def test_collectives_are_counted(pair):
    pair.run(check_sequence_numbers)


def check_any_source(rank):
    if rank == 0:
        for tag in (5, 4):
            t = torch.zeros(2)
            work = world().recv_anysource([t], tag)
            work.wait()
            assert work._source_rank() == 1 and t.tolist() == [float(tag)] * 2
        t = torch.zeros(1)
        assert dist.recv(t) == 1 and t.item() == 9.0
    else:
        works = [dist.isend(torch.full((2,), float(tag)), 0, tag=tag) for tag in (4, 5)]
        dist.send(torch.tensor([9.0]), 0)
        for work in works:
            work.wait()
    dist.barrier()


def test_receive_from_any_source(pair):
    pair.run(check_any_source)


def check_profile(rank):
    with torch.profiler.profile(record_shapes=True) as profile:
        dist.all_reduce(torch.ones(3))
        dist.all_reduce(torch.ones(3), async_op=True).wait()
        dist.broadcast(torch.ones(2, 2), 0)
        dist.all_gather([torch.ones(1), torch.ones(1)], torch.ones(1))
        dist.barrier()
    events = {}
    for event in profile.events():
        events.setdefault(event.name, []).append(event.input_shapes)
    assert len(events["goccl:all_reduce"]) == 2 and events["goccl:all_reduce"][0] == [[3]]
    assert events["goccl:broadcast"] == [[[2, 2]]]
    assert {"goccl:all_gather", "goccl:barrier"} <= events.keys()


def test_profiler_sees_the_operations(pair):
    pair.run(check_profile)


def check_callback_fails(rank):
    def wrong(_):
        raise RuntimeError("of the callback")

    work = dist.all_reduce(torch.ones(2), async_op=True)
    chained = work.get_future().then(wrong)
    with pytest.raises(RuntimeError, match="of the callback"):
        chained.wait()
    assert work.wait()


def test_a_callback_that_fails_does_not_fail_the_work(pair):
    pair.run(check_callback_fails)


def check_timeout(rank):
    """Rank 1 stays away: rank 0 gets an error that names the timeout, from wait, from the future and from the Work."""
    group = dist.new_group([0, 1], timeout=SHORT)
    if rank == 0:
        t = torch.ones(2)[::1]
        work = dist.all_reduce(t, group=group, async_op=True)
        future = work.get_future()
        start = time.monotonic()
        with pytest.raises(dist.DistBackendError, match="timeout"):
            work.wait(seconds(20))
        assert time.monotonic() - start < 10
        assert work.is_completed() and not work.is_success() and has_exception(work)
        with pytest.raises(RuntimeError, match="timeout"):
            future.wait()
        with pytest.raises(RuntimeError, match="timeout"):
            work.get_future().wait()
    dist.barrier()


def test_a_rank_that_stays_away(pair):
    pair.run(check_timeout)


def check_abort(rank):
    group = dist.new_group([0, 1])
    backend = group._get_backend(torch.device("cpu"))
    if rank == 0:
        work = dist.all_reduce(torch.ones(2), group=group, async_op=True)
        threading.Timer(0.2, backend.abort).start()
        with pytest.raises(dist.DistBackendError, match="aborted"):
            work.wait()
        with pytest.raises(dist.DistBackendError, match="aborted"):
            dist.all_reduce(torch.ones(2), group=group)
    dist.barrier()


def test_abort_ends_what_another_thread_waits_for(pair):
    pair.run(check_abort)


def check_callback_waits(rank):
    """A callback may wait for the future of another operation, also of one that it starts itself."""
    for _ in range(20):
        first = dist.all_reduce(torch.ones(2), async_op=True).get_future()
        second = dist.all_reduce(torch.ones(3), async_op=True).get_future()

        def reduce_again(future, other=second):
            again = dist.all_reduce(future.value()[0], async_op=True).get_future().wait()[0]
            return again + other.wait()[0][0]

        third = first.then(reduce_again).then(
            lambda f: f.value() + dist.all_reduce(torch.ones(1), async_op=True).get_future().wait()[0])
        assert third.wait().tolist() == [8.0, 8.0]


def test_a_callback_may_wait_for_other_futures(pair):
    pair.run(check_callback_waits)


def check_registry(rank):
    """Works that torch keeps for the graphs of torch.compile are released after they were waited for, as with gloo."""
    kept = torch._C._distributed_c10d._get_work_registry_size
    t, peer = torch.ones(2), 1 - rank
    with torch.distributed._functional_collectives.allow_inflight_collective_as_graph_input_ctx():
        for _ in range(3):
            dist.all_reduce(t, async_op=True).wait()
        assert kept() == 0
        got = torch.zeros(2)
        works = dist.batch_isend_irecv([dist.P2POp(dist.isend, t, peer), dist.P2POp(dist.irecv, got, peer)])
        assert kept() == 2
        for work in works:
            work.wait()
        assert kept() == 0 and got.tolist() == [8.0] * 2
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns that it does not keep this one
            dist.all_reduce(torch.ones(3).to_sparse(), async_op=True).wait()
        work = dist.all_reduce(t, async_op=True)
        until(work.is_completed, "an operation did not end")
        assert kept() == 1
        work.synchronize()
        assert kept() == 0
        # A synchronous call: torch would keep its result, even if that is not a Work.
        dist.all_reduce(t)
        assert kept() == 0 and torch.ops._c10d_functional.wait_tensor(t).tolist() == [32.0] * 2
        dist.all_reduce(t, async_op=True)
        assert torch.ops._c10d_functional.wait_tensor(t).tolist() == [64.0] * 2 and kept() == 0


def test_waited_works_leave_torchs_registry(pair):
    pair.run(check_registry)
