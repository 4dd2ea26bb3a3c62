"""Every collective on two ranks: values, element types, memory layouts, sync and async."""
import pytest
import torch
import torch.distributed as dist

pytestmark = pytest.mark.usefixtures("pair")

N = 2


def base(rank, shape=(6,), dtype=torch.float32):
    count = int(torch.Size(shape).numel())
    return (torch.arange(count) + 10 * (rank + 1)).reshape(shape).to(dtype)


def layouts(t):
    """Returns the same values in memory of different layouts."""
    wide = torch.zeros(*t.shape, 2, dtype=t.dtype)
    wide[..., 0] = t
    column = torch.zeros(t.shape[::-1], dtype=t.dtype).T.copy_(t) if t.dim() > 1 else t.flip(0).flip(0)
    return {"contiguous": t.clone(), "strided": wide[..., 0], "transposed": column}


def wait(work):
    if work is not None:
        work.wait()


def check_everywhere(rank, asynchronous):
    other = 1 - rank
    for layout in ("contiguous", "strided", "transposed"):
        def make(t):
            return layouts(t)[layout]

        both = [base(r, (2, 3)) for r in range(N)]

        t = make(both[rank])
        wait(dist.broadcast(t, 1, async_op=asynchronous))
        assert torch.equal(t, both[1]), (layout, "broadcast", t)

        t = make(both[rank])
        wait(dist.all_reduce(t, async_op=asynchronous))
        assert torch.equal(t, both[0] + both[1]), (layout, "all_reduce", t)

        t = make(both[rank])
        wait(dist.reduce(t, 0, op=dist.ReduceOp.MAX, async_op=asynchronous))
        assert torch.equal(t, both[1] if rank == 0 else both[rank]), (layout, "reduce", t)

        out = [make(torch.zeros(2, 3)) for _ in range(N)]
        wait(dist.all_gather(out, make(both[rank]), async_op=asynchronous))
        assert all(torch.equal(a, b) for a, b in zip(out, both)), (layout, "all_gather", out)

        out = make(torch.zeros(4, 3))
        wait(dist.all_gather_into_tensor(out, make(both[rank]), async_op=asynchronous))
        assert torch.equal(out, torch.cat(both)), (layout, "all_gather_into_tensor", out)

        out = [make(torch.zeros(2, 3)) for _ in range(N)] if rank == 1 else None
        wait(dist.gather(make(both[rank]), out, dst=1, async_op=asynchronous))
        assert rank == 0 or all(torch.equal(a, b) for a, b in zip(out, both)), (layout, "gather", out)

        out = make(torch.zeros(2, 3))
        wait(dist.scatter(out, [make(b) for b in both] if rank == 0 else None, src=0, async_op=asynchronous))
        assert torch.equal(out, both[rank]), (layout, "scatter", out)

        out = make(torch.zeros(2, 3))
        wait(dist.reduce_scatter(out, [make(both[rank]), make(2 * both[rank])], async_op=asynchronous))
        assert torch.equal(out, (rank + 1) * (both[0] + both[1])), (layout, "reduce_scatter", out)

        out = make(torch.zeros(1, 3))
        wait(dist.reduce_scatter_tensor(out, make(both[rank]), async_op=asynchronous))
        assert torch.equal(out, (both[0] + both[1])[rank:rank + 1]), (layout, "reduce_scatter_tensor", out)

        out = make(torch.zeros(2, 3))
        wait(dist.all_to_all_single(out, make(both[rank]), async_op=asynchronous))
        assert torch.equal(out, torch.stack([b[rank] for b in both])), (layout, "all_to_all_single", out)

        out = [make(torch.zeros(2, 3)) for _ in range(N)]
        wait(dist.all_to_all(out, [make(both[rank] + i) for i in range(N)], async_op=asynchronous))
        assert all(torch.equal(a, b + rank) for a, b in zip(out, both)), (layout, "all_to_all", out)

        out = make(torch.zeros(2, 3))
        works = [dist.isend(make(both[rank]), other, tag=3), dist.irecv(out, other, tag=3)]
        for work in works:
            work.wait()
        assert torch.equal(out, both[other]), (layout, "send, recv", out)

        wait(dist.barrier(async_op=asynchronous))


@pytest.mark.parametrize("asynchronous", [False, True])
def test_every_collective_in_every_layout(pair, asynchronous):
    pair.run(check_everywhere, asynchronous)


def check_strided_neighbours_untouched(rank):
    wide = torch.full((4, 2), -1.0)
    wide[:, 0] = rank + 1
    dist.all_reduce(wide[:, 0])
    assert wide[:, 0].tolist() == [3.0] * 4 and wide[:, 1].tolist() == [-1.0] * 4


def test_memory_between_strides_is_left_alone(pair):
    pair.run(check_strided_neighbours_untouched)


