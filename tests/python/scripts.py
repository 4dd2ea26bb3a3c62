"""Ranks that run a script and can be killed."""
import contextlib
import os
import signal
import subprocess
import sys

RANK = """
import os, sys, datetime, time
import torch, torch.distributed as dist
import goccl
rank, size, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]

def say(*what):
    print(*what, flush=True)

def failure(what):
    begun = time.monotonic()
    try:
        what()
        say("no error")
    except dist.DistBackendError as e:
        say(f"{time.monotonic() - begun:.3f}", str(e).splitlines()[0])
    except dist.DistNetworkError as e:
        say(f"{time.monotonic() - begun:.3f}", "network:", str(e).splitlines()[0])

def idle_child():
    pid = os.fork()
    if pid == 0:
        while True:
            time.sleep(60)
    return pid

store = dist.FileStore(folder + "/store", size)
dist.init_process_group("goccl", store=store, rank=rank, world_size=size, timeout=datetime.timedelta(seconds=30))
t = torch.ones(4)
dist.all_reduce(t)
"""


class Ranks:
    """Processes that run a script after RANK, each with the environment given."""

    def __init__(self, script, size, folder, env):
        self.processes = [
            subprocess.Popen([sys.executable, "-c", RANK + script, str(rank), str(size), str(folder)],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **env})
            for rank in range(size)
        ]
        self.children = []

    def line(self, rank):
        return self.processes[rank].stdout.readline().strip()

    def child(self, rank):
        """Reads the number of a process that the rank has forked, which ends with the test."""
        self.children.append(int(self.line(rank)))

    def kill(self, rank):
        self.processes[rank].kill()
        self.processes[rank].wait(30)

    def tell(self, rank):
        self.processes[rank].stdin.write("\n")
        self.processes[rank].stdin.flush()


@contextlib.contextmanager
def ranks(script, size, folder, transport):
    group = Ranks(script, size, folder, {"GOCCL_TRANSPORT": transport})
    try:
        yield group
    finally:
        for child in group.children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        for process in group.processes:
            process.kill()
            process.communicate()


def told(line):
    """Splits what failure printed into the seconds and the text."""
    seconds, text = line.split(" ", 1)
    return float(seconds), text
