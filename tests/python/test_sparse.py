"""all_reduce of sparse tensors: the same sum as for dense tensors, with the same bits on every rank."""
import datetime
import time

import pytest
import torch
import torch.distributed as dist

RANKS = 3
TYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int8, torch.uint8, torch.int16,
         torch.int32, torch.int64, torch.bool, torch.complex64, torch.complex128, torch.uint16, torch.uint32,
         torch.uint64, torch.float8_e4m3fn, torch.float8_e5m2]
AVERAGED = [t for t in TYPES if t.is_floating_point or t.is_complex]


def sparse(rank, count, sizes, dense=(), dtype=torch.float32, coalesce=False):
    """Returns count elements of a rank, some of them at the same place, and some where other ranks have one."""
    chosen = torch.Generator().manual_seed(17 * rank + count)
    indices = (torch.stack([torch.randint(0, s, (count,), generator=chosen) for s in sizes]) if sizes
               else torch.zeros(0, count).long())
    values = torch.randint(1, 4, (count, *dense), generator=chosen).to(torch.float32).to(dtype)
    t = torch.sparse_coo_tensor(indices, values, (*sizes, *dense), check_invariants=True)
    return t.coalesce() if coalesce else t


def wide(t):
    """Returns the tensor as a dense one, in a type with arithmetic."""
    t = torch.sparse_coo_tensor(
        t._indices(), t._values().to(torch.complex128 if t.dtype.is_complex else torch.float64), t.shape)
    return t.to_dense()


def reduce(t, op=dist.ReduceOp.SUM, asynchronous=False):
    """Does the same as dist.all_reduce, which refuses complex tensors of this layout and checks operators itself."""
    options = dist.AllreduceOptions()
    options.reduceOp, options.asyncOp = op, asynchronous
    return dist.group.WORLD.allreduce([t], options)


def same_everywhere(t):
    """Returns whether the indices and values of all ranks have the same bytes."""
    whole = torch.cat([part.contiguous().view(torch.uint8).flatten() for part in (t._indices(), t._values().clone())])
    parts = [torch.zeros_like(whole) for _ in range(RANKS)]
    dist.all_gather(parts, whole)
    return all(torch.equal(part, whole) for part in parts)


def check_shapes(rank):
    for sizes, dense in [((9,), ()), ((4, 5), ()), ((2, 3, 4), ()), ((7,), (3,)), ((3, 4), (2, 2)), ((), (3,)),
                         ((4,), (0,))]:
        for counts in [(5, 8, 2), (0, 6, 0), (0, 0, 0), (40, 1, 0)]:
            for coalesce in (False, True):
                for asynchronous in (False, True):
                    all_of = [sparse(r, counts[r], sizes, dense, coalesce=coalesce) for r in range(RANKS)]
                    t = all_of[rank]
                    expected = sum(wide(other) for other in all_of)
                    work = reduce(t, asynchronous=asynchronous)
                    if asynchronous:
                        assert work.wait() and work.result()[0] is t
                    what = (sizes, dense, counts, coalesce, asynchronous)
                    assert t.is_coalesced() and t.layout == torch.sparse_coo and t.shape == (*sizes, *dense), what
                    assert torch.equal(t.to_dense().double(), expected), what
                    assert same_everywhere(t), what


def test_sums_of_every_shape(trio):
    trio.run(check_shapes)


def check_types(rank):
    for dtype in TYPES:
        for op in [dist.ReduceOp.SUM] + [dist.ReduceOp.AVG] * (dtype in AVERAGED):
            all_of = [sparse(r, 4 + r, (6,), (2,), dtype) for r in range(RANKS)]
            t = all_of[rank]
            expected = sum(wide(other) for other in all_of)
            expected = (expected != 0 if dtype == torch.bool
                        else expected / RANKS if op == dist.ReduceOp.AVG
                        else expected)
            reduce(t, op)
            assert t.dtype == dtype
            got = wide(t)
            assert torch.allclose(got, expected.to(got.dtype),
                                  rtol=0.13 if dtype.itemsize == 1 else 5e-3), (dtype, op, got, expected)
            assert same_everywhere(t), (dtype, op)


def test_every_type_and_average(trio):
    trio.run(check_types)


def check_rounding(rank):
    """Sums whose bits depend on the order are computed in the order of the ranks."""
    values = [torch.tensor([1e8, 1.0, 0.1]), torch.tensor([1.0, -1e8, 0.2]), torch.tensor([-1e8, 1e8, 0.3])]
    t = torch.sparse_coo_tensor([[0, 1, 2]], values[rank], (3,))
    dist.all_reduce(t)
    assert torch.equal(t.to_dense(), (values[0] + values[1]) + values[2]) and same_everywhere(t)
    big = sparse(rank, 5000, (300,), (8,))
    big = torch.sparse_coo_tensor(
        big._indices(), torch.randn(5000, 8, generator=torch.Generator().manual_seed(rank)), big.shape)
    dist.all_reduce(big)
    assert same_everywhere(big)


def test_the_order_of_sums(trio):
    trio.run(check_rounding)


