"""A quick selection of torch's own distributed tests (quick.txt), run with goccl.

`make conformance` runs all of them, beside gloo. Ranks are forked from this process, so nothing here may import goccl
or start a process group.
"""
import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")  # before numpy starts threads: ranks are forked

import pytest
import ranks
import suites


WRITTEN_FOR = (2, 15)  # the version of torch that has every test of quick.txt; others lack some, or skip them


def chosen():
    """Yields the cases of quick.txt."""
    cases = {(case.test, case.world): case
             for suite in suites.suites("goccl") for world in suite.worlds for case in suite.cases(world)}
    for test, worlds, _ in suites.table("quick.txt"):
        for world in worlds.split(","):
            case = cases.get((test, int(world)))
            wrong = "it is not there" if not case else case.skip or suites.known(case)
            if not wrong:
                yield case
            elif suites.version() == WRITTEN_FOR:
                raise ValueError(f"quick.txt names {test} for {world} ranks, "
                                 f"which torch {suites.version()} does not run: {wrong}")


def label(case):
    return f"{case.test}-{case.world}"


@pytest.fixture(scope="module")
def runner(request):
    """Runs the selected cases, several at once, ahead of the tests that request their results."""
    cases = [item.callspec.params["case"] for item in request.session.items if item.function is test_of_torch]
    running = ranks.Runner(cases, jobs=2 * (os.cpu_count() or 1))
    yield running
    running.close()


@pytest.mark.parametrize("case", chosen(), ids=label)
def test_of_torch(runner, case):
    result = runner.result(case)
    if result.status == "skipped":
        pytest.skip(result.detail)
    if result.status == "failed":
        pytest.fail(f"{case.name} with {case.world} ranks: {result.detail}\n{result.text}", pytrace=False)
