"""Runs the checks for a GPU as far as they go without one: on CPU tensors, and on a driver of memory of the host."""
import json
import os
import pathlib
import subprocess
import sys

import costs
import examples
import forked
import killed
import pytest
import questions
import run as runner
import speed
import training
import waits
from results import FAIL, INFO, NO, NOT_RUN, PASS, YES, of_route, told

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]

BARS = {bar for section in runner.sections(ROOT) for bar in section.bars}


def ends_of(output):
    """Returns {name: (result, text)} of what a check has told."""
    return {each["name"]: (each["result"], each["text"]) for each in told(output)}


@pytest.fixture
def check(tmp_path):
    """Returns a function that runs a check, and returns what it has told."""

    def run(script, *arguments):
        code, output = forked.run(str(HERE / script), *arguments, log=tmp_path / "log", timeout=100,
                                  env={**os.environ, "CHECK_PATIENCE": "3"})
        assert code == 0, output
        return ends_of(output)

    return run


def ask(*arguments, library):
    """Asks the questions, without torch; returns what was told."""
    done = subprocess.run([sys.executable, str(HERE / "questions.py"), "--without-torch", *arguments],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=100,
                          env={**os.environ, "LD_LIBRARY_PATH": str(library)})
    assert done.returncode == 0, done.stdout
    return ends_of(done.stdout)


def test_a_wrong_bit_is_found(check):
    ((name, (result, text)),) = check("matrix.py", "--device", "cpu", "--quick", "--spoil").items()
    assert name in BARS and result == FAIL
    assert text.startswith("1 differ: ") and "rank 1: tensor 0: byte 0 of " in text, text


def test_training(check):
    ends = check("training.py", "--device", "cpu", "--width", "16", "--steps", "3")
    assert len(ends) == 2 and set(ends) <= BARS and {result for result, _ in ends.values()} == {PASS}, ends


def test_examples(check):
    names = "train_digits", "fsdp2"  # the others, and on a device, in tests/device
    ends = check("examples.py", "--device", "cpu", "--steps", "2", *names)
    assert set(ends) == {examples.name_of(name) for name in names} <= BARS, ends
    assert {result for result, _ in ends.values()} == {PASS}, ends


def test_killed(check):
    ((name, (result, text)),) = check("killed.py", "--device", "cpu", "--ranks", "2", "--kind", "absent").items()
    assert name in BARS
    # How long it took is not for here.
    assert result == PASS or "named after" in text, text


def test_speed(check):
    ends = check("speed.py", "--device", "cpu", "--sizes", "8,65536", "--seconds", "1")
    assert [result for result, _ in ends.values()] == [INFO, INFO], ends
    assert all("goccl" in text and "gloo" in text for _, text in ends.values()), ends


def test_questions(driver):
    ends = ask(library=driver)
    answers = {name: end for name, end in ends.items() if end[0] != INFO}
    assert list(answers) == list(questions.QUESTIONS.values())
    assert {answer for answer, _ in answers.values()} == {YES}, answers
    assert set(runner.CHANGES) == set(questions.QUESTIONS)


def cost(*names, library, **environment):
    """Asks what operations cost; returns what was told."""
    done = subprocess.run([sys.executable, str(HERE / "costs.py"), *names], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=100,
                          env={**os.environ, **environment, "LD_LIBRARY_PATH": str(library)})
    assert done.returncode == 0, done.stdout
    ends = ends_of(done.stdout)
    assert not [name for name in ends if name.startswith("question ")], done.stdout
    assert {result for result, _ in ends.values()} == {INFO}, ends
    return ends


def test_costs_come_first():
    first, *others = [section.name for section in runner.sections(ROOT)]
    assert first == "costs" and others.index("install") + 1 == others.index("mps")


def test_costs(driver):
    ends = cost(library=driver)
    for words in ("37 words of the host, one fence", "7 waits that have come", "a copy of 8388608 bytes on the device",
                  "30 words of the device, each fenced"):
        assert " µs of the processor, " in ends[words][1]
    for where in "host", "device":
        assert ends[f"a hop between two streams, words of the {where}"][1].endswith(" µs")
    for connections in "8", "32":
        assert ends[f"streams blocked behind two that wait, {costs.CONNECTIONS} {connections}"][1] == "0 of 32: []"
    assert ends["attribute: dma-bufs"][1] == "1"


