"""The option --long, for all tests: without it those that are marked long do not run."""


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
