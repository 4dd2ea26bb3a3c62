"""wait() returns at once while the stream is still busy: under 20 µs while a kernel of 100 ms runs.

    python waits.py
"""
import statistics
import time

import torch
import torch.distributed as dist
from ranks import Ranks, is_rank, join
from results import FAIL, INFO, PASS, tell

BAR = "wait() takes less than 20 µs while a kernel of 100 ms runs"
MOST, KERNEL, TIMES = 20.0, 0.1, 15


def cycles_of(seconds: float) -> int:
    """Returns the argument with which torch.cuda._sleep takes so long."""
    torch.cuda._sleep(1000)
    torch.cuda.synchronize()
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    torch.cuda._sleep(20_000_000)
    end.record()
    end.synchronize()
    return int(20_000_000 * seconds * 1000 / begin.elapsed_time(end))


def rank_of() -> None:
    rank, size, _ = join("cuda")
    tensor, expected = torch.full((1 << 20,), rank + 1.0, device="cuda"), size * (size + 1) / 2
    dist.all_reduce(tensor.clone())
    torch.cuda.synchronize()
    dist.barrier()
    cycles, issues, waits, over = cycles_of(KERNEL), [], [], 0
    for _ in range(TIMES):
        data = tensor.clone()
        torch.cuda._sleep(cycles)
        start = time.perf_counter()
        work = dist.all_reduce(data, async_op=True)
        issued = time.perf_counter()
        work.wait()
        waited = time.perf_counter()
        over += torch.cuda.current_stream().query()  # then the kernel was over before wait() returned
        issues.append((issued - start) * 1e6)
        waits.append((waited - issued) * 1e6)
        sums = data.sum().item() / data.numel()
        assert sums == expected, f"all_reduce gave {sums}, not {expected}"
    every = [None] * size
    dist.all_gather_object(every, (issues, waits, over))
    if rank == 0:
        issue = max(statistics.median(each[0]) for each in every)
        wait = max(statistics.median(each[1]) for each in every)
        worst = max(max(each[1]) for each in every)
        late = sum(each[2] for each in every)
        text = f"median {wait:.1f} µs, at most {worst:.1f} µs, {TIMES} times on {size} ranks"
        if late:
            text += f"; {late} times the kernel was over"
        tell(BAR, PASS if wait < MOST and not late else FAIL, text, median=wait, worst=worst)
        tell("issue of an all_reduce of 4 MiB", INFO, f"median {issue:.1f} µs", median=issue)
    dist.destroy_process_group()


def main() -> None:
    if is_rank():
        rank_of()
    elif failure := Ranks(2, limit=50).finish():
        raise SystemExit(failure)


if __name__ == "__main__":
    main()