def check_uneven(rank):
    sizes = [3, 5]
    out = [torch.zeros(s) for s in sizes]
    dist.group.WORLD.allgather([out], [torch.full((sizes[rank],), float(rank + 1))]).wait()
    assert [o.tolist() for o in out] == [[1.0] * 3, [2.0] * 5]
    out = torch.zeros(sizes[rank])
    dist.group.WORLD.reduce_scatter([out], [[torch.full((s,), float(rank + 1)) for s in sizes]]).wait()
    assert out.tolist() == [3.0] * sizes[rank]
    # rank 0 sends 1 row to itself and 2 to rank 1; rank 1 sends 3 and 0
    splits = [[1, 2], [3, 0]]
    out = torch.zeros(splits[0][rank] + splits[1][rank], 2)
    dist.all_to_all_single(out, torch.full((3, 2), float(rank + 1)), [splits[0][rank], splits[1][rank]], splits[rank])
    assert out[:, 0].tolist() == [1.0] * splits[0][rank] + [2.0] * splits[1][rank]


def test_unequal_blocks(pair):
    pair.run(check_uneven)


def check_only_numel_matters(rank):
    for shape in [(2, 4), (4, 2), (8,), (1, 8)]:
        out = torch.zeros(shape)
        dist.all_gather_into_tensor(out, torch.full((4,), float(rank)))
        assert out.flatten().tolist() == [0.0] * 4 + [1.0] * 4


def test_all_gather_into_tensor_takes_any_shape(pair):
    pair.run(check_only_numel_matters)


def check_empty(rank):
    dist.all_reduce(torch.zeros(0))
    dist.broadcast(torch.zeros(0, 3), 0)
    dist.all_gather([torch.zeros(0), torch.zeros(0)], torch.zeros(0))
    dist.all_to_all_single(torch.zeros(0), torch.zeros(0))
    dist.reduce_scatter_tensor(torch.zeros(0), torch.zeros(0))


def test_empty_tensors(pair):
    pair.run(check_empty)


REDUCED = [torch.float64, torch.float32, torch.float16, torch.bfloat16,
           torch.int8, torch.uint8, torch.int16, torch.uint16,
           torch.int32, torch.uint32, torch.int64, torch.uint64]
MOVED = REDUCED + [torch.bool, torch.complex64, torch.complex128, torch.float8_e4m3fn, torch.float8_e5m2,
                   torch.float8_e4m3fnuz, torch.float8_e8m0fnu, torch.complex32]


def check_reduced_types(rank):
    for dtype in REDUCED:
        t = base(rank, dtype=dtype)
        dist.group.WORLD.allreduce([t]).wait()
        expected = (base(0) + base(1)).to(dtype)
        assert t.tolist() == expected.tolist(), (dtype, t)


def test_element_types_of_reductions(pair):
    pair.run(check_reduced_types)


FLOAT8 = [torch.float8_e4m3fn, torch.float8_e5m2]


def check_float8(rank):
    """Combines every value of one rank with some values of the other.

    The reference is torch's own conversion from float32.
    """
    for dtype in FLOAT8:
        def short(t):
            """Rounds; torch 2.11 and earlier turned values above 448 into NaN."""
            return (t.clamp(-448, 448) if dtype == torch.float8_e4m3fn else t).to(dtype)

        # Zeros, a subnormal, ordinary numbers, the largest one; the other rank's values include NaN (and infinity).
        others = torch.tensor([0, 0x80, 1, 0x31, 0xB9, 0x7B, 0xFB], dtype=torch.uint8)
        every = torch.arange(256).to(torch.uint8)
        a, b = every.repeat(len(others)), others.repeat_interleave(256)
        x, y = a.view(dtype).float(), b.view(dtype).float()
        op = dist.ReduceOp
        half = dist._make_nccl_premul_sum(0.5)
        summed = short(x + y)
        halves = short(short(x / 2).float() + short(y / 2).float())
        for operator, expected in [(op.SUM, summed), (op.PRODUCT, short(x * y)), (op.MIN, short(torch.minimum(x, y))),
                                   (op.MAX, short(torch.maximum(x, y))), (op.AVG, short(summed.float() / 2)),
                                   (half, halves)]:
            t = (a, b)[rank].clone().view(dtype)
            dist.group.WORLD.allreduce([t], _all_reduce_options(operator)).wait()
            got, want = t.float(), expected.float()
            assert torch.equal(got.isnan(), want.isnan()), (dtype, operator)
            assert torch.equal(got.nan_to_num(1234.0), want.nan_to_num(1234.0)), (dtype, operator)


def _all_reduce_options(operator):
    options = dist.AllreduceOptions()
    options.reduceOp = operator
    return options


def test_float8_is_reduced(pair):
    pair.run(check_float8)


