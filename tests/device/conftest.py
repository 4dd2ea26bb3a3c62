"""Ranks that each have a simulated device (sim.py), for all tests."""
import multiprocessing
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
# The ranks get the same path.
sys.path[:0] = [str(ROOT / "tests" / folder) for folder in ("device", "python", "features")] + [str(ROOT / "examples")]
import sim  # noqa: E402

# Imported once, in the process from which the ranks are forked, which has no device: each import takes seconds.
multiprocessing.set_forkserver_preload(["torch", "torch.distributed", "torch.distributed.fsdp", "goccl"])



@pytest.fixture(scope="session")
def worlds(tmp_path_factory):
    """Returns a function that makes pools of ranks which live as long as the tests, with the options of sim.SimPool."""
    made = []

    def make(size, **options):
        made.append(sim.World(lambda size: sim.SimPool(size, tmp_path_factory.mktemp(f"sim{size}"), **options), size))
        return made[-1]

    yield make
    for world in made:
        world.close()


@pytest.fixture(scope="session")
def one(worlds):
    """A process with two devices and no group."""
    return worlds(1, group=False, devices=2)


@pytest.fixture(scope="session")
def pair(worlds):
    """Two ranks whose default group is goccl's, for the host and for the device, where it chooses windows."""
    return worlds(2)


@pytest.fixture(scope="session")
def quartet(worlds):
    """Four ranks whose default group is goccl's, for the host and for the device, where it is staged."""
    return worlds(4, route="staged")
