"""Every collective on a device's tensors, with the bits that the same call has on the CPU's.

    python matrix.py --ranks 4 [--device cuda]

The ranks are processes on the first device. --spoil changes a bit of a result, which the comparison has to find.
"""
import argparse
import itertools
import random
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
from ranks import Ranks, is_rank, join, place, synchronize
from results import FAIL, PASS, of_route, tell

Op = dist.ReduceOp
MOVED = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int8, torch.uint8, torch.int16, torch.int32,
         torch.int64, torch.bool, torch.complex64, torch.complex128, torch.float8_e4m3fn, torch.float8_e5m2]
REDUCED = MOVED[:12]
OPS = {"sum": Op.SUM, "avg": Op.AVG, "product": Op.PRODUCT, "min": Op.MIN, "max": Op.MAX, "band": Op.BAND,
       "bor": Op.BOR, "bxor": Op.BXOR, "premul": None}
SHORT, LONG = 1003, 3_000_001  # elements; the long ones are cut into pieces
AGREE = 16                     # cells after which the ranks look whether time is over, or much is wrong


def bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the bytes behind a contiguous tensor of the CPU."""
    start = tensor.storage_offset() * tensor.element_size()
    whole = torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())
    return whole[start:start + tensor.numel() * tensor.element_size()]


class Cell:
    """A call: its collective, type, operator, length, whether in place; and the tensors that it needs, on a place."""

    def __init__(self, call: Callable, dtype: torch.dtype, op: str, count: int, in_place: bool, number: int) -> None:
        self.call, self.dtype, self.op, self.count = call, dtype, op, count
        self.in_place, self.number = in_place, number

    def on(self, where: torch.device, rank: int, size: int) -> "Cell":
        self.where, self.rank, self.size = where, rank, size
        self.root = self.number % size
        self.generator = torch.Generator().manual_seed(self.number * 64 + rank)
        return self

    @property
    def operator(self) -> Op:
        return dist._make_nccl_premul_sum(0.75) if self.op == "premul" else OPS[self.op]

    def random(self, count: int | None = None) -> torch.Tensor:
        """Returns a tensor of random bits: with NaN, infinities and denormal numbers."""
        tensor = torch.empty(self.count if count is None else count, dtype=self.dtype)
        data = bytes_of(tensor)
        data.random_(0, 2 if self.dtype == torch.bool else 256, generator=self.generator)
        return tensor.to(self.where)

    def __str__(self) -> str:
        op = f", {self.op}" if self.op else ""
        in_place = ", in place" if self.in_place else ""
        return f"{self.call.__name__} of {self.count} x {str(self.dtype).removeprefix('torch.')}{op}{in_place}"


# What follows returns the tensors to compare, and a function that makes the call.

def all_reduce(c: Cell):
    tensor = c.random()
    return [tensor], lambda: dist.all_reduce(tensor, c.operator, async_op=True)


def reduce(c: Cell):
    tensor = c.random()
    return [tensor] if c.rank == c.root else [], lambda: dist.reduce(tensor, c.root, c.operator, async_op=True)


def reduce_scatter_tensor(c: Cell):
    source = c.random(c.count * c.size)
    out = source[c.rank * c.count:][:c.count] if c.in_place else c.random()
    return [out], lambda: dist.reduce_scatter_tensor(out, source, c.operator, async_op=True)


def reduce_scatter(c: Cell):
    sources, out = [c.random() for _ in range(c.size)], c.random()
    return [out], lambda: dist.reduce_scatter(out, sources, c.operator, async_op=True)


def broadcast(c: Cell):
    tensor = c.random()
    return [tensor], lambda: dist.broadcast(tensor, c.root, async_op=True)


def all_gather_into_tensor(c: Cell):
    out = c.random(c.count * c.size)
    source = out[c.rank * c.count:][:c.count] if c.in_place else c.random()
    return [out], lambda: dist.all_gather_into_tensor(out, source, async_op=True)


def all_gather(c: Cell):
    outs, source = [c.random() for _ in range(c.size)], c.random()
    return outs, lambda: dist.all_gather(outs, source, async_op=True)


def all_to_all_single(c: Cell):
    source, out = c.random(c.count * c.size), c.random(c.count * c.size)
    return [out], lambda: dist.all_to_all_single(out, source, async_op=True)


def all_to_all_of_unequal_blocks(c: Cell):
    """Rank r sends (r + s) % 3 times as much to rank s, so some blocks are empty."""
    splits = [(c.rank + other) % 3 * c.count for other in range(c.size)]
    source, out = c.random(sum(splits)), c.random(sum(splits))
    return [out], lambda: dist.all_to_all_single(out, source, splits, splits, async_op=True)


def all_to_all(c: Cell):
    sources, outs = [c.random() for _ in range(c.size)], [c.random() for _ in range(c.size)]
    return outs, lambda: dist.all_to_all(outs, sources, async_op=True)


def gather(c: Cell):
    source, outs = c.random(), [c.random() for _ in range(c.size)] if c.rank == c.root else None
    return outs or [], lambda: dist.gather(source, outs, c.root, async_op=True)


def scatter(c: Cell):
    out, sources = c.random(), [c.random() for _ in range(c.size)] if c.rank == c.root else None
    return [out], lambda: dist.scatter(out, sources, c.root, async_op=True)


def send_and_receive(c: Cell):
    """A ring; the odd ranks receive first."""
    source, out = c.random(), c.random()
    to, origin = (c.rank + 1) % c.size, (c.rank - 1) % c.size

    def run():
        if c.rank % 2:
            dist.recv(out, origin, tag=c.number)
            dist.send(source, to, tag=c.number)
        else:
            dist.send(source, to, tag=c.number)
            dist.recv(out, origin, tag=c.number)
    return [out], run


def batch_of_messages(c: Cell):
    sources, outs = [c.random(), c.random()], [c.random(), c.random()]
    peers = (c.rank + 1) % c.size, (c.rank - 1) % c.size

    def run():
        return dist.batch_isend_irecv([dist.P2POp(dist.isend, source, peer) for source, peer in zip(sources, peers)]
                                      + [dist.P2POp(dist.irecv, out, peer) for out, peer in zip(outs, peers[::-1])])
    return outs, run


REDUCTIONS = [all_reduce, reduce, reduce_scatter_tensor, reduce_scatter]
MOVES = [broadcast, all_gather_into_tensor, all_gather, all_to_all_single, all_to_all_of_unequal_blocks, all_to_all,
         gather, scatter, send_and_receive, batch_of_messages]
IN_PLACE = [reduce_scatter_tensor, all_gather_into_tensor]


def cells(quick: bool) -> list[Cell]:
    """Returns all cells, in an order that is the same on all ranks and has something of everything at its beginning."""
    rows = [(call, dtype, op, count, False) for call, dtype, op, count in
            itertools.product(REDUCTIONS, REDUCED, OPS, [1, SHORT])]
    rows += [(call, dtype, "", count, False) for call, dtype, count in itertools.product(MOVES, MOVED, [1, SHORT])]
    rows += [(call, dtype, "sum" if call in REDUCTIONS else "", SHORT, True)
             for call, dtype in itertools.product(IN_PLACE, REDUCED)]
    rows += [(call, torch.float32, "sum" if call in REDUCTIONS else "", LONG, call in IN_PLACE)
             for call in REDUCTIONS + MOVES]
    random.Random(1).shuffle(rows)
    if quick:
        rows = [row for index, row in enumerate(rows) if index % 16 == 0 and row[3] != LONG]
    return [Cell(*row, number) for number, row in enumerate(rows)]


def made(tensors: list[torch.Tensor], call: Callable) -> tuple[list[torch.Tensor], str]:
    """Makes a call; returns the tensors, or the error with which it was refused."""
    try:
        works = call()
        for work in works if isinstance(works, list) else [works]:
            if work is not None:
                work.wait()
    except (RuntimeError, ValueError, TypeError) as e:
        return [], str(e)
    return tensors, ""


def difference(want: list[torch.Tensor], have: list[torch.Tensor]) -> str:
    for index, (w, h) in enumerate(zip(want, have, strict=True)):
        w, h = bytes_of(w.contiguous()), bytes_of(h.contiguous())
        if not torch.equal(w, h):
            at = int((w != h).nonzero()[0])
            return f"tensor {index}: byte {at} of {len(w)} is {int(h[at])}, not {int(w[at])}"
    return ""


def rank_of(options: argparse.Namespace) -> None:
    device, where = options.device, place(options.device)
    rank, size, _ = join(device, bind=options.ranks == 2, timeout=30)
    end, found, refused, done = time.monotonic() + options.seconds, [], 0, 0
    all_cells = cells(options.quick)
    side = torch.cuda.Stream() if device == "cuda" else None
    for cell in all_cells:
        if cell.number % AGREE == 0:
            over = torch.tensor([time.monotonic() > end or len(found) >= 20])
            dist.all_reduce(over, Op.MAX)
            if over.item():
                break  # on all ranks
        want, why = made(*cell.call(cell.on(torch.device("cpu"), rank, size)))
        tensors, call = cell.call(cell.on(where, rank, size))
        if side is not None and cell.number % 3 == 0:
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                have, said = made(tensors, call)
            torch.cuda.current_stream().wait_stream(side)
        else:
            have, said = made(tensors, call)
        synchronize(device)
        if options.spoil and have and done == 5 and rank == 1:
            bytes_of(have[0])[0] ^= 1
        wrong = ""
        if bool(why) != bool(said):
            wrong = f"the CPU says {why or 'nothing'!r}, the device {said or 'nothing'!r}"
        elif not why:
            wrong = difference(want, [tensor.cpu() for tensor in have])
        if wrong:
            found.append(f"{cell}: rank {rank}: {wrong}")
            print(found[-1], flush=True)
        refused += bool(why)
        done += not why
    dist.barrier()
    every = [None] * size
    dist.all_gather_object(every, found)
    if rank == 0:
        every = [text for texts in every for text in texts]
        count = f"{done} calls" if done + refused == len(all_cells) else \
            f"{done + refused} of {len(all_cells)} calls, then the time was over"
        text = f"{count}; {refused} refused on both" if not every else f"{len(every)} differ: {every[0]}"
        tell(of_route(f"matrix: the CPU group's bits, {size} ranks"), FAIL if every or not done else PASS, text, calls=done)
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--quick", action="store_true", help="a sixteenth of it")
    parser.add_argument("--spoil", action="store_true")
    options = parser.parse_args()
    if is_rank():
        rank_of(options)
    elif failure := Ranks(options.ranks, limit=options.seconds + 40).finish():
        raise SystemExit(failure)


if __name__ == "__main__":
    main()
