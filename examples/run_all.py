"""Runs every example in one process and then with torchrun, and compares the results. It takes a few minutes.

    python examples/run_all.py
    python examples/run_all.py transformer.py fsdp2.py     # some of them
    python examples/run_all.py --device cuda               # on GPUs, which the ranks share; all but survive.py

Ends with exit code 1 if a run failed, if losses differ from those of one process or do not fall, if ranks hold
different bits, or if the transformer's losses have other bits in a second run.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).parent
BOUND = 1e-4  # between losses of one process and of several ranks: float32 sums in another order
EXAMPLES = [  # file, ranks, arguments to add with torchrun
    ("train_digits.py", 2, ["--backend", "goccl"]),
    ("fsdp2.py", 2, []),
    ("tensor_parallel.py", 2, []),
    ("pipeline.py", 2, []),
    ("expert_parallel.py", 2, []),
    ("two_d_parallel.py", 4, []),
    ("transformer.py", 2, []),
    ("survive.py", 4, ["--die", "0@30", "--die", "2@50"]),
]
CPU_ONLY = ["survive.py"]
COLUMNS = "{:<20} {:>5} {:>5} {:>10} {:>10} {:>22} {:>10} {:>8}"


def run(name, ranks, rest):
    """Returns the report that an example writes; with ranks 1 it runs in one process."""
    command = [sys.executable, HERE / name]
    if ranks > 1 and name == "survive.py":  # torchrun ends all ranks when one dies
        command[:0] = [sys.executable, "-m", "goccl", "run", "--recover", "-n", str(ranks), "--"]
    elif ranks > 1:
        command[1:1] = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "report.json"
        print(f"\n{name} {'in one process' if ranks == 1 else f'on {ranks} ranks'}:", flush=True)
        # One thread for each rank, otherwise the single process would have the cores of all ranks.
        subprocess.run([*command, *rest, "--json", out], check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
        return json.loads(out.read_text())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("examples", nargs="*", metavar="FILE", help="all, if none is named")
    parser.add_argument("--device", default="cpu", help="cpu (the default), or cuda")
    options = parser.parse_args()
    wanted = options.examples or [name for name, _, _ in EXAMPLES if options.device == "cpu" or name not in CPU_ONLY]
    if unknown := set(wanted) - {name for name, _, _ in EXAMPLES}:
        parser.error(f"no such example: {', '.join(sorted(unknown))}")

    rows, complaints = [], []
    for name, ranks, rest in EXAMPLES:
        if name not in wanted:
            continue
        device = [] if name in CPU_ONLY else ["--device", options.device]
        start = time.monotonic()
        try:
            single, several = run(name, 1, device), run(name, ranks, [*rest, *device])
            again = run(name, ranks, [*rest, *device]) if name == "transformer.py" else several
        except subprocess.CalledProcessError as error:
            complaints.append(f"{name}: ended with exit code {error.returncode}")
            continue
        losses = several["losses"]
        apart = max(abs(a - b) for a, b in zip(losses, single["losses"], strict=True))
        if not apart <= BOUND:  # true also where a loss is nan
            complaints.append(f"{name}: losses are up to {apart:.1e} from those of one process; {BOUND:g} is allowed")
        if not losses[-1] < losses[0]:
            complaints.append(f"{name}: the loss does not fall")
        if len(set(several["digests"])) != 1:
            complaints.append(f"{name}: ranks hold different bits: {', '.join(several['digests'])}")
        if again["losses"] != losses:
            complaints.append(f"{name}: a second run gave other losses")
        if not several.get("resumed_equal", True):
            complaints.append(f"{name}: other losses from the checkpoint")
        rows.append((name, ranks, len(losses), f"{losses[0]:.4f}", f"{losses[-1]:.4f}", f"{apart:.1e}",
                     f"{several['seconds']:.1f} s", f"{time.monotonic() - start:.0f} s"))
    print("\n" + COLUMNS.format("example", "ranks", "steps", "first loss", "last loss", "from one process by",
                                "training", "in all"))
    for row in rows:
        print(COLUMNS.format(*row))
    print("\n" + ("\n".join(complaints) or "All losses are those of one process, all ranks hold the same bits."))
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
