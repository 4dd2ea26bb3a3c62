"""Records that a signal writes, what goccl flight and torch's analyzer find in them, and goccl top."""
import faulthandler
import json
import multiprocessing
import os
import pathlib
import pickle
import re
import signal
import subprocess
import time
import traceback

import pytest
import torch
import torch.distributed as dist
from common import TORCH, until
from scripts import JOIN, ranks

import goccl
from goccl.__main__ import program

COMMAND = program()


def command(*args):
    return subprocess.run([COMMAND, *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=60)


class Alone:
    """A process that is the only rank of its group; the functions below run in one of their own."""

    def __init__(self, folder):
        self.file = pathlib.Path(folder) / "trace_0"
        self.handled = []

    def handle(self, *_):
        self.handled.append(1)

    def join(self):
        dist.init_process_group("goccl", store=dist.HashStore(), rank=0, world_size=1)
        dist.all_reduce(torch.ones(4))

    def send(self, number=signal.SIGUSR2):
        os.kill(os.getpid(), number)

    def written(self):
        until(self.file.exists, "the record is not written")


def run_alone(scenario, folder, env):
    os.environ.update(env, TORCH_FR_DUMP_TEMP_FILE=f"{folder}/trace_")
    out = os.open(f"{folder}/output", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    os.dup2(out, 1)
    os.dup2(out, 2)
    try:
        scenario(Alone(folder))
    except BaseException:
        os.write(2, traceback.format_exc().encode())
        os._exit(1)


@pytest.fixture
def alone(tmp_path):
    """Returns a function that runs a scenario, checks how its process has ended, and returns what it printed."""

    def run(scenario, expect=0, **env):
        context = multiprocessing.get_context("forkserver")
        process = context.Process(target=run_alone, args=(scenario, str(tmp_path), env))
        process.start()
        process.join(60)
        if process.exitcode is None:
            process.kill()
            process.join()
        out = (tmp_path / "output").read_text()
        assert process.exitcode == expect, f"ended with {process.exitcode}:\n{out}"
        return out

    return run


def compute(of):
    """The file appears, each time, although the process only computes; then it goes on."""
    of.join()
    for turn in range(2):
        of.send()
        of.written()
        of.file.rename(f"{of.file}.{turn}")
    t = torch.ones(4)
    dist.all_reduce(t)
    assert t.tolist() == [1.0] * 4
    dist.destroy_process_group()
    of.send()
    until(lambda: "this process is in no group" in of.file.with_name("output").read_text(), "nothing is said")
    assert not of.file.exists()


def test_while_python_computes(alone, tmp_path):
    lines = re.findall(r" goccl WARN rank - group -: SIGUSR2: the last operations of this rank are in (.*)", alone(compute))
    assert lines == [str(tmp_path / "trace_0")] * 2
    names = [[e["profiling_name"] for e in pickle.loads((tmp_path / f"trace_0.{turn}").read_bytes())["entries"]]
             for turn in range(2)]
    assert names == [["goccl:all_reduce"]] * 2


def handler_before(of):
    signal.signal(signal.SIGUSR2, of.handle)
    of.join()
    of.send()
    until(lambda: of.handled, "the handler does not run")
    assert of.handled == [1] and not of.file.exists()


def handler_after(of):
    of.join()
    assert signal.signal(signal.SIGUSR2, of.handle) == signal.SIG_DFL
    of.send()
    until(lambda: of.handled, "the handler does not run")
    dist.destroy_process_group()
    of.join()
    of.send()
    until(lambda: len(of.handled) == 2, "the handler does not run after another group was made")
    assert not of.file.exists()


def ignored(of):
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    of.join()
    of.send()
    dist.destroy_process_group()
    assert not of.file.exists()


def chained(of):
    """A handler that calls the one before it."""
    of.join()
    faulthandler.register(signal.SIGUSR2, file=2, chain=True)
    of.send()
    of.written()


def forked(of):
    """A forked child is ended by the signal, as without goccl, and its parent goes on."""
    of.join()
    for _ in range(20):  # the signal comes before the child has run, or later
        pid = os.fork()
        if pid == 0:
            time.sleep(60)
            os._exit(0)
        os.kill(pid, signal.SIGUSR2)
        status = os.waitpid(pid, 0)[1]
        assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGUSR2 and not of.file.exists()
    of.send()
    of.written()


@pytest.mark.parametrize("scenario", [handler_before, handler_after, ignored, forked], ids=lambda f: f.__name__)
def test_handlers_of_the_program(alone, scenario):
    alone(scenario)


def test_faulthandler_chains(alone):
    out = alone(chained)
    assert "most recent call first" in out and "the last operations of this rank" in out, out


def other_signal(of):
    of.join()
    of.send(signal.SIGUSR1)
    of.written()


def own_file(of):
    elsewhere = of.file
    of.file = elsewhere.with_name("of_0")
    of.join()
    of.send()
    of.written()
    assert not elsewhere.exists()


def no_signal(of):
    of.join()
    of.send()
    time.sleep(60)


def test_options(alone, tmp_path):
    alone(own_file, GOCCL_RECORD_FILE=str(tmp_path / "of_"))
    # The second variable is about failures only.
    out = alone(other_signal, GOCCL_RECORD_SIGNAL="usr1", TORCH_FR_DUMP_ON_TIMEOUT="0")
    assert "SIGUSR1: the last operations" in out, out
    alone(no_signal, expect=-signal.SIGUSR2, GOCCL_RECORD_SIGNAL="none")
    out = alone(no_signal, expect=1, GOCCL_RECORD_SIGNAL="HUP")
    assert "GOCCL_RECORD_SIGNAL=HUP: want USR2, USR1 or none" in out, out


def unanswered(of):
    of.join()
    done = command("top", os.getpid())
    assert done.returncode == 1 and "has groups of goccl" in done.stdout, done.stdout


def test_top_can_be_switched_off(alone):
    alone(unanswered, GOCCL_TOP="0")


WAITING = """
say(os.getpid())
if rank == 1:
    listen()
dist.all_reduce(t)
say(t.tolist())
listen()
"""


def named(folder):
    return sorted(path.name for path in folder.glob("trace_*"))


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_ranks_that_wait(tmp_path, transport, python):
    """Rank 0 waits for rank 1, which computes. Their records say so, and so does goccl top; then they go on."""
    records = tmp_path / "records"
    records.mkdir()
    place = f"""os.environ["TORCH_FR_DUMP_TEMP_FILE"] = "{records / 'trace_'}"\n"""
    with ranks(WAITING, 2, tmp_path, transport, join=place + JOIN) as group:
        pids = [int(group.line(rank)) for rank in range(2)]

        def shown():
            done = command("top", *pids, "--once")
            assert done.returncode == 0, done.stdout
            return done.stdout

        # Less than a second would be no difference.
        wait = (rf"(?m)^{pids[0]} .* 0 of 2 +1 by {transport} .*all_reduce of 4 x f32 \(sum\), seq 2, "
                r"for (?:1\.[1-9]|[2-9]\.\d|\d\d+\.\d) s: waits for rank 1$")
        until(lambda: re.search(wait, shown()), "goccl top does not show the wait")
        assert re.search(rf"(?m)^{pids[1]} .* 1 of 2 .* in no call, for \d+\.\d s$", shown())
        snapshots = json.loads(command("top", pids[0], "--json").stdout)
        assert [each["pid"] for each in snapshots] == [pids[0]] and snapshots[0]["groups"][0]["waits"] == [1]
        assert str(pids[0]) in command("top", os.getpid(), "--once").stdout  # as a launcher

        for pid in pids:
            os.kill(pid, signal.SIGUSR2)
        until(lambda: named(records) == ["trace_0", "trace_1"], "the records are not written")
        report = command("flight", records)
        assert report.returncode == 1 and re.search(
            r"(?m)^rank 1 has not called seq 2 \(all_reduce of 4 x f32 \(sum\)\), which rank 0 is in for \d+\.\d s; "
            r"rank 1 is in no call for \d+\.\d s$", report.stdout), report.stdout
        if TORCH >= (2, 15) and transport == "shm":  # older versions support their own backends only
            out = python("""
                import sys
                from torch.distributed.flight_recorder import fr_trace
                fr_trace.main([sys.argv[1], "-p", "trace_"])
            """, records)
            assert "collective: goccl:all_reduce" in out and "missing ranks: {1}" in out, out

        group.tell(1)
        assert [group.line(rank) for rank in range(2)] == ["[4.0, 4.0, 4.0, 4.0]"] * 2
        for rank, pid in enumerate(pids):
            (records / f"trace_{rank}").unlink()
            os.kill(pid, signal.SIGUSR2)
        until(lambda: named(records) == ["trace_0", "trace_1"], "the records are not written")
        report = command("flight", records)
        assert report.returncode == 0 and "do not differ" in report.stdout, report.stdout


def test_a_stopped_rank(tmp_path):
    with ranks(WAITING, 1, tmp_path, "shm") as group:
        pid = int(group.line(0))
        os.kill(pid, signal.SIGSTOP)
        assert f"process {pid} does not answer: it is stopped" in command("top", pid, "--once").stdout
