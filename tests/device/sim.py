"""A torch device, sim, for tests where there is no GPU: memory of the host, with streams as a GPU has them.

build() builds it, start() starts it in this process, and has goccl use it for its groups on devices. From then on
device="sim" is an ordinary device of torch. It is that of the simulated GPU driver (package cuda/cudatest), which
executes streams in an order that a seed chooses, and reports accesses to memory that nothing orders, even where they
have turned out well, as well as deadlocks, copies that leave their memory, and calls against the contract. check()
raises with these reports.

Kernels are executed while the caller waits for them, copies within the device are not. Neither tells the host
anything: what a real host would not know has to be ordered by streams and events.

CUDATEST_SEED chooses the order; the ranks of a pool have different ones, which messages name.
"""
import contextlib
import ctypes
import datetime
import functools
import hashlib
import importlib
import json
import os
import pathlib
import re
import subprocess
import sys

import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "device"), str(ROOT / "tests" / "python")]  # the ranks get the same path
import device_module  # noqa: E402
from rank_pool import Lasting, RankPool  # noqa: E402

NAME = device_module.NAME
BACKEND = f"cpu:goccl,{NAME}:goccl"
SOURCE = ROOT / "tests" / "device" / "device.cpp"
FOLDER = ROOT / "build" / "device"

_library = None  # libgoccl's build for tests, by ctypes
_seed = None


@functools.cache
def build():
    """Builds what has changed: libgoccl with the tag cudatest, and the device for this torch. Returns their paths.

    It looks once in a process.
    """
    library = FOLDER / "libgoccl.so"
    _run("go", "build", "-tags=cudatest", "-pgo=off", "-trimpath", "-buildvcs=false", "-buildmode=c-shared",
         "-o", str(library), "./cabi/libgoccl")
    header = re.sub(rb"/\*.*?\*/|//[^\n]*", b"", library.with_suffix(".h").read_bytes(), flags=re.DOTALL)
    content = hashlib.sha256(SOURCE.read_bytes() + header).hexdigest()[:12]
    device = FOLDER / f"torch-{torch.__version__}-{sys.implementation.cache_tag}-{content}" / "goccl_device.so"
    if not device.exists():
        _run(sys.executable, __file__, str(device.parent))
    return library, device


def _run(*command):
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, "CGO_ENABLED": "1"}, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}"


def _compile(folder):
    from torch.utils import cpp_extension

    os.makedirs(folder, exist_ok=True)
    cpp_extension.load("goccl_device", [str(SOURCE)], build_directory=folder, is_python_module=False,
                       extra_include_paths=[str(FOLDER)], extra_cflags=["-O1", "-g0", "-Wall"])


def start(library, device, rank=0, devices=1, delay=None, stuck=30.0, queues=0):
    """Starts the device in this process, with what build has returned.

    delay is the longest pause between two operations of the device, stuck the time after which streams that all wait
    are a deadlock, both in seconds; negative is none. On a busy machine another rank may need long for its part.
    queues is how many hardware queues all streams of the process share; 0 is one for each.
    """
    global _library, _seed
    assert _library is None, "the device was started before"
    os.environ["CUDATEST_QUEUES"] = str(queues)
    _library = _open(library)
    _seed = int(os.environ.get("CUDATEST_SEED", "1")) * 1000 + rank
    torch.ops.load_library(device)
    torch.utils.rename_privateuse1_backend(NAME)
    torch._register_device_module(NAME, device_module)
    torch.utils.generate_methods_for_privateuse1_backend(for_storage=True)
    torch.ops.goccl_sim.start(str(library), _seed, devices, _nanoseconds(delay), _nanoseconds(stuck))
    # Before the first group, goccl loads the library that is loaded already.
    core = importlib.import_module("goccl._C")
    core.load(str(library))
    core.use_device_type("privateuseone")


def _nanoseconds(seconds):
    return 0 if seconds is None else int(seconds * 1e9)


def _open(path):
    library = ctypes.CDLL(str(path))
    for name in ("hold", "capture", "graph_launch", "graph_destroy", "faults", "reports", "blocked", "leaks"):
        getattr(library, "goccl_test_" + name).restype = ctypes.c_void_p  # a text that is freed here
    for name, *more in (("hold", ctypes.c_int), ("capture", ctypes.c_int, ctypes.c_void_p),
                        ("graph_launch", ctypes.c_size_t), ("graph_destroy", ctypes.c_size_t)):
        getattr(library, "goccl_test_" + name).argtypes = [ctypes.c_int, ctypes.c_size_t, *more]
    library.goccl_test_free_text.argtypes = [ctypes.c_void_p]
    library.goccl_test_calls.restype = ctypes.c_int64
    return library


def _call(name, *args):
    return getattr(_library, "goccl_test_" + name)(*args)


