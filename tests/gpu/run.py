"""Runs every check that needs a GPU, one after the other, and writes one report (ci/gpu.sh starts it).

A check that fails, or takes longer than its limit, does not keep the others from running. The exit status is 1 if a bar
was missed or a check did not do what it should.
"""
import argparse
import dataclasses
import json
import os
import pathlib
import platform
import re
import shutil
import signal
import subprocess
import sys
import time

from questions import QUESTIONS
from results import FAIL, INFO, NO, NOT_RUN, PASS, ROUTE, of_route, told

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
EXAMPLES = "train_digits", "fsdp2", "tensor_parallel", "expert_parallel", "pipeline", "transformer"
ALL = 590.0  # seconds for everything

# What a "no" changes.
CHANGES = {
    "memfd": "The windows route, in which streams wait for words of other processes, would need a kernel that polls, "
             "or the host. The staged route waits for words in memory of its own process only: see the suite of the "
             "driver.",
    "purego": "Calls would have to go to a thread of the library, which costs a hop between threads in each, or "
              "the driver would have to be called from C.",
    "slices": "Latencies and bandwidths of several ranks on one GPU then measure the time slices, not goccl; they say "
              "something only with a GPU for each rank, or under MPS.",
    "descriptors": "Windows in device memory are then for ranks of one process, or with a GPU for each rank; ranks "
                   "that share a GPU would use windows in memory of the host.",
}


@dataclasses.dataclass
class Section:
    """A check: its command, the most seconds that it may take, and the names of the bars that it tells of."""

    name: str
    command: list[str]
    limit: float
    bars: list[str] = dataclasses.field(default_factory=list)
    environment: dict[str, str] = dataclasses.field(default_factory=dict)
    suite: bool = False           # a Go test, whose only bar is that it passes
    needs: str = ""               # the section that must have passed before
    state: str = NOT_RUN
    said: str = "no time was left"
    seconds: float = 0.0
    results: list[dict] = dataclasses.field(default_factory=list)


