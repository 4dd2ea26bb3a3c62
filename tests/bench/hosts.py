#!/usr/bin/env python3
"""Runs goccl beside Gloo between hosts: network namespaces that internal/netlab/with makes, joined by wires.

    tests/bench/hosts.py                     # every scenario and its bars
    tests/bench/hosts.py --only near,1ms --sizes 8,1M
    tests/bench/hosts.py --list

Prints a table for each scenario, and for each bar whether it is met; the exit code is 1 if one is missed. Needs root,
ip and tc. Each rank is bound to a core, since hosts have cores of their own. Where a bar is missed while the cores of
this machine were far apart (cores.c), its scenario is measured again, three times in all. A ratio is Gloo's time over goccl's in the same run, both through torch, or that of straight C on one socket
over goccl's, both from C: above 1 goccl is faster.
"""
import argparse
import contextlib
import dataclasses
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

import core
import hosts_checks
import run
import torch_level
from results import Results, figure, size_name

KIB, MIB = 1 << 10, 1 << 20
TRIES = 3
FAR = {MIB: 1, 4 * MIB: 1, 16 * MIB: 1, 64 * MIB: 1}


@dataclasses.dataclass(frozen=True)
class Scenario:
    """Two hosts, the ranks on them, and the least ratios to Gloo and to straight C: {op: {bytes: ratio}}.

    Straight C has one rank on each host, and its all_reduce sends the whole vector in both directions.
    """
    title: str
    wires: list
    gloo: dict = dataclasses.field(default_factory=dict)
    straight: dict = dataclasses.field(default_factory=dict)
    each: int = 1  # ranks of a host
    settings: dict = dataclasses.field(default_factory=dict)  # of goccl

    def before(self, rank):
        return hosts_checks.at_home(rank, self.each)


SCENARIOS = {
    "near": Scenario("2 hosts, 1 rank each, a short wire", ["plain"],
                     {"all_reduce": {8: 15, 64 * KIB: 8, MIB: 4, 16 * MIB: 1.5, 64 * MIB: 1.5}},
                     {"all_reduce": {8: 1 / 2, MIB: 1 / 1.5}, "ping_pong": {16 * MIB: 0.9, 64 * MIB: 0.9}}),
    "near4": Scenario("2 hosts, 2 ranks each, a short wire", ["plain"],
                      {"all_reduce": {8: 12, 64 * KIB: 20, MIB: 6, 16 * MIB: 1.5, 64 * MIB: 1.5}}, each=2),
    "1ms": Scenario("2 hosts, a round trip of 1 ms", ["delay=1ms"], {"all_reduce": FAR, "ping_pong": FAR},
                    {"ping_pong": {64 * MIB: 0.8}}),
    # Gloo is told to take the first one.
    "2wires": Scenario("2 hosts, wires of 100 Mbit/s (listed first) and 1 Gbit/s", ["rate=100mbit", "rate=1gbit"],
                       {"ping_pong": {MIB: 5, 16 * MIB: 8}}),
    # Gloo takes one wire, or one flow: these factors are 0.9 of what there is together.
    "equal": Scenario("2 hosts, two wires of 1 Gbit/s", ["rate=1gbit", "rate=1gbit"], {"ping_pong": {16 * MIB: 1.8}}),
    "both": Scenario("2 hosts, wires of 100 Mbit/s and 1 Gbit/s, two sockets", ["rate=100mbit", "rate=1gbit"],
                     {"ping_pong": {16 * MIB: 9.9}}, settings={"GOCCL_SOCKET_STREAMS": "2"}),
    "flows": Scenario("2 hosts, 100 Mbit/s for each flow, four sockets", ["flow=100mbit"],
                      {"ping_pong": {4 * MIB: 3.6}}, settings={"GOCCL_SOCKET_STREAMS": "4"}),
    "1gbit": Scenario("2 hosts, 1 Gbit/s", ["rate=1gbit"], {"ping_pong": {MIB: 0.95, 16 * MIB: 0.95}},
                      {"ping_pong": {MIB: 0.95, 16 * MIB: 0.95}}),
    "1gbit4": Scenario("2 hosts, 2 ranks each, 1 Gbit/s", ["rate=1gbit"], each=2,
                       straight={"all_reduce": {16 * MIB: 1 / 1.05}}),
    "10ms": Scenario("2 hosts, a round trip of 10 ms", ["delay=10ms"], {"all_reduce": FAR, "ping_pong": FAR},
                     {"ping_pong": {64 * MIB: 0.8}}),
}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="scenarios (default: all)")
    parser.add_argument("--list", action="store_true", help="print the scenarios and end")
    parser.add_argument("--sizes", help="bytes, with K, M or G (default: those of the bars)")
    parser.add_argument("--ops", help="operations (default: those of the bars)")
    parser.add_argument("--runs", type=int, default=7, help="a ratio is the median over the runs (default 7)")
    parser.add_argument("--blocks", type=int, default=5, help="blocks of calls in a run, whose median counts (5)")
    parser.add_argument("--block-ms", type=float, default=30, help="how long a block should take (default 30)")
    parser.add_argument("--python", default=run.default_python(), help="the interpreter that has torch and goccl")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30), help="of the cuts (default: another one "
                        "each time, printed)")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.best, options.touch, options.extra = False, False, False
    options.backends = ["goccl", "gloo"]
    return options


