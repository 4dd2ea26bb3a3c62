"""For all tests: the option --long, without which those that are marked long do not run; what all their processes are
told."""
import os
import pathlib
import tempfile

# Python 3.12 and later warn of each fork in a process with threads. Tests that compare what a process prints fork on
# purpose. Processes that a test starts inherit this, since they are started after it.
os.environ["PYTHONWARNINGS"] = ",".join(
    filter(None, [os.environ.get("PYTHONWARNINGS"), "ignore:This process (pid=:DeprecationWarning"]))


# What ranks measure of the machine is kept in a folder for tests. Go's own cache stays where it is.
os.environ.setdefault("GOCACHE", str(pathlib.Path(
    os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "go-build"))
os.environ["XDG_CACHE_HOME"] = str(pathlib.Path(tempfile.gettempdir()) / f"goccl-test-cache-{os.getuid()}")


def pytest_addoption(parser):
    parser.addoption("--long", action="store_true", help="run the tests that are marked long, too")


def pytest_configure(config):
    config.addinivalue_line("markers", "long: runs with --long only (make features, make device)")


def pytest_collection_modifyitems(config, items):
    if config.getoption("--long"):
        return
    long = [item for item in items if item.get_closest_marker("long")]
    if long:
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if not item.get_closest_marker("long")]
