"""Ranks for tests of torch's features: pools of processes that are started once and serve all tests of the folder.

Fixtures:
    pair, trio, quartet   2, 3 and 4 ranks whose default group is goccl's.
    world                 pair; with --long the test runs for trio and quartet as well.

Each fixture has `size` and `run(function, *args)`, which calls function(rank, *args) on every rank and returns the list
of results in the order of the ranks. A rank that fails causes an AssertionError with its traceback, and the pool is
started again for the next test. function must be at the top level of a test file or of a module beside it (it is sent
by name); args and results must be picklable. The expected result of one process is computed on the ranks too, or in the
test itself; reference.py has a small model, its data and comparisons.

Tests marked `long` run with --long only (make features).

Rules for functions: call torch.manual_seed before drawing numbers; take meshes from reference.mesh, which makes each
mesh only once in a process, since torch's caches keep the first of equal meshes; destroy other groups that you make.
"""
import multiprocessing
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests" / "python"), str(ROOT / "examples")]  # the ranks get the same path
from rank_pool import Lasting, RankPool  # noqa: E402

# Imported once, in the process from which the ranks are forked: each import takes seconds.
multiprocessing.set_forkserver_preload([
    "torch", "torch.distributed", "torch.distributed.fsdp", "torch.distributed.tensor.parallel",
    "torch.distributed.pipelining", "torch.distributed.checkpoint", "torch.distributed.optim", "torch._dynamo",
    "sklearn.datasets", "goccl",
])


@pytest.fixture(scope="session")
def pools(tmp_path_factory):
    """Returns the pools by their sizes; all the fixtures below take theirs from here."""
    def start(size):
        return RankPool(size, tmp_path_factory.mktemp(f"ranks{size}"), timeout=40.0, patience=100.0)

    pools = {size: Lasting(start, size) for size in (2, 3, 4)}
    yield pools
    for pool in pools.values():
        pool.close()


@pytest.fixture(scope="session")
def pair(pools):
    return pools[2]


@pytest.fixture(scope="session")
def trio(pools):
    return pools[3]


@pytest.fixture(scope="session")
def quartet(pools):
    return pools[4]


@pytest.fixture(params=[2, pytest.param(3, marks=pytest.mark.long), pytest.param(4, marks=pytest.mark.long)],
                ids="{}ranks".format)
def world(request, pools):
    return pools[request.param]