def inside(name, options):
    """Measures a scenario in the process that made its network."""
    os.environ.update(GLOO_SOCKET_IFNAME="eth0", GOCCL_SOCKET_IFNAME="eth", TORCH_CPP_LOG_LEVEL="ERROR")
    if name in hosts_checks.CHECKS:
        check, title, _ = hosts_checks.CHECKS[name]
        print(f"\n{title}", flush=True)
        missed = check(options)
        print(f"MISSED: {'; '.join(missed)}" if missed else "met", flush=True)
        return 1 if missed else 0
    scenario, results = SCENARIOS[name], Results()
    os.environ.update(scenario.settings)
    measure_torch(scenario, options, results)
    measure_straight(scenario, options, results)
    missed = 0
    for level, rival, bars in ("torch", "gloo", scenario.gloo), ("core", "straight", scenario.straight):
        for op in chosen(options, bars, level):
            missed += table(scenario, results, level, op, rival, bars.get(op, {}))
    wrong = results.wrong_total()
    if wrong:
        print(f"WRONG: {wrong} elements")
    return 1 if missed or wrong else 0


def chosen(options, bars, level):
    """The operations to measure at a level: those that have bars, or those asked for."""
    asked = options.ops.split(",") if options.ops and bars else list(bars)
    return asked if level == "torch" else [op for op in asked if op in bars]  # straight C has few


def measure_torch(scenario, options, results):
    """goccl and Gloo, through torch."""
    options.torch_ranks = [2 * scenario.each]
    for op in chosen(options, scenario.gloo, "torch"):
        options.torch_ops, options.sizes = [op], options.sizes_given or list(scenario.gloo.get(op, FAR))
        torch_level.run(options, results, lambda _: None, scenario.before)


