"""make test: runs the stages of ci/budget.txt, each a make target, and prints a summary.

When the turn of a stage comes that the file marks, it begins, and the next ones do not wait for it, but for those with
the same mark: one that "waits" part of its time, and one "beside" the others, which gets the time that they leave.

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
import queue
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

import results

RECORDS = pathlib.Path(os.environ.get("RECORDS", "build/test"))
HANG = 3  # times the budget
REPEATED, LINES = 8, 60  # failures told once more at the end, where a log that has been cut still has them
MARKS = ("waits", "beside")
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


class Stage:
    """A stage, and how it went."""

    def __init__(self, area, target, limit, mark, slow):
        """A run with another torch or Python may take three times as long, since only its test results matter."""
        self.area, self.target, self.mark = area, target, mark
        self.limit = int(limit) * (3 if slow else 1)
        self.code = self.seconds = self.cores = 0
        self.log = RECORDS / f"{target}.log"  # of one with a mark

    def run(self, running):
        """Runs the stage, and sets its exit code, its seconds, and for how many cores it had work on average.

        The cores are without those processes for which no parent has waited, such as ranks of a server that was ended.
        A stage that hangs is ended, with all processes that it started.
        """
        start, command = time.monotonic(), ["make", "--no-print-directory", self.target]
        if self.mark:
            if self.mark == "beside":
                command = ["nice", "-n", "19", *command]
            with open(self.log, "wb") as log:
                process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        else:
            process = subprocess.Popen(command, start_new_session=True)
        running.add(process.pid)
        pid = 0
        while pid == 0:
            time.sleep(0.05)
            pid, status, used = os.wait4(process.pid, os.WNOHANG)
            if pid == 0 and time.monotonic() - start > HANG * self.limit:
                os.killpg(process.pid, signal.SIGKILL)
        running.remove(process.pid)
        self.code = process.returncode = os.waitstatus_to_exitcode(status)
        self.seconds = time.monotonic() - start
        self.cores = (used.ru_utime + used.ru_stime) / self.seconds


def chosen(stages, names, other):
    """Returns the stages to run.

    These are the named ones; else, with another torch or Python, those of the areas that depend on them; else all.
    """
    stages = [Stage(area, target, limit, "".join(mark), other) for area, target, limit, *mark in stages]
    if unknown := {stage.mark for stage in stages} - {"", *MARKS}:
        sys.exit(f"ci/budget.txt has a mark {', '.join(sorted(unknown))}; there are {', '.join(MARKS)}")
    if names == ["all"]:
        return stages
    if unknown := set(names) - {stage.target for stage in stages}:
        sys.exit(f"ci/budget.txt has no stage {', '.join(sorted(unknown))}")
    if names:
        return [stage for stage in stages if stage.target in names]
    return [stage for stage in stages if not other or stage.area in TORCH_AREAS]


def in_turn(stages):
    """Runs stages, and yields each when it has ended."""
    running, ended = set(), queue.SimpleQueue()

    def lane(turns):
        try:
            while stage := turns.get():
                stage.run(running)
                ended.put(stage)
        except BaseException as e:
            ended.put(e)

    def those_that_ended():
        while not ended.empty():
            stage = ended.get()
            if isinstance(stage, BaseException):
                raise stage
            yield stage

    turns = {mark: queue.SimpleQueue() for mark in MARKS}
    lanes = [threading.Thread(target=lane, args=[turns[mark]], daemon=True) for mark in MARKS]
    for each in lanes:
        each.start()
    try:
        for stage in stages:
            if stage.mark:
                turns[stage.mark].put(stage)
                continue
            print(f"\n== {stage.target}", flush=True)
            stage.run(running)
            yield stage
            yield from those_that_ended()
        for mark in MARKS:
            turns[mark].put(None)
        for each in lanes:
            each.join()
        yield from those_that_ended()
    except BaseException:
        for pid in list(running):
            os.killpg(pid, signal.SIGKILL)
        raise


def main():
    stages = chosen(table("ci/budget.txt"), sys.argv[1:],
                    os.environ.get("TORCH") or os.environ.get("PYTHON_VERSION"))
    torch = importlib.metadata.version("torch")
    allowed = allowed_skips(table("ci/skips.txt"), torch)
    os.environ.pop("MAKEFLAGS", None)
    os.environ.pop("MFLAGS", None)
    shutil.rmtree(RECORDS, ignore_errors=True)
    RECORDS.mkdir(parents=True)

    begun = time.monotonic()
    rows, failures, complaints, warnings, skipped = {}, [], [], [], {}
    for stage in in_turn(stages):
        target, limit, seconds = stage.target, stage.limit, stage.seconds
        if stage.mark:
            print(f"\n== {target}, while others ran\n{stage.log.read_text(errors='replace')}", end="", flush=True)
        tests = results.of_stage(RECORDS, target)
        counts = {kind: sum(test.outcome == kind for test in tests) for kind in ("passed", "failed", "skipped")}
        broken = [test for test in tests if test.outcome == "failed"]
        complaints += [f"{target}: failed: {test.name}{results.brief(test.reason)}" for test in broken]
        failures += broken
        hung = seconds >= HANG * limit
        if hung:
            counts["failed"] += 1
            complaints.append(f"{target}: hung, ended after {seconds:.0f} s; its budget in ci/budget.txt is {limit} s")
        elif stage.code != 0 and not counts["failed"]:
            counts["failed"] = 1
            complaints.append(f"{target}: exit code {stage.code}")
        if seconds > limit and not hung:
            warnings.append(f"WARNING: {target} took {seconds:.0f} s, its budget in ci/budget.txt is {limit} s")
        for test in tests:
            if test.outcome == "skipped":
                skipped.setdefault(test.name, test.reason)
        rows[target] = (stage.area, target, *counts.values(), f"{seconds:.0f}", f"{stage.cores:.1f}", limit,
                        "WARNING" if seconds > limit else stage.mark)

    if skipped:
        print("\nskipped:")
        for name, reason in sorted(skipped.items()):
            print(f"  {name}  # {reason}")
    rows = [rows[stage.target] for stage in stages]
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
    print(f"\n{(time.monotonic() - begun) / 60:.1f} minutes")
    print(f"{sum(row[2] for row in rows)} passed, {failed} failed, {sum(row[4] for row in rows)} skipped", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
