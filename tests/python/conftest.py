import os
import textwrap

import fresh
import pytest
from rank_pool import Lasting, RankPool


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """Two ranks with a goccl group, for all tests of a module."""
    pool = Lasting(lambda size: RankPool(size, tmp_path_factory.mktemp("pair")), 2)
    yield pool
    pool.close()


@pytest.fixture(scope="module")
def trio(tmp_path_factory):
    """Three ranks with a goccl group, for all tests of a module."""
    pool = Lasting(lambda size: RankPool(size, tmp_path_factory.mktemp("trio")), 3)
    yield pool
    pool.close()


@pytest.fixture(scope="session")
def server():
    made = fresh.Server()
    yield made
    made.close()


@pytest.fixture
def python(server):
    """Returns a function that runs a script in its own process, checks that it ended with 0, and returns its output.

    torch is imported already; what it reads from the environment then is that of the tests.
    """

    def run(script, *args, expect=0, env=None):
        status, out = server.run(textwrap.dedent(script), [str(arg) for arg in args], dict(env or os.environ), 60)
        assert status == expect, f"ended with {status}:\n{out}"
        return out

    return run
