"""make test: runs the stages of ci/budget.txt, each a make target, and prints a summary.

Exit code 1 if a test or a stage failed, if a stage hung (it is ended at HANG times its budget) or, with CI=true, if a
test was skipped that ci/skips.txt does not list. A stage that exceeds its budget only gets a warning, since machines
differ. Arguments are names of targets: only those stages run; "all" means all. Without arguments, if TORCH or
PYTHON_VERSION is set, the stages of the areas that depend on torch and Python run.
"""
import importlib.metadata
import operator
import os
import pathlib
import platform
import re
import resource
import shutil
import signal
import subprocess
import sys
import time

import results

RECORDS = pathlib.Path(os.environ.get("RECORDS", "build/test"))
HANG = 3  # times the budget
REPEATED, LINES = 8, 60  # failures told once more at the end, where a log that has been cut still has them
TORCH_AREAS = ("python", "torch", "packaging")
COMPARE = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


def table(path):
    """Returns the words of each line of a file, without comments (a # inside a word is part of the word)."""
    lines = (re.sub(r"(^|\s)#.*", "", line).split() for line in pathlib.Path(path).read_text().splitlines())
    return [line for line in lines if line]


def minor(version):
    """Returns (2, 13) for "2.13.0+cu130"."""
    return tuple(int(part) for part in version.split(".")[:2])


def allowed_skips(lines, torch):
    """Returns the names in ci/skips.txt without a condition (torch<2.14), or with one that holds for this torch."""
    names = set()
    for words in lines:
        condition = re.fullmatch(r"torch(<=?|>=?)(\d+\.\d+)", words[-1])
        if condition is None:
            names.add(" ".join(words))
        elif COMPARE[condition[1]](minor(torch), minor(condition[2])):
            names.add(" ".join(words[:-1]))
    return names


def chosen(stages, names, other):
    """Returns the stages to run.

    These are the named ones; else, with another torch or Python, those of the areas that depend on them; else all.

    Budgets are measured with the defaults. A run with others may take three times as long, since only its test results
    matter.
    """
    stages = [(area, target, int(limit) * (3 if other else 1)) for area, target, limit in stages]
    if names == ["all"]:
        return stages
    if unknown := set(names) - {target for _, target, _ in stages}:
        sys.exit(f"ci/budget.txt has no stage {', '.join(sorted(unknown))}")
    if names:
        return [stage for stage in stages if stage[1] in names]
    return [stage for stage in stages if not other or stage[0] in TORCH_AREAS]


def run(target, limit):
    """Runs one stage and returns its exit code, its seconds, and for how many cores it had work on average.

    A stage that hangs is ended, with all processes that it started.
    """
    start, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    with subprocess.Popen(["make", "--no-print-directory", target], start_new_session=True) as stage:
        try:
            code = stage.wait(timeout=HANG * limit)
        except subprocess.TimeoutExpired:
            os.killpg(stage.pid, signal.SIGKILL)
            code = stage.wait()
        except BaseException:
            os.killpg(stage.pid, signal.SIGKILL)
            raise
    seconds, used = time.monotonic() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return code, seconds, (used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime) / seconds


def main():
    stages = chosen(table("ci/budget.txt"), sys.argv[1:],
                    os.environ.get("TORCH") or os.environ.get("PYTHON_VERSION"))
    torch = importlib.metadata.version("torch")
    allowed = allowed_skips(table("ci/skips.txt"), torch)
    os.environ.pop("MAKEFLAGS", None)
    os.environ.pop("MFLAGS", None)
    shutil.rmtree(RECORDS, ignore_errors=True)
    RECORDS.mkdir(parents=True)

    rows, failures, complaints, warnings, skipped = [], [], [], [], {}
    for area, target, limit in stages:
        print(f"\n== {target}", flush=True)
        code, seconds, cores = run(target, limit)
        tests = results.of_stage(RECORDS, target)
        counts = {kind: sum(test.outcome == kind for test in tests) for kind in ("passed", "failed", "skipped")}
        broken = [test for test in tests if test.outcome == "failed"]
        complaints += [f"{target}: failed: {test.name}" for test in broken]
        failures += broken
        hung = seconds >= HANG * limit
        if hung:
            counts["failed"] += 1
            complaints.append(f"{target}: hung, ended after {seconds:.0f} s; its budget in ci/budget.txt is {limit} s")
        elif code != 0 and not counts["failed"]:
            counts["failed"] = 1
            complaints.append(f"{target}: exit code {code}")
        if seconds > limit and not hung:
            warnings.append(f"WARNING: {target} took {seconds:.0f} s, its budget in ci/budget.txt is {limit} s")
        for test in tests:
            if test.outcome == "skipped":
                skipped.setdefault(test.name, test.reason)
        rows.append((area, target, *counts.values(), f"{seconds:.0f}", f"{cores:.1f}", limit,
                     "WARNING" if seconds > limit else ""))

    if skipped:
        print("\nskipped:")
        for name, reason in sorted(skipped.items()):
            print(f"  {name}  # {reason}")
    failed = sum(row[3] for row in rows)
    if os.environ.get("CI") == "true":
        unlisted = sorted(set(skipped) - allowed)
        complaints += [f"skipped, but not in ci/skips.txt: {name}" for name in unlisted]
        failed += len(unlisted)

    for test in failures[:REPEATED]:
        print(f"\nfailed: {test.name}")
        print("\n".join(test.reason.splitlines()[-LINES:]))
    print(f"\ntorch {torch}, Python {platform.python_version()}")
    for row in [("area", "stage", "passed", "failed", "skipped", "seconds", "cores", "budget", ""), *rows]:
        print("{:<12}{:<18}{:>8}{:>8}{:>8}{:>9}{:>7}{:>8}  {}".format(*row).rstrip())
    if complaints or warnings:
        print("\n" + "\n".join(complaints + warnings))
    print(f"\n{sum(row[2] for row in rows)} passed, {failed} failed, {sum(row[4] for row in rows)} skipped", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
