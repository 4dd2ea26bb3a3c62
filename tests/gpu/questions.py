"""The four questions that only a GPU answers, each with a second process.

    python questions.py [--library libgoccl.so] [--without-torch]

Without torch nothing computes while the processes exchange words, and no context but ours is there.
"""
import argparse
import ctypes
import importlib.util
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import threading
import time
import traceback

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "cabi"))
import libcuda  # noqa: E402
from libcuda import WAIT, WRITE, Device, Shared  # noqa: E402
from results import INFO, NO, YES, tell  # noqa: E402
from structs import Block, Call, Error, GroupOptions  # noqa: E402

SIZE = 1 << 20           # of what two processes share
MINE, THEIRS = 0, 64     # words in it: that of the first process, and of the second one
DATA = 4096              # bytes from here on, 4 KiB a process
PATIENCE = 20.0          # seconds that nothing takes
SHARED_GPU = 1000.0      # µs of a hop that make the latencies of ranks on one GPU say little

QUESTIONS = {
    "memfd": "Do streams of two processes wait for words in memfd memory that both registered?",
    "purego": "Can Python's threads call the driver through libgoccl (purego), under torch's context?",
    "slices": "Do two processes on one GPU reach each other within a millisecond while both compute?",
    "descriptors": "Can processes on one GPU map each other's device memory by descriptors?",
}


class Peer:
    """The other process, over a socket that carries one byte a step, and descriptors."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        end.settimeout(PATIENCE)

    def give(self, *descriptors: int) -> None:
        socket.send_fds(self._end, [b"."], descriptors)

    def take(self) -> int | None:
        said, descriptors, _, _ = socket.recv_fds(self._end, 1, 1)
        if not said:
            raise EOFError("the other process has ended")
        return descriptors[0] if descriptors else None

    def say(self, data: bytes) -> None:
        self._end.sendall(len(data).to_bytes(4, "little") + data)

    def hear(self) -> bytes:
        count = int.from_bytes(self._exactly(4), "little")
        return self._exactly(count)

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            part = self._end.recv(count - len(data))
            if not part:
                raise EOFError("the other process has ended")
            data += part
        return data


def shared_with(peer: Peer, first: bool) -> Shared:
    if not first:
        return Shared(SIZE, peer.take())
    memory = Shared(SIZE)
    peer.give(memory.descriptor)
    return memory


def memfd(peer: Peer, first: bool, options: argparse.Namespace) -> str:
    """Each process copies data into its part, writes its word, waits for the other's word and copies what it finds."""
    device = Device()
    if not device.attribute(libcuda.WORDS):
        raise libcuda.CudaError("the device has no memory operations of 64 bits in streams")
    memory = shared_with(peer, first)
    base, stream = device.register(memory), device.stream()
    held, _ = device.allocate()
    mine, theirs = (MINE, THEIRS) if first else (THEIRS, MINE)
    put, get, fetched = (DATA, 2 * DATA, 3 * DATA) if first else (2 * DATA, DATA, 4 * DATA)
    source = 5 * DATA if first else 6 * DATA
    for turn in range(1, 21):
        memory.view[source:source + DATA] = bytes([turn + 100 * first]) * DATA
        device.copy(held, base + source, DATA, stream)
        device.copy(base + put, held, DATA, stream)
        device.words(stream, (WRITE, base + mine, 2 * turn), (WAIT, base + theirs, 2 * turn))
        device.copy(base + fetched, base + get, DATA, stream)
        device.words(stream, (WRITE, base + mine, 2 * turn + 1), (WAIT, base + theirs, 2 * turn + 1))
        device.ends(stream, PATIENCE, f"turn {turn}")
        if memory.view[fetched:fetched + DATA] != bytes([turn + 100 * (not first)]) * DATA:
            raise libcuda.CudaError(f"turn {turn}: the word came before the data")
    # A store by the host of the other process lets a stream go.
    if first:
        device.words(stream, (WAIT, base + theirs, 1000))
        peer.give()
        device.ends(stream, PATIENCE, "the wait for a store by the other process's host")
    else:
        peer.take()
        memory.word(mine).value = 1000
    return "20 turns, their data, and a store by the other host"


