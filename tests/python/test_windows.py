"""Algorithms over shared windows, between processes."""
import torch
import torch.distributed as dist

import goccl

ALGO = ("all_reduce=two_shot_window,all_gather=window,broadcast=window,reduce_scatter=window,"
        "scatter=window,gather=window,reduce=window")


def check_windows(rank):
    group = dist.new_group([0, 1, 2], pg_options=goccl.Options(algo=ALGO))
    for count in (1, 7, 5000, 700_001):  # the last one runs in pieces
        given = [torch.arange(3 * count, dtype=torch.float32) % 17 + r for r in range(3)]
        mine = given[rank][:count].clone()
        dist.all_reduce(mine, group=group)
        assert torch.equal(mine, sum(x[:count] for x in given))
        gathered = torch.empty(3 * count)
        dist.all_gather_into_tensor(gathered, given[rank][:count], group=group)
        assert torch.equal(gathered, torch.cat([x[:count] for x in given]))
        part = torch.empty(count)
        dist.reduce_scatter_tensor(part, given[rank], group=group)
        assert torch.equal(part, sum(given)[rank * count:(rank + 1) * count])
        for root in (0, 2):
            whole = [torch.empty(count) for _ in given] if rank == root else None
            dist.gather(given[rank][:count], whole, dst=root, group=group)
            if rank == root:
                assert all(torch.equal(x, y[:count]) for x, y in zip(whole, given))
            dist.scatter(part, [x[:count] for x in given] if rank == root else None, src=root, group=group)
            assert torch.equal(part, given[rank][:count])
            total = given[rank].clone()
            dist.reduce(total, root, group=group)
            if rank == root:
                assert torch.equal(total, sum(given))
        works = []
        sent = [torch.full((count,), float(k * 10 + rank)) for k in range(6)]
        for k, tensor in enumerate(sent):  # several in flight, from every root
            works.append(dist.broadcast(tensor, k % 3, group=group, async_op=True))
        for k, work in enumerate(works):
            work.wait()
            assert torch.equal(sent[k], torch.full((count,), float(k * 10 + k % 3)))
    dist.destroy_process_group(group)


def test_windows(trio):
    trio.run(check_windows)


def check_refused(rank):
    group = dist.new_group([0, 1, 2], pg_options=goccl.Options(algo=ALGO, transport="tcp"))
    try:
        dist.all_reduce(torch.ones(4), group=group)
    except RuntimeError as error:
        assert "two_shot_window reads windows of peers" in str(error), str(error)
    else:
        raise AssertionError("windows over TCP")
    dist.barrier(group=group)


def test_windows_over_tcp_are_refused(trio):
    trio.run(check_refused)
