"""Several tensors a rank in one call of a process group, where gloo accepts them: results equal gloo's."""
import pytest
import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import AllgatherOptions, ReduceOp

import goccl


def pair_of(r, dtype=torch.float32):
    return [torch.tensor([r, 2 * r, 7]).to(dtype), torch.tensor([3, 5, r]).to(dtype)]


def summed(op, dtype):
    def case(group, r):
        tensors, options = pair_of(r, dtype), dist.AllreduceOptions()
        options.reduceOp = op
        return group.allreduce(tensors, options), tensors
    return case


def told(root, tensor):
    def case(group, r):
        tensors, options = pair_of(r), dist.BroadcastOptions()
        options.rootRank, options.rootTensor = root, tensor
        return group.broadcast(tensors, options), tensors
    return case


def gathered(group, r):
    tensors = pair_of(r)
    lists = [[torch.zeros(3, 2)[:, i % 2] for i in range(2 * group.size())] for _ in tensors]
    return group.allgather(lists, tensors), lists[0] + lists[1]


def sparse(group, r):
    tensors = [torch.tensor([0.0, r, 0.0, 1.0]).to_sparse(), torch.tensor([r, r, 0.0, 0.0]).to_sparse()]
    return group.allreduce(tensors), tensors


CASES = {
    **{f"{op}-{dtype}": summed(getattr(ReduceOp, op), dtype)
       for dtype in (torch.float32, torch.float64, torch.int64, torch.uint8)
       for op in ("SUM", "PRODUCT", "MIN", "MAX")},
    **{f"{op}-int32": summed(getattr(ReduceOp, op), torch.int32) for op in ("BAND", "BOR", "BXOR")},
    **{f"broadcast-{root}-{tensor}": told(root, tensor) for root in (0, 2) for tensor in (0, 1)},
    "all_gather": gathered,
    "sparse": sparse,
}

groups = {}


def check_like_gloo(rank):
    groups.update(gloo=dist.new_group(backend="gloo"), goccl=dist.group.WORLD)
    for name, case in CASES.items():
        results = {}
        for backend, group in groups.items():
            work, results[backend] = case(group, rank + 1)
            work.wait()
        same = [torch.equal(a.to_dense(), b.to_dense()) for a, b in zip(results["goccl"], results["gloo"], strict=True)]
        assert all(same), (name, results)
        work, tensors = case(groups["goccl"], rank + 1)
        value = [v for part in work.get_future().wait() for v in (part if isinstance(part, list) else [part])]
        assert all(v is t for v, t in zip(value, tensors, strict=True)), (name, value)


def test_several_tensors_are_as_with_gloo(trio):
    trio.run(check_like_gloo)


def shape(value):
    """The lists of a value, and the sizes and elements of its tensors."""
    if isinstance(value, torch.Tensor):
        return value.shape, value.to_dense().tolist()
    return [shape(each) for each in value]


def valued(group):
    """Calls whose futures have values with Gloo, too. (Of an output tensor for all ranks Gloo has a part for each.)"""
    rank, size, backend = group.rank(), group.size(), group._get_backend(torch.device("cpu"))

    def t(n=2):
        return torch.full((n,), rank + 1.0)

    def lists(outer, inner):
        return [[torch.zeros(2) for _ in range(inner)] for _ in range(outer)]

    root = rank == 0
    return {
        "allreduce": lambda: group.allreduce([t()]),
        "allreduce of several": lambda: group.allreduce([t(), t()]),
        "allreduce_coalesced": lambda: group.allreduce_coalesced([t(), t(3)]),
        "sparse": lambda: group.allreduce([t().to_sparse()]),
        "broadcast": lambda: group.broadcast([t()]),
        "broadcast of several": lambda: group.broadcast([t(), t()]),
        "reduce": lambda: group.reduce([t()]),
        "allgather": lambda: group.allgather(lists(1, size), [t()]),
        "allgather of several": lambda: group.allgather(lists(2, 2 * size), [t(), t()]),
        "allgather_coalesced": lambda: backend.allgather_coalesced(lists(size, 2), [t(), t()], AllgatherOptions()),
        "allgather_coalesced of one": lambda: backend.allgather_coalesced(lists(size, 1), [t()], AllgatherOptions()),
        "gather": lambda: group.gather(lists(1, size) if root else [], [t()], dist.GatherOptions()),
        "scatter": lambda: group.scatter([t()], lists(1, size) if root else [], dist.ScatterOptions()),
        "alltoall": lambda: group.alltoall(lists(1, size)[0], lists(1, size)[0]),
        "alltoall_base": lambda: group.alltoall_base(t(2 * size), t(2 * size), [], []),
        "barrier": lambda: group.barrier(),
    }


def check_values(rank):
    told = {}
    for backend in ("gloo", "goccl"):
        everyone, alone = dist.new_group(backend=backend), [dist.new_group([r], backend=backend) for r in range(3)]
        for group in (everyone, alone[rank]):
            for name, call in valued(group).items():
                work = call()
                value = work.get_future().wait()
                work.wait()
                try:
                    result = shape(work.result())
                except RuntimeError as error:  # it is declared as one list
                    assert "lists of tensors" in str(error) or backend == "gloo", error
                    result = "several lists"
                if name == "reduce" and group.rank() != 0:  # Gloo leaves sums of some ranks there
                    value, result = [v.zero_() for v in value], None
                told.setdefault((name, group.size()), {})[backend] = shape(value), result
    differ = {name: each for name, each in told.items() if each["gloo"] != each["goccl"]}
    assert len(told) == 32 and not differ, differ


def test_values_of_futures_are_as_with_gloo(trio):
    trio.run(check_values)


def check_premultiplied(rank):
    a, b, options = torch.ones(2, 3)[:, 1], torch.full((4,), 2.0)[::2], dist.AllreduceOptions()
    options.reduceOp = dist._make_nccl_premul_sum(0.5)
    options.asyncOp = False
    dist.group.WORLD.allreduce([a, b], options)
    assert a.tolist() == b.tolist() == [4.5] * 2


def test_factors_strided_tensors_and_synchronous_calls(trio):
    trio.run(check_premultiplied)


def check_allocator(rank):
    with pytest.raises(NotImplementedError, match="there is no cuda device here, .*goccl.empty"):
        dist.group.WORLD._get_backend(torch.device("cpu")).mem_allocator
    with pytest.raises(NotImplementedError, match="there is no cuda device here, .*goccl.empty"):
        goccl.mem_pool()


def test_the_allocator_is_not_for_python(trio):
    trio.run(check_allocator)
