"""How ranks end: without destroy_process_group, by signals and exceptions, with work in flight.

No rank hangs or leaves anything.
"""
import os
import re
import signal
import subprocess
import sys
import textwrap

import pytest

pytestmark = pytest.mark.timeout(300)

# One process that has imported torch forks the two ranks of each case, so that every rank is a whole Python program and
# ends as such (a process of multiprocessing would not run the exit handlers). The ranks may use goccl, since their
# parent does not.
RUNNER = """
import atexit, datetime, gc, os, signal, sys, threading, time, traceback
import torch, torch.distributed as dist
import goccl

folder = sys.argv[1]

def begin(case, rank):
    dist.init_process_group("goccl", store=dist.FileStore(f"{folder}/{case}", 2), rank=rank, world_size=2,
                            timeout=datetime.timedelta(seconds=60))
    dist.barrier()

def told(call):
    # Prints the error, which has to name the other rank; and ends at once, for how a rank ends in order is for the other cases.
    try:
        call()
        print("no error", flush=True)
    except dist.DistBackendError as e:
        print("told of rank 1" if "rank 1" in str(e) else f"another error: {e}", flush=True)
    os._exit(0)

def become(case, rank, body):
    os.dup2(os.open(f"{folder}/{case}.{rank}", os.O_CREAT | os.O_WRONLY | os.O_TRUNC), 1)
    os.dup2(1, 2)
    torch.set_num_threads(1)
    begin(case, rank)
    body(rank)

CASES

if __name__ == "__main__":
    pids = {}
    gc.freeze()  # a fork that ends would copy all memory of the parent otherwise
    for case, body in list(globals().items()):
        if case.startswith("case_"):
            for rank in range(2):
                sys.stdout.flush()
                pid = os.fork()
                if pid == 0:
                    become(case, rank, body)  # and to the end of this program
                    sys.exit()
                pids[pid] = f"{case}.{rank}"
    end = time.monotonic() + 200
    while pids and time.monotonic() < end:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid:
            print(pids.pop(pid), os.waitstatus_to_exitcode(status))
        else:
            time.sleep(0.01)
    for pid, name in pids.items():
        print(name, "hangs")
        os.kill(pid, 9)
        os.waitpid(pid, 0)
"""

CASES = {
    # Both ranks return without closing anything, while one thread waits for a message that never comes and another one
    # completes futures.
    "forgotten": ("""
        def wait():
            try:
                dist.recv(torch.ones(1), 1 - rank)
            except dist.DistBackendError:
                pass
        threading.Thread(target=wait, daemon=True).start()
        future = dist.all_reduce(torch.ones(10), async_op=True).get_future().then(lambda f: keep.append(f.value()))
        future.wait()
        keep.extend([dist.new_group(), dist.irecv(torch.ones(1), 1 - rank).get_future()])
        """, (0, 0)),
    # Rank 1 leaves with its own exit code while work is in flight; rank 0 gets an error.
    "leaves": ("""
        keep.append(dist.all_reduce(torch.ones(100_000), async_op=True))
        if rank == 1:
            sys.exit(3)
        told(lambda: [dist.all_reduce(torch.ones(100_000)) for _ in range(2)])
        """, (0, 3)),
    # An exception that is not caught.
    "fails": ("""
        if rank == 1:
            raise ValueError("a mistake in the script")
        told(dist.barrier)
        """, (0, 1)),
    # Signals that end a process: one that it raises itself, one that schedulers send, one that cannot be caught.
    "aborts": ("""
        if rank == 1:
            os.abort()
        told(dist.barrier)
        """, (0, -signal.SIGABRT)),
    "terminated": ("""
        if rank == 1:
            threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGTERM)).start()
            dist.recv(torch.ones(1), 0)  # nothing is sent
        told(dist.barrier)
        """, (0, -signal.SIGTERM)),
    "killed": ("""
        if rank == 1:
            threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
            while True:
                dist.all_reduce(torch.ones(5000))
        told(lambda: [dist.all_reduce(torch.ones(5000)) for _ in range(10 ** 9)])
        """, (0, -signal.SIGKILL)),
    # The script's own handler of SIGTERM ends the process in an orderly way.
    "handled": ("""
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
        if rank == 1:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(30)
        told(dist.barrier)
        """, (0, 7)),
    # Exit handlers run while the group can still be used, and after it is gone; one of them fails.
    "handlers": ("""
        atexit.register(lambda: print("first", dist.is_initialized()))
        def last():
            t = torch.ones(3)
            dist.all_reduce(t)
            print("sum at exit", t[0].item())
            dist.destroy_process_group()
            raise RuntimeError("in a handler")
        atexit.register(last)
        """, (0, 0)),
    # destroy_process_group while operations are in flight that cannot complete.
    "destroyed": ("""
        keep.extend(dist.irecv(torch.ones(1), 1 - rank, tag=i) for i in range(10))
        dist.barrier()
        dist.destroy_process_group()
        """, (0, 0)),
}


def leftovers():
    """Returns names in /dev/shm that goccl could have made; goccl's shared memory has no names."""
    return {name for name in os.listdir("/dev/shm") if "goccl" in name.lower()}


def check(tmp_path, names):
    """Runs these cases at once.

    Every rank ends by itself, with the exit code of its case. Returns the output of the ranks.
    """
    code = "keep = []\n"
    for name in names:
        body, _ = CASES[name]
        code += f"\ndef case_{name}(rank):\n" + textwrap.indent(textwrap.dedent(body), "    ")
    script = tmp_path / "runner.py"
    script.write_text(RUNNER.replace("CASES\n", code + "\n", 1))
    before = leftovers()
    done = subprocess.run([sys.executable, str(script), str(tmp_path)],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=250,
                          env={**os.environ, "OMP_NUM_THREADS": "1",
                               "TORCH_FR_DUMP_TEMP_FILE": str(tmp_path / "trace_")})
    # Without the lines of torch's recorder, which reports that it writes a file when a rank learns that the other one
    # has left.
    said = {f"{name}.{rank}": re.sub(r".*FlightRecorderHook.*\n", "", (tmp_path / f"case_{name}.{rank}").read_text())
            for name in names for rank in range(2)}
    everything = done.stdout + "".join(f"\n-- {name}\n{text}" for name, text in said.items())
    ended = dict(line.removeprefix("case_").rsplit(" ", 1) for line in done.stdout.splitlines())
    assert ended == {f"{name}.{rank}": str(int(CASES[name][1][rank]))
                     for name in names for rank in range(2)}, everything
    for name, (body, _) in CASES.items():
        if name in names and "told(" in body:
            assert said[f"{name}.0"] == "told of rank 1\n", everything
    for name, text in said.items():
        assert "panic" not in text and "terminate called" not in text and "fatal" not in text.lower(), everything
    assert leftovers() <= before
    return said


def test_endings(tmp_path):
    said = check(tmp_path, ["forgotten", "fails", "killed"])
    assert "ValueError: a mistake in the script" in said["fails.1"]
    assert said["forgotten.0"] == said["forgotten.1"] == ""


@pytest.mark.long
def test_more_endings(tmp_path):
    said = check(tmp_path, ["leaves", "aborts", "terminated", "handled", "handlers", "destroyed"])
    for rank in range(2):
        text = said[f"handlers.{rank}"]
        assert text.startswith("sum at exit 2.0\n") and "RuntimeError: in a handler" in text, text
        assert text.rstrip().endswith("first False"), text
        assert said[f"destroyed.{rank}"] == ""
