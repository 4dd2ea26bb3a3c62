"""Loads test modules that the installed torch ships, with another backend in place of gloo. No file of torch is copied.

The text of the module is parsed, the names of gloo in it are replaced, and the result is compiled with the path and the
line numbers of the original, so a traceback points into torch. Decorators decide while the module is executed which
tests torch skips for other backends than gloo. So a module is executed once for each backend and world size, with
torch's decorators replaced by those below.
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

# Reasons of torch's skips that do not hold for a backend which supports what the test needs.
LIFTED = re.compile(
    # Written when no other backend supported it for the CPU.
    r"Only MPI supports (CPU )?all_to_all"
    # Instabilities of gloo or of machines that torch is tested on.
    r"|issues/(164195|179691|70755|162584|76428|162676|77342|85012)"
    r"|pull/113620"
    r"|Currently failing in NVIDIA internal CI"
)
# Reasons of torch's skips of tests for GPUs, which run on the CPU here (on_cpu.py).
FOR_GPU = re.compile(
    r"Only (Nccl|NCCL) supports (CUDA|all_gather_v|reduce_scatter_v)|NCCL (Batch )?Send Recv Only"
    r"|Coalescing manager currently tests with NCCL only|on CUDA devices|to be one of {'nccl'}"
)
GROUP_OF_TWO = 3  # tests for "large" worlds use the group [1, 2]


class Names(ast.NodeTransformer):
    """Replaces names of gloo by the name of the backend."""

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
        """Replaces the backend in new_group(backend="nccl")."""
        if node.arg == "backend" and ("'nccl'" in ast.dump(node.value) or "'NCCL'" in ast.dump(node.value)):
            return ast.copy_location(ast.keyword("backend", ast.Constant(self.backend)), node)
        return self.generic_visit(node)

    def visit_Compare(self, node):
        """Keeps comparisons of DDP's logged backend name.

        Other backends do not log gloo's own settings (sockets, threads).
        """
        if "backend_name" in ast.dump(node.left):
            return node
        return self.generic_visit(node)


@functools.cache
def code_of(module, backend):
    """Returns the installed module with other names, compiled."""
    root = importlib.util.find_spec("torch").submodule_search_locations[0]
    path = pathlib.Path(root, *module.split(".")[1:]).with_suffix(".py")
    tree = Names(backend).visit(ast.parse(path.read_text(), str(path)))
    return compile(ast.fix_missing_locations(tree), str(path), "exec", dont_inherit=True)


_skip = unittest.skip


def skip_if(condition, reason):
    """Replaces the decorators of unittest and torch, which skip for reasons that do not hold here."""
    if condition and FOR_GPU.search(reason):
        return for_gpu
    return _skip(reason) if condition and not LIFTED.search(reason) else lambda test: test


def skip(reason=""):
    return skip_if(True, reason)


def for_gpu(test):
    """Replaces decorators that require GPUs: the test runs on the CPU (on_cpu.py)."""
    test.for_gpu = True
    return test


@contextlib.contextmanager
def torch_decorators(backend, world):
    """While a module is executed, makes torch's own decorators know the backend and decide at once."""
    from torch.testing._internal import common_distributed, common_utils

    environment = {"BACKEND": backend, "WORLD_SIZE": str(world), "INIT_METHOD": "file:///set-when-a-test-runs",
                   "TEMP_DIR": "/nonexistent"}
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
    """Returns the module of torch, executed for a backend and a number of ranks."""
    name = f"{module.rsplit('.', 1)[1]}_{backend}_{world}"
    code = code_of(module, backend)
    loaded = types.ModuleType(name)
    loaded.__file__ = code.co_filename
    sys.modules[name] = loaded  # pickled objects of the tests refer to it by name
    with torch_decorators(backend, world):
        exec(code, loaded.__dict__)
    return loaded
