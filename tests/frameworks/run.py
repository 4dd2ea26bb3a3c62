"""Trains with goccl under each framework, in environments of their own, and prints a table.

    python tests/frameworks/run.py                       # every framework, as make frameworks does
    python tests/frameworks/run.py --frameworks ray,lightning
    python tests/frameworks/run.py --backends goccl      # without the times of gloo

The environments are build/frameworks/NAME: a framework with its requirements from requirements-NAME.txt, on top of the
environment of the Python that runs this, which provides torch and goccl. Exit code 1 if a training with goccl failed.
"""
import argparse
import ctypes
import hashlib
import json
import os
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from importlib import metadata
from pathlib import Path

HERE = Path(__file__).resolve().parent
BUILD = HERE.parents[1] / "build/frameworks"
MODES = {
    "accelerate": ["ddp", "fsdp2"],
    "lightning": ["ddp", "fsdp2"],
    "deepspeed": ["zero1", "zero2", "zero3"],
    "ray": ["ddp", "fsdp2"],
}
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1", "--nproc-per-node", "2"]
LAUNCHER = {"accelerate": TORCHRUN, "lightning": [], "deepspeed": TORCHRUN, "ray": []}
COLUMNS = "{:<11} {:<8} {:<7} {:<6} {:>6} {:>7} {:>8} {:>9} {:>9} {:>8}  {}"
SETTINGS = {
    "OMP_NUM_THREADS": "1",
    "PYTHONUNBUFFERED": "1",
    "GLOO_SOCKET_IFNAME": "lo",
    "HF_HUB_OFFLINE": "1",
    "DS_ACCELERATOR": "cpu",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # on Linux too: a Ray without other hosts, on 127.0.0.1
    # Ray Train would start these processes beside the workers, each with a Python and a torch of its own.
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",
    "RAY_TRAIN_METRICS_ENABLED": "0",
    "RAY_prestart_worker_first_driver": "0",
}


def environment(name):
    """Returns the Python of build/frameworks/NAME, made again if its inputs have changed; SystemExit if that fails."""
    folder, requirements = BUILD / name, HERE / f"requirements-{name}.txt"
    base = sysconfig.get_path("purelib")
    torch = metadata.version("torch")
    stamp = hashlib.sha256(f"{requirements.read_text()} {base} {sys.version} {torch}".encode()).hexdigest()
    python = folder / "bin/python"
    if (folder / "stamp").is_file() and (folder / "stamp").read_text() == stamp:
        return python
    print(f"frameworks: installing {name}", flush=True)
    log = BUILD / f"{name}-install.log"
    constraints = BUILD / "constraints.txt"
    constraints.write_text(f"torch=={torch}\n")  # the version of the base environment, or the installation fails
    with log.open("w") as out:
        for command in ([sys.executable, "-m", "venv", "--clear", folder],
                        [python, "-m", "pip", "install", "--disable-pip-version-check", "-c", constraints,
                         "-r", requirements]):
            if subprocess.run(command, stdout=out, stderr=out, stdin=subprocess.DEVNULL).returncode != 0:
                tail = "\n    ".join(log.read_text().splitlines()[-15:])
                sys.exit(f"frameworks: {' '.join(map(str, command))} failed; from {log}:\n    {tail}")
            if command[1:3] == ["-m", "venv"]:
                # Packages installed here come first, then the base. pip sees the base too, and leaves its packages
                # alone.
                library = folder / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
                (library / "base.pth").write_text(base + "\n")
    (folder / "stamp").write_text(stamp)
    return python


