#!/usr/bin/env python3
"""Measures how far predictions are off, and writes the figures of docs/predict.md: predict.py (make predict).

For each network goccl tune fit makes costs of calls of two ranks, and goccl tune check times all algorithms on more ranks.
What was measured is kept in predicted/, in a short form, with what the costs predict. The table of the page is made of that
by a Go test, the pictures by plot_predicted.py. --kept measures nothing, and predicts and draws anew what is kept.
"""
import argparse
import csv
import datetime
import hashlib
import json
import os
import pathlib
import platform
import shutil
import subprocess
import sys
import tempfile

import core

KEPT = core.HERE / "predicted"
# Flags of goccl tune for each network, in the order of the page, as in predicted_test.go of the command.
NETWORKS = {"1gbit": ["--rate", "1gbit"], "100mbit": ["--rate", "100mbit"],
            "5ms": ["--rate", "1gbit", "--delay", "5ms"], "host": []}
COLUMNS = ["collective", "algorithm", "ranks", "cores", "bytes", "calls", "low_us", "median_us", "high_us", "predicted_us"]
SAME = 4  # of the first columns, those that are left empty where they are those of the row above


def build():
    program = core.BUILD / "goccl"
    core.BUILD.mkdir(parents=True, exist_ok=True)
    core.command(["go", "build", "-o", program, "./cmd/goccl"], "goccl", cwd=core.ROOT,
                 env={**os.environ, "CGO_ENABLED": "0"})
    return program


def tune(program, *words, out=None):
    """Runs goccl tune, whose progress and errors the caller sees. BBR's pace is not predicted."""
    environment = {**os.environ, "GOCCL_COSTS": "off", "GOCCL_SOCKET_CONGESTION": "cubic"}
    done = subprocess.run([program, "tune", *words], stdout=out, env=environment, text=True)
    if done.returncode:
        sys.exit(f"goccl tune {' '.join(map(str, words))} ended with {done.returncode}")
    return done.stdout


def measure(program, name, folder, options):
    """Leaves the costs and the rows of a network in a folder."""
    print(f"{name}: costs of two ranks", file=sys.stderr)
    tune(program, "fit", *NETWORKS[name], "--output", folder / f"{name}.json", "--repeat", options.repeat,
         "--block", options.block, *(["--force"] if options.force else []), out=subprocess.DEVNULL)
    with open(folder / f"{name}.rows", "w") as rows:
        tune(program, "check", *NETWORKS[name], "--costs", folder / f"{name}.json", "--ranks", options.ranks, "--op",
             options.op, "--size", options.size, "--repeat", options.repeat, "--block", options.block, "--json", out=rows)