def sections(out: pathlib.Path) -> list[Section]:
    python, prebuilt, site = sys.executable, ROOT / "prebuilt", out / "site"

    def check(name: str, script: str, limit: float, bars: list[str], *arguments: str, route: str = "") -> Section:
        by = {ROUTE: route} if route else {}
        return Section(name, [python, str(HERE / script), *arguments], limit, [of_route(bar, route) for bar in bars],
                       {"PYTHONPATH": str(site), **by}, needs="install")

    def suite(name: str, program: str, bar: str, *arguments: str, under: tuple[str, ...] = ()) -> Section:
        # Groups of one process that are in use at the same time would share the queues of the device.
        command = [*under, str(prebuilt / program), "-test.v", "-test.parallel=1", "-test.timeout=70s", *arguments]
        return Section(name, command, 75, [bar], {"CUDA_DEVICE_MAX_CONNECTIONS": "32"}, suite=True)

    def sanitized(tool: str) -> list[Section]:
        under = "compute-sanitizer", "--tool", tool, "--error-exitcode", "1"
        return [suite(f"{tool}-kernels", "driver.test", f"compute-sanitizer {tool}: each kernel",
                      "-test.run=^TestConformance$/^(LaunchAll|LaunchPairs|LaunchIndirect|LaunchGather|Tables|Tick)$", "-driver.gpu=0",
                      under=under),
                suite(f"{tool}-group", "group.test", f"compute-sanitizer {tool}: calls over windows",
                      "-test.run=^(TestWindowsUnequalBlocks|TestInterpretedUnequalBlocks)$", "-group.gpu", under=under)]

    # What names no route goes by the one that groups choose.
    def matrix(size: int, route: str = "staged") -> Section:
        section = check(f"matrix{size}{route}", "matrix.py", 75, [f"matrix: the CPU group's bits, {size} ranks"],
                        "--ranks", str(size), "--seconds", "30" if size == 2 else "10", route=route)
        if route == "windows":
            section.environment["GOCCL_DETERMINISM"] = "4"  # operands in the order of the ranks, as over windows
        return section

    def speed(name: str, factor: int, seconds: int, route: str = "staged") -> Section:
        return check(name, "speed.py", seconds + 50, [f"all_reduce of 64 MiB f32, 2 ranks: at least {factor} x Gloo"],
                     "--seconds", str(seconds), route=route)

    killed = [f"killed rank ({kind}): named within a second, synchronize() returns" for kind in ("calling", "absent")]
    return [
        # What decides the most comes first: a machine may be lent for minutes.
        Section("costs", [python, str(HERE / "costs.py")], 160),
        Section("questions", [python, str(HERE / "questions.py"), "--library", str(prebuilt / "libgoccl.so")], 90),
        suite("driver", "driver.test", "suite of the driver, on the GPU",
              "-test.run=^TestConformance$", "-driver.gpu=0"),
        suite("group", "group.test", "calls of a group whose ranks are in one process, on the GPU",
              "-test.run=^(TestMatrix|TestSameOrderOfOperands|TestLengths|TestUnequalBlocks|TestMessages|"
              "TestWindowsMatrix|TestWindowsLengths|TestWindowsUnequalBlocks|"
              "TestLendMatrix|TestLendLengths|TestLendUnequalBlocks|"
              "TestInterpretedMatrix|TestInterpretedUnequalBlocks)$",
              "-group.gpu"),
        Section("install", [python, "-m", "pip", "install", "--no-build-isolation", "--no-deps", "--no-index",
                            "--upgrade", "--target", str(site), str(ROOT)], 240,
                environment={"GOCCL_PREBUILT": str(prebuilt), "MAX_JOBS": str(os.cpu_count())}),
        check("mps", "mps.py", 120, []),
        matrix(2),
        check("training", "training.py", 80, [f"{kind} on two ranks has the losses of one process"
                                              for kind in ("DDP", "FSDP2", "SyncBatchNorm")]),
        check("waits", "waits.py", 50, ["wait() takes less than 20 µs while a kernel of 100 ms runs"]),
        check("killed", "killed.py", 70, [*killed, "killed rank: the GPU is idle afterwards"]),
        speed("speed", 3, 40),
        matrix(2, "windows"),
        speed("speed-windows", 5, 30, "windows"),
        check("graphs", "graphs.py", 60, ["1,000 replays of CUDA graphs are right",
                                          "a DDP step in a CUDA graph has the losses of one process"], route="windows"),
        matrix(4),
        matrix(8),
        matrix(4, "windows"),
        matrix(8, "windows"),
        check("kernels", "kernels.py", 40, ["kernels move from 64 MiB on at least 85 % of what the driver's copies do"],
              "--suite", str(prebuilt / "driver.test")),
        check("registered", "registered.py", 55,
              ["tensors in registered memory of the GPU have the bits of ordinary ones"]),
        check("overlap", "overlap.py", 60,
              ["a matrix product loses less than 5 % while two ranks all-reduce 64 MiB every 10 ms"], route="staged"),
        check("overlap-windows", "overlap.py", 60, [], route="windows"),
        *sanitized("memcheck"),
        *sanitized("racecheck"),
        check("examples", "examples.py", 90, [f"example {name}.py: two ranks have the losses of one process"
                                              for name in EXAMPLES]),
        check("nccl", "speed.py", 40, [], "--nccl", "--seconds", "10"),
    ]


def tests_of(output: str, section: Section) -> list[dict]:
    """Returns the one result of a Go test."""
    ends = re.findall(r"^\s*--- (PASS|FAIL|SKIP): (\S+)", output, re.MULTILINE)
    names = {name for _, name in ends}
    leaves = [(end, name) for end, name in ends if not any(other.startswith(name + "/") for other in names)]
    count = {kind: [name for end, name in leaves if end == kind] for kind in ("PASS", "FAIL", "SKIP")}
    text = f"{len(count['PASS'])} passed"
    for kind, word in ("FAIL", "failed"), ("SKIP", "skipped"):
        if count[kind]:
            text += f", {len(count[kind])} {word}: " + ", ".join(count[kind][:10])
    result = PASS if section.state == PASS and count["PASS"] and not count["FAIL"] else FAIL
    return [{"name": section.bars[0], "result": result, "text": text, "numbers": {}}]


def run(section: Section, logs: pathlib.Path, end: float) -> None:
    """Runs a section; what it started is ended with it."""
    limit = min(section.limit, end - time.monotonic())
    if limit < 5:
        return
    if shutil.which(section.command[0]) is None:
        section.said = f"{section.command[0]} is not installed"
        return
    print(f"== {section.name}", flush=True)
    log, start = logs / f"{section.name}.log", time.monotonic()
    with open(log, "wb") as out:
        process = subprocess.Popen(section.command, stdout=out, stderr=subprocess.STDOUT, cwd=logs,
                                   env={**os.environ, **section.environment}, start_new_session=True)
        try:
            code = process.wait(timeout=limit)
            section.state, section.said = (FAIL, f"ended with {code}") if code else (PASS, "")
        except subprocess.TimeoutExpired:
            section.state, section.said = FAIL, f"did not end in {limit:.0f} s"
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()
    section.seconds = time.monotonic() - start
    output = log.read_text(errors="replace")
    section.results = tests_of(output, section) if section.suite else told(output)
    for bar in section.bars:
        if bar not in [each["name"] for each in section.results]:
            section.results.append({"name": bar, "result": FAIL, "numbers": {},
                                    "text": f"{section.said or 'nothing was told'}; see {log}"})
    for each in section.results:
        print("{name}: {result}: {text}".format(**each), flush=True)
    if section.state == FAIL:
        print(f"{section.name}: {section.said}; the end of {log}:", *output.splitlines()[-15:], sep="\n    ",
              flush=True)


