"""Ranks that each have a simulated device (sim.py), for all tests of a module."""
import multiprocessing
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests" / "device"), str(ROOT / "tests" / "python")]  # the ranks get the same path
import sim  # noqa: E402

# Imported once, in the process from which the ranks are forked, which has no device: each import takes seconds.
multiprocessing.set_forkserver_preload(["torch", "torch.distributed", "torch.distributed.fsdp", "goccl"])


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    """A process with two devices and no group."""
    pool = sim.SimPool(1, tmp_path_factory.mktemp("one"), group=False, devices=2)
    yield pool
    pool.close()


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """Two ranks whose default group is goccl's, for the host and for the device."""
    pool = sim.SimPool(2, tmp_path_factory.mktemp("pair"))
    yield pool
    pool.close()


@pytest.fixture(scope="module")
def quartet(tmp_path_factory):
    """Four ranks whose default group is goccl's, for the host and for the device."""
    pool = sim.SimPool(4, tmp_path_factory.mktemp("quartet"))
    yield pool
    pool.close()