def machine():
    """Says what was measured on, and when."""
    model = next((line.partition(":")[2].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")),
                 platform.machine())
    return (f"{len(os.sched_getaffinity(0))} cores, {model}, Linux {'.'.join(platform.release().split('.')[:2])}, "
            f"TCP with cubic, {datetime.date.today()}")


def digits(value):
    """Writes a number with four digits, without an exponent."""
    return f"{float(f'{value:.4g}'):.6f}".rstrip("0").rstrip(".")


def short(rows):
    """Returns the rows of goccl tune check in the form that is kept: of the blocks the ends and the median."""
    for row in rows:
        times = sorted(row["times_s"])
        yield [row["collective"], row["algorithm"], *(str(row[key]) for key in ("ranks", "cores", "size", "calls")),
               *(digits(time * 1e6) for time in (times[0], times[len(times) // 2], times[-1], row["predicted_s"]))]


def write(path, rows):
    """Writes rows, by collective, algorithm and ranks."""
    above = None
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for row in sorted(rows, key=lambda row: (row[0], row[1], int(row[2]), int(row[SAME]))):
            writer.writerow([""] * SAME + row[SAME:] if row[:SAME] == above else row)
            above = row[:SAME]


def read(path):
    """Reads what write has written."""
    rows, above = [], []
    with path.open(newline="") as file:
        for row in list(csv.reader(file))[1:]:
            above = row[:SAME] if row[0] else above
            rows.append(above + row[SAME:])
    return rows


def predict(program, name, rows, costs):
    """Returns short rows with what costs predict now."""
    def long(row):
        ranks = int(row[2])
        return json.dumps({"collective": row[0], "algorithm": row[1], "ranks": ranks,
                           "hosts": 1 if name == "host" else ranks, "cores": int(row[3]), "size": int(row[4]),
                           "calls": int(row[5]), "times_s": [float(time) / 1e6 for time in row[6:9]]})

    with tempfile.NamedTemporaryFile("w", suffix=".rows") as file:
        file.writelines(long(row) + "\n" for row in rows)
        file.flush()
        answer = tune(program, "check", "--from", file.name, "--costs", costs, "--json", out=subprocess.PIPE)
    return [row[:-1] + [digits(json.loads(line)["predicted_s"] * 1e6)]
            for row, line in zip(rows, answer.splitlines(), strict=True)]


def measured_rows(path):
    """Returns the short rows of the calls of algorithms on more than two ranks, of which no costs were made."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return list(short(row for row in rows if row["ranks"] > 2 and row["algorithm"] != "auto"))


def mark(folder):
    """Returns what tells apart rows that are kept; pictures have it."""
    sums = hashlib.sha256()
    for name in NETWORKS:
        path = folder / f"{name}.csv"
        sums.update(path.read_bytes() if path.exists() else b"")
    return sums.hexdigest()[:16]


def draw(folder, docs):
    """Draws what is kept in a folder."""
    names = [name for name in NETWORKS if (folder / f"{name}.csv").exists()]
    with tempfile.TemporaryDirectory() as plain:
        for name in names:
            with open(pathlib.Path(plain) / f"{name}.csv", "w", newline="") as file:
                csv.writer(file).writerows([COLUMNS, *read(folder / f"{name}.csv")])
        core.command([core.BUILD / "env/plot/bin/python", core.HERE / "plot_predicted.py", plain, docs, mark(folder),
                      *names], "the pictures", env={**os.environ, "MPLCONFIGDIR": str(core.BUILD)})


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kept", action="store_true", help="measure nothing: predict and draw what is kept")
    parser.add_argument("--from", dest="source", type=pathlib.Path, metavar="FOLDER",
                        help="measure nothing: take NETWORK.json, NETWORK.rows and machine.txt of an earlier run")
    parser.add_argument("--networks", default=",".join(NETWORKS), help="some of %(default)s; others stay as they are kept")
    parser.add_argument("--ranks", default="3,4,6")
    parser.add_argument("--op", default="all_reduce,all_gather,reduce_scatter,broadcast,all_to_all")
    parser.add_argument("--size", default="64..4M")
    parser.add_argument("--repeat", default="5", help="blocks of calls")
    parser.add_argument("--block", default="20ms", help="time of a block")
    parser.add_argument("--force", action="store_true", help="measure although other processes use the cores")
    parser.add_argument("--into", type=pathlib.Path, metavar="FOLDER",
                        help="keep the rows and draw the pictures there, and leave the page alone")
    options = parser.parse_args(arguments)
    names = options.networks.split(",")
    if unknown := set(names) - set(NETWORKS):
        parser.error(f"--networks: {', '.join(sorted(unknown))} is none of {', '.join(NETWORKS)}")
    kept = options.into or KEPT
    kept.mkdir(parents=True, exist_ok=True)
    program = build()
    source = options.source
    if not options.kept and not source:
        source = core.BUILD / "predicted"
        shutil.rmtree(source, ignore_errors=True)
        source.mkdir(parents=True)
        for name in names:
            measure(program, name, source, options)
        (source / "machine.txt").write_text(machine() + "\n")
    for name in names:
        if source:
            shutil.copyfile(source / f"{name}.json", kept / f"{name}.json")
            rows = measured_rows(source / f"{name}.rows")
        else:
            rows = read(kept / f"{name}.csv")
        write(kept / f"{name}.csv", predict(program, name, rows, kept / f"{name}.json"))
    if source:
        shutil.copyfile(source / "machine.txt", kept / "machine.txt")
    draw(kept, options.into or core.ROOT / "docs")
    if not options.into:
        core.command(["go", "test", "-count=1", "./cmd/goccl/internal/tune", "-run", "^TestPredictedPage$", "-rewrite"],
                     "the page", cwd=core.ROOT)


if __name__ == "__main__":
    main(sys.argv[1:])
