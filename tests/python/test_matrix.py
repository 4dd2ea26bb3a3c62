"""Every element type in every form of every collective, and every layout, on 2 and on 3 ranks."""
import operator
from functools import reduce as fold

import pytest
import torch
import torch.distributed as dist

OP = dist.ReduceOp
ALL = sorted({v for v in vars(torch).values()
              if isinstance(v, torch.dtype) and not str(v).startswith(("torch.q",))}, key=str)
WHOLE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def world():
    return dist.group.WORLD


def backend():
    return world()._get_backend(torch.device("cpu"))


def options(kind, **fields):
    o = kind()
    for name, value in fields.items():
        setattr(o, name, value)
    return o


# Layouts: each function makes a tensor of these sizes. There are four dimensions, as channels_last needs them.
SIZES = (2, 3, 2, 4)


def strided(sizes, dtype):
    return torch.zeros(*sizes[:-1], 2 * sizes[-1], dtype=dtype)[..., ::2]


def offset(sizes, dtype):
    return torch.zeros(sizes[0] + 1, *sizes[1:], dtype=dtype)[1:]


def transposed(sizes, dtype):
    return torch.zeros(sizes[::-1], dtype=dtype).permute(*reversed(range(len(sizes))))


def channels_last(sizes, dtype):
    return (torch.zeros(sizes, dtype=dtype).contiguous(memory_format=torch.channels_last) if len(sizes) == 4
            else strided(sizes, dtype))


LAYOUTS = [torch.zeros, strided, transposed, offset, channels_last]


class Maker:
    """Makes tensors of one type; the layouts alternate, and each rank begins with another one."""

    def __init__(self, dtype, rank, turn):
        self.dtype, self.next = dtype, rank + turn
        size = torch.empty(0, dtype=dtype).element_size()
        self.storage = WHOLE.get(size, dtype)

    def values(self, seed, sizes=SIZES):
        """Returns the values of the rank or block with that number, in the type of the storage."""
        count = torch.Size(sizes).numel()
        raw = (torch.arange(count) * 7 + 13 * seed + 1) % 120
        if self.dtype == torch.bool:
            raw = raw % 2
        return raw.reshape(sizes).to(self.storage)

    def empty(self, sizes=SIZES):
        self.next += 1
        return LAYOUTS[self.next % len(LAYOUTS)](sizes, dtype=self.storage)

    def full(self, seed, sizes=SIZES):
        return self.empty(sizes).copy_(self.values(seed, sizes))

    def typed(self, t):
        return t.view(self.dtype) if t.dtype != self.dtype else t


