"""make sanitize: builds the C++ shim (python/csrc) with gcc's sanitizers and runs the tests of its memory and threads.

The package is built in build/sanitize, with an instrumented extension and the usual Go library; the installed package
is not touched. First a library with deliberate faults shows that each sanitizer reports them. Exit code 1 if a test
failed or a sanitizer reported anything. Arguments select sanitizers: address (with undefined) and thread.
"""
import collections
import os
import pathlib
import shutil
import subprocess
import sys
import time

import results

ROOT = pathlib.Path(os.environ["ROOT"])
FOLDER = pathlib.Path(os.environ["LOGS"]).parent / "sanitize"
CXX = os.environ.get("CXX", "c++").split()
TESTS = [*(f"tests/python/test_{name}.py"
           for name in ("works", "callbacks", "groups", "sparse", "regroup", "observers", "registered")),
         "tests/features/test_exit.py --long"]
LIMIT = 900  # seconds for one file of tests

# The fields: flags of compiler and linker; flags of the linker alone; the runtime library that must be loaded first;
# the settings of the runtime; for each fault in sanitize_check.cpp the text that must be reported. Python, torch and
# Go's runtime handle signals themselves and keep memory to the end.
Sanitizer = collections.namedtuple("Sanitizer", "flags link runtime settings faults")
COMMON = ("handle_segv=0:handle_sigbus=0:handle_sigfpe=0:handle_abort=0:allow_user_segv_handler=1:use_sigaltstack=0"
          ":exitcode=66")
SANITIZERS = {
    # vptr needs the types of torch, which are not instrumented. Two runtimes that share symbols would write reports to
    # a place where only one of them is read.
    "address": Sanitizer(
        "-O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize=vptr -fno-sanitize-recover=all",
        "-static-libubsan -Wl,--exclude-libs,ALL", "libasan.so",
        {"ASAN_OPTIONS": COMMON + ":detect_leaks=0", "UBSAN_OPTIONS": "print_stacktrace=1:exitcode=66"},
        {"read_behind(8)": "heap-buffer-overflow", "shift_too_far(77)": "shift exponent 77 is too large"}),
    # Ranks are forked from a process that has threads; the other threads of a rank belong to that rank alone.
    "thread": Sanitizer(
        "-O1 -g -fno-omit-frame-pointer -fsanitize=thread", "", "libtsan.so",
        {"TSAN_OPTIONS": f"{COMMON}:ignore_noninstrumented_modules=1:die_after_fork=0"
                         f":suppressions={ROOT}/ci/tsan_suppressions.txt"},
        {"race()": "data race"}),
}


def stop(what):
    sys.exit(f"make sanitize: {what}")


def logged(command, log, env=None):
    """Runs a command whose output goes to a file.

    If the command fails, prints the end of the file and ends the program.
    """
    with open(log, "w") as out:
        code = subprocess.run(command, cwd=ROOT, env=env, stdin=subprocess.DEVNULL,
                              stdout=out, stderr=subprocess.STDOUT).returncode
    if code:
        print(*log.read_text(errors="replace").splitlines()[-20:], sep="\n")
        stop(f"{command[0]} ended with {code}; {log} has all of it")


def library(name):
    """Returns the path of one of the compiler's libraries."""
    path = subprocess.run([*CXX, f"-print-file-name={name}"], capture_output=True, text=True).stdout.strip()
    if not os.path.isabs(path):
        stop(f"{CXX[0]} has no {name}: it takes gcc (CXX=g++) with the libraries of its sanitizers")
    return path


