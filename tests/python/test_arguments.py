"""Wrong arguments are refused on the rank that passes them, with a message, before any data moves.

The group stays usable.
"""
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist


def world():
    return dist.group.WORLD


def backend():
    return world()._get_backend(torch.device("cpu"))


def opts(kind, **fields):
    o = kind()
    for name, value in fields.items():
        setattr(o, name, value)
    return o


F = torch.zeros
# The call, and parts of the message. Each call is made on both ranks.
CASES = {
    "invalid root": (lambda: world().broadcast([F(2)], opts(dist.BroadcastOptions, rootRank=7)),
                     ["goccl:broadcast", "invalid root rank: 7", "2 ranks"]),
    "negative root": (lambda: world().reduce([F(2)], opts(dist.ReduceOptions, rootRank=-1)),
                      ["goccl:reduce", "invalid root rank: -1"]),
    "root tensor": (lambda: world().broadcast([F(2)], opts(dist.BroadcastOptions, rootTensor=1)),
                    ["invalid root tensor: 1"]),
    "expanded output": (lambda: world().allreduce([F(1).expand(4)]), ["goccl:all_reduce", "expanded", "clone()"]),
    "average of integers": (lambda: dist.all_reduce(torch.zeros(2, dtype=torch.int32), op=dist.ReduceOp.AVG), ["avg"]),
    "sum of a type without arithmetic": (lambda: world().allreduce([torch.zeros(2, dtype=torch.float8_e4m3fnuz)]),
                                         ["goccl:all_reduce", "cannot reduce", "Float8_e4m3fnuz"]),
    "mixed types": (lambda: world().allgather([[F(2), F(2)]], [F(2).double()]),
                    ["goccl:all_gather", "invalid tensor type", "Double", "Float"]),
    "short gather list": (lambda: world().allgather([[F(2)]], [F(2)]),
                          ["goccl:all_gather", "Incorrect output list size 1", "2"]),
    "own block of another size": (lambda: world().allgather([[F(3), F(3)]], [F(2)]),
                                  ["invalid tensor size", "expected 2", "got 3"]),
    "whole of another size": (lambda: backend()._allgather_base(F(5), F(2)),
                              ["output tensor must have 4 elements", "got 5"]),
    "whole that is not a multiple": (lambda: backend()._reduce_scatter_base(F(2), F(5)),
                                     ["input tensor must have 4 elements", "got 5"]),
    "lists of unequal length": (lambda: world().allgather_into_tensor_coalesced([F(4)], [F(2), F(2)]),
                                ["same length", "2", "1"]),
    "rows that do not divide": (lambda: dist.all_to_all_single(F(3), F(3)),
                                ["goccl:all_to_all", "does not divide equally"]),
    "unequal without splits": (lambda: dist.all_to_all_single(F(2), F(4)),
                               ["goccl:all_to_all", "as many elements; got 4 and 2"]),
    "too few splits": (lambda: dist.all_to_all_single(F(4), F(4), [4], [4]),
                       ["splits not equal to group size", "1", "2"]),
    "splits of another sum": (lambda: dist.all_to_all_single(F(4), F(4), [2, 2], [1, 2]),
                              ["doesn't match total dim 0 size", "3", "4"]),
    "negative split": (lambda: dist.all_to_all_single(F(4), F(4), [2, 2], [-1, 5]), ["[-1, 5]", "not numbers of rows"]),
    "short all-to-all list": (lambda: world().alltoall([F(2), F(2)], [F(2)]), ["Incorrect input list size 1", "2"]),
    "two tensors to send": (lambda: world().send([F(2), F(2)], 1, 0), ["goccl:send", "single-element", "got 2"]),
    "negative tag": (lambda: world().send([F(2)], 1, -3), ["goccl:send", "tag must be nonnegative; got -3"]),
    "peer out of range": (lambda: world().recv([F(2)], 5, 0), ["goccl:recv", "invalid rank 5", "2 ranks"]),
    "negative peer": (lambda: world().recv([F(2)], -1, 0), ["goccl:recv", "invalid rank -1"]),
    "sparse tensor": (lambda: backend().broadcast([torch.eye(2).to_sparse()]),
                      ["goccl:broadcast", "only supports dense tensors", "Sparse"]),
    "two tensors of other types": (lambda: world().allreduce([F(2), F(2).int()]), ["invalid tensor type at index 1"]),
    "two tensors of other sizes": (lambda: world().reduce([F(2), F(3)]), ["invalid tensor size at index 1"]),
    "average of several tensors": (
        lambda: world().allreduce([F(2), F(2)], opts(dist.AllreduceOptions, reduceOp=dist.ReduceOp.AVG)),
        ["goccl:all_reduce", "AVG is not defined for several tensors"]),
    "expanded among several": (lambda: world().allreduce([F(2), F(1).expand(2)]),
                               ["goccl:all_reduce", "expanded", "clone()"]),
    "root tensor among two": (lambda: world().broadcast([F(2), F(2)], opts(dist.BroadcastOptions, rootTensor=2)),
                              ["goccl:broadcast", "invalid root tensor: 2", "2 tensors"]),
    "two tensors to reduce": (lambda: world().reduce([F(2), F(2)]), ["goccl:reduce", "single-element", "got 2"]),
    "short lists of two tensors": (lambda: world().allgather([[F(2), F(2)]] * 2, [F(2), F(2)]),
                                   ["goccl:all_gather", "output tensor list at index 0 (expected length 4, got 2)"]),
    "one list of two tensors": (lambda: world().allgather([[F(2)] * 4], [F(2), F(2)]),
                                ["goccl:all_gather", "same length; got 2/1"]),
    "block among two of another size": (lambda: world().allgather([[F(2)] * 4, [F(2), F(3), F(2), F(2)]], [F(2), F(2)]),
                                        ["goccl:all_gather", "invalid tensor size at index 1"]),
    "two tensors to gather": (
        lambda: world().gather([[F(2), F(2)]] * 2, [F(2), F(2)], opts(dist.GatherOptions, rootRank=0)),
        ["goccl:gather", "single-element", "got 2"]),
    "two tensors to scatter": (
        lambda: world().scatter([F(2), F(2)], [[F(2), F(2)]] * 2, opts(dist.ScatterOptions, rootRank=0)),
        ["goccl:scatter", "single-element", "got 2"]),
    "two tensors to reduce and scatter": (
        lambda: world().reduce_scatter([F(2), F(2)], [[F(2), F(2)]] * 2, dist.ReduceScatterOptions()),
        ["goccl:reduce_scatter", "single-element", "got 2"]),
    "two tensors to receive": (lambda: world().recv([F(2), F(2)], 1, 0), ["goccl:recv", "single-element", "got 2"]),
    "two lists of blocks": (lambda: world().allgather([[F(2), F(2)]] * 2, [F(2)]),
                            ["single-element output list", "got 2 lists"]),
    "quantized tensor": (lambda: backend().broadcast([torch.quantize_per_tensor(torch.ones(2), 1.0, 0, torch.qint8)]),
                         ["goccl:broadcast", "quantized"]),
    "device": (lambda: backend().allreduce([torch.zeros(2, device="meta")]),
               ["tensors of the host and of cuda devices", "got device meta"]),
    **({} if torch.cuda.is_available() else {
        "no driver": (lambda: backend().eager_connect_single_device(torch.device("cuda", 0)), ["libcuda.so.1"])}),
    "timeout of zero": (lambda: backend().set_timeout(timedelta(0)), ["longer than zero"]),
}