def descriptors(peer: Peer, first: bool, options: argparse.Namespace) -> str:
    """The first process allocates, the second one maps and writes, the first one finds what was written."""
    device = Device()
    if not device.attribute(libcuda.DESCRIPTORS):
        raise libcuda.CudaError("the device's memory has no descriptors")
    host, stream = Shared(SIZE), device.stream()
    base = device.register(host)
    if first:
        memory, descriptor = device.allocate()
        host.view[:SIZE] = b"a" * SIZE
        device.copy(memory, base, SIZE, stream)
        device.ends(stream, PATIENCE, "a copy")
        peer.give(descriptor)
        peer.take()
    else:
        memory = device.take(peer.take())
    device.copy(base, memory, SIZE, stream)
    device.ends(stream, PATIENCE, "a copy")
    if host.view[:SIZE] != (b"b" if first else b"a") * SIZE:
        raise libcuda.CudaError("the processes do not see each other's bytes")
    if not first:
        host.view[:SIZE] = b"b" * SIZE
        device.copy(memory, base, SIZE, stream)
        device.ends(stream, PATIENCE, "a copy")
        peer.give()
    return "both directions"


class Computing:
    """Keeps the GPU busy with multiplications of matrices, from a thread of its own."""

    def __init__(self, busy: bool) -> None:
        self._stop, self._ready = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True) if busy else None

    def __enter__(self) -> None:
        if self._thread:
            self._thread.start()
            self._ready.wait(PATIENCE)

    def __exit__(self, *unused) -> None:
        self._stop.set()
        if self._thread:
            self._thread.join(PATIENCE)

    def _run(self) -> None:
        import torch

        a = torch.ones(4096, 4096, device="cuda", dtype=torch.bfloat16)
        torch.cuda.synchronize()
        while not self._stop.is_set():
            for _ in range(8):
                a @ a
            self._ready.set()
            torch.cuda.synchronize()


def slices(peer: Peer, first: bool, options: argparse.Namespace) -> str:
    """Streams of two processes answer each other's words, while nobody computes, one process does, and both do."""
    device = Device()
    memory = shared_with(peer, first)
    base, stream = device.register(memory), device.stream()
    turns, turn, hops = 50, 0, {}
    for name, busy in [("idle", (False, False)), ("one computes", (True, False)), ("both compute", (True, True))]:
        times = []
        with Computing(busy[not first] and not options.without_torch):
            for _ in range(5):
                peer.give()
                peer.take()
                start = time.perf_counter()
                operations = []
                for _ in range(turns):
                    turn += 1
                    if first:
                        operations += [(WRITE, base + MINE, turn), (WAIT, base + THEIRS, turn)]
                    else:
                        operations += [(WAIT, base + MINE, turn), (WRITE, base + THEIRS, turn)]
                device.words(stream, *operations)
                device.ends(stream, PATIENCE, f"{turns} turns ({name})")
                times.append((time.perf_counter() - start) / turns / 2 * 1e6)
            peer.give()
            peer.take()
        hops[name] = statistics.median(times)
    text = ", ".join(f"{name} {micros:.1f} µs" for name, micros in hops.items())
    if options.without_torch:
        text += " (nothing computed: without torch)"
    if first:
        tell("a hop between two processes on one GPU", INFO, text, **hops)
    if hops["both compute"] > SHARED_GPU:
        raise libcuda.CudaError(f"a hop: {text}")
    return f"a hop: {text}"


class Group:
    """A group of two ranks on the device, by goccl.h."""

    def __init__(self, library: str, peer: Peer, rank: int) -> None:
        header = (pathlib.Path(__file__).resolve().parents[2] / "cabi/exports/goccl.h").read_text()
        abi = int(header.partition("#define GOCCL_ABI ")[2].split()[0])
        self._library = ctypes.CDLL(library)
        group, length, address = ctypes.c_uint64(), ctypes.c_size_t(), ctypes.create_string_buffer(16384)
        route = b"GOCCL_CUDA_ROUTE=staged"  # what is asked is not whether windows work
        options = GroupOptions(abi, rank, 2, int(PATIENCE * 1e9), b"questions", route, b"questions", b"cuda:0")
        self._check("goccl_group_open", ctypes.byref(options), ctypes.byref(group), address, ctypes.c_size_t(16384),
                    ctypes.byref(length))
        self._group = group
        peer.say(address.raw[:length.value])
        addresses = [address.raw[:length.value], peer.hear()]
        addresses = addresses[::-1] if rank else addresses
        self._check("goccl_group_join", group, (ctypes.c_char_p * 2)(*addresses),
                    (ctypes.c_size_t * 2)(*map(len, addresses)), 2, ctypes.c_int64(0), None)

    def _check(self, name: str, *arguments) -> None:
        error = Error()
        if getattr(self._library, name)(*arguments, ctypes.byref(error)):
            raise libcuda.CudaError(f"{name}: {error.text.decode()}")

    def all_reduce(self, address: int, count: int, stream: ctypes.c_void_p) -> ctypes.c_uint64:
        """Enqueues a sum of f32 and lets the stream wait for it."""
        work, number = ctypes.c_uint64(), ctypes.c_uint64()
        block = Block(address, count)
        call = Call(7, 2, 0, 0, 0, 1, 1, 0, ctypes.pointer(block), ctypes.pointer(block), 1.0, -1)
        self._check("goccl_enqueue", self._group, ctypes.byref(call), stream, ctypes.byref(work), ctypes.byref(number))
        self._check("goccl_work_join", work, stream)
        return work

    def free(self, work: ctypes.c_uint64) -> None:
        self._library.goccl_work_free(work)

    def close(self) -> None:
        self._check("goccl_group_close", self._group)


