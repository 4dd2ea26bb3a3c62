"""Python objects: gathered, broadcast, scattered, sent; also in sub-groups, of any size and kind."""
import dataclasses
import datetime
import threading

import pytest
import torch
import torch.distributed as dist


@dataclasses.dataclass
class Report:
    rank: int
    text: str
    tensor: torch.Tensor

    def __eq__(self, other):
        return (self.rank, self.text) == (other.rank, other.text) and torch.equal(self.tensor, other.tensor)


def of(rank):
    """Returns another kind of object for each rank, all of different sizes."""
    return [None, {"rank": 1, "deep": [(1, 2.5), {"set"}, b"\0bytes"]}, Report(2, "two", torch.arange(7)),
            "x" * 1000][rank]


def check_all_kinds(rank):
    size = dist.get_world_size()
    out = ["unset"] * size
    dist.all_gather_object(out, of(rank))
    assert out == [of(r) for r in range(size)]

    out = ["unset"] * size if rank == 1 else None
    dist.gather_object(of(rank), out, dst=1)
    assert out == ([of(r) for r in range(size)] if rank == 1 else None)

    objects = [of(r) for r in range(size)] if rank == 2 else ["unset"] * size
    dist.broadcast_object_list(objects, src=2)
    assert objects == [of(r) for r in range(size)]

    out = ["unset"]
    dist.scatter_object_list(out, [of(r) for r in range(size)] if rank == 0 else None, src=0)
    assert out == [of(rank)]

    # Around the ring: the even ranks send first.
    got, right, left = ["unset", "unset"], (rank + 1) % size, (rank - 1) % size
    if rank == 0:
        dist.send_object_list([of(rank), rank], dst=right)
        assert dist.recv_object_list(got, src=left) == left
    else:
        assert dist.recv_object_list(got, src=left) == left
        dist.send_object_list([of(rank), rank], dst=right)
    assert got == [of(left), left]


def test_all_kinds(trio):
    trio.run(check_all_kinds)


def check_subgroups(rank):
    """The root is a global rank, or a rank of the group by group_src and group_dst.

    Objects of ranks outside the group do not change.
    """
    group = dist.new_group([2, 0])
    out = ["unset"] * 2
    if rank == 1:
        for call in (lambda: dist.all_gather_object(out, rank, group=group),
                     lambda: dist.gather_object(rank, out, group=group),
                     lambda: dist.broadcast_object_list(out, src=0, group=group),
                     lambda: dist.scatter_object_list(out, [1, 2], src=0, group=group)):
            with pytest.warns(UserWarning, match="on global rank 1 which does not belong to the given group"):
                call()
        assert out == ["unset"] * 2
    else:
        mine, members = dist.get_group_rank(group, rank), dist.get_process_group_ranks(group)
        dist.all_gather_object(out, ("from", rank), group=group)
        assert out == [("from", r) for r in members]
        out = [None] * 2 if rank == 2 else None
        dist.gather_object(rank, out, dst=2, group=group)
        assert out == (members if rank == 2 else None)
        out = [None] * 2 if mine == 1 else None
        dist.gather_object(rank, out, group=group, group_dst=1)
        assert out == (members if mine == 1 else None)
        got = [f"of {rank}"]
        dist.broadcast_object_list(got, src=2, group=group)
        assert got == ["of 2"]
        got = [f"of {mine}"]
        dist.broadcast_object_list(got, group=group, group_src=1)
        assert got == ["of 1"]
        got = [None]
        dist.scatter_object_list(got, ["a", "b"] if rank == 2 else None, src=2, group=group)
        assert got == [["a", "b"][mine]]
        if mine == 0:
            dist.send_object_list([{"to": 1}], group=group, group_dst=1)
        else:
            assert dist.recv_object_list(got, group=group, group_src=0) == members[0] and got == [{"to": 1}]
            with pytest.raises(ValueError, match="not part of"):
                dist.broadcast_object_list(got, src=1, group=group)
        dist.destroy_process_group(group)
    dist.barrier()


def test_subgroups(trio):
    trio.run(check_subgroups)


def check_big(rank):
    """Objects of several megabytes, of another size on each rank, and a thousand small objects in one list."""
    size = dist.get_world_size()

    def big(r):
        return {"weights": torch.full((400_000 * (r + 1),), r, dtype=torch.float64),
                "raw": bytes([r]) * (2_000_000 - r)}

    def same(a, b):
        return torch.equal(a["weights"], b["weights"]) and a["raw"] == b["raw"]

    out = [None] * size
    dist.all_gather_object(out, big(rank))
    assert all(same(out[r], big(r)) for r in range(size))
    got = [big(0), *range(1000)] if rank == 0 else [None] * 1001
    dist.broadcast_object_list(got, src=0)
    assert same(got[0], big(0)) and got[1:] == list(range(1000))
    got = [None]
    dist.scatter_object_list(got, [big(r) for r in range(size)] if rank == 0 else None)
    assert same(got[0], big(rank))
    if rank == 0:
        dist.send_object_list([big(0)], dst=1)
    elif rank == 1:
        dist.recv_object_list(got, src=0)
        assert same(got[0], big(0))


def test_big_objects(trio):
    trio.run(check_big)


def check_unpicklable(rank):
    """The pickler refuses an object before anything is sent, on its rank; the group stays usable."""
    size = dist.get_world_size()
    for call in (lambda: dist.all_gather_object([None] * size, threading.Lock()),
                 lambda: dist.gather_object(threading.Lock(), [None] * size if rank == 0 else None),
                 lambda: dist.send_object_list([threading.Lock()], dst=(rank + 1) % size)):
        with pytest.raises(TypeError, match="cannot pickle '_thread.lock' object"):
            call()
    with pytest.raises(ValueError, match="[Gg]ather_list|object_gather_list"):
        dist.gather_object(1, None if rank == 0 else [None] * size)
    with pytest.raises(ValueError, match="scatter_object_output_list"):
        dist.scatter_object_list([], [1] * size if rank == 0 else None)
    # torch's documentation allows any rank; _canonicalize_group_rank in distributed_c10d.py does not.
    with pytest.raises(ValueError, match="Must specify global_rank or group_rank"):
        dist.recv_object_list([None])
    out = [None] * size
    dist.all_gather_object(out, rank)
    assert out == list(range(size))


def test_unpicklable_objects_are_refused(trio):
    trio.run(check_unpicklable)


class FailsToUnpickle:
    def __reduce__(self):
        return int, ("not a number",)


def check_fails_to_unpickle(rank):
    """An object that cannot be unpickled raises on its readers after it has arrived; the group stays usable."""
    with pytest.raises(ValueError, match="invalid literal"):
        dist.all_gather_object([None] * dist.get_world_size(), FailsToUnpickle())
    dist.barrier()


def test_objects_that_cannot_be_read(trio):
    trio.run(check_fails_to_unpickle)


def check_one_side_missing(rank):
    """A rank that does not call an object collective is named at the timeout."""
    group = dist.new_group(timeout=datetime.timedelta(seconds=1))
    if rank != 1:
        with pytest.raises(dist.DistBackendError, match="rank 1"):
            dist.all_gather_object([None] * 3, rank, group=group)
    dist.barrier()


def test_missing_rank_is_named(trio):
    trio.run(check_one_side_missing)