def moves(m, rank, n):
    """Yields for each form its name, the call, and (output, expected) pairs."""
    last, typed = n - 1, m.typed
    many = lambda ts: [typed(t) for t in ts]  # noqa: E731
    wide = (n * SIZES[0], *SIZES[1:])
    stacked = torch.cat([m.values(r) for r in range(n)])

    out = m.full(rank)
    yield "broadcast", lambda: world().broadcast(
        [typed(out)], options(dist.BroadcastOptions, rootRank=last)), [(out, m.values(last))]
    outs = [m.empty() for _ in range(n)]
    yield "allgather", lambda: world().allgather([many(outs)], [typed(m.full(rank))]), \
        [(o, m.values(r)) for r, o in enumerate(outs)]
    whole = m.empty(wide)
    yield "_allgather_base", lambda: backend()._allgather_base(typed(whole), typed(m.full(rank))), [(whole, stacked)]
    rows = m.empty((n, torch.Size(SIZES).numel()))
    yield "_allgather_base [n, k]", lambda: backend()._allgather_base(typed(rows), typed(m.full(rank))), \
        [(rows, stacked.reshape(n, -1))]
    lists = [[m.empty(), m.empty((3,))] for _ in range(n)]
    yield "allgather_coalesced", lambda: world().allgather_coalesced(
        [many(ts) for ts in lists], [typed(m.full(rank)), typed(m.full(rank, (3,)))]), \
        [(o, m.values(r, tuple(o.shape))) for r, os in enumerate(lists) for o in os]
    wholes = [m.empty(wide), m.empty((3 * n,))]
    yield "allgather_into_tensor_coalesced", lambda: world().allgather_into_tensor_coalesced(
        many(wholes), [typed(m.full(rank)), typed(m.full(rank, (3,)))]), \
        [(wholes[0], stacked), (wholes[1], torch.cat([m.values(r, (3,)) for r in range(n)]))]
    at_root = [m.empty() for _ in range(n)] if rank == last else []
    yield "gather", lambda: world().gather(
        [many(at_root)] if at_root else [], [typed(m.full(rank))], options(dist.GatherOptions, rootRank=last)), \
        [(o, m.values(r)) for r, o in enumerate(at_root)]
    if hasattr(backend(), "gather_into_tensor"):
        single = m.empty(wide)
        yield "gather_into_tensor", lambda: backend().gather_into_tensor(
            typed(single), typed(m.full(rank)), options(dist.GatherOptions, rootRank=0)), \
            [(single, stacked)] if rank == 0 else []
    got = m.empty()
    parts = [[typed(m.full(r + 5)) for r in range(n)]] if rank == 0 else []
    yield "scatter", lambda: world().scatter([typed(got)], parts, options(dist.ScatterOptions, rootRank=0)), \
        [(got, m.values(rank + 5))]
    pieces = [m.empty((r + 1, 3)) for r in range(n)]
    yield "alltoall", lambda: world().alltoall(
        many(pieces), [typed(m.full(10 * rank + r, (rank + 1, 3))) for r in range(n)]), \
        [(p, m.values(10 * r + rank, (r + 1, 3))) for r, p in enumerate(pieces)]
    # Rank r sends r + 1 rows to each rank.
    block = m.empty((n * (n + 1) // 2, 2))
    yield "alltoall_base", lambda: world().alltoall_base(
        typed(block), typed(m.full(rank, (n * (rank + 1), 2))), [r + 1 for r in range(n)], [rank + 1] * n,
        dist.AllToAllOptions()), \
        [(block, torch.cat([m.values(r, (n * (r + 1), 2))[rank * (r + 1):(rank + 1) * (r + 1)] for r in range(n)]))]
    told = m.empty()

    def messages():
        works = [world().send([typed(m.full(rank))], (rank + 1) % n, 7), world().recv([typed(told)], (rank - 1) % n, 7)]
        works[0].wait()
        return works[1]

    yield "send, recv", messages, [(told, m.values((rank - 1) % n))]


def check_moves(rank, n, types=ALL):
    for dtype in types:
        for turn in range(len(LAYOUTS)):
            for name, call, pairs in moves(Maker(dtype, rank, turn), rank, n):
                try:
                    work = call()
                except Exception as e:
                    raise AssertionError(f"{name} of {dtype}, layouts from {turn}") from e
                if work is not None:
                    work.wait()
                for i, (out, expected) in enumerate(pairs):
                    assert torch.equal(out, expected), (name, dtype, turn, i, out, expected)


@pytest.mark.parametrize("ranks", [2, 3])
def test_every_type_is_moved_by_every_form(pair, trio, ranks):
    (pair if ranks == 2 else trio).run(check_moves, ranks)


INTEGERS = [torch.int8, torch.uint8, torch.int16, torch.uint16, torch.int32, torch.uint32, torch.int64, torch.uint64]
FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2]
COMPLEX = [torch.complex64, torch.complex128]
FACTOR = 0.5
ARITHMETIC = {
    "SUM": (OP.SUM, lambda xs: fold(operator.add, xs)),
    "PRODUCT": (OP.PRODUCT, lambda xs: fold(operator.mul, xs)),
    "MIN": (OP.MIN, lambda xs: fold(torch.minimum, xs)),
    "MAX": (OP.MAX, lambda xs: fold(torch.maximum, xs)),
    "AVG": (OP.AVG, lambda xs: fold(operator.add, xs) / len(xs)),
    "PREMUL_SUM": (dist._make_nccl_premul_sum(FACTOR), lambda xs: fold(operator.add, [x * FACTOR for x in xs])),
    "BAND": (OP.BAND, lambda xs: fold(torch.bitwise_and, xs)),
    "BOR": (OP.BOR, lambda xs: fold(torch.bitwise_or, xs)),
    "BXOR": (OP.BXOR, lambda xs: fold(torch.bitwise_xor, xs)),
}
BITS = ["BAND", "BOR", "BXOR"]
REDUCED = {**{t: ["SUM", "PRODUCT", "MIN", "MAX", *BITS] for t in [*INTEGERS, torch.bool]},
           **{t: ["SUM", "PRODUCT", "MIN", "MAX", "AVG", "PREMUL_SUM"] for t in FLOATS},
           **{t: ["SUM", "PRODUCT", "AVG", "PREMUL_SUM"] for t in COMPLEX}}


def operand(dtype, rank, block, sizes):
    """Returns powers of two, so that sums and products of three are exact in eight bits."""
    count = torch.Size(sizes).numel()
    t = torch.tensor([1, 2])[(torch.arange(count) // (rank + 1) + block) % 2].reshape(sizes)
    if dtype == torch.bool:
        t = t - 1
    return torch.complex(t.double(), -t.double() * 2) if dtype.is_complex else t.double()


def result(dtype, name, values):
    """Returns the result, computed in a type with which torch can calculate and rounded to dtype."""
    calculate = ARITHMETIC[name][1]
    if dtype == torch.bool:
        values = [v != 0 for v in values]
        calculate = {"SUM": ARITHMETIC["BOR"], "MAX": ARITHMETIC["BOR"], "PRODUCT": ARITHMETIC["BAND"],
                     "MIN": ARITHMETIC["BAND"]}.get(name, ARITHMETIC[name])[1]
    elif dtype in INTEGERS:
        values = [v.long() for v in values]
    return calculate(values).to(dtype)


def reductions(dtype, name, rank, n, turn):
    """Yields for each form its name, the call, and (output, expected) pairs."""
    op = ARITHMETIC[name][0]
    turns = iter(range(rank + turn, 1000))

    def tensor(block, sizes):
        return LAYOUTS[next(turns) % len(LAYOUTS)](sizes, dtype=dtype).copy_(operand(dtype, rank, block, sizes))

    def expected(block, sizes):
        return result(dtype, name, [operand(dtype, r, block, sizes) for r in range(n)])

    t = tensor(0, SIZES)
    yield "allreduce", lambda: world().allreduce([t], options(dist.AllreduceOptions, reduceOp=op)), \
        [(t, expected(0, SIZES))]
    ts = [tensor(i, s) for i, s in enumerate([SIZES, (5,), (0, 2)])]
    yield "allreduce_coalesced", lambda: world().allreduce_coalesced(
        ts, options(dist.AllreduceCoalescedOptions, reduceOp=op)), \
        [(x, expected(i, tuple(x.shape))) for i, x in enumerate(ts)]
    part = tensor(1, SIZES)
    yield "reduce", lambda: world().reduce([part], options(dist.ReduceOptions, reduceOp=op, rootRank=n - 1)), \
        [(part, expected(1, SIZES) if rank == n - 1 else part.clone())]
    own = LAYOUTS[next(turns) % len(LAYOUTS)]((rank + 1, 3), dtype=dtype)
    blocks = [tensor(r, (r + 1, 3)) for r in range(n)]
    yield "reduce_scatter", lambda: world().reduce_scatter(
        [own], [blocks], options(dist.ReduceScatterOptions, reduceOp=op)), \
        [(own, expected(rank, (rank + 1, 3)))]
    row = LAYOUTS[next(turns) % len(LAYOUTS)]((1, 4), dtype=dtype)
    yield "_reduce_scatter_base", lambda: backend()._reduce_scatter_base(
        row, tensor(2, (n, 4)), options(dist.ReduceScatterOptions, reduceOp=op)), \
        [(row, expected(2, (n, 4))[rank:rank + 1])]
    rows = [torch.zeros(1, 4, dtype=dtype), LAYOUTS[next(turns) % len(LAYOUTS)]((2, 3), dtype=dtype)]
    yield "reduce_scatter_tensor_coalesced", lambda: world().reduce_scatter_tensor_coalesced(
        rows, [tensor(2, (n, 4)), tensor(3, (2 * n, 3))], options(dist.ReduceScatterOptions, reduceOp=op)), \
        [(rows[0], expected(2, (n, 4))[rank:rank + 1]), (rows[1], expected(3, (2 * n, 3))[2 * rank:2 * rank + 2])]


def check_reductions(rank, n, types=tuple(REDUCED)):
    turn = 0
    for dtype in types:
        for name in REDUCED[dtype]:
            turn += 1
            for form, call, pairs in reductions(dtype, name, rank, n, turn):
                call().wait()
                for i, (got, want) in enumerate(pairs):
                    wide = torch.complex128 if dtype.is_complex else torch.float64
                    # A third is not exact, and the mean is a product with it.
                    near = torch.finfo(dtype).eps if name == "AVG" and n == 3 else 0.0
                    assert torch.allclose(got.to(wide), want.to(wide), rtol=near, atol=0.0), (
                        form, dtype, name, i, got, want)


@pytest.mark.parametrize("ranks", [2, 3])
def test_every_type_is_reduced_by_every_form(pair, trio, ranks):
    (pair if ranks == 2 else trio).run(check_reductions, ranks)


def check_refused(rank):
    """Every type and operator that the table above does not contain is refused on every rank, before any data moves."""
    for dtype in ALL:
        for name, (op, _) in ARITHMETIC.items():
            if name in REDUCED.get(dtype, ()):
                continue
            t = torch.zeros(4, dtype=dtype)
            calls = [lambda: world().allreduce([t], options(dist.AllreduceOptions, reduceOp=op)),
                     lambda: world().reduce([t], options(dist.ReduceOptions, reduceOp=op)),
                     lambda: backend()._reduce_scatter_base(t[:2], torch.zeros(4, dtype=dtype),
                                                            options(dist.ReduceScatterOptions, reduceOp=op)),
                     lambda: world().allreduce_coalesced([t, t], options(dist.AllreduceCoalescedOptions, reduceOp=op))]
            for call in calls:
                with pytest.raises(NotImplementedError, match="reduc"):
                    call()
    t = torch.ones(1)
    dist.all_reduce(t)
    assert t.item() == 2


def test_what_has_no_reduction_is_refused(pair):
    pair.run(check_refused)


def check_lazy(rank):
    """Lazy views (conjugated, negated, zero tensors), and the public calls with complex tensors."""
    z = torch.complex(torch.tensor([1.0, 2.0]), torch.tensor([3.0, -4.0])) * (rank + 1)
    total = torch.complex(torch.tensor([3.0, 6.0]), torch.tensor([9.0, -12.0]))
    for view, expected in [(z.clone().conj(), total.conj()), (torch._neg_view(z.clone()), -total),
                           (torch._neg_view(z.clone().conj().imag), -total.conj().imag), (z.clone().real, total.real)]:
        backend().allreduce([view]).wait()  # torch's own dispatcher would pass a copy
        assert torch.equal(view, expected), view
        for op, want in [(OP.SUM, expected * 2), (OP.AVG, expected)]:
            t = view.clone()
            dist.all_reduce(t, op=op)
            assert torch.equal(t, want)
    product = z.conj()
    backend().allreduce([product], options(dist.AllreduceOptions, reduceOp=OP.PRODUCT)).wait()
    assert torch.equal(product, (total / 3 * (total / 3) * 2).conj())
    single = torch.tensor(rank + 1.0)
    dist.all_reduce(single)
    assert single.item() == 3.0 and single.dim() == 0
    out = [torch.tensor(0.0), torch.tensor(0.0)]
    dist.all_gather(out, torch.tensor(rank + 1.0))
    assert [o.item() for o in out] == [1.0, 2.0]
    leaf = torch.ones(3, requires_grad=True)
    dist.all_reduce(leaf)
    assert leaf.tolist() == [2.0] * 3 and leaf.grad_fn is None


def test_lazy_views_and_single_numbers(pair):
    pair.run(check_lazy)
