"""Compares the latencies of this tree with those of an earlier commit, in one run.

    tests/bench/guard.py --base 01397ce
    tests/bench/guard.py --base 01397ce --ranks 2,4 --sizes 8,16K,1M,64M

Prints a table of ratios; the exit code is 1 if a ratio stays above the limit. The core is driven from C, torch by its
Python calls, each library by ranks of its own, which sleep until they get a request. At each operation and size the
blocks of both libraries alternate in random order. A ratio is that of the medians in one run; the median of the runs
counts. A case above the limit is measured again, three times in all: a slow moment of the machine passes, a loss does
not.
"""
import argparse
import json
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import sys
import tempfile

import core

OPS = ("all_reduce", "broadcast", "all_gather", "reduce_scatter", "ping_pong")
TRIES = 3
SIDES = ("base", "now")


def prepare_base(commit):
    """Returns the commit's libgoccl.so with the program that drives it, and the folder with its Python package.

    Builds them once. A library is driven by the program of its own tree, since the C ABI may have changed.
    """
    full = subprocess.run(["git", "rev-parse", "--verify", f"{commit}^{{commit}}"], cwd=core.ROOT,
                          capture_output=True, text=True)
    if full.returncode:
        raise core.Failure(f"{commit} is no commit of this repository (a shallow clone has no earlier ones)")
    place = core.BUILD / "guard" / full.stdout.strip()
    library, program, site = place / "libgoccl.so", place / "rank-goccl", place / "site"
    if not program.exists():
        shutil.rmtree(place, ignore_errors=True)
        tree = place / "tree"
        tree.mkdir(parents=True)
        packed = subprocess.run(["git", "archive", full.stdout.strip()], cwd=core.ROOT, capture_output=True, check=True)
        subprocess.run(["tar", "-x", "-C", tree], input=packed.stdout, check=True)
        # The build uses an environment of its own: the settings of this tree's scripts are not meant for that tree.
        core.command([sys.executable, "-m", "pip", "install", "--quiet", "--no-build-isolation", "--no-deps",
                      "--target", site, tree],
                     f"the package of {commit}")
        shutil.copy(site / "goccl/libgoccl.so", library)
        core.build_program("goccl", tree, program)  # last: it says that all is there
        shutil.rmtree(tree)
    return (library, program), site


class TorchWorld:
    """The ranks of one installed goccl, with the part of the interface of core.World that Turns needs."""

    def __init__(self, site, folder, ranks):
        environment = dict(os.environ)
        if site:
            environment["PYTHONPATH"] = str(site)
        script = pathlib.Path(__file__).with_name("guard_rank.py")
        self.folder, self.processes = folder, []
        with open(folder / "log", "wb") as log:
            for rank in range(ranks):
                self.processes.append(subprocess.Popen(
                    [sys.executable, str(script), str(rank), str(ranks), str(folder / "store")],
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, env=environment))
        try:
            self.answers()
        except core.Failure:
            self.kill()
            raise

    def answers(self):
        lines = [process.stdout.readline() for process in self.processes]
        if not all(lines):
            raise core.Failure(f"a rank of torch ended:\n{(self.folder / 'log').read_text(errors='replace')[-2000:]}")
        return [json.loads(line) for line in lines]

    def block(self, op, _, size, turns, warm):
        for process in self.processes:
            process.stdin.write(json.dumps([op, size, turns, warm]) + "\n")
            process.stdin.flush()
        return max(self.answers()) / (2 if op == "ping_pong" else 1)

    def kill(self):
        for process in self.processes:
            process.kill()
            process.wait()
            process.stdin.close()
            process.stdout.close()


def core_worlds(libraries, folder, _, ranks, most):
    worlds = {}
    for side in SIDES:
        (folder / side).mkdir()
        library, program = libraries[side]
        worlds[side] = core.World("goccl", ranks, folder / side, most + 128, [library, ""], program=program)
        worlds[side].pin("core", sorted(os.sched_getaffinity(0)))
    return worlds


