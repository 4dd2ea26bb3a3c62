"""The torch level: starts torch_rank.py for each rank with the Python that has goccl, and reads rank 0's output."""
import json
import pathlib
import shutil
import subprocess
import tempfile
import threading

from core import Failure
from results import REWRITTEN

RIVALS = ("gloo",)
OPS = ("all_reduce", "all_reduce_async", "burst", "all_gather", "reduce_scatter", "all_to_all", "broadcast",
       "scatter", "gather", "reduce", "ping_pong")
SILENCE = 300  # seconds without a line that count as a hang


def run(options, results, say, before=lambda _: []):
    """Measures the operations for each number of ranks. before(rank) are words before the command of a rank."""
    script = pathlib.Path(__file__).with_name("torch_rank.py")
    for ranks in options.torch_ranks:
        ops = [op for op in options.torch_ops if ranks == 2 or op == "all_reduce" or before(0)]
        spec = {"backends": options.backends, "ops": ops, "sizes": options.sizes, "runs": options.runs,
                "blocks": options.blocks, "block_us": options.block_ms * 1e3, "seed": options.seed,
                "best": options.best, "touch": options.touch, "extra": options.extra and ranks == 2}
        folder = pathlib.Path(tempfile.mkdtemp(prefix="goccl-bench-"))
        processes = []
        say(f"torch, {ranks} ranks, {', '.join(ops)} ")
        try:
            with open(folder / "log", "wb") as log:
                for rank in range(ranks):
                    words = [*before(rank), options.python, str(script), str(rank), str(ranks), str(folder),
                             json.dumps(spec)]
                    processes.append(subprocess.Popen(words, stdin=subprocess.DEVNULL, stderr=log,
                                                      stdout=subprocess.PIPE if rank == 0 else subprocess.DEVNULL,
                                                      text=True, bufsize=1))
            read(processes[0], ranks, results, say, folder / "log")
            for process in processes:
                process.wait(30)
        finally:
            for process in processes:
                if process.poll() is None:
                    process.kill()
                    process.wait()
            processes[0].stdout.close()
            shutil.rmtree(folder, ignore_errors=True)
        say("\n")


def level(touched):
    return "torch" + REWRITTEN * touched


def read(process, ranks, results, say, log):
    """Reads rank 0's lines to the last one; ends the process if it prints nothing for too long."""
    shown = set()
    while True:
        watchdog = threading.Timer(SILENCE, process.kill)
        watchdog.start()
        line = process.stdout.readline()
        watchdog.cancel()
        if not line:
            how = "HANG" if process.wait(30) == -9 else "rank 0 ended early"
            raise Failure(f"torch, {ranks} ranks: {how}:\n{log.read_text(errors='replace')[-2000:]}")
        kind, *row = json.loads(line)
        if kind == "end":
            return
        if kind == "time":
            touched, op, size, name, number, micros, touch = row
            results.add(level(touched), op, ranks, size, name, number, micros, touch)
            if (op, size) not in shown:
                shown.add((op, size))
                say(".")
        elif kind == "wrong":
            touched, op, size, name, count = row
            results.wrong(level(touched), op, ranks, size, name, count)
        else:
            results.fact(*row)
