"""Ranks that run the examples, started once for all tests: pair (2) and quartet (4), whose default group is goccl's."""
import multiprocessing
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests" / "python"), str(ROOT / "examples")]  # the ranks get the same path
from rank_pool import RankPool  # noqa: E402

# Imported once, in the process that the ranks are forked from: they take seconds each.
multiprocessing.set_forkserver_preload([
    "torch", "torch.distributed", "torch.distributed.fsdp", "torch.distributed.tensor.parallel", "torch.distributed.pipelining",
    "torch.distributed.checkpoint", "torch.distributed.optim", "torch._dynamo", "goccl", "sklearn.datasets",
])


@pytest.fixture(scope="session")
def pair(tmp_path_factory):
    pool = RankPool(2, tmp_path_factory.mktemp("examples2"), timeout=60.0, patience=100.0)
    yield pool
    pool.close()


@pytest.fixture(scope="session")
def quartet(tmp_path_factory):
    pool = RankPool(4, tmp_path_factory.mktemp("examples4"), timeout=60.0, patience=100.0)
    yield pool
    pool.close()
