"""Tests the runner itself: what it reports of ranks that fail, hang, skip, or leave processes behind."""
import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")  # before numpy starts threads: ranks are forked

import pathlib
import subprocess
import sys
import time

import pytest
import ranks


class Suite:
    """A test is a method, called by each rank."""
    label = "suite"

    def run(self, rank, case, folder, pipe):
        getattr(self, case.test)(rank)

    def passes(self, rank):
        pass

    def raises(self, rank):
        if rank == 1:
            raise ValueError("of rank 1")
        time.sleep(60)

    def hangs(self, rank):
        if rank == 0:
            time.sleep(60)

    def skips(self, rank):
        sys.exit(ranks.common_distributed.TEST_SKIPS["small_worldsize"].exit_code)

    def aborts(self, rank):
        os.abort()

    def leaves(self, rank):
        child = subprocess.Popen(["sleep", "60"])
        self.children.joinpath(str(child.pid)).touch()


def result_of(test, deadline=30.0, suite=None):
    case = ranks.Case(suite or Suite(), test, 2, deadline=deadline)
    runner = ranks.Runner([case], jobs=1)
    try:
        return runner.result(case)
    finally:
        runner.close()


@pytest.mark.parametrize("test, status, detail", [
    ("passes", "passed", ""),
    ("raises", "failed", "ValueError: of rank 1"),
    ("skips", "skipped", "Skipped due to small world size."),
    ("aborts", "failed", "exit codes [-6, -6]"),
])
def test_outcome(test, status, detail):
    result = result_of(test)
    assert (result.status, result.detail) == (status, detail)
    assert ("rank 1: exit code" in result.text) == (status == "failed")


def test_a_hang_is_a_failure_that_shows_where():
    result = result_of("hangs", deadline=1.0)
    assert (result.status, result.detail) == ("failed", "HANG: not done after 1 s")
    assert "in hangs" in result.text


def test_what_a_rank_has_started_ends_with_it(tmp_path):
    suite = Suite()
    suite.children = tmp_path
    assert result_of("leaves", suite=suite).status == "passed"
    children = [pathlib.Path("/proc", child.name, "stat") for child in tmp_path.iterdir()]
    assert len(children) == 2

    def alive(stat):
        try:
            return stat.read_text().rpartition(")")[2].split()[0] != "Z"
        except (FileNotFoundError, ProcessLookupError):
            return False

    end = time.monotonic() + 10
    while any(map(alive, children)) and time.monotonic() < end:
        time.sleep(0.05)
    assert not any(map(alive, children))
