"""startCoalescing and endCoalescing: the calls between them are one Work."""
import threading

import pytest
import torch
import torch.distributed as dist
from common import has_exception

CPU = torch.device("cpu")


def world():
    return dist.group.WORLD


def exchange(rank, peer, count, tag=0):
    """Returns receives and sends of count tensors; on one side only the receives come first."""
    sent = [torch.full((i + 1,), 10.0 * rank + i) for i in range(count)]
    got = [torch.zeros(i + 1) for i in range(count)]
    sends = [dist.P2POp(dist.isend, t, peer, tag=tag) for t in sent]
    receives = [dist.P2POp(dist.irecv, t, peer, tag=tag) for t in got]
    return got, sends + receives if rank == 0 else receives + sends


def check_batch(rank):
    peer = 1 - rank
    got, operations = exchange(rank, peer, 5)
    works = dist.batch_isend_irecv(operations)
    assert len(works) == 1, works
    assert works[0].wait() and works[0].is_completed() and works[0].is_success() and not has_exception(works[0])
    assert [t.tolist() for t in got] == [[10.0 * peer + i] * (i + 1) for i in range(5)]


def test_a_batch_of_messages_is_one_work(pair):
    pair.run(check_batch)


def check_different_types(rank):
    """One all_reduce of tensors of different types is refused, as with Gloo, before anything moves."""
    ts = [torch.ones(2), torch.ones(3), torch.ones(2, dtype=torch.float64)]
    with pytest.raises(RuntimeError, match="must all have the same type; expected Float, got Double at index 2"):
        world().allreduce_coalesced(ts)
    backend, gathered = world()._get_backend(CPU), [[torch.empty_like(t) for t in ts] for _ in range(2)]
    backend.allgather_coalesced(gathered, ts).wait()  # as with Gloo
    assert all(torch.equal(g, t) for of_rank in gathered for g, t in zip(of_rank, ts, strict=True))
    dist.all_reduce(ts[0])
    assert ts[0].tolist() == [2.0] * 2


def test_types_that_differ(pair):
    pair.run(check_different_types)


def check_large(rank):
    """Messages larger than those that are sent without a receiver.

    In the same order on both sides, each rank would wait for the other.
    """
    peer = 1 - rank
    sent, got = torch.full((3_000_000,), float(rank)), torch.zeros(3_000_000)
    operations = [dist.P2POp(dist.isend, sent, peer), dist.P2POp(dist.irecv, got, peer)]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    assert got.sum() == peer * 3_000_000
    same = torch.zeros(4)
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, torch.ones(4), rank),
                                        dist.P2POp(dist.irecv, same, rank)]):
        work.wait()
    assert same.tolist() == [1.0] * 4


def test_large_messages_and_messages_to_oneself(pair):
    pair.run(check_large)


def check_future(rank):
    got, operations = exchange(rank, 1 - rank, 3)
    [work] = dist.batch_isend_irecv(operations)
    value = work.get_future().then(lambda f: f.value()).wait()
    assert len(value) == 6 and all(any(t is v for v in value) for t in got)
    assert work.get_future_result().wait() == 0
    assert got[2].tolist() == [10.0 * (1 - rank) + 2] * 3
    got, operations = exchange(rank, 1 - rank, 3)
    [work] = dist.batch_isend_irecv(operations)
    while not work.is_completed():
        pass
    assert got[0].tolist() == [10.0 * (1 - rank)]


def test_future_and_polling_of_a_batch(pair):
    pair.run(check_future)


def check_collectives(rank):
    for asynchronous in (False, True):
        a, b, c = torch.full((2,), float(rank)), torch.full((3,), float(rank)), torch.zeros(2)
        with dist._coalescing_manager(device=CPU, async_ops=asynchronous) as manager:
            dist.broadcast(a, 1)
            dist.broadcast(b, 0, async_op=True)
            work = dist.reduce(b, 1, async_op=True)
            dist.scatter(c, [torch.ones(2), 2 * torch.ones(2)] if rank == 0 else None, src=0)
        if asynchronous:
            assert len(manager.works) == 1
            manager.wait()
        assert work.is_completed()
        assert a.tolist() == [1.0] * 2 and b.tolist() == [0.0] * 3 and c.tolist() == [rank + 1.0] * 2
        # Calls that torch collects itself, and makes when the block ends.
        ts = [torch.ones(2), torch.ones(3)]
        with dist._coalescing_manager(device=CPU, async_ops=asynchronous) as manager:
            for t in ts:
                dist.all_reduce(t)
        manager.wait()
        assert [t.tolist() for t in ts] == [[2.0] * 2, [2.0] * 3]


