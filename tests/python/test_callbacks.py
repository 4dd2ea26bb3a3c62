"""Collectives that are called in callbacks of futures: each meets that of the same callback on the other ranks."""
import functools
import random
import threading
import time

import goccl
import pytest
import torch
import torch.distributed as dist
from common import seconds


def summed(value, group=None):
    """all_reduce of a number."""
    value = torch.tensor([float(value)])
    dist.all_reduce(value, group=group)
    return value.item()


def posted(value=1.0, group=None):
    return dist.all_reduce(torch.tensor([float(value)]), group=group, async_op=True).get_future()


def check_eight(rank, turns):
    """The callbacks run at other times on each rank, on helper threads or at once."""
    ranks, sleep = dist.get_world_size(), random.Random(rank)

    def callback(future, i):
        time.sleep(sleep.choice([0, 0, 0.003]))
        return summed(future.value()[0].item() + i)

    for _ in range(turns):
        futures = []
        for i in range(8):
            future = posted()
            time.sleep(sleep.choice([0, 0, 0.003]))
            futures.append(future.then(functools.partial(callback, i=i)))
        assert [future.wait() for future in futures] == [ranks * (ranks + i) for i in range(8)]


def test_eight(pair):
    pair.run(check_eight, 20)


def test_eight_on_three_ranks(trio):
    trio.run(check_eight, 10)


def check_others(rank):
    """The program goes on meanwhile: while one rank waits in a callback, the other waits in its next call."""
    for i in range(10):
        first = posted().then(lambda f: summed(f.value()[0].item()))
        if i % 2 == rank:
            time.sleep(0.02)
            assert first.wait() == 4
        assert summed(10) == 20
        assert first.wait() == 4
        assert summed(1) == 2


def test_ordinary_calls_meanwhile(pair):
    pair.run(check_others)


def check_message_behind(rank):
    """A rank asks for a future, or gives a callback, before it sends what the other one waits for."""
    word = torch.ones(3)
    for then in (False, True):
        def future(then=then):
            return posted().then(lambda f: [summed(f.value()[0].item()) / 2]) if then else posted()
        if rank == 0:
            mine = future()
            dist.send(word, 1)
        else:
            dist.recv(word, 0)
            mine = future()
        assert mine.wait()[0] == 2


def test_a_message_behind_a_future(pair):
    pair.run(check_message_behind)


def check_nested(rank):
    """Callbacks of callbacks, several of one future, and several calls in one."""
    ranks = dist.get_world_size()
    done, seen = [], []

    def inner(future):
        return summed(future.value()[0].item())

    def outer(future, add):
        a = posted(future.value()[0].item() + add).then(inner)
        b = posted(add).then(inner).then(lambda f: summed(f.value()))
        return a, b

    for i in range(6):
        first = posted()
        second = [first.then(functools.partial(outer, add=i + 10 * k)) for k in range(3)]
        first.add_done_callback(lambda f: seen.append(summed(f.value()[0].item())))
        for k, future in enumerate(second):
            a, b = future.wait()
            done.append((a.wait(), b.wait()))
            assert done[-1] == (ranks * ranks * (ranks + i + 10 * k), ranks**3 * (i + 10 * k))
    while len(seen) < 6:
        time.sleep(0.001)
    assert seen == [ranks * ranks] * 6


def test_nested_callbacks(trio):
    trio.run(check_nested)


def check_kinds(rank):
    """Every kind of collective, also of several tensors, in callbacks of every kind of future."""
    group, n = dist.group.WORLD, dist.get_world_size()

    def callback(future):
        out = [torch.zeros(2) for _ in range(n)]
        dist.all_gather(out, torch.full((2,), float(rank)))
        assert [t[0].item() for t in out] == list(range(n))
        t = torch.full((3,), float(rank))
        dist.broadcast(t, n - 1)
        assert t.tolist() == [n - 1.0] * 3
        t = torch.ones(100_000)[::2]  # not contiguous
        dist.all_reduce(t, op=dist.ReduceOp.AVG, async_op=True).wait()
        assert t.eq(1).all()
        t, big = torch.zeros(40_000), torch.ones(40_000 * n)
        dist.reduce_scatter_tensor(t, big)
        assert t.eq(n).all()
        dist.all_gather_into_tensor(big, t + rank)
        assert big.view(n, -1)[:, 0].tolist() == [n + float(r) for r in range(n)]
        dist.all_to_all_single(big, torch.arange(n).repeat_interleave(40_000).float())
        assert big.eq(rank).all()
        dist.barrier()
        ts = [torch.ones(3), torch.ones(5)]
        [a, b] = group.allreduce_coalesced(ts).get_future().wait()
        assert a.eq(n).all() and b.eq(n).all()
        objects = [None] * n
        dist.all_gather_object(objects, {"rank": rank})
        assert [each["rank"] for each in objects] == list(range(n))
        return "done"

    with dist._coalescing_manager(group, async_ops=True) as block:
        dist.all_reduce(torch.ones(2))
        dist.all_reduce(torch.ones(3))
    futures = [
        posted().then(callback), dist.barrier(async_op=True).get_future().then(callback),
        block.works[0].get_future().then(callback), group.allreduce_coalesced([torch.ones(2)] * 2).get_future().then(callback),
        dist.all_reduce(torch.eye(2).to_sparse(), async_op=True).get_future().then(callback),
        dist.all_reduce(torch.ones(2), async_op=True).get_future_result().then(callback),
    ]
    assert [future.wait() for future in futures] == ["done"] * 6


def test_kinds(trio):
    trio.run(check_kinds)


