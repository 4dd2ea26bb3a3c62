"""Runs cases. The ranks of each case are forked from this process.

This process has imported torch and the test modules but used no backend.

A rank costs a fork instead of a new interpreter that imports torch, and leaves nothing to the next case. Neither Go's
runtime nor gloo's threads survive a fork, so both are loaded in the ranks only. Several cases run at once, since ranks
mostly wait. A case that has not ended at its deadline is a failure called HANG; all processes that a rank has started
end with it.
"""
import ctypes
import dataclasses
import faulthandler
import gc
import logging
import multiprocessing
import multiprocessing.connection
import os
import pathlib
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback

import torch
from torch.testing._internal import common_distributed

GRACE = 1.0      # seconds that the other ranks have for their output when one has failed
SHOWN = 4000     # characters of a rank's output that are shown for a failure
PR_SET_PDEATHSIG = 1
SKIPS = {skip.exit_code: skip.message for skip in common_distributed.TEST_SKIPS.values()}
ERROR = re.compile(r"(\w+\.)*\w*(Error|Exception|Failure|Interrupt|Skip)\b\S*:")


@dataclasses.dataclass(frozen=True)
class Case:
    """One test for a number of ranks: suite.run(rank, case, folder, pipe) runs one of the ranks."""
    suite: object
    test: str
    world: int
    skip: str = ""           # why it cannot run here, if this is known before it starts
    deadline: float = 90.0   # seconds

    @property
    def name(self):
        return f"{self.suite.label}::{self.test}"


@dataclasses.dataclass
class Result:
    case: Case
    status: str              # passed, failed, skipped
    detail: str = ""         # why it was skipped, or the line of the error
    text: str = ""           # the output of the ranks, if it failed
    seconds: float = 0.0
    work: float = 0.0        # processor seconds of its ranks


class Rank:
    """A forked process, which leads its own session.

    It is waited for only after its session has been ended, so that its process number stays its own until then.
    """

    def __init__(self, case, rank, folder):
        self.pipe, theirs = multiprocessing.Pipe()
        parent = os.getpid()
        self.pid, self.code, self.work = os.fork(), None, 0.0
        if self.pid == 0:
            _run(case, rank, folder, theirs, parent)
        theirs.close()
        self.over = os.pidfd_open(self.pid)  # readable when the process has ended

    def poll(self):
        """Returns the exit code, or None."""
        if self.code is None and os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            self.end()
        return self.code

    def end(self):
        """Ends the process and all processes that it has started."""
        if self.code is not None:
            return
        for kill in (os.killpg, os.kill):
            try:
                kill(self.pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                pass
        _, status, used = os.wait4(self.pid, 0)
        self.code, self.work = os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime
        os.close(self.over)

    def error(self):
        """Returns the traceback that torch's harness sent, or ""."""
        try:
            return self.pipe.recv() if self.pipe.poll(0) else ""
        except (EOFError, OSError):
            return ""
        finally:
            self.pipe.close()


class Running:
    """The ranks of one case."""

    def __init__(self, case):
        self.case, self.start = case, time.monotonic()
        self.end = self.start + case.deadline
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="conformance-"))
        self.ranks = [Rank(case, rank, self.folder) for rank in range(case.world)]

    def poll(self):
        """Returns the result, or None while there is none."""
        codes = [rank.poll() for rank in self.ranks]
        hung = False
        if None in codes:
            failed = any(code not in (None, 0) and code not in SKIPS for code in codes)
            if failed:
                self.end = min(self.end, time.monotonic() + GRACE)
            if time.monotonic() < self.end:
                return None
            hung = not failed
        stacks = self._stacks() if hung else ""
        errors, said = self.close()
        seconds = time.monotonic() - self.start
        status, detail = _verdict([rank.code for rank in self.ranks], errors, said, hung, self.case.deadline)
        text = "".join(f"--- rank {number}: exit code {rank.code}\n{error}{words[-SHOWN:]}\n"
                       for number, (rank, error, words) in enumerate(zip(self.ranks, errors, said)))
        text = text + stacks if status == "failed" else ""
        return Result(self.case, status, detail, text, seconds, sum(rank.work for rank in self.ranks))

    def close(self):
        """Ends all ranks; returns their errors and their output."""
        for rank in self.ranks:
            rank.end()
        errors = [rank.error() for rank in self.ranks]
        files = [self.folder / f"rank{number}" for number in range(self.case.world)]
        said = [file.read_text(errors="replace") if file.exists() else "" for file in files]
        shutil.rmtree(self.folder, ignore_errors=True)
        return errors, said

    def _stacks(self):
        """Returns the stacks of the ranks that hang."""
        for rank in self.ranks:
            if rank.poll() is None:
                os.kill(rank.pid, signal.SIGUSR1)
        end = time.monotonic() + GRACE
        files = [self.folder / f"stack{number}" for number, rank in enumerate(self.ranks) if rank.code is None]
        while time.monotonic() < end and not all(file.exists() and file.stat().st_size for file in files):
            time.sleep(0.05)
        return "".join(f"--- {file.name}\n{file.read_text(errors='replace')}\n" for file in files if file.exists())


