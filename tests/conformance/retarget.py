"""Test modules that the installed torch ships, aimed at another backend when they are loaded. Nothing of torch is kept here.

The text of the module is parsed, names of gloo in it are replaced, and the result is compiled under the path and with the line
numbers of the original: a traceback points into torch. What torch skips for other backends than gloo is decided while the module
is executed (decorators), so a module is executed once for each backend and world size, with torch's decorators replaced by
those below.
"""
import ast
import contextlib
import functools
import importlib.util
import os
import pathlib
import re
import sys
import types
import unittest
from unittest import mock

# Skips that do not hold for a backend which can do what the test does, by the reason that torch gives.
LIFTED = re.compile(
    r"Only MPI supports (CPU )?all_to_all"                            # written when no other backend had it for the CPU
    r"|issues/(164195|179691|70755|162584|76428|162676|77342|85012)"  # instabilities of gloo or of machines that torch is tested on
    r"|pull/113620"
    r"|Currently failing in NVIDIA internal CI"
)
# Skips of tests for GPUs, which are run on the CPU (on_cpu.py).
FOR_GPU = re.compile(
    r"Only (Nccl|NCCL) supports (CUDA|all_gather_v|reduce_scatter_v)|NCCL (Batch )?Send Recv Only"
    r"|Coalescing manager currently tests with NCCL only|on CUDA devices|to be one of {'nccl'}"
)
GROUP_OF_TWO = 3  # tests for "large" worlds use the group [1, 2]


class Names(ast.NodeTransformer):
    """Replaces names of gloo by the backend's."""

    def __init__(self, backend):
        self.backend = backend

    def visit_Constant(self, node):
        if isinstance(node.value, str):
            if node.value == "gloo":
                return ast.copy_location(ast.Constant(self.backend), node)
            if re.search(r"\b(cpu|cuda):gloo\b", node.value):
                return ast.copy_location(ast.Constant(re.sub(r"\bgloo\b", self.backend, node.value)), node)
        return node

    def visit_Attribute(self, node):
        if node.attr == "GLOO" and getattr(node.value, "attr", getattr(node.value, "id", "")) == "Backend":
            return ast.copy_location(ast.Constant(self.backend), node)
        return self.generic_visit(node)

    def visit_keyword(self, node):
        """new_group(backend="nccl")"""
        if node.arg == "backend" and ("'nccl'" in ast.dump(node.value) or "'NCCL'" in ast.dump(node.value)):
            return ast.copy_location(ast.keyword("backend", ast.Constant(self.backend)), node)
        return self.generic_visit(node)

    def visit_Compare(self, node):
        """What DDP logs of gloo's own settings (sockets, threads) is not asked of others."""
        if "backend_name" in ast.dump(node.left):
            return node
        return self.generic_visit(node)


@functools.cache
def code_of(module, backend):
    """The installed module with other names, compiled."""
    root = importlib.util.find_spec("torch").submodule_search_locations[0]
    path = pathlib.Path(root, *module.split(".")[1:]).with_suffix(".py")
    tree = Names(backend).visit(ast.parse(path.read_text(), str(path)))
    return compile(ast.fix_missing_locations(tree), str(path), "exec", dont_inherit=True)


_skip = unittest.skip


def skip_if(condition, reason):
    """In place of unittest's and torch's, which skip for reasons that do not hold here."""
    if condition and FOR_GPU.search(reason):
        return for_gpu
    return _skip(reason) if condition and not LIFTED.search(reason) else lambda test: test


def skip(reason=""):
    return skip_if(True, reason)


def for_gpu(test):
    """In place of decorators that ask for GPUs: the test is run on the CPU (on_cpu.py)."""
    test.for_gpu = True
    return test


@contextlib.contextmanager
def torch_decorators(backend, world):
    """While a module is executed: torch's own decorators know the backend, and decide when the module is loaded."""
    from torch.testing._internal import common_distributed, common_utils

    environment = {"BACKEND": backend, "WORLD_SIZE": str(world), "INIT_METHOD": "file:///set-when-a-test-runs", "TEMP_DIR": "/nonexistent"}
    features = common_distributed.DistTestCases.backend_feature
    knowing = {feature: backends | {backend} if "gloo" in backends or feature == "plugin" else backends
               for feature, backends in features.items()}
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.dict(os.environ, environment))
        stack.enter_context(mock.patch.dict(features, knowing))
        for module in (common_utils, common_distributed):
            stack.enter_context(mock.patch.object(module, "skip_but_pass_in_sandcastle_if", skip_if))
            stack.enter_context(mock.patch.object(module, "skip_but_pass_in_sandcastle", skip))
        stack.enter_context(mock.patch.object(unittest, "skipIf", skip_if))
        stack.enter_context(mock.patch.object(unittest, "skip", skip))
        for name, replacement in {
            "skip_if_no_gpu": for_gpu,
            "skip_if_lt_x_gpu": lambda count, **_: for_gpu,
            "skip_if_small_worldsize": skip_if(world < GROUP_OF_TWO, f"its group [1, 2] needs {GROUP_OF_TWO} ranks"),
            "skip_if_odd_worldsize": skip_if(world % 2 == 1, "needs an even number of ranks"),
            "init_multigpu_helper": lambda world, _: {rank: [rank] for rank in range(world)},
        }.items():
            stack.enter_context(mock.patch.object(common_distributed, name, replacement))
        yield


@functools.cache
def load(module, backend, world):
    """The module of torch, executed for a backend and a number of ranks."""
    name = f"{module.rsplit('.', 1)[1]}_{backend}_{world}"
    code = code_of(module, backend)
    loaded = types.ModuleType(name)
    loaded.__file__ = code.co_filename
    sys.modules[name] = loaded  # pickled objects of the tests name it
    with torch_decorators(backend, world):
        exec(code, loaded.__dict__)
    return loaded