def children():
    """Returns the processes that descend from this one; main() makes orphans its own children."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # the process has ended
        if fields[0] != "Z":
            parents[int(stat.parent.name)] = int(fields[1])
    found = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {os.getpid()}


def end_children():
    """Ends the processes that a training has left, and waits for them."""
    while left := children():
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        time.sleep(0.05)
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def train(name, python, mode, backend, deadline):
    """Returns the report of one training, or a dictionary that describes the failure."""
    log, out = BUILD / f"{name}-{mode}-{backend}.log", BUILD / f"{name}-{mode}-{backend}.json"
    out.unlink(missing_ok=True)
    command = [python, *LAUNCHER[name], HERE / f"{name}_train.py", "--mode", mode, "--backend", backend,
               "--reference", BUILD / "reference.pt", "--out", out]
    # A short path, because Ray's sockets are below it.
    with log.open("w") as file, tempfile.TemporaryDirectory(prefix="goccl", ignore_cleanup_errors=True) as temporary:
        try:
            code = subprocess.Popen(command, stdout=file, stderr=file, stdin=subprocess.DEVNULL,
                                    env={**os.environ, **SETTINGS, "RAY_TMPDIR": temporary}).wait(deadline)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            end_children()
    if code is None:
        return {"wrong": f"HANG: not done in {deadline:g} s", "log": log}
    if code != 0 or not out.is_file():
        return {"wrong": f"exit code {code}", "log": log}
    return json.loads(out.read_text())


def row(name, version, mode, results):
    report, gloo = results["goccl"], results.get("gloo", {})
    values = [name, version, metadata.version("torch").split("+")[0], mode]
    if "wrong" in report:
        return COLUMNS.format(*values, "", "", "", "", "", "", "FAILED: " + report["wrong"])
    apart = max(report["loss_apart"], report["parameters_apart"])
    speed = f"{gloo['samples_per_second']:.0f}" if "wrong" not in gloo and gloo else "failed" if gloo else "-"
    return COLUMNS.format(*values, f"{report['first']:.3f}", f"{report['last']:.4f}", f"{apart:.0e}",
                          report["operations"], f"{report['samples_per_second']:.0f}", speed, "ok")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frameworks", default=",".join(MODES), help="names, separated by commas or spaces")
    parser.add_argument("--backends", default="goccl,gloo", help="goccl, or goccl,gloo to have the times of gloo too")
    parser.add_argument("--deadline", type=float, default=300, help="seconds for one training (300)")
    options = parser.parse_args()
    wanted = options.frameworks.replace(",", " ").split()
    if unknown := set(wanted) - set(MODES):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(MODES)}")
    backends = ["goccl", *({"gloo"} & set(options.backends.split(",")))]

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that running trainings are ended
    BUILD.mkdir(parents=True, exist_ok=True)
    # Processes whose parent ends become children of this one, so that none of Ray's processes is lost.
    PR_SET_CHILD_SUBREAPER = 36
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    pythons = {name: environment(name) for name in wanted}
    subprocess.run([sys.executable, HERE / "training.py", "--reference", BUILD / "reference.pt"], check=True,
                   env={**os.environ, **SETTINGS})

    rows, failed = [], []
    for name in wanted:
        package = "import importlib.metadata as m; print(m.version('%s'))" % name
        version = subprocess.run([pythons[name], "-c", package], check=True, capture_output=True,
                                 text=True).stdout.strip()
        for mode in MODES[name]:
            start = time.monotonic()
            results = {backend: train(name, pythons[name], mode, backend, options.deadline) for backend in backends}
            rows.append(row(name, version, mode, results))
            if "wrong" in (report := results["goccl"]):
                tail = report["log"].read_text(errors="replace").splitlines()[-40:]
                failed.append(f"{name} {mode}: {report['wrong']}; the end of {report['log']}:\n    "
                              + "\n    ".join(tail))
            print(f"{name} {mode}: {'FAILED' if 'wrong' in report else 'ok'} ({time.monotonic() - start:.0f} s)",
                  flush=True)

    print("\n" + "\n".join(failed) if failed else "")
    print(COLUMNS.format("framework", "version", "torch", "what", "first", "last", "apart", "calls", "goccl", "gloo",
                         ""))
    print(COLUMNS.format("", "", "", "", "loss", "loss", "from one", "of goccl", "samples/s", "", ""))
    print("\n".join(rows))
    print(f"\n{len(rows) - len(failed)} passed, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