def refused(rank, name):
    call, parts = CASES[name]
    try:
        call()
    except (RuntimeError, ValueError) as e:  # DistBackendError and NotImplementedError are kinds of RuntimeError
        missing = [part for part in parts if part not in str(e)]
        assert not missing, f"{missing} not in: {e}"
    else:
        raise AssertionError("it was not refused")
    t = torch.ones(3)
    dist.all_reduce(t)
    assert t.tolist() == [2.0] * 3


@pytest.mark.parametrize("name", CASES)
def test_refused_in_words(pair, name):
    pair.run(refused, name)


def check_root_lists(rank):
    for call, text in [
        (lambda: world().gather([[F(2)]] if rank == 0 else [], [F(2)], opts(dist.GatherOptions, rootRank=0)),
         "Incorrect output list size 1"),
        (lambda: world().gather([], [F(2)], opts(dist.GatherOptions, rootRank=0)), "single-element output list"),
        (lambda: world().scatter([F(2)], [], opts(dist.ScatterOptions, rootRank=0)), "single-element input list"),
    ]:
        if rank == 0:
            with pytest.raises(RuntimeError, match=text):
                call()
    if rank == 1:
        with pytest.raises(RuntimeError, match="requires empty output on non-root"):
            world().gather([[F(2), F(2)]], [F(2)], opts(dist.GatherOptions, rootRank=0))
        with pytest.raises(RuntimeError, match="requires empty input on non-root"):
            world().scatter([F(2)], [[F(2), F(2)]], opts(dist.ScatterOptions, rootRank=0))
    dist.barrier()


def test_lists_at_the_root_and_elsewhere(pair):
    pair.run(check_root_lists)
