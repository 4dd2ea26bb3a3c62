"""Runs all of torch's tests that apply, with goccl beside gloo, and prints a table of results and reasons.

usage: conformance.py [--worlds 2,3,4] [--filter REGEX] [--baseline gloo] [--jobs 4] [--fresh] [--markdown FILE]

The exit code is 1 if a test failed that is not in known.txt. Results of the baseline are kept in build/conformance, and
used again while torch and these files are the same; --fresh makes them again.
"""
import argparse
import collections
import hashlib
import json
import os
import pathlib
import re
import sys
import time

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")  # before numpy starts threads: ranks are forked

import torch

import suites
from ranks import Result, Runner

BUILD = pathlib.Path("build/conformance")


def fingerprint():
    """Returns a hash of these files: results of the baseline are comparable only with the same files."""
    return hashlib.sha256(b"".join(path.read_bytes() for path in sorted(suites.HERE.glob("*.py")))).hexdigest()[:12]


def key(case):
    return f"{case.world} {case.name}"


def run(backend, options, cached=False):
    """Returns the results by key, and the seconds that each world size of each suite took."""
    kept = BUILD / f"{backend}-{torch.__version__.split('+')[0]}-{fingerprint()}.json"
    old = json.loads(kept.read_text()) if cached and kept.exists() and not options.fresh else {}
    results, seconds = {}, {}
    for suite in suites.suites(backend):
        for world in suite.worlds:
            if options.worlds and world not in options.worlds:
                continue
            start, cases = time.monotonic(), [case for case in suite.cases(world)
                                              if re.search(options.filter, case.name)]
            results.update({key(case): Result(case, *old[key(case)]) for case in cases if key(case) in old})
            runner = Runner([case for case in cases if key(case) not in old], options.jobs)
            try:
                for result in runner:
                    results[key(result.case)] = result
                    if result.status == "failed" or result.seconds > 20:
                        print(f"  {backend} {result.status:8}{result.seconds:6.1f} s  {key(result.case)}  "
                              f"{result.detail[:160]}", flush=True)
            finally:
                runner.close()
            seconds[suite.label, world] = time.monotonic() - start
    kept.parent.mkdir(parents=True, exist_ok=True)
    if cached:
        kept.write_text(json.dumps(old | {name: (result.status, result.detail) for name, result in results.items()},
                                   indent=0))
    return results, seconds


def rows(results, others, known, seconds):
    """Yields counts, one line for each suite and world size; others are the baseline's results."""
    for suite, world in seconds:
        here = [result for result in results.values() if (result.case.suite.label, result.case.world) == (suite, world)]
        counts = collections.Counter(result.status for result in here)
        expected = sum(result.status == "failed" and key(result.case) in known for result in here)
        theirs = collections.Counter(others[key(result.case)].status for result in here if key(result.case) in others)
        yield (suite, world, counts["passed"], counts["failed"] - expected, expected, counts["skipped"],
               theirs["passed"], theirs["failed"], f"{seconds[suite, world]:.0f}")


def reasons(results):
    """Returns the reasons why tests were skipped, with the tests and world sizes of each."""
    found = collections.defaultdict(lambda: collections.defaultdict(list))
    for result in results.values():
        if result.status == "skipped":
            found[result.detail][result.case.test].append(result.case.world)
    return sorted(found.items(), key=lambda item: -len(item[1]))


def report(options, results, others, known, seconds):
    """Yields the lines of the report in Markdown."""
    backend, base = options.backend, options.baseline
    yield f"torch {torch.__version__.split('+')[0]}, {os.cpu_count()} cores"
    yield ""
    yield f"| suite | ranks | passed | failed | known | skipped | {base}: passed | {base}: failed | seconds |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for row in rows(results, others, known, seconds):
        yield "| " + " | ".join(map(str, row)) + " |"

    def by_test(wanted):
        tests = collections.defaultdict(list)
        for name, result in results.items():
            if wanted(name, result):
                tests[result.case.test].append(str(result.case.world))
        return [f"* {test} ({', '.join(worlds)} ranks)" for test, worlds in sorted(tests.items())]

    def status(name):
        return others[name].status if name in others else None

    sections = {
        "Failed, and not in known.txt": lambda name, result: result.status == "failed" and name not in known,
        "Known failures": lambda name, result: result.status == "failed" and name in known,
        "In known.txt, but passed": lambda name, result: result.status == "passed" and name in known,
        f"Passed with {backend}, failed with {base}":
            lambda name, result: result.status == "passed" and status(name) == "failed",
    }
    for title, wanted in sections.items():
        if lines := by_test(wanted):
            yield from ("", f"**{title}**", "", *lines)
    if groups := reasons(results):
        yield from ("", "**Skipped**", "")
        for reason, tests in groups:
            some = list(tests)
            worlds = sorted({world for each in tests.values() for world in each})
            yield (f"* {reason}: {len(some)} tests at {', '.join(map(str, worlds))} ranks, "
                   f"{', '.join(some[:2])}{' …' if len(some) > 2 else ''}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="goccl")
    parser.add_argument("--baseline", default="gloo")
    parser.add_argument("--worlds", default="", help="numbers of ranks; all that the suites have if it is left out")
    parser.add_argument("--filter", default="", help="regular expression for suite::test")
    parser.add_argument("--jobs", type=int, default=2 * (os.cpu_count() or 1), help="tests at once")
    parser.add_argument("--fresh", action="store_true", help="run the baseline again")
    parser.add_argument("--markdown", help="file for the report, too")
    options = parser.parse_args()
    options.worlds = [int(world) for world in options.worlds.split(",") if world]
    others, _ = run(options.baseline, options, cached=True)
    results, seconds = run(options.backend, options)
    known = {key(result.case) for result in results.values() if suites.known(result.case)}
    lines = list(report(options, results, others, known, seconds))
    print("\n".join(["", *lines]))
    if options.markdown:
        pathlib.Path(options.markdown).write_text("\n".join([*lines, ""]))
    failed = {name: result for name, result in results.items() if result.status == "failed"}
    (BUILD / "failed.txt").write_text("".join(
        f"=== {name}\n{result.detail}\n{result.text}\n" for name, result in failed.items()))
    new = [name for name in failed if name not in known]
    counts = collections.Counter(result.status for result in results.values())
    print(f"\n{counts['passed']} passed, {len(new)} failed, {len(failed) - len(new)} failed as known.txt says, "
          f"{counts['skipped']} skipped"
          + (f"; what the ranks said: {BUILD / 'failed.txt'}" if failed else ""))
    return 1 if new or not counts["passed"] else 0


if __name__ == "__main__":
    sys.exit(main())
