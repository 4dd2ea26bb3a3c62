"""Runs train_digits.py in one process, then on two ranks with each backend, and compares the results.

    python examples/compare.py                          # single, goccl, gloo
    python examples/compare.py --backends single,gloo

Ends with exit code 1 if a run failed, if goccl's losses differ from those of the single process, or if its ranks hold
different bits.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

TRAIN = pathlib.Path(__file__).with_name("train_digits.py")
LOSS_BOUND = 1e-5  # float32 sums in another order; the losses themselves go from 2.3 to 0.002
COLUMNS = "{:<8} {:>5} {:>12} {:>14} {:>10} {:>26}"


def run(backend, ranks, rest, out):
    command = [sys.executable, TRAIN, "--backend", backend]
    if backend != "single":
        command[1:1] = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    result = pathlib.Path(out) / f"{backend}.json"
    # One thread for each rank, otherwise the single process would have the cores of both ranks.
    subprocess.run([*command, *rest, "--json", result], check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    return json.loads(result.read_text())


def print_table(runs):
    print("\n" + COLUMNS.format("run", "ranks", "final loss", "test accuracy", "samples/s",
                                "waiting for communication"))
    for each in runs:
        waiting = f"{each['waiting_seconds']:.2f} s ({each['waiting_seconds'] / each['seconds']:.0%})"
        print(COLUMNS.format(each["backend"], each["ranks"], f"{each['losses'][-1]:.6f}", f"{each['accuracy']:.1%}",
                             f"{each['samples_per_second']:.0f}", waiting))


def check(run, single):
    """Prints the comparison; returns whether all checks passed."""
    name = run["backend"]
    good = len(set(run["digests"])) == 1
    print(f"{name}: same bits on every rank: {'yes' if good else 'NO, ' + ', '.join(run['digests'])}")
    if single:
        apart = max(abs(ours - theirs) for ours, theirs in zip(run["losses"], single["losses"], strict=True))
        close = apart <= LOSS_BOUND  # false also where a loss is nan
        print(f"{name}: losses of {len(run['losses'])} steps against one process: at most {apart:.1e} apart "
              f"({'within' if close else 'NOT within'} {LOSS_BOUND:g})")
        good = good and close
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backends", default="single,goccl,gloo")
    parser.add_argument("--ranks", type=int, default=2)
    options, rest = parser.parse_known_args()  # the rest is for train_digits.py

    with tempfile.TemporaryDirectory() as out:
        try:
            runs = [run(backend, options.ranks, rest, out) for backend in options.backends.split(",")]
        except subprocess.CalledProcessError as error:
            sys.exit(f"{' '.join(map(str, error.cmd))}\nended with exit code {error.returncode}")
    print_table(runs)
    print()
    single = next((each for each in runs if each["backend"] == "single"), None)
    return 0 if all([check(each, single) for each in runs if each["backend"] != "single"]) else 1


if __name__ == "__main__":
    sys.exit(main())