def check_asynchronous(rank):
    """The call does not wait for the other ranks; other operations of the group may be issued before its end."""
    if rank == 0:
        t = sparse(0, 4, (5,))
        work = dist.all_reduce(t, async_op=True)
        assert not work.is_completed()
        dist.send(torch.ones(1), 1)  # rank 1 calls all_reduce only after it has received this
    else:
        if rank == 1:
            dist.recv(torch.zeros(1), 0)
        t = sparse(rank, 4, (5,))
        work = dist.all_reduce(t, async_op=True)
    dense = torch.full((3,), float(rank))
    later = dist.all_reduce(dense, async_op=True)
    more = [dist.all_reduce(sparse(rank, n, (50,)), async_op=True) for n in (30, 0, 5)]
    later.wait()
    assert dense.tolist() == [3.0] * 3
    [value] = work.get_future().wait()
    assert torch.equal(value.to_dense(), sum(sparse(r, 4, (5,)).to_dense() for r in range(RANKS)))
    assert work.get_future_result().wait() == 0 and work.is_success()
    for other, n in zip(more, (30, 0, 5)):
        [value] = other.get_future().wait()
        assert torch.equal(value.to_dense(), sum(sparse(r, n, (50,)).to_dense() for r in range(RANKS)))


def test_asynchronous(trio):
    trio.run(check_asynchronous)


def check_refusals(rank):
    def refused(kind, text, t, op=dist.ReduceOp.SUM):
        with pytest.raises(kind, match=text):
            reduce(t, op)

    refused(NotImplementedError, "SUM and ReduceOp.AVG only", sparse(rank, 3, (4,)), dist.ReduceOp.MAX)
    refused(NotImplementedError, "avg is not defined for Int",
            sparse(rank, 3, (4,), dtype=torch.int32), dist.ReduceOp.AVG)
    refused(NotImplementedError, "cannot reduce elements of type ComplexHalf",
            sparse(rank, 3, (4,), dtype=torch.complex32))
    for layout in ("to_sparse_csr", "to_sparse_csc"):
        refused(RuntimeError, "CPU|COO", getattr(torch.eye(3), layout)())
    with pytest.raises(NotImplementedError):
        dist.broadcast(sparse(rank, 3, (4,)), 0)


def test_what_is_refused(trio):
    trio.run(check_refusals)


def check_mismatch(rank):
    own, other = sparse(rank, 3, (4, 6)), sparse(rank, 3, (4, 7))
    for wrong, texts in [(other, ["[4, 6]", "rank 2 has Float of sizes [4, 7]"]), (own.double(), ["rank 2 has Double"]),
                         (sparse(rank, 3, (4,), (6,)),
                          ["2 sparse dimensions", "rank 2 has Float of sizes [4, 6] with 1 sparse"])]:
        with pytest.raises(dist.DistBackendError, match="mismatch") as error:
            dist.all_reduce(wrong if rank == 2 else own.clone())
        assert not [t for t in texts + [f"rank {rank} of {RANKS}: sparse_all_reduce of "]
                    if t not in str(error.value)], str(error.value)
    with pytest.raises(dist.DistBackendError, match=r"rank 2 has .*\(avg\)"):
        reduce(own.clone(), dist.ReduceOp.AVG if rank == 2 else dist.ReduceOp.SUM)
    t = sparse(rank, 3, (4,))
    dist.all_reduce(t)  # the group still works
    assert torch.equal(t.to_dense(), sum(sparse(r, 3, (4,)).to_dense() for r in range(RANKS)))


def test_ranks_that_differ(trio):
    trio.run(check_mismatch)


def check_late(rank):
    """If a rank does not call, the operation's own timeout applies."""
    for asynchronous in (False, True):
        group = dist.new_group(timeout=datetime.timedelta(seconds=30))
        options = dist.AllreduceOptions()
        options.asyncOp = asynchronous
        options.timeout = datetime.timedelta(seconds=0.5)
        if rank != 1:
            start = time.monotonic()
            # The first rank whose time is over tells the others.
            with pytest.raises(dist.DistBackendError, match="sparse_all_reduce.*(timeout|had not ended)"):
                work = group.allreduce([sparse(rank, 3, (4,))], options)
                work.wait(datetime.timedelta(seconds=20))
            assert time.monotonic() - start < 15
        dist.barrier()


def test_a_rank_that_does_not_come(trio):
    trio.run(check_late)


def check_data_parallel(rank):
    torch.manual_seed(3)
    table = torch.nn.Embedding(20, 4, sparse=True)
    model = torch.nn.parallel.DistributedDataParallel(table)
    words = torch.tensor([[1, 2, 2], [2, 5, 7], [19, 1, 1]])
    model(words[rank]).sum().backward()
    expected = torch.zeros(20, 4)
    for word in words.flatten():
        expected[word] += 1 / RANKS
    assert table.weight.grad.is_sparse
    assert torch.allclose(table.weight.grad.to_dense(), expected)


def test_sparse_embeddings(trio):
    trio.run(check_data_parallel)
