"""Reads the records of a stage in $RECORDS: streams of `go test -json` (.jsonl), pytest's JUnit files (.xml) and cells of
`goccl drill --json` (.cells)."""
import dataclasses
import json
import pathlib
import re
import xml.etree.ElementTree as xml

LONGEST = 300  # letters of a line in a list of failures
MODULE = re.compile(r"^github\.com/goccl/goccl/?")


@dataclasses.dataclass
class Test:
    name: str          # ccl/plan.TestParse/empty, or tests.python.test_ops::test_sum[float32]
    outcome: str       # passed, failed, skipped
    reason: str = ""   # why it was skipped, or what it said when it failed


def of_stage(folder, stage):
    """Returns all tests of one stage."""
    tests = []
    for path in sorted(pathlib.Path(folder).glob(stage + ".*")):
        if path.suffix == ".jsonl":
            tests += from_go(path)
        elif path.suffix == ".xml":
            tests += from_junit(path)
        elif path.suffix == ".cells":
            tests += from_drill(path)
    return tests


def brief(reason):
    """Returns the line of a reason that says most, for a list of failures: ": …", or "" if there is none."""
    lines = [line.strip() for line in reason.splitlines()]
    lines = [line for line in lines if line and not line.startswith(("===", "---"))]
    said = [line for line in lines if re.match(r"E {2,}|Error:|panic:|fatal error:", line)] or lines
    return f": {' '.join(said[0].split())[:LONGEST]}" if said else ""


def short_package(package):
    return MODULE.sub("", package) or "."


def from_go(path):
    """Returns the leaves of the tests.

    A test with subtests counts through its subtests, unless it failed by itself. A package that did not build counts as
    one test.
    """
    ends, words = {}, {}
    for line in path.read_text(errors="replace").splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue
        key = short_package(event.get("Package", "")), event.get("Test", "")
        if event["Action"] in ("pass", "fail", "skip"):
            ends[key] = event["Action"]
        elif event["Action"] == "output":
            words.setdefault(key, []).append(event["Output"])
    outcomes = {"pass": "passed", "fail": "failed", "skip": "skipped"}
    parents = {(package, test.rsplit("/", 1)[0]) for package, test in ends if "/" in test}
    parents |= {(package, "") for package, test in ends if test}
    failures = [(package, test) for (package, test), end in ends.items() if end == "fail"]

    def failed_below(package, test):
        below = test + "/" if test else ""
        return any(p == package and t != test and t.startswith(below) for p, t in failures)

    tests = []
    for (package, test), end in ends.items():
        if end == "fail" and not failed_below(package, test):
            name = f"{package}.{test}" if test else f"{package} (the package itself)"
            tests.append(Test(name, "failed", "".join(words.get((package, test), []))))
        elif test and (package, test) not in parents and end != "fail":
            lines = [line.strip() for line in words.get((package, test), [])]
            said = " ".join(line for line in lines if line and not line.startswith(("===", "---")))
            tests.append(Test(f"{package}.{test}", outcomes[end], said if end == "skip" else ""))
    return tests


def from_junit(path):
    tests = []
    for case in xml.parse(path).getroot().iter("testcase"):
        test = Test(f"{case.get('classname')}::{case.get('name')}", "passed")
        for child in case:
            if child.tag in ("failure", "error"):
                test.outcome, test.reason = "failed", child.text or child.get("message", "")
            elif child.tag == "skipped" and test.outcome == "passed":
                test.outcome, test.reason = "skipped", child.get("message", "")
        tests.append(test)
    return tests


def from_drill(path):
    tests = []
    for line in path.read_text().splitlines():
        try:
            end = json.loads(line)
        except ValueError:  # the last line of a drill that was ended
            continue
        said = "\n".join([*end.get("complaints", []), *map(json.dumps, end["ranks"])])
        tests.append(Test(f"drill: {end['name']}", "passed" if end["passed"] else "failed", said))
    return tests
