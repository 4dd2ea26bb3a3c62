"""What operations of streams cost, and which calls of the driver wait for what, in about 90 s, without goccl and torch.

    python costs.py [QUESTION ...]

Each question is a process of its own, and one that hangs says so. There is no bar; what the answers decide is this:

free    While cuMemFree of one thread waits for a stream, do calls of another thread return? Where they do not, a thread
        that a stream waits for must call nothing of the driver, as the device thread does (cuda/group/queries.go), and a
        program must free nothing between calls that ranks make in different orders.
costs   Time of the processor for a call and of the GPU for an operation, in a stream that is held until all is enqueued:
        1 to 37 words with a fence for each or one for all, waits that have come, copies. How many operations a piece may
        have, whether words need a fence each, and from which size a copy beats a kernel.
words   The same of words in memory of the device, and a hop between two streams by words of the host and of the device.
        Where the words of a group should be.
queues  How many of 32 streams are blocked behind two that wait, with as many hardware queues as CUDA has by default, and
        with 32. Whether CUDA_DEVICE_MAX_CONNECTIONS does what docs/cuda.md says.
what    Attributes of the device: whether RDMA may write to its memory, and whether switches can reduce.
"""
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from ctypes import POINTER, byref, c_size_t, c_uint64, c_void_p

import libcuda
from libcuda import WAIT, WRITE, Device, Shared, Word
from results import INFO, tell

FENCED, PLAIN = 0, 1       # CU_STREAM_WRITE_VALUE_DEFAULT, _NO_MEMORY_BARRIER
FENCES = (FENCED, "each fenced"), (PLAIN, "one fence")
SIZE, MEMORY = 1 << 20, 64 << 20
HELD = 300                 # operations in a stream that is held: it takes less than about 1,000
LIMIT = 25                 # seconds that a question takes at most
PATIENCE = 20.0            # seconds that nothing takes
TURNS = 100
CONNECTIONS = "CUDA_DEVICE_MAX_CONNECTIONS"
ATTRIBUTES = {"a wait flushes remote writes": 98, "GPUDirect RDMA": 116, "its ways to flush": 117,
              "its order of writes": 118, "dma-bufs": 124, "multicast (NVLS)": 132}


