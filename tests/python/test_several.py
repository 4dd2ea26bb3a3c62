"""Several tensors a rank in one call of a process group, where gloo accepts them: results equal gloo's."""
import pytest
import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import ReduceOp

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
        value = work.get_future().wait()
        assert all(v is t for v, t in zip(value, tensors, strict=True)), (name, value)


def test_several_tensors_are_as_with_gloo(trio):
    trio.run(check_like_gloo)


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