def _verdict(codes, errors, said, hung, deadline):
    if hung:
        return "failed", f"HANG: not done after {deadline:.0f} s"
    if any(errors) or not all(code == 0 or code in SKIPS for code in codes):
        lines = [line.strip() for text in (*errors, *said) for line in text.splitlines()]
        return "failed", next((line for line in lines if ERROR.match(line)), f"exit codes {codes}")[:300]
    if codes[0] in SKIPS:
        reason = re.search(r"skipping test \S+ for following reason: (.+)", said[0])
        return "skipped", reason[1] if reason else SKIPS[codes[0]]
    return "passed", ""


def _run(case, rank, folder, pipe, parent):
    """Runs a rank in the forked process, until it exits."""
    code = 1
    try:
        os.setsid()
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            return  # the parent has already ended
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # no core file, since a rank is large
        output = os.open(folder / f"rank{rank}", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        sys.stdout = os.fdopen(1, "w", buffering=1, closefd=False)
        sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
        logging.root.handlers[:] = [logging.StreamHandler(sys.stderr)]
        faulthandler.disable()  # pytest's handler writes elsewhere
        faulthandler.enable(sys.stderr)
        faulthandler.register(signal.SIGUSR1, file=open(folder / f"stack{rank}", "w"), all_threads=True)
        os.chdir(folder)
        tempfile.tempdir = os.environ["TMPDIR"] = str(folder)
        torch.set_num_threads(1)
        case.suite.run(rank, case, folder, pipe)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


class Runner:
    """Runs cases, `jobs` at once, in the order given."""

    def __init__(self, cases, jobs):
        self.waiting, self.running, self.results, self.jobs = list(reversed(cases)), [], {}, jobs
        torch.set_num_threads(1)
        gc.collect()
        gc.freeze()  # otherwise a collection in a rank would copy the pages of all imported modules

    def result(self, case):
        """Returns the result of one case."""
        while case not in self.results:
            self._step()
        return self.results[case]

    def __iter__(self):
        """Yields all results, as they come."""
        given = 0
        while self.waiting or self.running or given < len(self.results):
            for result in list(self.results.values())[given:]:
                given += 1
                yield result
            if self.waiting or self.running:
                self._step()

    def close(self):
        """Ends the cases that still run."""
        self.waiting.clear()
        while self.running:
            self.running.pop().close()
        gc.unfreeze()

    def _step(self):
        while self.waiting and len(self.running) < self.jobs:
            case = self.waiting.pop()
            if case.skip:
                self.results[case] = Result(case, "skipped", case.skip)
                return
            self.running.append(Running(case))
        alive = [rank.over for running in self.running for rank in running.ranks if rank.code is None]
        patience = min(running.end for running in self.running) - time.monotonic()
        multiprocessing.connection.wait(alive, timeout=max(0.0, patience))
        for running in list(self.running):
            if result := running.poll():
                self.running.remove(running)
                self.results[running.case] = result
