"""A rank is killed: the others name it within a second, synchronize() returns, and the GPU is idle.

    python killed.py [--device cuda]

Once the ranks are in the middle of calls; once the one that is killed has not made the call for which the other waits.
"""
import argparse
import re
import shutil
import signal
import subprocess
import time

import torch
import torch.distributed as dist
from ranks import Ranks, is_rank, join, place, synchronize
from results import FAIL, NOT_RUN, PASS, tell

BAR = "killed rank ({}): named within a second, synchronize() returns"
IDLE = "killed rank: the GPU is idle afterwards"
VICTIM, SECONDS = 1, 1.0


def rank_of(options: argparse.Namespace) -> None:
    rank, size, store = join(options.device)
    tensor = torch.ones(1 << 18, device=place(options.device))
    dist.all_reduce(tensor)
    synchronize(options.device)
    store.set(f"ready{rank}", "")
    store.wait(["go"])
    if rank == VICTIM and options.kind == "absent":
        time.sleep(60)
    said, end = "", time.monotonic() + 20
    while not said and time.monotonic() < end:
        try:
            work = dist.all_reduce(tensor, async_op=True)
            work.wait()
            synchronize(options.device)
            if options.kind == "absent":
                work.wait()  # it is known to have failed now
        except Exception as e:
            said = str(e)
    named = time.monotonic()
    synchronize(options.device)
    synchronized = time.monotonic()
    busy = options.device == "cuda" and not torch.cuda.current_stream().query()
    store.set(f"end{rank}", f"{named} {synchronized} {int(busy)} {said}")
    store.wait(["over"])


def utilization() -> int | None:
    """Returns the percentage of time in which the GPU did something, as nvidia-smi has it."""
    if not shutil.which("nvidia-smi"):
        return None
    done = subprocess.run(["nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits", "--id=0"],
                          capture_output=True, text=True, timeout=10)
    return int(done.stdout.strip()) if done.returncode == 0 and done.stdout.strip().isdigit() else None


def kill(options: argparse.Namespace, kind: str) -> None:
    ranks = Ranks(options.ranks, __file__, "--device", options.device, "--kind", kind, limit=60)
    others = [rank for rank in range(options.ranks) if rank != VICTIM]
    failure, text = "", ""
    try:
        ranks.store.wait([f"ready{rank}" for rank in range(options.ranks)])
        ranks.store.set("go", "")
        time.sleep(0.5)
        killed = time.monotonic()
        ranks.processes[VICTIM].send_signal(signal.SIGKILL)
        ends = {rank: ranks.store.get(f"end{rank}").decode().split(" ", 3) for rank in others}
        delays = [float(end[0]) - killed for end in ends.values()]
        returned = [float(end[1]) - killed for end in ends.values()]
        text = (f"{len(others)} ranks: named after {max(delays):.3f} s, "
                f"synchronize() returned after {max(returned):.3f} s")
        if blind := [end[3] for end in ends.values() if not re.search(rf"rank {VICTIM}\b", end[3])]:
            failure = f"rank {VICTIM} is not named: {blind[0] or 'no error in 20 s'}"
        elif max(delays) > SECONDS:
            failure = text
        elif any(end[2] == "1" for end in ends.values()):
            failure = "the stream has not ended"
        if kind == "absent" and options.device == "cuda":
            time.sleep(2)  # nvidia-smi looks back for a second
            used = utilization()
            result = NOT_RUN if used is None else FAIL if used else PASS
            tell(IDLE, result, "nvidia-smi does not tell" if used is None else f"nvidia-smi: {used} %")
    except Exception as e:
        failure = f"{type(e).__name__}: {e}"
    ranks.store.set("over", "")
    failure = failure or ranks.finish({VICTIM: -signal.SIGKILL})
    if failure and any(process.poll() is None for process in ranks.processes):
        ranks.finish({VICTIM: -signal.SIGKILL})
    tell(BAR.format(kind), FAIL if failure else PASS, failure or text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--ranks", type=int, default=3)
    parser.add_argument("--kind", choices=["calling", "absent"], help="only this one")
    options = parser.parse_args()
    if is_rank():
        rank_of(options)
        return
    for kind in [options.kind] if options.kind else ["calling", "absent"]:
        kill(options, kind)


if __name__ == "__main__":
    main()