def _text(name, *args):
    at = _call(name, *args)
    if not at:
        return None
    text = ctypes.string_at(at).decode()
    _call("free_text", at)
    return text


def _done(name, *args):
    error = _text(name, *args)
    assert error is None, f"{name}: {error}"


@contextlib.contextmanager
def held(*streams):
    """Keeps streams from executing anything, as if they were behind a kernel that takes long.

    Kernels in them would wait for the end; copies within the device do not. Without arguments, it is the current stream.
    """
    streams = streams or (device_module.current_stream(),)
    for s in streams:
        _done("hold", s.device_index, s.stream_id, 1)
    try:
        yield
    finally:
        for s in streams:
            _done("hold", s.device_index, s.stream_id, 0)


class Graph:
    """What was enqueued in a stream in capture: launch executes it, destroy gives it back."""

    def __init__(self, stream):
        self._stream, self._graph = stream, ctypes.c_size_t()

    def launch(self, stream=None):
        s = stream or self._stream
        _done("graph_launch", s.device_index, s.stream_id, self._graph)

    def destroy(self):
        _done("graph_destroy", self._stream.device_index, self._stream.stream_id, self._graph)


@contextlib.contextmanager
def captured(s):
    """Puts a stream in capture and gives its Graph; fails if something was called that cannot be captured."""
    _done("capture", s.device_index, s.stream_id, 1, None)
    graph = Graph(s)
    try:
        yield graph
    finally:
        _done("capture", s.device_index, s.stream_id, 0, ctypes.byref(graph._graph))


@contextlib.contextmanager
def lenient():
    """What is freed in this context may still be used by another stream, until it is allocated again.

    That is what FSDP relies on. Otherwise it is a race with the kernel "free" in the stream of the allocation.
    """
    torch.ops.goccl_sim.set_strict(False)
    try:
        yield
    finally:
        torch.ops.goccl_sim.set_strict(True)


def settle():
    """Waits until nothing that is enqueued can go on."""
    _call("settle")


def reports():
    """The mistakes that the driver has seen so far, each a text that begins with its kind, as in "race: "."""
    settle()
    return json.loads(_text("reports"))


def forget():
    """Forgets the reports so far."""
    _call("forget")


def check():
    """Raises AssertionError with all reports."""
    found = reports()
    assert not found, "\n".join([f"the simulated driver reports (seed {_seed}):", *found])


def leaks():
    """What groups have not given back to the driver."""
    return json.loads(_text("leaks"))


def blocked():
    """What each stream that has work waits for, a line each."""
    return _text("blocked")


def lose(device=0):
    """Loses a device: nothing more is executed, and all calls fail."""
    _call("lose", device)


def set_faults(**faults):
    """Replaces the faults: fields of cudatest.Faults, as in Fail=[dict(Call="cuMemcpyAsync", Nth=3, Code=2)]."""
    _done("faults", json.dumps(faults).encode())


def calls(name):
    """How often a function of the driver was called since the faults were set."""
    return _call("calls", name.encode())


def order():
    """Says that what the host knows of groups, it also knows on the torch device.

    The driver cannot see it: a group has its own context. Where the host has waited for a work, as with
    GOCCL_BLOCKING_WAIT, a test says so.
    """
    _call("order")


class SimPool(RankPool):
    """A pool of ranks (rank_pool.RankPool) that each have a simulated machine, with a group on it unless group is False.

    route is the group's (GOCCL_CUDA_ROUTE), registered the memory of a device for goccl.empty (GOCCL_CUDA_REGISTERED),
    options are arguments of start.
    """

    def __init__(self, size, folder, group=True, timeout=20.0, patience=60.0, route="auto", registered="0", **options):
        library, device = build()
        super().__init__(size, folder, group=False, patience=patience)
        try:
            self.run(_start, str(library), str(device), options)
            if group:
                self.run(_join, size, str(folder), timeout, route, registered)
        except BaseException:
            self.kill()
            raise


class World(Lasting):
    """A SimPool for many tests."""

    def checked(self, function, *args):
        """Runs a function on all ranks, as run does, which also fails if the driver of any has a report afterwards."""
        __tracebackhide__ = True
        return self.run(_checked, function, args)


def _start(rank, library, device, options):
    start(library, device, rank, **options)


def _join(rank, size, folder, timeout, route, registered):
    import torch.distributed as dist

    import goccl  # noqa: F401

    os.environ["GOCCL_CUDA_ROUTE"] = route
    os.environ["GOCCL_CUDA_REGISTERED"] = registered
    dist.init_process_group(BACKEND, store=dist.FileStore(f"{folder}/sim"), rank=rank, world_size=size,
                            timeout=datetime.timedelta(seconds=timeout))


def _checked(rank, function, args):
    forget()
    result = function(rank, *args)
    check()
    return result


if __name__ == "__main__":
    _compile(sys.argv[1]) if sys.argv[1:] else build()
