import subprocess
import sys
import textwrap

import pytest
from rank_pool import RankPool


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """Two ranks with a goccl group, for all tests of a module."""
    pool = RankPool(2, tmp_path_factory.mktemp("pair"))
    yield pool
    pool.close()


@pytest.fixture(scope="module")
def trio(tmp_path_factory):
    """Three ranks with a goccl group, for all tests of a module."""
    pool = RankPool(3, tmp_path_factory.mktemp("trio"))
    yield pool
    pool.close()


@pytest.fixture
def python():
    """Returns a function that runs a script in its own process, checks that it ended with 0, and returns its output."""

    def run(script, *args, expect=0, env=None):
        done = subprocess.run([sys.executable, "-c", textwrap.dedent(script), *map(str, args)], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=60, env=env)
        assert done.returncode == expect, f"ended with {done.returncode}:\n{done.stdout}"
        return done.stdout

    return run