def measure_straight(scenario, options, results):
    """goccl and straight C, both from C. The processes of each run are new."""
    ops = {op: options.sizes_given or list(scenario.straight[op])
           for op in chosen(options, scenario.straight, "core")}
    if not ops:
        return
    last = {"goccl": [core.build_libgoccl(), ""], "straight": [hosts_checks.address(0)]}
    ranks = {"goccl": 2 * scenario.each, "straight": 2}
    for name in last:
        core.build_program(name)
    largest = max(size for sizes in ops.values() for size in sizes)
    for run_number in range(options.runs):
        with tempfile.TemporaryDirectory(prefix="goccl-bench-") as folder, contextlib.ExitStack() as stack:
            worlds = {}
            for name, n in ranks.items():
                worlds[name] = core.World(name, n, pathlib.Path(folder), largest, last[name],
                                          lambda rank, n=n: hosts_checks.at_home(rank, n // 2))
                stack.callback(worlds[name].close)
            for op, size in ((op, size) for op, sizes in ops.items() for size in sizes):
                blocks = {}
                for name in random.sample(list(worlds), len(worlds)):
                    case = (op, "f32", size)
                    results.wrong("core", op, ranks["goccl"], size, name, worlds[name].check(*case))
                    turns = core.Turns(worlds[name], case, options.block_ms * 1e3)
                    blocks[name] = turns, []
                for _ in range(options.blocks):
                    for name in random.sample(list(worlds), len(worlds)):
                        blocks[name][1].append(blocks[name][0].block())
                for name, (_, times) in blocks.items():
                    results.add("core", op, ranks["goccl"], size, name, run_number, statistics.median(times))


def table(scenario, results, level, op, rival, bars):
    """Prints the times of an operation; returns how many bars are missed."""
    names = {"gloo": "Gloo", "straight": "straight C"}
    print(f"\n{op}, {scenario.title}\n{'':>10}{'goccl, µs':>14}{names[rival] + ', µs':>16}{'ratio':>22}   at least")
    missed, ranks = 0, 2 * scenario.each
    for size in results.sizes(level, op, ranks):
        times = results.of(level, op, ranks, size)
        ratio = results.ratio(level, op, ranks, size, rival, "goccl")
        least = bars.get(size)
        verdict = "" if least is None else f"{figure(least):>8} " + ("met" if ratio.median >= least else "MISSED")
        missed += verdict.endswith("MISSED")
        print(f"{size_name(size):>10}{figure(statistics.median(times['goccl'])):>14}"
              f"{figure(statistics.median(times[rival])):>16}{str(ratio):>22}   {verdict}", flush=True)
    return missed


def handover(program):
    """How many gigabytes a second one core hands to another at the moment."""
    return float(subprocess.run([program], check=True, stdout=subprocess.PIPE, text=True).stdout)


def main():
    options = arguments()
    options.sizes_given = core.numbers(options.sizes) if options.sizes else None
    titles = {name: scenario.title for name, scenario in SCENARIOS.items()}
    wires = {name: scenario.wires for name, scenario in SCENARIOS.items()}
    for name, (_, title, wire) in hosts_checks.CHECKS.items():
        titles[name], wires[name] = title, wire
    if options.list:
        for name, title in titles.items():
            print(f"{name:<8} {title}")
        return 0
    if options.inside:
        return inside(options.inside, options)
    names = run.words(options.only, titles, "--only") if options.only else list(titles)
    core.BUILD.mkdir(parents=True, exist_ok=True)
    program = core.BUILD / "with-hosts"
    core.command(["go", "build", "-o", program, "./internal/netlab/with"], "internal/netlab/with", cwd=core.ROOT)
    cores = core.BUILD / "cores"
    core.command([os.environ.get("CC", "cc"), "-O2", "-Wall", "-Wextra", "-pthread", "-o", cores,
                  pathlib.Path(__file__).with_name("cores.c")], "cores.c")
    near = max(handover(cores) for _ in range(20))
    begun, failed = time.time(), []
    for name in names:
        words = [program, "-hosts", "2"]
        for wire in wires[name]:
            words += ["-wire", wire]
        words += ["--", sys.executable, pathlib.Path(__file__).resolve(), *sys.argv[1:], "--inside", name]
        for attempt in range(TRIES):
            before = handover(cores)
            code = os.spawnv(os.P_WAIT, program, [str(word) for word in words])
            slowest, near = min(before, handover(cores)), max(near, before)
            if code == 0 or slowest > near / 2:
                break
            print(f"(from core to core {slowest:.1f} GB/s, at best {near:.1f}: try {attempt + 1} of {TRIES})")
        if code:
            failed.append(name)
    missed = f"; missed: {', '.join(failed)}" if failed else ""
    print(f"\n{len(names)} scenarios in {time.time() - begun:.0f} s{missed}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