@pytest.mark.parametrize("blocks", [False, True])
def test_a_driver_that_has_callers_wait_is_found(driver, blocks):
    environment = {"FAKECUDA_FREE_BLOCKS": "1"} if blocks else {}
    ((name, (_, text)),) = cost("free", library=driver, **environment).items()
    assert name == "while cuMemFree waits and a stream is held, in other streams"
    answer = "WAITS" if blocks else "returns"
    assert text == f"cuStreamQuery {answer}, cuStreamBatchMemOp {answer}, cuMemcpyAsync {answer}"


def test_a_question_that_hangs_says_so(driver, tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(costs, "LIMIT", 0.01)
    costs.ask("what")
    assert ends_of(capfd.readouterr().out)["question what"][1] == "it HANGS: no end in 0.01 s"


def test_mps(check):
    ends = check("mps.py", "--device", "cpu", "--sizes", "8,8192", "--ranks", "2")
    assert list(ends) == [f"all_reduce under MPS, 2 ranks, {size}, {way}" for way in ("over windows", "interpreted")
                          for size in ("8 B", "8 KiB")], ends


def test_a_driver_that_is_not_there_is_a_no(tmp_path):
    (tmp_path / "libcuda.so.1").write_text("")
    ((name, (answer, text)),) = ask("memfd", library=tmp_path).items()
    assert name == questions.QUESTIONS["memfd"] and answer == NO and "libcuda.so.1" in text


def telling(name, result, text="said"):
    return [sys.executable, "-c", f"import sys; sys.path.append({str(HERE)!r}); from results import tell; "
                                  f"tell({name!r}, {result!r}, {text!r})"]


def python(code):
    return [sys.executable, "-c", code]


GO_TEST = """
print("=== RUN TestA\\n--- PASS: TestA (0.00s)\\n    --- PASS: TestA/B (0.00s)\\n    --- SKIP: TestA/C (0.00s)")
raise SystemExit({code})
"""


def test_every_end_of_a_section_is_in_the_report(tmp_path):
    section = runner.Section
    sections = [
        section("first", telling("one", PASS), 20, ["one"]),
        section("asks", telling(questions.QUESTIONS["slices"], NO, "a hop: 7 ms"), 20),
        section("measures", telling("latency", INFO, "7 µs"), 20),
        section("silent", python("print('nothing')"), 20, ["two"]),
        section("crash", python("raise SystemExit('broken')"), 20, ["three"]),
        section("hang", python("import time; time.sleep(60)"), 5, ["four"]),
        section("suite", python(GO_TEST.format(code=0)), 20, ["five"], suite=True),
        section("broken suite", python(GO_TEST.format(code=2)), 20, ["six"], suite=True),
        section("after", telling("seven", PASS), 20, ["seven"], needs="crash"),
    ]
    runner.run_all(sections, tmp_path / "log", 60)
    text, data, good = runner.report(sections, {"GPU": "none"})
    ends = {each["name"]: (each["result"], each["text"]) for each in data["results"]}
    assert not good and json.dumps(data)
    assert ends["one"] == (PASS, "said")
    assert ends["two"][0] == ends["three"][0] == ends["four"][0] == FAIL
    assert "nothing was told" in ends["two"][1] and "ended with 1" in ends["three"][1]
    assert "did not end in 5 s" in ends["four"][1]
    assert ends["five"] == (PASS, "1 passed, 1 skipped: TestA/C") and ends["six"][0] == FAIL
    assert ends["seven"] == (NOT_RUN, "crash has not passed")
    assert "GPU:       none\n" in text and "  PASS     one: said\n" in text and "  latency: 7 µs\n" in text
    assert f"  no   {questions.QUESTIONS['slices']} a hop: 7 ms\n       {runner.CHANGES['slices']}\n" in text
    assert f"  ?    {questions.QUESTIONS['memfd']} Not answered.\n" in text


def test_without_time_nothing_is_run_and_nothing_has_failed(tmp_path):
    sections = [runner.Section("first", telling("one", PASS), 20, ["one"])]
    runner.run_all(sections, tmp_path / "log", 1)
    text, _, good = runner.report(sections, {})
    assert good and "  NOT RUN  one: no time was left\n" in text


def test_bars_have_the_names_that_checks_tell():
    names = {killed.BAR.format(kind) for kind in ("calling", "absent")} | {killed.IDLE, speed.BAR.format(3), waits.BAR}
    names |= {of_route(speed.BAR.format(5), "windows")}
    names |= {examples.name_of(name) for name in examples.NAMES}
    names |= {training.name_of(kind) for kind in training.KINDS}
    assert names <= BARS


def test_bars_are_those_that_the_page_lists():
    page = (ROOT / "docs/cuda.md").read_text()
    for words in ("2, 4 and 8 ranks", "DDP and FSDP2", "3 times as fast", "20 µs", "killed rank"):
        assert words in page
