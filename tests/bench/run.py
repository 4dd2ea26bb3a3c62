#!/usr/bin/env python3
"""Runs goccl beside Intel MPI, Open MPI, MPICH (core level, from C) and Gloo (torch level), interleaved in one run.

    tests/bench/install.sh                          # once: the rivals, each in an environment of its own
    tests/bench/run.py --quick                      # under a minute
    tests/bench/run.py --bars                       # everything
    tests/bench/run.py --level core --ranks 2 --ops all_reduce --floor ../floor

Prints a table for each operation, writes runs.csv, summary.csv and times.png to build/bench/results.
Ratios are goccl's time over the rival's in the same run: below 1 goccl is faster.
"""
import argparse
import os
import pathlib
import platform
import signal
import statistics
import subprocess
import sys
import time

import bars
import core
import torch_level
from results import REWRITTEN, Results, table

QUICK = {"sizes": "8,16K,1M", "runs": 3, "blocks": 1, "block_ms": 5.0, "ranks": "2", "torch_ranks": "2",
         "ops": "all_reduce,all_gather", "torch_ops": "all_reduce,burst"}
FULL = {"sizes": "8,1K,16K,64K,256K,1M,4M,16M,64M", "runs": 5, "blocks": 3, "block_ms": 30.0, "ranks": "2,4",
        "torch_ranks": "2,4,8", "ops": ",".join(core.OPS), "torch_ops": ",".join(torch_level.OPS)}


def words(text, known, what):
    chosen = text.split(",")
    for word in chosen:
        if word not in known:
            sys.exit(f"{what}: {word} is none of {', '.join(known)}")
    return chosen


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--level", default="core,torch", help="core, torch or both")
    parser.add_argument("--libraries", default="goccl,intelmpi,openmpi,mpich", help="of the core level")
    parser.add_argument("--backends", default="goccl,gloo,fake", help="of the torch level")
    parser.add_argument("--ops", help="of the core level (default: all)")
    parser.add_argument("--torch-ops", help="of the torch level (default: all)")
    parser.add_argument("--ranks", help="of the core level (default 2,4)")
    parser.add_argument("--torch-ranks",
                        help="of the torch level (default 2,4,8; other operations than all_reduce with 2 only)")
    parser.add_argument("--sizes", help="bytes of the whole vector, with K, M or G")
    parser.add_argument("--floor", help="core level, 2 ranks: a library, or a folder with its Go package, that exports "
                                        "floor_init and floor_allreduce")
    parser.add_argument("--runs", type=int, help="a ratio is the median over the runs (default 5)")
    parser.add_argument("--blocks", type=int, help="blocks of calls in a run, of which the median counts (default 3)")
    parser.add_argument("--best", action="store_true",
                        help="the best block of a run counts, not the median: for a machine that others use too")
    parser.add_argument("--block-ms", type=float, help="how long a block should take (default 30)")
    parser.add_argument("--touch", action="store_true",
                        help="measure everything once more with the inputs rewritten before each call, a word of each "
                             "cache line: a second table, without the time of the touch alone")
    parser.add_argument("--pin", choices=["core", "none"], default="core",
                        help="core level, all libraries alike: rank r on processor r modulo their number, or anywhere")
    parser.add_argument("--goccl-options", default="", help='core level: "GOCCL_NAME=value" words')
    parser.add_argument("--libgoccl", help="core level: this library instead of one built from the working tree")
    parser.add_argument("--python", default=default_python(),
                        help="torch level: the interpreter that has torch and goccl (default: .venv's)")
    parser.add_argument("--quick", action="store_true", help="a few sizes and short blocks: does it work?")
    parser.add_argument("--bars", action="store_true",
                        help="a line for each bar: met or missed; at the torch level measure overlap and idle CPU too")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of the order of the blocks")
    parser.add_argument("--out", default=str(core.BUILD / "results"), help="folder for CSV and picture")
    options = parser.parse_args()
    for name, value in (QUICK if options.quick else FULL).items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    options.level = words(options.level, ("core", "torch"), "--level")
    options.libraries = words(options.libraries, ("goccl", *core.RIVALS), "--libraries")
    options.backends = words(options.backends, ("goccl", "gloo", "fake"), "--backends")
    options.ops = words(options.ops, core.OPS, "--ops")
    options.torch_ops = words(options.torch_ops, torch_level.OPS, "--torch-ops")
    options.ranks = [int(n) for n in options.ranks.split(",")]
    options.torch_ranks = [int(n) for n in options.torch_ranks.split(",")]
    options.sizes = core.numbers(options.sizes)
    options.goccl_options = "\n".join(options.goccl_options.split())
    options.of_blocks = min if options.best else statistics.median
    options.extra = options.bars and not options.quick and "goccl" in options.backends
    return options


def default_python():
    python = pathlib.Path(os.environ.get("VENV", core.ROOT / ".venv")) / "bin/python"
    return str(python) if python.exists() else sys.executable


def say(text):
    print(text, end="", flush=True)


def draw(out):
    """Draws the picture. This needs matplotlib, which has an environment of its own."""
    python = core.BUILD / "env/plot/bin/python"
    if not python.exists():
        return "no picture: tests/bench/install.sh plot brings matplotlib"
    done = subprocess.run([str(python), str(core.HERE / "plot.py"), str(out / "summary.csv"), str(out / "times.png")],
                          stderr=subprocess.PIPE, text=True, env={**os.environ, "MPLCONFIGDIR": str(core.BUILD)})
    return f"no picture: {done.stderr[-500:]}" if done.returncode else f"picture: {out / 'times.png'}"


def main():
    options, results = arguments(), Results()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))  # so that the ranks are ended too
    out = pathlib.Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    print(f"{platform.machine()}, {len(os.sched_getaffinity(0))} processors, load {os.getloadavg()[0]:.1f}, "
          f"pinned: {options.pin}, {options.runs} runs, each the {'best' if options.best else 'median'} "
          f"of {options.blocks} blocks of {options.block_ms:g} ms, seed {options.seed}", flush=True)
    failed = False
    for level, module in (("core", core), ("torch", torch_level)):
        if level not in options.level:
            continue
        missing = core.missing_rivals(options.libraries) if level == "core" else []
        if missing:
            sys.exit(f"{', '.join(missing)}: not installed; run tests/bench/install.sh, "
                     "or leave them out with --libraries")
        try:
            module.run(options, results, say)
        except core.Failure as e:
            failed = True
            print(f"\nFAILED: {e}", flush=True)
    print()
    rivals = {"core": core.RIVALS, "torch": torch_level.RIVALS}
    for level, op, ranks in results.groups():
        print("\n".join(table(results, level, op, ranks, rivals[level.removesuffix(REWRITTEN)])))
    if options.bars:
        print("\n".join(line for line in bars.lines(results)))
    print(*results.notes, sep="\n")
    results.write_runs(out / "runs.csv")
    results.write_summary(out / "summary.csv")
    print(f"CSV: {out / 'runs.csv'}, {out / 'summary.csv'}")
    print(draw(out) if results.times else "nothing was measured")
    if results.wrong_total():
        print(f"WRONG: {results.wrong_total()} elements; see the column #wrong")
    return 1 if failed or results.wrong_total() else 0


if __name__ == "__main__":
    sys.exit(main())