def check_groups(rank):
    """Callbacks call collectives of other groups; ranks that are in none of them skip a call."""
    world = dist.group.WORLD
    part, twin = dist.new_group([0, 1]), dist.new_group()

    def callback(future, i):
        total = summed(i, part) if rank < 2 else 2 * i
        return total + summed(i, twin) + summed(i)

    for _ in range(5):
        futures = [posted(group=[world, twin][i % 2]).then(functools.partial(callback, i=i)) for i in range(4)]
        assert [future.wait() for future in futures] == [8 * i for i in range(4)]
    if rank < 2:
        wide = posted(group=part).then(lambda f: summed(1, world))
        with pytest.raises(RuntimeError, match="does not have all ranks of this one.*GOCCL_FUTURES=wait"):
            wide.wait()
        assert posted(group=part).then(lambda f: summed(1, part)).wait() == 2
    dist.barrier()
    dist.destroy_process_group(part)
    dist.destroy_process_group(twin)


def test_groups(trio):
    trio.run(check_groups)


def check_refused(rank):
    """What has no order in callbacks is an error there, on every rank, and the group lives."""
    def refused(future, call, match):
        with pytest.raises(RuntimeError, match=match):
            future.then(lambda f: call()).wait()

    peer = 1 - rank
    dist.send(torch.ones(1), peer) if rank == 0 else None
    refused(dist.irecv(torch.ones(1), peer).get_future() if rank == 1 else dist.isend(torch.ones(1), peer).get_future(),
            dist.barrier, "callback of a message.*GOCCL_FUTURES=wait")
    if rank == 1:
        dist.recv(torch.ones(1), peer)
    refused(posted(), lambda: dist.all_reduce(torch.eye(2).to_sparse()), "sparse.*callback of a future")
    refused(posted(), goccl.monitored_barrier, "monitored_barrier.*callback of a future")
    refused(posted(), dist.new_group, "making a group.*callback of a future")
    word = torch.full((1,), float(rank))

    def message(future):  # has a tag, which tells it from others
        dist.send(word, 1, tag=5) if rank == 0 else dist.recv(word, 0, tag=5)
        return word.item()

    assert posted().then(message).wait() == 0
    assert summed(1) == 2


def test_what_has_no_order_is_refused(pair):
    pair.run(check_refused)


def check_unseen(rank):
    """A callback of a future of torch's own, which a helper thread runs, ends the group with an error."""
    group = dist.new_group(timeout=seconds(10))
    dist.barrier(group)
    if rank == 0:
        time.sleep(0.3)
    both = torch.futures.collect_all([posted(group=group), posted(group=group)])
    if rank == 1:
        with pytest.raises(RuntimeError, match="that goccl does not make.*collect_all"):
            both.then(lambda f: summed(1, group)).wait()
    else:
        with pytest.raises(RuntimeError, match="that goccl does not make"):
            both.wait()
            while True:
                summed(1, group)
    dist.barrier()
    dist.destroy_process_group(group)


def test_callbacks_that_goccl_does_not_see(pair):
    pair.run(check_unseen)


def check_mismatch(rank):
    """Different calls in one callback fail with both of them named."""
    group = dist.new_group(timeout=seconds(10))
    future = posted(group=group).then(lambda f: dist.broadcast(torch.ones(3), rank, group=group))
    with pytest.raises(RuntimeError, match=r"this rank called broadcast, 3 x f32, root \d, rank \d called broadcast"):
        future.wait()
    dist.barrier()
    dist.destroy_process_group(group)


def test_different_calls_in_one_callback(pair):
    pair.run(check_mismatch)


def check_alone(rank):
    """A rank whose callback alone makes a call learns of it at its timeout."""
    group = dist.new_group(timeout=seconds(0.5))
    future = posted(group=group).then(lambda f: summed(1, group) if rank == 0 else None)
    if rank == 0:
        with pytest.raises(RuntimeError, match="in a callback of seq 1: timeout"):
            future.wait()
    else:
        assert future.wait() is None
    dist.barrier()
    dist.destroy_process_group(group)


def test_a_call_that_one_rank_makes(pair):
    pair.run(check_alone)


def check_waits(rank):
    """With futures="wait" futures are complete, so callbacks run where they are given, and calls have that order."""
    group = dist.new_group(pg_options=goccl.Options(futures="wait"))
    ran = []

    def callback(future, i):
        ran.append((i, threading.current_thread() is threading.main_thread()))
        return summed(i, group)

    for i in range(4):
        future = posted(group=group)
        assert future.done()
        future = torch.futures.collect_all([future]).then(functools.partial(callback, i=i))
        assert future.done() and future.value() == 2 * i
    assert ran == [(i, True) for i in range(4)]
    with pytest.raises(ValueError, match="GOCCL_FUTURES.*callbacks or wait"):
        dist.new_group(pg_options=goccl.Options(futures="never"))
    dist.barrier()
    dist.destroy_process_group(group)


def test_futures_that_wait(pair):
    pair.run(check_waits)


def check_future(rank):
    """Futures are torch's."""
    def fails(future):
        raise KeyError("of the callback")

    work = dist.all_reduce(torch.ones(1), async_op=True)
    future = work.get_future()
    assert isinstance(future, torch.futures.Future) and isinstance(work.get_future_result(), torch.futures.Future)
    given = []
    then = future.then(lambda f: given.append(f) or f.then(lambda g: g.value()[0].item()))
    assert isinstance(then, torch.futures.Future) and then.wait().wait() == 2
    assert isinstance(given[0], torch.futures.Future) and given[0].value()[0].item() == 2
    assert torch.futures.wait_all([future, posted()])[1][0].item() == 2
    with pytest.raises(RuntimeError, match="of the callback"):
        future.then(fails).wait()
    assert future.wait()[0].item() == 2 and future.done() and repr(future)


def test_futures_are_those_of_torch(pair):
    pair.run(check_future)
