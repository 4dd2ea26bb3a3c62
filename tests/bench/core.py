"""The core level: one C program for each rank and library. All run at once; this driver wakes one library at a time."""
import os
import pathlib
import random
import shutil
import socket
import subprocess
import tempfile
import time

from results import REWRITTEN

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BUILD = ROOT / "build/bench"
RIVALS = ("intelmpi", "openmpi", "mpich")
OPS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "ping_pong")
LINE_TIMEOUT = 200.0  # seconds without an answer that count as a hang; a rank ends itself earlier


class Failure(Exception):
    """A library could not be built, started or measured."""


def command(arguments, what, **kwargs):
    done = subprocess.run([str(a) for a in arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          **kwargs)
    if done.returncode:
        raise Failure(f"{what}: {' '.join(map(str, arguments))} ended with {done.returncode}:\n{done.stdout[-2000:]}")


def build_program(name, tree=ROOT, program=None):
    """Builds rank.c with an adapter of a source tree. install.sh builds it for the MPIs."""
    BUILD.mkdir(parents=True, exist_ok=True)
    program, here = program or BUILD / f"rank-{name}", tree / "tests/bench"
    command([os.environ.get("CC", "cc"), "-O2", "-Wall", "-Wextra", "-I", tree / "cabi/exports", "-o", program,
             here / "rank.c", here / f"{name}.c", "-ldl"], f"the adapter of {name}")
    return program


def build_libgoccl():
    """Builds libgoccl.so from the working tree."""
    library = BUILD / "libgoccl.so"
    version_script = ROOT / "cabi/libgoccl/libgoccl.map"
    command(["go", "build", "-trimpath", "-buildvcs=false", "-buildmode=c-shared",
             f"-ldflags=-s -w -extldflags=-Wl,--version-script={version_script}", "-o", library, "./cabi/libgoccl"],
            "libgoccl.so", cwd=ROOT, env={**os.environ, "CGO_ENABLED": "1"})
    return library


def build_floor(place):
    """Returns the floor's library: a shared library as it is, or the build of a folder with a Go package."""
    place = pathlib.Path(place).resolve()
    if place.is_file():
        return place
    library = BUILD / "libfloor.so"
    command(["go", "build", "-buildvcs=false", "-buildmode=c-shared", "-o", library, "."],
            f"the floor in {place}", cwd=place, env={**os.environ, "CGO_ENABLED": "1"})
    return library


def launcher(name, ranks):
    """Returns the command words before the program: mpiexec of an MPI, run from its own environment."""
    binaries = BUILD / "env" / name / "bin"
    words = [binaries / "mpiexec"]
    if name == "openmpi":
        words += ["--allow-run-as-root", "--oversubscribe"]
    return [*words, "-n", ranks]


class World:
    """The ranks of one library: processes that sleep until they get a request.

    last are the adapter's own arguments; before(rank) are words before the command of a rank. program is what
    build_program has built, if not for this tree.
    """

    def __init__(self, name, ranks, folder, max_bytes, last=(), before=lambda _: [], program=None):
        self.name, self.ranks, self.lines, self.processes = name, ranks, [], []
        self.log = folder / f"{name}.log"
        path = folder / f"{name}.sock"
        with socket.socket(socket.AF_UNIX) as listener, open(self.log, "wb") as log:
            listener.bind(str(path))
            listener.listen(ranks)
            common = [path, max_bytes, name]
            if name in RIVALS:
                environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL_ENV"))}
                environment["PATH"] = f"{BUILD / 'env' / name / 'bin'}:{environment.get('PATH', '')}"
                # With more ranks than processors MPICH yields only where threads are allowed; otherwise a call takes a
                # second.
                threads = "multiple" if name == "mpich" and ranks > len(os.sched_getaffinity(0)) else "single"
                self.start([*launcher(name, ranks), BUILD / f"rank-{name}", *common, threads], log, environment)
            else:
                for rank in range(ranks):
                    self.start([*before(rank), program or BUILD / f"rank-{name}", *common, rank, ranks, *last],
                               log, None)
            try:
                self.connections = self.gather(listener)
                self.ask("peers " + " ".join(self.addresses), "ready")
            except Failure:
                self.kill()
                raise

    def start(self, words, log, environment):
        self.processes.append(subprocess.Popen([str(w) for w in words], stdin=subprocess.DEVNULL,
                                               stdout=log, stderr=log, env=environment))

    def gather(self, listener):
        listener.settimeout(1)
        found = {}
        for _ in range(60):
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                if any(process.poll() is not None for process in self.processes):
                    break
                continue
            connection.settimeout(LINE_TIMEOUT)
            reader = connection.makefile("r")
            _, _, rank, size, pid, address = reader.readline().split()
            if int(size) != self.ranks:
                raise Failure(f"{self.name}: a rank says that there are {size} ranks, not {self.ranks}")
            found[int(rank)] = (connection, reader, int(pid), address)
            if len(found) == self.ranks:
                self.pids = [found[rank][2] for rank in range(self.ranks)]
                self.addresses = [found[rank][3] for rank in range(self.ranks)]
                return [found[rank][:2] for rank in range(self.ranks)]
        raise self.failure(f"{len(found)} of {self.ranks} ranks came")

    def failure(self, what):
        text = self.log.read_text(errors="replace")[-2000:]
        return Failure(f"{self.name}: {what}; its output ({self.log}):\n{text}")

    def ask(self, line, answer):
        """Sends the line (or one line for each rank) to all ranks; returns the words after `answer` of each."""
        lines = line if isinstance(line, list) else [line] * self.ranks
        words = []
        try:
            for (connection, _), each in zip(self.connections, lines):
                connection.sendall(each.encode() + b"\n")
            for rank, (_, reader) in enumerate(self.connections):
                got = reader.readline().split()
                if not got:
                    raise self.failure(f"rank {rank} ended at: {lines[rank][:80]}")
                words.append(got)
        except (TimeoutError, OSError) as e:
            raise self.failure(f"no answer to: {lines[0][:80]} ({e or 'HANG'})") from e
        if any(got[0] != words[0][0] for got in words) or words[0][0] not in (answer, "none"):
            raise self.failure(f"unexpected answer {words} to: {lines[0][:80]}")
        return None if words[0][0] == "none" else [got[1:] for got in words]

    def pin(self, mode, cpus):
        self.ask([f"pin {cpus[rank % len(cpus)]}" if mode == "core" else "pin all" for rank in range(self.ranks)],
                 "pinned")

    def check(self, op, element, size):
        """Returns the number of wrong elements of all ranks, None if the library does not have the operation."""
        answer = self.ask(f"check {op} {element} {size}", "wrong")
        return None if answer is None else sum(int(words[0]) for words in answer)

    def block(self, op, element, size, turns, warm):
        """Returns the microseconds of one operation (for a ping-pong, half a round trip): the slowest rank's mean."""
        answer = self.ask(f"block {op} {element} {size} {turns} {warm}", "time")
        return max(int(words[0]) for words in answer) / turns / (2e3 if op == "ping_pong" else 1e3)

    def touched_block(self, op, element, size, turns, warm):
        """The same with the inputs touched before each call.

        Returns the microseconds of a call with its touch, and of the touch alone. Ranks of one processor touch one
        after the other.
        """
        answer = self.ask(f"block {op} {element} {size} {turns} {warm} touch", "time")
        if any(len(words) != 2 for words in answer):
            raise Failure(f"{self.name}: its program is older than rank.c; run tests/bench/install.sh")
        both, alone = zip(*((int(words[0]), int(words[1])) for words in answer))
        cpus, unit = len(os.sched_getaffinity(0)), turns * (2e3 if op == "ping_pong" else 1e3)
        return max(both) / unit, max(sum(alone[cpu::cpus]) for cpu in range(cpus)) / unit

    def cpu_seconds(self):
        """Returns the CPU time of every rank so far, to the nanosecond, over all its live threads."""
        return [sum(int(task.read_text().split()[0])
                    for task in pathlib.Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9
                for pid in self.pids]

    def close(self):
        try:
            for connection, _ in self.connections:
                connection.sendall(b"quit\n")
            for process in self.processes:
                process.wait(20)
        except (OSError, subprocess.TimeoutExpired):
            self.kill()

    def kill(self):
        for process in self.processes:
            if process.poll() is None:
                process.terminate()
        for process in self.processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def numbers(text):
    """Returns the numbers of a list such as "8,16K,64M"."""
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    return [int(word.rstrip("kmgKMG")) * units.get(word[-1:].upper(), 1) for word in text.split(",")]


def vector_bytes(op, size, ranks, element):
    """Returns the requested size in bytes, rounded up where it must be divisible by the number of ranks.

    bf16 has as many elements as f32.
    """
    whole = op in ("all_reduce", "broadcast", "ping_pong")
    count = max(1, size // 4) if whole else -(-max(1, size // 4) // ranks) * ranks
    return count * (2 if element == "bf16" else 4)


class Turns:
    """Finds step by step how many calls fill a block of one case.

    Ranks that spin on too few cores are sometimes a thousand times slower than a moment before, and a block cannot be
    stopped.
    """

    LIMIT, STEP = 200000, 8
    touch = 0.0  # the microseconds of the last block's touch alone

    def __init__(self, world, case, block_us):
        self.world, self.case, self.block_us, self.count = world, case, block_us, 2
        while True:
            before = self.count
            self.block()
            if self.count <= before * self.STEP // 2:
                return

    def block(self):
        """Runs a block; returns the microseconds of a call, from which the next block's length follows."""
        micros = self.run(max(1, min(50, self.count // 5)))
        fits = int(self.block_us / max(micros, 0.01))
        # Only a large deviation changes the count.
        if fits < self.count // 2 or fits > self.count * 2:
            self.count = max(2, min(self.LIMIT, self.count * self.STEP, fits))
        return micros

    def run(self, warm):
        return self.world.block(*self.case, self.count, warm)


class TouchedTurns(Turns):
    """The same with the inputs touched before each call; a block's microseconds are those of call and touch."""

    def run(self, warm):
        micros, self.touch = self.world.touched_block(*self.case, self.count, warm)
        return micros


def contenders(worlds, op):
    """Returns {column: (world, element)}."""
    columns = {name: (world, "f32") for name, world in worlds.items() if name != "floor" or op == "all_reduce"}
    if op == "all_reduce" and "goccl" in worlds:
        columns["goccl_bf16"] = (worlds["goccl"], "bf16")
    return columns


def measure(worlds, op, ranks, run, dice, options, results):
    """Runs one operation once: the sizes in random order, at each size the libraries' blocks in random order."""
    columns = contenders(worlds, op)
    kinds = {"core": Turns, **({"core" + REWRITTEN: TouchedTurns} if options.touch else {})}
    for size in dice.sample(options.sizes, len(options.sizes)):
        turns, blocks = {}, {}
        for column, (world, element) in columns.items():
            case = (op, element, vector_bytes(op, size, ranks, element))
            wrong = world.check(*case)
            if wrong is not None:
                for level, kind in kinds.items():
                    results.wrong(level, op, ranks, size, column, wrong)
                    turns[level, column] = kind(world, case, options.block_ms * 1e3)
                    blocks[level, column] = []
        for _ in range(options.blocks):
            for each in dice.sample(list(turns), len(turns)):
                blocks[each].append((turns[each].block(), turns[each].touch))
        for (level, column), times in blocks.items():
            both, touch = map(options.of_blocks, zip(*times))
            results.add(level, op, ranks, size, column, run, both - touch, touch)
            # The results must still be right after all blocks.
            results.wrong(level, op, ranks, size, column, turns[level, column].world.check(*turns[level, column].case))


def idle(world, seconds):
    """Returns the CPU time of the busiest rank while its group is idle, in percent of one core."""
    before, start = world.cpu_seconds(), time.monotonic()
    time.sleep(seconds)
    spent = max(after - earlier for after, earlier in zip(world.cpu_seconds(), before))
    return spent / (time.monotonic() - start) * 100


def start(names, ranks, folder, libgoccl, floor, options, results):
    """Returns the worlds by name. A rival that does not start is left out, with a note."""
    worlds = {}
    last = {"goccl": [libgoccl, options.goccl_options], "floor": [floor, folder / "floor.shared"]}
    try:
        for name in list(names):
            try:
                worlds[name] = World(name, ranks, folder, max(options.sizes) + 128, last.get(name, []))
                worlds[name].pin(options.pin, sorted(os.sched_getaffinity(0)))
            except Failure as e:
                if name == "goccl":
                    raise
                results.note(f"core, {ranks} ranks: {name} is left out. {e}")
                names.remove(name)
    except BaseException:
        for world in worlds.values():
            world.kill()
        raise
    return worlds


def run(options, results, say):
    """Measures all requested cases.

    Every run has processes of its own, since the placement of a process's memory matters.
    """
    BUILD.mkdir(parents=True, exist_ok=True)
    libgoccl = options.libgoccl or build_libgoccl()
    build_program("goccl")
    floor = build_floor(options.floor) if options.floor else ""
    if floor:
        build_program("floor")
    dice = random.Random(options.seed)
    for ranks in options.ranks:
        names = [*options.libraries, *(["floor"] if floor and ranks == 2 else [])]
        ops = [op for op in options.ops if op != "ping_pong" or ranks == 2]
        say(f"core, {ranks} ranks, {', '.join(ops)} ")
        for number in range(options.runs):
            folder = pathlib.Path(tempfile.mkdtemp(prefix="goccl-bench-"))
            worlds = {}
            try:
                worlds = start(names, ranks, folder, libgoccl, floor, options, results)
                for op in dice.sample(ops, len(ops)):
                    measure(worlds, op, ranks, number, dice, options, results)
                if options.extra and number == 0 and "goccl" in worlds:
                    results.fact("core_idle_cpu_percent", idle(worlds["goccl"], 10))
                for world in worlds.values():
                    world.close()
            finally:
                for world in worlds.values():
                    world.kill()
                shutil.rmtree(folder, ignore_errors=True)
            say(".")
        say("\n")


def missing_rivals(names):
    return [name for name in names if name in RIVALS and not (BUILD / f"rank-{name}").exists()]