def check_moved_types(rank):
    for dtype in MOVED:
        size = torch.empty(0, dtype=dtype).element_size()
        raw = [(torch.arange(8 * size) + 50 * (r + 1)).to(torch.uint8) for r in range(N)]
        if dtype == torch.bool:
            raw = [r % 2 for r in raw]
        out = torch.zeros(8 * size, dtype=torch.uint8)
        works = [dist.isend(raw[rank].view(dtype), 1 - rank), dist.irecv(out.view(dtype), 1 - rank)]
        for work in works:
            work.wait()
        assert torch.equal(out, raw[1 - rank]), (dtype, "send, recv")
        out = [torch.zeros(8 * size, dtype=torch.uint8) for _ in range(N)]
        dist.group.WORLD.allgather([[o.view(dtype) for o in out]], [raw[rank].view(dtype)]).wait()
        assert all(torch.equal(a, b) for a, b in zip(out, raw)), (dtype, "all_gather")
        out = raw[rank].clone()
        dist.group.WORLD.broadcast([out.view(dtype)]).wait()
        assert torch.equal(out, raw[0]), (dtype, "broadcast")


def test_every_element_type_can_be_moved(pair):
    pair.run(check_moved_types)


def check_operators(rank):
    a, b = torch.tensor([1.0, 5.0]), torch.tensor([4.0, 2.0])
    mine = (a, b)[rank]
    op = dist.ReduceOp
    for operator, expected in [(op.SUM, a + b), (op.AVG, (a + b) / 2), (op.PRODUCT, a * b),
                               (op.MIN, torch.minimum(a, b)), (op.MAX, torch.maximum(a, b)),
                               (dist._make_nccl_premul_sum(0.5), (a + b) / 2),
                               (dist._make_nccl_premul_sum(torch.tensor([2.0])), 2 * (a + b))]:
        t = mine.clone()
        dist.all_reduce(t, op=operator)
        assert torch.equal(t, expected), (operator, t)
    for operator, expected in [(op.BAND, 5 & 3), (op.BOR, 5 | 3), (op.BXOR, 5 ^ 3)]:
        t = torch.tensor([(5, 3)[rank]])
        dist.all_reduce(t, op=operator)
        assert t.item() == expected, operator


def test_reduce_operators(pair):
    pair.run(check_operators)


def check_coalesced(rank):
    shapes = [(3,), (2, 2), (0,), (5,)]
    ts = [base(rank, s) for s in shapes]
    dist.group.WORLD.allreduce_coalesced(ts).wait()
    assert all(torch.equal(t, base(0, s) + base(1, s)) for t, s in zip(ts, shapes))

    ins = [base(rank, s) for s in shapes]
    outs = [[torch.zeros(s) for s in shapes] for _ in range(N)]
    dist.group.WORLD.allgather_coalesced(outs, ins).wait()
    assert all(torch.equal(outs[r][i], base(r, s)) for r in range(N) for i, s in enumerate(shapes))

    with dist._coalescing_manager(async_ops=True) as manager:
        outs = [torch.zeros(2 * 3), torch.zeros(2 * 5)]
        for out, s in zip(outs, [(3,), (5,)]):
            dist.all_gather_into_tensor(out, base(rank, s))
    manager.wait()
    assert all(torch.equal(out, torch.cat([base(0, s), base(1, s)])) for out, s in zip(outs, [(3,), (5,)]))

    with dist._coalescing_manager():
        outs = [torch.zeros(3), torch.zeros(5)]
        for out, s in zip(outs, [(6,), (10,)]):
            dist.reduce_scatter_tensor(out, base(rank, s))
    for out, s in zip(outs, [(6,), (10,)]):
        assert torch.equal(out, (base(0, s) + base(1, s)).chunk(2)[rank])


def test_coalesced_forms(pair):
    pair.run(check_coalesced)


def check_lazy_views(rank):
    real = base(rank, (4,))
    t = torch.complex(real, real)
    out = [torch.zeros(4, dtype=torch.complex64) for _ in range(N)]
    dist.group.WORLD.allgather([out], [t.conj()]).wait()
    assert all(torch.equal(out[r], torch.complex(base(r, (4,)), -base(r, (4,)))) for r in range(N))
    t = base(rank).expand(3, 6)
    out = torch.zeros(6, 6)
    dist.all_gather_into_tensor(out, t)
    assert torch.equal(out, torch.cat([base(r).expand(3, 6) for r in range(N)]))


def test_conjugated_and_expanded_inputs(pair):
    pair.run(check_lazy_views)


def check_objects(rank):
    out = [None] * N
    dist.all_gather_object(out, {"rank": rank, "text": "x" * (rank * 1000)})
    assert [o["rank"] for o in out] == [0, 1] and len(out[1]["text"]) == 1000
    box = [("payload", rank)]
    dist.broadcast_object_list(box, src=1)
    assert box == [("payload", 1)]


def test_objects(pair):
    pair.run(check_objects)


def check_data_parallel(rank):
    torch.manual_seed(0)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2))
    model(torch.full((3, 4), float(rank + 1))).sum().backward()
    assert torch.allclose(model.module.weight.grad, torch.full((2, 4), 4.5))


def test_distributed_data_parallel(pair):
    pair.run(check_data_parallel)
