"""make torch-versions: runs make setup and make test with each release of ci/torch.txt, or with the given releases.

The releases run one after the other, each in its own environment, which is removed afterwards unless KEEP=1 (5 GB
each). Each result is written to the table in the README as soon as it is known; releases that did not run keep their
lines. Exit code 1 if any release failed.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

BEGIN, END = "<!-- make torch-versions writes this table -->", "<!-- end of the table -->"
HEAD = ("torch", "built", "passed", "failed", "skipped", "seconds")
SUMMARY = re.compile(r"^(\d+) passed, (\d+) failed, (\d+) skipped$", re.MULTILINE)


def releases(text, names):
    """Returns the releases of ci/torch.txt, or the named ones; 2.12 means the listed release of that minor version."""
    listed = [line.split()[0] for line in text.splitlines() if line.strip() and not line.startswith("#")]
    tested = {each.rsplit(".", 1)[0]: each for each in listed}
    return [tested.get(name, name) for name in names] or listed


def run(release, target):
    """Runs one make target and returns its exit code and output, which is also printed as it comes."""
    said = []
    environ = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MFLAGS", "STAGES")}
    with subprocess.Popen(["make", "--no-print-directory", target, f"TORCH={release}"], env=environ,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace") as make:
        for line in make.stdout:
            print(line, end="", flush=True)
            said.append(line)
    return make.returncode, "".join(said)


def row_of(release, built, said, seconds):
    """Returns a line of the table. A run without a summary counts as one failure."""
    counts = SUMMARY.findall(said)
    passed, failed, skipped = counts[-1] if counts else (0, 1 if built else 0, 0)
    return release, "yes" if built else "no", str(passed), str(failed), str(skipped), f"{seconds:.0f}"


def test(release):
    """Tests one release; returns whether it passed, and its row."""
    print(f"\n==== torch {release}", flush=True)
    start = time.monotonic()
    code, said = run(release, "setup")
    built = code == 0
    if built:
        code, said = run(release, "test")
    row = row_of(release, built, said, time.monotonic() - start)
    if os.environ.get("KEEP", "") in ("", "0"):
        shutil.rmtree(f".venv-torch{release}", ignore_errors=True)
        for each in pathlib.Path(f"build/torch-{release}").glob("*"):
            if each.name not in ("log", "test"):
                shutil.rmtree(each, ignore_errors=True)
    return code == 0, row


def merged(readme, rows):
    """Returns the README with these rows in its table, by release; the table's rows of other minor releases stay."""
    if readme.count(BEGIN) != 1 or readme.count(END) != 1 or readme.index(BEGIN) > readme.index(END):
        sys.exit(f"README.md must have the lines {BEGIN} and {END}, once each and in this order")
    before, rest = readme.split(BEGIN)
    old, after = rest.split(END)
    cells_of = (tuple(re.findall(r"[^|\s]+", line)) for line in old.splitlines())
    table = {minor(cells[0]): cells for cells in cells_of if cells and cells[0][0].isdigit()}
    table |= {minor(row[0]): row for row in rows}
    lines = ["| " + " | ".join(cells) + " |" for cells in (HEAD, *(table[key] for key in sorted(table)))]
    lines.insert(1, "|---" * len(HEAD) + "|")
    return f"{before}{BEGIN}\n" + "\n".join(lines) + f"\n{END}{after}"


def minor(release):
    return tuple(int(part) for part in release.split(".")[:2])


def main():
    rows, well = [], True
    readme = pathlib.Path("README.md")
    for release in releases(pathlib.Path("ci/torch.txt").read_text(), sys.argv[1:]):
        good, row = test(release)
        well = well and good
        rows.append(row)
        readme.write_text(merged(readme.read_text(), [row]))
        print()
    for row in (HEAD, *rows):
        print("{:<10}{:>8}{:>8}{:>8}{:>9}{:>9}".format(*row))
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
