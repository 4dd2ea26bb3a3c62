"""make torch-versions and make python-versions: make setup and make test with each of several versions.

usage: versions.py torch [2.12 …]      the releases of ci/torch.txt, or these
       versions.py python [3.13 …]     the Pythons that this machine has of 3.10 to 3.14, or these

They run one after the other, each in its own environment, which is removed afterwards unless KEEP=1 (5 GB each), and
run the stages that make test has for them, or all with STAGES=all. Each result is written to the table in docs/versions.md
as soon as it is known; versions that did not run keep their lines. Exit code 1 if any version failed.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

PYTHONS = [f"3.{minor}" for minor in range(10, 15)]
END = "<!-- end of the table -->"
HEAD = ("built", "passed", "failed", "skipped", "seconds")
SUMMARY = re.compile(r"^(\d+) passed, (\d+) failed, (\d+) skipped$", re.MULTILINE)


def releases(text, names):
    """Returns the releases of ci/torch.txt, or the named ones; 2.12 means the listed release of that minor version."""
    listed = [line.split()[0] for line in text.splitlines() if line.strip() and not line.startswith("#")]
    tested = {each.rsplit(".", 1)[0]: each for each in listed}
    return [tested.get(name, name) for name in names] or listed


class Kind:
    """What there are versions of: torch or Python."""

    def __init__(self, name):
        self.name = name
        self.begin = f"<!-- make {name}-versions writes this table -->"
        self.variable = {"torch": "TORCH", "python": "PYTHON_VERSION"}[name]  # ci/env.sh
        self.head = (name, *HEAD)

    def versions(self, names):
        """Returns those to test; prints a line for each that this machine lacks."""
        if self.name == "torch":
            return releases(pathlib.Path("ci/torch.txt").read_text(), names)
        found = []
        for name in names or PYTHONS:
            done = subprocess.run(["bash", "-euo", "pipefail", "-c", ". ci/env.sh"], text=True, stderr=subprocess.PIPE,
                                  env={**os.environ, self.variable: name})
            if done.returncode == 0:
                found.append(name)
            else:
                print(f"left out: {done.stderr.strip()}", flush=True)
        return found

    def places(self, version):
        """Returns the environment of a version, and the folder of what is built with it (ci/env.sh)."""
        if self.name == "torch":
            return f".venv-torch{version}", f"build/torch-{version}"
        return f".venv-py{version}", f"build/py{version}"


def run(setting, target):
    """Runs one make target with a setting, and returns its exit code and output, which is also printed as it comes."""
    said = []
    environ = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MFLAGS")}
    if environ.get("STAGES") != "all":  # the table is of all that such a run has
        environ.pop("STAGES", None)
    with subprocess.Popen(["make", "--no-print-directory", target, setting], env=environ,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace") as make:
        for line in make.stdout:
            print(line, end="", flush=True)
            said.append(line)
    return make.returncode, "".join(said)


def row_of(version, built, said, seconds):
    """Returns a line of the table. A run without a summary counts as one failure."""
    counts = SUMMARY.findall(said)
    passed, failed, skipped = counts[-1] if counts else (0, 1 if built else 0, 0)
    return version, "yes" if built else "no", str(passed), str(failed), str(skipped), f"{seconds:.0f}"


def test(kind, version):
    """Tests one version; returns whether it passed, and its row."""
    print(f"\n==== {kind.name} {version}", flush=True)
    start = time.monotonic()
    setting = f"{kind.variable}={version}"
    code, said = run(setting, "setup")
    built = code == 0
    if built:
        code, said = run(setting, "test")
    row = row_of(version, built, said, time.monotonic() - start)
    if os.environ.get("KEEP", "") in ("", "0"):
        environment, build = kind.places(version)
        shutil.rmtree(environment, ignore_errors=True)
        for each in pathlib.Path(build).glob("*"):
            if each.name not in ("log", "test"):
                shutil.rmtree(each, ignore_errors=True)
    return code == 0, row


def merged(kind, readme, rows):
    """Returns the page with these rows in its table, by version; the table's rows of other minor versions stay."""
    if readme.count(kind.begin) != 1 or END not in readme.partition(kind.begin)[2]:
        sys.exit(f"docs/versions.md must have the line {kind.begin} once, and {END} after it")
    before, rest = readme.split(kind.begin)
    old, after = rest.split(END, 1)
    cells_of = (tuple(re.findall(r"[^|\s]+", line)) for line in old.splitlines())
    table = {minor(cells[0]): cells for cells in cells_of if cells and cells[0][0].isdigit()}
    table |= {minor(row[0]): row for row in rows}
    lines = ["| " + " | ".join(cells) + " |" for cells in (kind.head, *(table[key] for key in sorted(table)))]
    lines.insert(1, "|---" * len(kind.head) + "|")
    return f"{before}{kind.begin}\n" + "\n".join(lines) + f"\n{END}{after}"


def minor(version):
    return tuple(int(part) for part in version.split(".")[:2])


def main():
    rows, well = [], True
    readme, kind = pathlib.Path("docs/versions.md"), Kind(sys.argv[1])
    for version in kind.versions(sys.argv[2:]):
        good, row = test(kind, version)
        well = well and good
        rows.append(row)
        readme.write_text(merged(kind, readme.read_text(), [row]))
        print()
    for row in (kind.head, *rows):
        print("{:<10}{:>8}{:>8}{:>8}{:>9}{:>9}".format(*row))
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
