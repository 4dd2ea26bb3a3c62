"""Groups within the default group: any order of ranks, overlapping, many at once, from threads, of other backends."""
import inspect
import threading

import pytest
import torch
import torch.distributed as dist
from common import TORCH, seconds
from rank_pool import RankPool

import goccl

CPU = torch.device("cpu")
SORTS = "sort_ranks" in inspect.signature(dist.new_group).parameters  # the argument came with torch 2.14
# Newer torch refuses a rank that is named twice.
LOOKS_TWICE = "duplicate" in inspect.getsource(dist.distributed_c10d._new_group_with_tag)


def gathered(group):
    """Returns the global ranks of the group in its order, as all_gather finds them."""
    out = [torch.zeros(1, dtype=torch.int64) for _ in range(dist.get_world_size(group))]
    dist.all_gather(out, torch.tensor([dist.get_rank()]), group=group)
    return [t.item() for t in out]


def destroy(*groups):
    for group in groups:
        if group not in (None, dist.GroupMember.NON_GROUP_MEMBER):
            dist.destroy_process_group(group)


def check_orders(rank):
    """new_group sorts the ranks unless sort_ranks is False; then ranks are numbered in the given order."""
    group = dist.new_group([3, 1, 0])
    assert rank == 2 or gathered(group) == [0, 1, 3] == dist.get_process_group_ranks(group)
    if SORTS:
        order = [2, 0, 3, 1]
        turned = dist.new_group(order, sort_ranks=False)
        assert gathered(turned) == order == dist.get_process_group_ranks(turned)
        assert turned.rank() == order.index(rank) and dist.get_group_rank(turned, 3) == 2
        t = torch.tensor([float(rank)])
        dist.broadcast(t, src=3, group=turned)  # a global rank
        assert t.item() == 3.0
        t = torch.tensor([float(rank)])
        dist.broadcast(t, group=turned, group_src=1)
        assert t.item() == 0.0
        out = torch.zeros(2)
        dist.reduce_scatter_tensor(out, torch.arange(8.0), group=turned)
        assert out.tolist() == [4.0 * (2 * turned.rank() + i) for i in range(2)]
        destroy(turned)
    dist.barrier()
    destroy(group)


def test_ranks_in_any_order(quartet):
    quartet.run(check_orders)


def check_local_synchronization(rank):
    """Only members make the group; the other ranks need not call new_group.

    All ranks have made the same number of groups before, on which the names depend (_process_group_name in
    distributed_c10d.py).
    """
    first, second = [[0, 1], [0, 1], [2, 3], [2, 3]][rank], [[3, 0], [2, 1], [2, 1], [3, 0]][rank]
    groups = []
    for members in (first, second):
        groups.append(dist.new_group(members, use_local_synchronization=True))
        assert gathered(groups[-1]) == sorted(members)
    outside = dist.new_group([(rank + 1) % 4, (rank + 2) % 4], use_local_synchronization=True)
    assert outside in (None, dist.GroupMember.NON_GROUP_MEMBER)
    t = torch.tensor([float(rank)])
    works = [dist.all_reduce(t.clone(), group=group, async_op=True) for group in groups]
    for work in works:
        work.wait()
    dist.barrier()
    destroy(*groups)


def test_local_synchronization(tmp_path):
    pool = RankPool(4, tmp_path, patience=100.0)
    pool.run(check_local_synchronization)
    pool.close()