def purego(peer: Peer, first: bool, options: argparse.Namespace) -> str:
    """All-reduces of a group on the device, from two of Python's threads, with torch's context current."""
    if not options.without_torch:
        import torch

        tensor = torch.ones(1000, device="cuda")
        torch.cuda.synchronize()
    device = Device()
    host, stream = Shared(SIZE), device.stream()
    base, count = device.register(host), 1000
    memory, _ = device.allocate()
    before = device.current()
    group = Group(options.library, peer, 0 if first else 1)
    if device.current() != before:
        raise libcuda.CudaError("making the group has changed the thread's context")
    values = (ctypes.c_float * count).from_buffer(host.view)
    micros: list[float] = []

    def calls() -> None:
        for turn in range(20):
            values[:] = [turn + float(first)] * count
            device.copy(memory, base, 4 * count, stream)
            start = time.perf_counter()
            work = group.all_reduce(memory, count, stream)
            micros.append((time.perf_counter() - start) * 1e6)
            device.copy(base, memory, 4 * count, stream)
            device.ends(stream, PATIENCE, f"all_reduce {turn}")
            group.free(work)
            if set(values) != {2.0 * turn + 1}:
                raise libcuda.CudaError(f"all_reduce {turn}: wrong result {values[0]}")

    def elsewhere() -> None:
        try:
            device.call("cuCtxPushCurrent_v2", device.context)
            calls()
        except BaseException as e:
            failures.append(e)

    calls()
    if device.current() != before:
        raise libcuda.CudaError("a call has changed the thread's context")
    failures: list[BaseException] = []
    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join(2 * PATIENCE)
    if thread.is_alive():
        raise libcuda.CudaError("a call from another thread hangs")
    if failures:
        raise failures[0]
    if not options.without_torch and tensor.sum().item() != 1000:
        raise libcuda.CudaError("torch's own work is wrong afterwards")
    peer.give()
    peer.take()
    group.close()
    text = f"issue and join {statistics.median(micros):.1f} µs"
    if first:
        tell("all_reduce of 4 kB, from the C ABI", INFO, text, micros=statistics.median(micros))
    return f"40 all_reduces from two threads, {text}"


def ask(name: str, options: argparse.Namespace) -> None:
    ours, theirs = socket.socketpair()
    child = subprocess.Popen([sys.executable, __file__, *sys.argv[1:], "--second", name, str(theirs.fileno())],
                             pass_fds=[theirs.fileno()], stderr=subprocess.PIPE, text=True)
    theirs.close()
    answer, text = YES, ""
    try:
        text = globals()[name](Peer(ours), True, options)
    except Exception as e:
        traceback.print_exc()
        answer, text = NO, f"{type(e).__name__}: {e}"
    ours.close()
    try:
        _, said = child.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        child.kill()
        _, said = child.communicate()
        answer, text = NO, text if answer == NO else "the second process hangs"
    print(said, file=sys.stderr)
    if child.returncode and answer == YES:
        answer, text = NO, "the second process: " + (said.strip().splitlines() or ["no message"])[-1]
    tell(QUESTIONS[name], answer, text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--library", help="libgoccl.so; that of the installed package if not given")
    parser.add_argument("--without-torch", action="store_true")
    parser.add_argument("--second", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("names", nargs="*", help="questions: " + ", ".join(QUESTIONS))
    options = parser.parse_args()
    if options.library is None:
        options.library = str(pathlib.Path(importlib.util.find_spec("goccl").origin).with_name("libgoccl.so"))
    if options.second:
        name, descriptor = options.second
        globals()[name](Peer(socket.socket(fileno=int(descriptor))), False, options)
        os._exit(0)  # what the driver still has is its own affair
    for name in options.names or QUESTIONS:
        # A process that has seen an error of the device is of no use any more.
        if options.names:
            ask(name, options)
        else:
            subprocess.run([sys.executable, __file__, *sys.argv[1:], name], timeout=4 * PATIENCE, check=False)


if __name__ == "__main__":
    main()
