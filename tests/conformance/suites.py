"""The suites: which tests a module of torch has for a backend and a world size, and how a rank runs one of them."""
import contextlib
import dataclasses
import functools
import os
import pathlib
import re
import unittest
from unittest import mock

import torch
import torch.distributed as dist
from torch.testing._internal import common_distributed

import on_cpu
import retarget
from ranks import Case

HERE = pathlib.Path(__file__).parent
# Deadlines of tests that take long even alone, by a part of the name.
SECONDS = {"test_ddp_uneven_inputs": 300.0, "compile": 400.0}


def version():
    """Returns the major and minor version of torch as numbers."""
    return tuple(int(number) for number in torch.__version__.split("+")[0].split(".")[:2])


def table(name):
    """Yields the lines of a file as lists of words; the last word is the text after the #."""
    for line in (HERE / name).read_text().splitlines():
        words, _, comment = line.partition("#")
        if words.strip():
            yield [*words.split(), comment.strip()]


def use(backend):
    """Makes the backend known to torch, in a rank."""
    if backend != "goccl":
        return
    import goccl

    if version() < (2, 14):  # torch's own function refuses by name what the group supports
        dist.monitored_barrier = goccl.monitored_barrier


def holds(condition):
    """Returns whether a condition holds for this version of torch: * or for example <2.14 or >=2.15."""
    if condition == "*":
        return True
    sign, number = re.fullmatch(r"(<|>=)(\d+\.\d+)", condition).groups()
    other = tuple(int(part) for part in number.split("."))
    return version() < other if sign == "<" else version() >= other


def known(case):
    """Returns why the test fails with goccl, from known.txt, or ""."""
    for test, worlds, versions, reason in table("known.txt"):
        if test == case.test and (worlds == "*" or str(case.world) in worlds.split(",")) and holds(versions):
            return reason
    return ""


@functools.cache
def needs_gpu():
    return {test: reason for test, reason in table("needs_gpu.txt")}


def cases_of(suite, tests, world):
    for name in unittest.defaultTestLoader.getTestCaseNames(tests):
        test = getattr(tests, name)
        skip = test.__unittest_skip_why__ if getattr(test, "__unittest_skip__", False) else needs_gpu().get(name, "")
        seconds = next((seconds for part, seconds in SECONDS.items() if part in name), 90.0)
        yield Case(suite, name, world, skip, seconds)


def dressed(test, rank):
    """Returns the context in which the test method runs."""
    return on_cpu.dressed(rank) if getattr(test, "for_gpu", False) else contextlib.nullcontext()


@dataclasses.dataclass(frozen=True)
class DistributedTest:
    """Process groups, all collectives and DistributedDataParallel.

    The tests are torch/testing/_internal/distributed/distributed_test.py.
    """
    backend: str
    label = "distributed_test"
    worlds = (2, 3, 4)
    module = "torch.testing._internal.distributed.distributed_test"

    @functools.lru_cache
    def tests(self, world):
        loaded = retarget.load(self.module, self.backend, world)
        bases = loaded.TestDistBackend, loaded.DistributedTest._DistTestBase
        return type("TestDistributed", bases, {"__module__": loaded.__name__})

    def cases(self, world):
        return cases_of(self, self.tests(world), world)

    def run(self, rank, case, folder, pipe):
        for each in ("barrier", "test_dir", "init_dir"):
            os.makedirs(folder / each, exist_ok=True)
        init_file = f"file://{folder}/init_dir/shared_init_file"
        os.environ.update(BACKEND=self.backend, WORLD_SIZE=str(case.world), TEMP_DIR=str(folder), INIT_METHOD=init_file,
                          MASTER_ADDR="127.0.0.1")
        use(self.backend)
        tests = self.tests(case.world)
        retarget.load(self.module, self.backend, case.world).INIT_METHOD = init_file
        with dressed(getattr(tests, case.test), rank):
            tests._run(rank, case.test, str(folder / "store"), pipe)


@contextlib.contextmanager
def together():
    """Makes init_process_group return only when all ranks have the group.

    One rank calls the others right after it, and without this barrier they might not have the group yet.
    """
    init = dist.init_process_group

    def barrier_after(*args, **options):
        with mock.patch.dict(os.environ, TORCH_DIST_INIT_BARRIER="1"):
            init(*args, **options)

    with mock.patch.object(dist, "init_process_group", barrier_after):
        yield


@dataclasses.dataclass(frozen=True)
class DistributedAutograd:
    """DistributedDataParallel beside RPC, with the world sizes that the tests determine.

    The tests are torch/testing/_internal/distributed/ddp_under_dist_autograd_test.py.
    """
    backend: str
    label = "ddp_under_dist_autograd_test"
    worlds = (4, 6)
    module = "torch.testing._internal.distributed.ddp_under_dist_autograd_test"
    classes = {4: ("DdpComparisonTest", "CudaDdpComparisonTest"), 6: ("DdpUnderDistAutogradTest",)}

    @functools.lru_cache
    def tests(self, world):
        from torch.testing._internal.distributed.rpc.tensorpipe_rpc_agent_test_fixture import (
            TensorPipeRpcAgentTestFixture,
        )

        loaded = retarget.load(self.module, self.backend, world)
        bases = (getattr(loaded, name) for name in self.classes[world])
        return type("TestDistributedAutograd",
                    (*bases, TensorPipeRpcAgentTestFixture, common_distributed.MultiProcessTestCase),
                    {"__module__": loaded.__name__})

    def cases(self, world):
        return cases_of(self, self.tests(world), world)

    def run(self, rank, case, folder, pipe):
        use(self.backend)
        retarget.load(self.module, self.backend, case.world).gLogger.handlers.clear()
        tests = self.tests(case.world)
        with dressed(getattr(tests, case.test), rank), together():
            tests._run(rank, case.test, str(folder / "store"), pipe)


def suites(backend):
    return DistributedTest(backend), DistributedAutograd(backend)