def check_subgroups_of_equal_size(rank):
    mine, groups = dist.new_subgroups(2)
    assert len(groups) == 2 and gathered(mine) == [rank // 2 * 2, rank // 2 * 2 + 1]
    destroy(mine)
    mine, groups = dist.new_subgroups_by_enumeration([[0, 2], [1, 3]])
    assert len(groups) == 2 and gathered(mine) == [rank % 2, rank % 2 + 2]
    t = torch.tensor([float(rank)])
    dist.all_reduce(t, op=dist.ReduceOp.AVG, group=mine)
    assert t.item() == rank % 2 + 1
    destroy(mine)
    for sizes, text in ((3, "divisible"), (5, "must not exceed|greater|smaller")):
        with pytest.raises(ValueError, match=text):
            dist.new_subgroups(sizes)
    with pytest.raises(ValueError, match="belong to multiple|subgroup"):
        dist.new_subgroups_by_enumeration([[0, 1], [1, 2]])
    dist.barrier()


def test_new_subgroups(quartet):
    quartet.run(check_subgroups_of_equal_size)


def check_split(rank):
    """Works on CPU from torch 2.15 on; before, split_group in distributed_c10d.py requires a bound accelerator."""
    backend = dist.group.WORLD._get_backend(CPU)
    if TORCH < (2, 15) or not backend.supports_splitting:
        with pytest.raises(RuntimeError, match="No device associated with the default pg|does not support splitting"):
            dist.split_group(split_ranks=[[0, 1], [2, 3]])
        return
    half = dist.split_group(split_ranks=[[0, 2], [1, 3]], timeout=seconds(30), group_desc="halves")
    assert gathered(half) == [rank % 2, rank % 2 + 2]
    t = torch.tensor([float(rank)])
    dist.all_reduce(t, group=half)
    assert t.item() == 2 + 2 * (rank % 2)
    assert half._get_backend(CPU).options._timeout == seconds(30)
    some = dist.split_group(split_ranks=[[0, 1, 3]])
    if rank == 2:
        assert some in (None, dist.GroupMember.NON_GROUP_MEMBER)
    else:
        assert gathered(some) == [0, 1, 3]
        destroy(some)
    # Splits a child group, with the ranks of the child. torch names a group by the number of groups that its process
    # has made, so all ranks must make one.
    again = dist.split_group(parent_pg=half, split_ranks=[[0], [1]])
    assert gathered(again) == [rank]
    destroy(again, half)
    dist.barrier()


def test_split_group(quartet):
    quartet.run(check_split)


def check_overlapping(rank):
    """Each pair of ranks has a group; all are in use at once, in another order on each rank."""
    pairs = {(a, b): dist.new_group([a, b]) for a in range(4) for b in range(a + 1, 4)}
    mine = [pair for pair in pairs if rank in pair]
    for turn in range(3):
        order = mine[turn:] + mine[:turn]
        if rank % 2:
            order.reverse()
        tensors = {pair: torch.full((1000,), float(10 ** pair[0] + rank)) for pair in order}
        works = [dist.all_reduce(tensors[pair], group=pairs[pair], async_op=True) for pair in order]
        for work in reversed(works):
            work.wait()
        for (a, b), t in tensors.items():
            assert t.eq(2 * 10 ** a + a + b).all(), (rank, a, b, t[0])
    dist.barrier()
    destroy(*[pairs[pair] for pair in mine])


def test_overlapping_groups(quartet):
    quartet.run(check_overlapping)


def check_many(rank, count):
    """Makes count groups with an operation in flight in each, waits in another order, then destroys all groups."""
    groups = [dist.new_group([0, 1]) for _ in range(count)]
    tensors = [torch.full((257,), float(i + rank)) for i in range(count)]
    order = list(range(count)) if rank == 0 else list(reversed(range(count)))
    works = {i: dist.all_reduce(tensors[i], group=groups[i], async_op=True) for i in order}
    for i in range(count):
        works[i].wait()
    assert all(t.eq(2 * i + 1).all() for i, t in enumerate(tensors))
    for group in groups if rank == 0 else reversed(groups):
        dist.destroy_process_group(group)
    dist.barrier()


def test_64_groups(pair):
    pair.run(check_many, 64)


def check_alone(rank):
    """Groups of one rank: every operation is a copy or does nothing."""
    groups = [dist.new_group([r]) for r in range(dist.get_world_size())]
    group = groups[rank]
    t, out = torch.tensor([3.0, 4.0]), torch.zeros(2)
    dist.all_reduce(t, group=group)
    dist.broadcast(t, src=rank, group=group)
    dist.reduce(t, dst=rank, group=group)
    for call in (lambda: dist.all_gather([out], t, group=group),
                 lambda: dist.all_gather_into_tensor(out, t, group=group),
                 lambda: dist.gather(t, [out], dst=rank, group=group),
                 lambda: dist.scatter(out, [t], src=rank, group=group),
                 lambda: dist.reduce_scatter(out, [t], group=group),
                 lambda: dist.reduce_scatter_tensor(out, t, group=group),
                 lambda: dist.all_to_all([out], [t], group=group),
                 lambda: dist.all_to_all_single(out, t, group=group)):
        out.zero_()
        call()
        assert out.tolist() == t.tolist() == [3.0, 4.0]
    got = [None]
    dist.all_gather_object(got, "me", group=group)
    assert got == ["me"]
    dist.barrier(group=group)
    goccl.monitored_barrier(group)
    destroy(group)
    dist.barrier()


def test_groups_of_one(pair):
    pair.run(check_alone)


def check_threads(rank):
    """Four threads, each with its own group and all kinds of operations; the groups differ in speed and order."""
    size = dist.get_world_size()
    groups = [dist.new_group() for _ in range(4)]
    errors = []

    def use(number, group):
        try:
            for turn in range(10):
                n = 1 + 977 * number * turn % 2000
                t = torch.full((n,), float(rank + number))
                work = dist.all_reduce(t, group=group, async_op=True)
                out = torch.empty(size * n)
                dist.all_gather_into_tensor(out, torch.full((n,), float(rank)), group=group)
                work.wait()
                assert t.eq(size * number + sum(range(size))).all()
                assert out.view(size, n).eq(torch.arange(float(size)).unsqueeze(1)).all()
                got = [None] * size
                dist.all_gather_object(got, (number, turn), group=group)
                assert got == [(number, turn)] * size
        except BaseException as e:
            errors.append(e)

    threads = [threading.Thread(target=use, args=pair) for pair in enumerate(groups)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not errors and not any(thread.is_alive() for thread in threads), errors
    dist.barrier()
    destroy(*groups)


def test_threads_with_groups_of_their_own(trio):
    trio.run(check_threads)


def check_other_backend(rank):
    """A gloo group beside a goccl group, with operations of both in flight, and separate timeouts."""
    gloo = dist.new_group(backend="gloo", timeout=seconds(30))
    other = dist.new_group(timeout=seconds(17))
    assert dist.get_backend(gloo) == "gloo" and dist.get_backend(other) == "goccl"
    assert other._get_backend(CPU).options._timeout == seconds(17)
    a, b = torch.full((100,), 1.0), torch.full((100,), 2.0)
    works = [dist.all_reduce(a, group=gloo, async_op=True), dist.all_reduce(b, group=other, async_op=True)]
    for work in works[::-1]:
        work.wait()
    assert a.eq(3.0).all() and b.eq(6.0).all()
    with pytest.raises((TypeError, RuntimeError), match="pg_options must be a goccl.Options"):
        dist.new_group(backend="goccl", pg_options=object())
    dist.barrier()
    destroy(other, gloo)


def test_gloo_beside_goccl(trio):
    trio.run(check_other_backend)


def check_messages(rank):
    """group_src and group_dst are ranks in the group; tags and any source work in groups too."""
    group = dist.new_group([1, 3, 2])  # sorted: 1, 2, 3
    if rank != 0:
        mine = group.rank()
        t = torch.tensor([float(rank)])
        if mine == 0:
            dist.send(t, group=group, group_dst=2)
            dist.isend(t + 100, group=group, group_dst=2, tag=5).wait()
            assert dist.recv(t, group=group) == 2 and t.item() == 2.0  # from any source; the result is a global rank
        elif mine == 1:
            dist.send(t, dst=1, group=group)  # a global rank
        else:
            tagged = torch.zeros(1)
            work = dist.irecv(tagged, group=group, group_src=0, tag=5)
            assert dist.recv(t, group=group, group_src=0) == 1 and t.item() == 1.0
            work.wait()
            assert tagged.item() == 101.0
        dist.barrier(group)  # otherwise the receive from any source could take a later message
        send, got = torch.full((3,), float(mine)), torch.zeros(3)
        works = dist.batch_isend_irecv([
            dist.P2POp(dist.isend, send, group=group, group_peer=(mine + 1) % 3),
            dist.P2POp(dist.irecv, got, group=group, group_peer=(mine - 1) % 3),
        ])
        for work in works:
            work.wait()
        assert got.eq((mine - 1) % 3).all()
        with pytest.raises(ValueError, match="not part of|Invalid"):
            dist.send(t, dst=0, group=group)
        with pytest.raises(ValueError, match="destination rank|own rank|itself"):
            dist.send(t, group=group, group_dst=mine)
        destroy(group)
    dist.barrier()


def test_messages_in_subgroups(quartet):
    quartet.run(check_messages)


def check_refused_arguments(rank):
    wrong = [([0, 9], "[Rr]ank"), ([0, 1, 2], "less or equal to the world size")]
    if LOOKS_TWICE:
        wrong.append(([0, 0], "duplicate"))
    for ranks, text in wrong:
        with pytest.raises((ValueError, RuntimeError), match=text):
            dist.new_group(ranks)
    with pytest.raises(Exception, match="(?i)unknown.*no_such_backend"):
        dist.new_group(backend="no_such_backend")
    dist.barrier()


def test_wrong_ranks_are_refused(pair):
    pair.run(check_refused_arguments)