class Bench:
    """A device with a stream, words in memory of the host, and memory of its own."""

    _all: list["Bench"] = []  # streams may use the memory until the process ends

    def __init__(self) -> None:
        self._all.append(self)
        self.device, self.memory, self.turn = Device(), Shared(SIZE), 0
        self.base, self.stream = self.device.register(self.memory), self.device.stream()
        self.gpu, _ = self.device.allocate(MEMORY)

    def batch(self, stream: c_void_p, operations: list[tuple[int, int, int, int]]) -> None:
        """Enqueues writes and waits: (WRITE or WAIT, address, value, flags)."""
        array = (Word * len(operations))(*(Word(what, at, value, flags, 0, 0) for what, at, value, flags in operations))
        self.device.call("cuStreamBatchMemOp_v2", stream, len(operations), array, 0)

    def hold(self) -> None:
        """What is enqueued in the stream from here on waits for release()."""
        self.turn += 1
        self.batch(self.stream, [(WAIT, self.base, self.turn, 0)])

    def release(self) -> None:
        self.memory.word(0).value = self.turn

    def measure(self, name: str, operation: Callable[[], None], rounds: int) -> None:
        """Tells what an operation takes: the processor to enqueue it, and the GPU."""
        processor, device = [], []
        for _ in range(5):
            self.hold()
            start = time.perf_counter()
            for _ in range(rounds):
                operation()
            processor.append((time.perf_counter() - start) / rounds * 1e6)
            start = time.perf_counter()
            self.release()
            self.device.ends(self.stream, PATIENCE, name)
            device.append((time.perf_counter() - start) / rounds * 1e6)
        cpu, gpu = statistics.median(processor), statistics.median(device)
        tell(name, INFO, f"{cpu:.2f} µs of the processor, {gpu:.2f} µs of the GPU", processor=cpu, device=gpu)

    def writes(self, count: int, at: int, where: str) -> None:
        """Measures batches of this number of words at an address, with a fence each and with one."""
        for flags, how in FENCES:
            words = [(WRITE, at + 4096 + 64 * i, 1, flags if i else FENCED) for i in range(count)]
            self.measure(f"{count} words of the {where}, {how}", lambda words=words: self.batch(self.stream, words),
                         HELD // count)


def costs() -> None:
    bench = Bench()
    for count in 1, 8, 23, 37:
        bench.writes(count, bench.base, "host")
    for count in 1, 7:
        waits = [(WAIT, bench.base, 0, 0)] * count
        bench.measure(f"{count} waits that have come", lambda waits=waits: bench.batch(bench.stream, waits), HELD // count)
    for size in 8, 128 << 10, 1 << 20, 8 << 20:
        bench.measure(f"a copy of {size} bytes on the device", lambda size=size: bench.device.copy(
            bench.gpu + MEMORY // 2, bench.gpu, size, bench.stream), min(200, (256 << 20) // size))


def words() -> None:
    bench = Bench()
    for count in 1, 7, 30:
        bench.writes(count, bench.gpu, "device")
    other = bench.device.stream()
    for where, at in ("host", bench.base), ("device", bench.gpu):
        bench.device.copy(at + 64, bench.base + SIZE // 2, 128, bench.stream)  # zeros
        bench.device.ends(bench.stream, PATIENCE, "a copy")
        first, second = [], []
        for turn in range(1, TURNS + 1):
            first += [(WRITE, at + 64, turn, 0), (WAIT, at + 128, turn, 0)]
            second += [(WAIT, at + 64, turn, 0), (WRITE, at + 128, turn, 0)]
        start = time.perf_counter()
        bench.batch(other, second)
        bench.batch(bench.stream, first)
        bench.device.ends(bench.stream, PATIENCE, "hops")
        hop = (time.perf_counter() - start) / TURNS / 2 * 1e6
        tell(f"a hop between two streams, words of the {where}", INFO, f"{hop:.2f} µs", hop=hop)


def queues() -> None:
    bench = Bench()
    waiting, others = [[bench.device.stream() for _ in range(count)] for count in (2, 32)]
    for stream in waiting:
        bench.batch(stream, [(WAIT, bench.base, 1, 0)])
    for i, stream in enumerate(others):
        bench.device.copy(bench.gpu + 4096 * i, bench.gpu + MEMORY // 2, 8, stream)
    time.sleep(0.2)
    still = [i for i, stream in enumerate(others) if not bench.device.done(stream)]
    bench.memory.word(0).value = 1
    connections = os.environ.get(CONNECTIONS, "not set")
    tell(f"streams blocked behind two that wait, {CONNECTIONS} {connections}", INFO,
         f"{len(still)} of {len(others)}: {still}", still=still)


def free() -> None:
    bench = Bench()
    library = bench.device._library
    library.cuMemAlloc_v2.argtypes, library.cuMemFree_v2.argtypes = [POINTER(c_uint64), c_size_t], [c_uint64]
    block, other, freed, answers = c_uint64(), bench.device.stream(), threading.Event(), {}
    bench.device.call("cuMemAlloc_v2", byref(block), 32 << 20)
    bench.hold()

    def in_thread(call: Callable[[], object], done: threading.Event) -> None:
        def run() -> None:
            bench.device.call("cuCtxPushCurrent_v2", c_void_p(bench.device.context))
            call()
            done.set()
        threading.Thread(target=run, daemon=True).start()

    def tried(name: str, call: Callable[[], object]) -> None:
        done = threading.Event()
        in_thread(call, done)
        answers[name] = done.wait(1)

    in_thread(lambda: bench.device.call("cuMemFree_v2", block), freed)
    time.sleep(0.3)
    waits = not freed.is_set()
    tried("cuStreamQuery", lambda: bench.device.done(other))
    tried("cuStreamBatchMemOp", lambda: bench.batch(other, [(WRITE, bench.base + 64, 1, 0)]))
    tried("cuMemcpyAsync", lambda: bench.device.copy(bench.gpu, bench.gpu + 4096, 8, other))
    bench.release()
    ends = freed.wait(5)
    text = ", ".join(f"{name} {'returns' if returns else 'WAITS'}" for name, returns in answers.items())
    if not ends:
        text += "; cuMemFree does not end when the stream has"
    tell(f"while cuMemFree {'waits' if waits else 'has returned'} and a stream is held, in other streams", INFO, text,
         waits=waits, ends=ends, **answers)


def what() -> None:
    device = Device()
    for name, number in ATTRIBUTES.items():
        try:
            value: object = device.attribute(number)
        except libcuda.CudaError as error:
            value = str(error)
        tell(f"attribute: {name}", INFO, str(value), value=value)


QUESTIONS = {"free": free, "costs": costs, "words": words, "queues": queues, "what": what}


def ask(name: str, **environment: str) -> None:
    """Asks a question in a process of its own: a stream that is blocked must not stop the next one."""
    command = [sys.executable, __file__, "--here", name]
    try:
        code = subprocess.run(command, timeout=LIMIT, check=False, env={**os.environ, **environment}).returncode
        if code:
            tell(f"question {name}", INFO, f"it ended with {code}")
    except subprocess.TimeoutExpired:
        tell(f"question {name}", INFO, f"it HANGS: no end in {LIMIT} s")


def main() -> None:
    names = sys.argv[1:]
    if names[:1] == ["--here"]:
        QUESTIONS[names[1]]()
        sys.stdout.flush()
        os._exit(0)  # a stream may be blocked
    if unknown := [name for name in names if name not in QUESTIONS]:
        sys.exit(f"there is no question {', '.join(unknown)}, only {', '.join(QUESTIONS)}")
    for name in names or QUESTIONS:
        if name != "queues":
            ask(name)
            continue
        ask(name, **{CONNECTIONS: "8"})  # the default, which an environment may have changed
        ask(name, **{CONNECTIONS: "32"})


if __name__ == "__main__":
    main()