def run_all(all_sections: list[Section], logs: pathlib.Path, seconds: float) -> None:
    logs.mkdir(parents=True, exist_ok=True)
    end, states = time.monotonic() + seconds, {}
    for section in all_sections:
        if section.needs and states.get(section.needs) != PASS:
            section.said = f"{section.needs} has not passed"
        else:
            run(section, logs, end)
        if section.state == NOT_RUN:
            section.results = [{"name": bar, "result": NOT_RUN, "text": section.said, "numbers": {}}
                               for bar in section.bars]
        states[section.name] = section.state


def machine() -> dict[str, str]:
    """Returns what the measurements depend on."""
    import torch

    device = torch.cuda.get_device_properties(0)
    driver = ""
    if shutil.which("nvidia-smi"):
        driver = subprocess.run(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader", "--id=0"],
                                capture_output=True, text=True, timeout=20).stdout.strip()
    return {
        "GPU": f"{device.name}, compute capability {device.major}.{device.minor}, {device.total_memory >> 30} GiB; "
               f"{torch.cuda.device_count()} of them, the first one is used",
        "driver": driver or "nvidia-smi does not tell",
        "torch": f"{torch.__version__}, CUDA {torch.version.cuda}, "
                 f"NCCL {'.'.join(map(str, torch.cuda.nccl.version()))}",
        "goccl": (ROOT / "python/goccl/VERSION").read_text().strip(),
        "Python": platform.python_version(),
        "processor": f"{os.cpu_count()} cores, {platform.machine()}, {platform.release()}",
    }


def report(all_sections: list[Section], about: dict[str, str]) -> tuple[str, dict, bool]:
    """Returns the report as text and as JSON, and whether nothing has failed."""
    results = [each for section in all_sections for each in section.results]
    bars = [bar for section in all_sections for bar in section.bars]
    lines = ["goccl on a GPU", ""]
    lines += [f"{key + ':':<11}{value}" for key, value in about.items()]

    lines += ["", "Questions that only a GPU answers"]
    for key, question in QUESTIONS.items():
        answers = [(each["result"], each["text"]) for each in results if each["name"] == question]
        answer, text = answers[0] if answers else ("?", "Not answered.")
        lines.append(f"  {answer:<4} {question} {text}")
        if answer == NO:
            lines.append(f"       {CHANGES[key]}")

    lines += ["", "Bars"]
    lines += [f"  {each['result']:<8} {each['name']}: {each['text']}" for each in results if each["name"] in bars]

    lines += ["", "Measured"]
    lines += [f"  {each['name']}: {each['text']}" for each in results if each["result"] == INFO]

    lines += ["", "Sections"]
    for section in all_sections:
        said = f"  {section.said}" if section.said else ""
        lines.append(f"  {section.state:<8} {section.name:<10} {section.seconds:6.1f} s{said}")
    good = FAIL not in [each["result"] for each in results] + [section.state for section in all_sections]
    data = {"machine": about, "results": results,
            "sections": [{"name": s.name, "state": s.state, "said": s.said, "seconds": round(s.seconds, 1)}
                         for s in all_sections]}
    return "\n".join(lines) + "\n", data, good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=pathlib.Path, required=True, help="folder for report.txt, report.json and logs")
    parser.add_argument("--seconds", type=float, default=ALL, help="for everything")
    parser.add_argument("names", nargs="*", help="sections; all if none is named")
    options = parser.parse_args()
    out = options.out.resolve()
    all_sections = sections(out)
    if options.names:
        all_sections = [section for section in all_sections if section.name in options.names]
        if (out / "site/goccl").is_dir():
            all_sections = [dataclasses.replace(section, needs="") for section in all_sections]
    run_all(all_sections, out / "log", options.seconds)
    text, data, good = report(all_sections, machine())
    (out / "report.txt").write_text(text)
    (out / "report.json").write_text(json.dumps(data, indent=1) + "\n")
    print("\n" + text + f"\n{out}/report.txt")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