class Run:
    """One sanitizer: its build, and the programs that run with it."""

    def __init__(self, name):
        self.sanitizer = SANITIZERS[name]
        self.folder = FOLDER / name
        self.reports = self.folder / "reports"
        self.folder.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(self.reports, ignore_errors=True)
        self.reports.mkdir()
        settings = {key: f"{value}:log_path={self.reports}/report" for key, value in self.sanitizer.settings.items()}
        self.env = {**os.environ, **settings, "PYTHONPATH": str(self.folder / "lib"),
                    "LD_PRELOAD": f"{library(self.sanitizer.runtime)} {library('libstdc++.so')}"}
        self.prefix = []
        if name == "thread" and int(pathlib.Path("/proc/sys/vm/mmap_rnd_bits").read_text()) > 28:
            # With random addresses memory could lie where this runtime expects none.
            self.prefix = ["setarch", "--addr-no-randomize"]

    def build(self):
        # Removes files that are no longer in the tree; object files are kept.
        shutil.rmtree(self.folder / "lib", ignore_errors=True)
        flags, link = self.sanitizer.flags, self.sanitizer.link
        logged([sys.executable, "setup.py", "build", f"--build-base={self.folder}", f"--build-lib={self.folder}/lib",
                "build_ext", f"--flags={flags}"],
               self.folder / "build.log", {**os.environ, "LDFLAGS": link})
        logged([*CXX, "-shared", "-fPIC", *flags.split(), *link.split(), "-o", str(self.folder / "check.so"),
                "ci/sanitize_check.cpp"],
               self.folder / "check.log")

    def python(self, *arguments):
        return subprocess.run([*self.prefix, sys.executable, *arguments], cwd=ROOT, env=self.env,
                              stdin=subprocess.DEVNULL)

    def collect(self):
        """Returns the reports since the last call."""
        found = [path.read_text(errors="replace") for path in sorted(self.reports.glob("report.*"))]
        for path in self.reports.glob("report.*"):
            path.unlink()
        return found

    def check(self):
        """Ends the program unless exactly the faults are reported and the extension is the one that was built here."""
        def call(fault):
            return (self.python("-c", f"import ctypes; ctypes.CDLL('{self.folder}/check.so').{fault}"),
                    "".join(self.collect()))

        done, said = call("harmless()")
        if done.returncode or said:
            stop(f"a library without a fault ended with {done.returncode}: {said}")
        for fault, expected in self.sanitizer.faults.items():
            done, said = call(fault)
            if done.returncode != 66 or expected not in said:
                stop(f"{fault} ended with {done.returncode}, and no report says {expected!r}: {said}")
        done = self.python("-c", "import torch, goccl._C; "
                           f"assert goccl._C.__file__.startswith('{self.folder}/'), goccl._C.__file__")
        if done.returncode or self.collect():
            stop("the extension cannot be loaded")

    def test(self, tests):
        """Runs a file of tests, given with arguments of pytest, and returns a row of the table."""
        record = self.folder / f"{pathlib.Path(tests.split()[0]).stem}.xml"
        record.unlink(missing_ok=True)
        start = time.monotonic()
        self.python("-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", f"--timeout={LIMIT}", f"--junitxml={record}",
                    *tests.split())
        seconds = time.monotonic() - start
        reports = self.collect()
        for number, text in enumerate(reports):
            kept = self.reports / f"{record.stem}.{number}"
            kept.write_text(text)
            print(f"{kept}:", *text.splitlines()[:60], sep="\n")
        outcomes = (collections.Counter(test.outcome for test in results.from_junit(record)) if record.is_file()
                    else {"failed": 1})
        return [tests, *(outcomes.get(outcome, 0) for outcome in ("passed", "failed", "skipped")),
                len(reports), round(seconds)]


def main():
    names = sys.argv[1:] or list(SANITIZERS)
    if unknown := set(names) - set(SANITIZERS):
        stop(f"there is no {', '.join(sorted(unknown))}; choose from {', '.join(SANITIZERS)}")
    rows = []
    for name in names:
        run = Run(name)
        print(f"{name}: building (log in {run.folder})", flush=True)
        run.build()
        run.check()
        for tests in TESTS:
            print(f"\n{name}: {tests}", flush=True)
            rows.append([name, *run.test(tests)])
    rows.append(["", "together", *(sum(column) for column in list(zip(*rows))[2:])])
    print("\n" + "{:<10}{:<36}{:>8}{:>8}{:>8}{:>9}{:>9}".format(
        "sanitizer", "tests", "passed", "failed", "skipped", "reports", "seconds"))
    for row in rows:
        print("{:<10}{:<36}{:>8}{:>8}{:>8}{:>9}{:>9}".format(*row))
    _, _, passed, failed, _, reports, _ = rows[-1]
    sys.exit(1 if failed or reports or not passed else 0)


if __name__ == "__main__":
    main()
