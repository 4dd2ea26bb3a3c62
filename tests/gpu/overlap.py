"""What a matrix product on the same GPU loses while two ranks all-reduce, and what the all-reduces take meanwhile.

    python overlap.py [--seconds 1]

Rank 0 multiplies without a break in a stream of its own: alone, with an all_reduce of 64 MiB every 10 ms, and with one
after the other. By the staged route the GPU copies only, with engines that do nothing else. Over windows it reduces as
well, and the two processes get slices of its time in turn: what that costs is told, and is no bar.
"""
import argparse
import os
import time

import torch
import torch.distributed as dist
from ranks import Ranks, is_rank, join
from results import FAIL, INFO, PASS, ROUTE, of_route, tell

BAR = "a matrix product loses less than 5 % while two ranks all-reduce 64 MiB every 10 ms"
MOST = 0.05
SIDE, BYTES, PAUSE = 8192, 64 << 20, 0.01


class Products:
    """Matrix products in a stream of their own, some of them always enqueued."""

    def __init__(self) -> None:
        self.stream = torch.cuda.Stream()
        self.left, self.right = (torch.randn(SIDE, SIDE, device="cuda", dtype=torch.bfloat16) for _ in range(2))
        self.out = torch.empty_like(self.left)
        self.events: list[torch.cuda.Event] = []
        torch.cuda.synchronize()

    def more(self) -> None:
        ahead = [event for event in self.events[-8:] if not event.query()]
        with torch.cuda.stream(self.stream):
            for _ in range(8 - len(ahead)):
                torch.mm(self.left, self.right, out=self.out)
                event = torch.cuda.Event(enable_timing=True)
                event.record(self.stream)
                self.events.append(event)

    def micros(self) -> float:
        """Returns what one has taken since the last time."""
        self.events[-1].synchronize()
        first, last = self.events[4], self.events[-1]
        taken = first.elapsed_time(last) * 1000 / (len(self.events) - 5)
        self.events = []
        return taken


def phase(products: Products | None, tensor: torch.Tensor, pause: float | None, seconds: float) -> tuple[float, float]:
    """Returns the microseconds of a product, and of an all_reduce."""
    dist.barrier()
    end, calls, busy, due = time.perf_counter() + seconds, 0, 0.0, 0.0
    flag = torch.zeros(1)
    while True:
        if products:
            products.more()
        now = time.perf_counter()
        if pause is not None and now >= due:
            flag[0] = now > end
            dist.all_reduce(flag)  # ranks agree on the last one
            dist.all_reduce(tensor)
            torch.cuda.current_stream().synchronize()
            busy, calls, due = busy + time.perf_counter() - now, calls + 1, now + pause
            if flag[0] > 0:
                break
        elif pause is None and now > end:
            break
    return products.micros() if products else 0.0, busy / calls * 1e6 if calls else 0.0


def rank_of(options: argparse.Namespace) -> None:
    rank, _, _ = join("cuda", bind=True)
    tensor = torch.zeros(BYTES // 4, device="cuda")
    for _ in range(5):
        dist.all_reduce(tensor)
    torch.cuda.synchronize()
    products = Products() if rank == 0 else None
    phase(products, tensor, None, 0.3)
    alone, _ = phase(products, tensor, None, options.seconds)
    _, undisturbed = phase(None, tensor, 0.0, options.seconds)
    some, calls = phase(products, tensor, PAUSE, options.seconds)
    most, back = phase(products, tensor, 0.0, options.seconds)
    if rank == 0:
        text = (f"a product {alone:.0f} µs alone, {some:.0f} with an all_reduce every 10 ms, {most:.0f} with one after "
                f"the other; an all_reduce {undisturbed:.0f} µs alone, {calls:.0f} and {back:.0f} beside")
        loss = 1 - alone / some
        result = INFO if os.environ.get(ROUTE) != "staged" else PASS if loss < MOST else FAIL
        tell(of_route(BAR), result, f"loses {loss:.1%}, without a break {1 - alone / most:.1%}: {text}", alone=alone,
             some=some, most=most, undisturbed=undisturbed, calls=calls, back=back)
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each phase")
    options = parser.parse_args()
    if is_rank():
        rank_of(options)
    elif failure := Ranks(2, limit=50).finish():
        raise SystemExit(failure)


if __name__ == "__main__":
    main()
