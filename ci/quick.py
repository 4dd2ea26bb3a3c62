"""make quick: the checks of a change that take no longer than a minute in most cases. make test runs all checks.

The change is the difference from the commit where this branch left main, committed or not. Its Go files are checked by
gofmt. vet and `go test -short` run on the packages that the change touches and on all packages that import them; the
tests of internal/lint check the whole repository; the change's Python files are compiled. The output ends with the
names of the other stages that the change should pass.
"""
import os
import pathlib
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
LINT = "github.com/goccl/goccl/internal/lint"
PAGES = "github.com/goccl/goccl/cmd/goccl"  # its tests compare the documentation with the code
STAGES = {  # stages of make test, for the files that make quick does not test
    "cabi": "test-python", "python": "test-python",
    "tests/cabi": "test-python", "tests/python": "test-python", "tests/bench": "test-python",
    "examples": "test-features", "tests/features": "test-features",
    "tests/conformance": "test-conformance", "tests/device": "test-device", "tests/gpu": "test-gpu",
    "tests/packaging": "test-packaging", "setup.py": "test-packaging",
    "pyproject.toml": "test-packaging", "ci": "test-packaging",
}


def output(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def changed():
    """Returns the files of the change, including deleted ones."""
    base = subprocess.run(["git", "merge-base", "HEAD", "main"],
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout.strip()
    names = output("git", "diff", "--name-only", "--no-renames", "-z", base or "HEAD").split("\0")
    names += output("git", "ls-files", "--others", "--exclude-standard", "-z").split("\0")
    return sorted({pathlib.Path(name) for name in names if name})


def reached(files):
    """Returns the import paths of the packages to test.

    These are the packages that contain the files, and all that import those packages, also in tests only.
    """
    folders, needs = {}, {}
    for line in output("go", "list", "-test",
                       "-f", '{{.ImportPath}}|{{.Dir}}|{{join .Deps "|"}}', "./...").splitlines():
        name, folder, *deps = line.split("|")
        if not name.endswith(("]", ".test")):
            folders[pathlib.Path(folder).relative_to(ROOT)] = name
        # The package under test, also of a variant that is built for one test.
        package = name.split(" ")[0].removesuffix(".test").removesuffix("_test")
        needs.setdefault(package, set()).update(dep.split(" ")[0] for dep in deps)
    alone, imported = set(), set()
    for path in files:
        only_tests = path.name.endswith(("_test.go", ".md")) or "testdata" in path.parts
        package = next((folders[parent] for parent in path.parents if parent in folders), None)
        (alone if only_tests else imported).add(package)
        if path.suffix == ".md":
            alone.add(PAGES)
    return sorted(name for name in folders.values() if name in alone | imported or needs[name] & imported)


def main():
    os.chdir(ROOT)
    if shutil.which("go") is None:
        sys.exit("make quick: there is no Go on the PATH; make setup brings it")
    files = changed()
    there = [str(path) for path in files if path.exists()]
    go = [name for name in there if name.endswith(".go") and "testdata" not in name]
    python = [name for name in there if name.endswith(".py")]
    packages = reached(files)
    print(f"{len(files)} files changed; {len(packages)} packages have them or import those that do", flush=True)

    gofmt = pathlib.Path(output("go", "env", "GOROOT").strip(), "bin/gofmt")
    failed = []
    for name, command, arguments in [
        ("gofmt", [gofmt, "-l", "-d"], go),
        ("vet", ["go", "vet", "-pgo=off"], packages),
        ("lint", ["go", "test", "-count=1", "-vet=off"], [LINT]),
        ("go test -short", ["go", "test", "-short", "-vet=off"], [name for name in packages if name != LINT]),
        ("python", [sys.executable, "-m", "py_compile"], python),
    ]:
        if not arguments:
            continue
        start = time.monotonic()
        done = subprocess.run([*command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        good = done.returncode == 0 and not (name == "gofmt" and done.stdout)
        if not good:
            failed.append(name)
            print("".join(line for line in done.stdout.splitlines(True)
                          if not line.startswith(("ok  \t", "?   \t"))), end="")
        print(f"{name:<16}{'ok' if good else 'FAILED':>8}{time.monotonic() - start:>6.0f} s", flush=True)
    later = {stage for prefix, stage in STAGES.items() for path in files
             if pathlib.Path(prefix) in (path, *path.parents)}
    if later:
        print(f"not looked at by this: make setup {' '.join(sorted(later))}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
