"""Ranks that run a script and can be killed."""
import contextlib
import multiprocessing
import os
import signal
import sys

import rank_pool  # noqa: F401 (what the server imports from which processes are forked)

RANK = """
import os, sys, datetime, time
import torch, torch.distributed as dist
import goccl
rank, size, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]

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
"""

JOIN = """
dist.init_process_group("goccl", store=store, rank=rank, world_size=size, timeout=datetime.timedelta(seconds=30))
t = torch.ones(4)
dist.all_reduce(t)
"""


def _run(program, pipe, arguments, env):
    """What a rank does: its program can say something to the test, and listen until it is told to go on."""
    os.environ.update(env)
    sys.argv = ["", *map(str, arguments)]

    def listen():
        with contextlib.suppress(EOFError):
            pipe.recv()

    exec(compile(program, "script", "exec"),
         {"__name__": "__main__", "say": lambda *what: pipe.send(" ".join(map(str, what))), "listen": listen})


class Ranks:
    """Processes that run a program, each with the environment given."""

    def __init__(self, program, size, folder, env):
        context = multiprocessing.get_context("forkserver")
        self.processes, self._pipes = [], []
        for rank in range(size):
            ours, theirs = context.Pipe()
            self.processes.append(context.Process(target=_run, args=(program, theirs, (rank, size, folder), env)))
            self.processes[-1].start()
            theirs.close()
            self._pipes.append(ours)
        self.children = []

    def line(self, rank):
        """What the rank says next; nothing if it has ended."""
        try:
            return self._pipes[rank].recv()
        except (EOFError, ConnectionError):
            return ""

    def child(self, rank):
        """Reads the number of a process that the rank has forked, which ends with the test."""
        self.children.append(int(self.line(rank)))

    def kill(self, rank):
        self.processes[rank].kill()
        self.processes[rank].join(30)

    def tell(self, rank):
        self._pipes[rank].send("")

    def end(self):
        for child in self.children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.join()


@contextlib.contextmanager
def ranks(script, size, folder, transport, join=JOIN):
    group = Ranks(RANK + join + script, size, folder, {"GOCCL_TRANSPORT": transport})
    try:
        yield group
    finally:
        group.end()


def told(line):
    """Splits what failure says into the seconds and the text."""
    seconds, text = line.split(" ", 1)
    return float(seconds), text
