"""go test with readable output and a record: gotest.py STAGE [arguments of go test].

Prints one line for each package, and the whole output of tests that fail. The complete stream goes to
$RECORDS/STAGE.jsonl.
"""
import json
import os
import pathlib
import subprocess
import sys


def main():
    stage, arguments = sys.argv[1], sys.argv[2:]
    record = pathlib.Path(os.environ.get("RECORDS", "build/test")) / (stage + ".jsonl")
    record.parent.mkdir(parents=True, exist_ok=True)
    said = {}
    command = ["go", "test", "-json", *arguments]
    with open(record, "w") as out, subprocess.Popen(command, stdout=subprocess.PIPE, text=True, errors="replace") as go:
        for line in go.stdout:
            out.write(line)
            try:
                event = json.loads(line)
            except ValueError:
                print(line, end="", flush=True)
                continue
            show(event, said)
    return go.returncode


def show(event, said):
    action, text = event["Action"], event.get("Output", "")
    key = event.get("Package"), event.get("Test", "")
    if action == "build-output" or action == "output" and not key[1] and text.startswith(("ok  \t", "FAIL\t")):
        print(text, end="", flush=True)
    elif action == "output":
        said.setdefault(key, []).append(text)
    elif action in ("pass", "skip"):
        said.pop(key, None)
    elif action == "fail":
        print("".join(said.pop(key, [])), end="", flush=True)


if __name__ == "__main__":
    sys.exit(main())
