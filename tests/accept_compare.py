"""Compares what collectives.py wrote with the list of cases that pass: accept_compare.py RESULTS.json tests/accept.txt [--update]

The list may only grow: a case on it that fails, is skipped or was not run is an error, with --update too. --update adds the
cases that pass now; to take one off the list is a decision, made by hand.
"""
import argparse
import json
import pathlib
import sys


def name(row):
    return f"[{row['ranks']}] {row['name']}"


def read(path):
    lines = path.read_text().splitlines() if path.exists() else []
    comments = [line for line in lines if line.startswith("#")]
    return comments, {line.strip() for line in lines if line.strip() and not line.startswith("#")}


def order(listed):
    """By ranks, then by name."""
    ranks, _, case = listed[1:].partition("] ")
    return int(ranks), case


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=pathlib.Path)
    parser.add_argument("list", type=pathlib.Path)
    parser.add_argument("--update", action="store_true", help="add the cases that pass now to the list")
    options = parser.parse_args()

    try:
        rows = json.loads(options.results.read_text())
    except (OSError, ValueError) as error:
        sys.exit(f"no results to compare, the run did not come to its end: {error}")
    status = {name(row): (row["status"], row.get("detail", "")) for row in rows}
    passing = {each for each, (outcome, _) in status.items() if outcome == "pass"}
    comments, listed = read(options.list)

    lost = sorted(listed - passing, key=order)
    new = sorted(passing - listed, key=order)
    for each in lost:
        outcome, detail = status.get(each, ("not run", ""))
        print(f"on the list, but {outcome}: {each} {detail}".rstrip())
    if options.update and new:
        options.list.write_text("".join(line + "\n" for line in comments + sorted(listed | passing, key=order)))
    verb = "added to" if options.update else "pass but are not on"
    print(f"{len(listed)} cases on the list, {len(lost)} of them do not pass; {len(new)} more {verb} {options.list}")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