def torch_worlds(_, folder, sites, ranks, __):
    worlds = {}
    for side in SIDES:
        (folder / side).mkdir()
        worlds[side] = TorchWorld(sites[side], folder / side, ranks)
    return worlds


def measure(make, libraries, sites, ranks, cases, options, dice):
    """Returns for each case the microseconds of each side by run."""
    found = {case: {side: [] for side in SIDES} for case in cases}
    for _ in range(options.runs):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="goccl-guard-"))
        worlds = {}
        try:
            worlds = make(libraries, folder, sites, ranks, max(size for _, size in cases))
            for case in dice.sample(cases, len(cases)):
                op, size = case
                turns = {side: core.Turns(worlds[side], (op, "f32", core.vector_bytes(op, size, ranks, "f32")),
                                          options.block_ms * 1e3)
                         for side in dice.sample(SIDES, 2)}
                blocks = {side: [] for side in SIDES}
                for _ in range(options.blocks):
                    for side in dice.sample(SIDES, 2):
                        blocks[side].append(turns[side].block())
                for side in SIDES:
                    found[case][side].append(statistics.median(blocks[side]))
        finally:
            for world in worlds.values():
                world.kill()
            shutil.rmtree(folder, ignore_errors=True)
        print(".", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return found


def ratio(times):
    return statistics.median(now / base for base, now in zip(times["base"], times["now"]))


def guard(level, make, libraries, sites, ranks, options, dice):
    """Prints the table of a level; returns the cases that stay above the limit."""
    cases = [(op, size) for op in OPS for size in options.sizes]
    best = {}
    for attempt in range(TRIES):
        for case, times in measure(make, libraries, sites, ranks, cases, options, dice).items():
            if case not in best or ratio(times) < ratio(best[case]):
                best[case] = times
        cases = [case for case in cases if ratio(best[case]) > options.limit]
        if not cases:
            break
        print(f"{level}, {ranks} ranks: above {options.limit} in try {attempt + 1}: "
              f"{', '.join(f'{op} {size} B' for op, size in cases)}", file=sys.stderr)
    print(f"\n| {level}, {ranks} ranks | bytes | {options.base}, µs | now, µs | ratio |\n|---|---|---|---|---|")
    for (op, size), times in best.items():
        micros = [f"{statistics.median(times[side]):.3g}" for side in SIDES]
        print(f"| {op} | {size} | {micros[0]} | {micros[1]} "
              f"| {ratio(times):.2f}{' **above**' if (op, size) in cases else ''} |")
    return cases


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", required=True, help="the commit to compare with")
    parser.add_argument("--level", choices=("core", "torch", "both"), default="both")
    parser.add_argument("--ranks", type=core.numbers, default="2", help="(default 2)")
    parser.add_argument("--sizes", type=core.numbers, default="8,1K,16K",
                        help="bytes of the whole vector, with K or M (default 8,1K,16K)")
    parser.add_argument("--limit", type=float, default=1.15, help="the largest ratio that passes (default 1.15)")
    parser.add_argument("--runs", type=int, default=5, help="each with new processes (default 5)")
    parser.add_argument("--blocks", type=int, default=5, help="of each side in a run (default 5)")
    parser.add_argument("--block-ms", type=float, default=10, help="how long a block should take (default 10)")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30), help="of the order of the blocks")
    options = parser.parse_args()
    core.BUILD.mkdir(parents=True, exist_ok=True)
    dice = random.Random(options.seed)
    try:
        base, site = prepare_base(options.base)
        libraries = {"base": base, "now": (core.build_libgoccl(), core.build_program("goccl"))}
        sites = {"base": site, "now": ""}
        above = []
        for level, make in (("core", core_worlds), ("torch", torch_worlds)):
            if options.level in (level, "both"):
                for ranks in options.ranks:
                    above += guard(level, make, libraries, sites, ranks, options, dice)
    except core.Failure as e:
        sys.exit(f"bench-guard: {e}")
    print(f"\n{'slower than' if above else 'as fast as'} {options.base} "
          f"(limit {options.limit}, {options.runs} runs, seed {options.seed})")
    return 1 if above else 0


if __name__ == "__main__":
    sys.exit(main())