def test_collectives_in_a_block(pair):
    pair.run(check_collectives)


def check_empty(rank):
    world()._start_coalescing(CPU)
    assert world()._end_coalescing(CPU) is None
    with pytest.raises(RuntimeError, match="no block open.*do not nest"):
        world()._end_coalescing(CPU)
    # In a block within a block, when the outer one is closed.
    world()._start_coalescing(CPU)
    world()._start_coalescing(CPU)
    works = [world().send([torch.ones(1)], 1 - rank, 0), world().recv([torch.ones(1)], 1 - rank, 0)]
    assert world()._end_coalescing(CPU).wait()
    assert all(work.is_completed() for work in works)
    with pytest.raises(RuntimeError, match="no block open"):
        world()._end_coalescing(CPU)
    assert world()._get_backend(CPU).supports_coalescing


def test_blocks_begin_and_end(pair):
    pair.run(check_empty)


def check_error(rank):
    """After an exception within a block the group works as before, also in the next block."""
    for wrong in (lambda: world().send([torch.ones(1)], 7, 0), lambda: 1 / 0):
        with pytest.raises((RuntimeError, ZeroDivisionError)):
            with dist._coalescing_manager(device=CPU, async_ops=True):
                world().broadcast([torch.ones(1)])
                wrong()
        dist.distributed_c10d._world.pg_coalesce_state.pop(world(), None)  # torch's own record of the block
        t = torch.ones(2)
        assert world().allreduce([t]).wait() and t.tolist() == [2.0] * 2
        got, operations = exchange(rank, 1 - rank, 2)
        works = dist.batch_isend_irecv(operations)
        assert len(works) == 1 and works[0].wait() and len(works[0].result()) == 4
        with pytest.raises(RuntimeError, match="no block open"):
            world()._end_coalescing(CPU)


def test_an_exception_in_a_block(pair):
    pair.run(check_error)


def check_threads(rank):
    """Blocks of two threads on one group do not mix."""
    failures = []

    def run(tag):
        try:
            for _ in range(30):
                world()._start_coalescing(CPU)
                got = torch.zeros(1)
                world().recv([got], 1 - rank, tag)
                world().send([torch.full((1,), float(tag))], 1 - rank, tag)
                work = world()._end_coalescing(CPU)
                work.wait()
                assert got.item() == tag and len(work.result()) == 2
        except BaseException as e:
            failures.append(e)

    threads = [threading.Thread(target=run, args=(tag,)) for tag in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not failures, failures


def test_blocks_of_several_threads(pair):
    pair.run(check_threads)


def check_many(rank):
    """A block that is never ended keeps only operations that have not ended."""
    world()._start_coalescing(CPU)
    for _ in range(3000):
        world().allreduce([torch.ones(1)]).wait()
    work = world()._end_coalescing(CPU)
    assert work.wait() and len(work.result()) < 2000


def test_a_block_that_stays_open_holds_little(pair):
    pair.run(check_many)


def check_failure(rank):
    group = dist.new_group()
    if rank == 0:
        operations = [dist.P2POp(dist.irecv, torch.zeros(1), 1, group),
                      dist.P2POp(dist.isend, torch.zeros(1), 1, group)]
        [work] = dist.batch_isend_irecv(operations)
        future, result = work.get_future(), work.get_future_result()
        group.abort()
        with pytest.raises(dist.DistBackendError, match="aborted"):
            work.wait()
        assert not work.is_success() and has_exception(work)
        with pytest.raises(RuntimeError, match="aborted"):
            future.wait()
        assert result.wait() == 2  # WorkResult.COMM_ERROR
    dist.barrier()


def test_a_batch_that_fails(pair):
    pair.run(check_failure)
