"""Every example gives the same result on several ranks as in one process, and all ranks hold the same bits.

Only a few steps are run here, on existing ranks, and of each kind one example (make features has all); `make examples`
runs the whole programs with torchrun.
"""
import importlib
import json
import os
import pathlib
import subprocess
import sys
import types

import pytest
import torch

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"
# The first test of a pool starts its ranks, which import torch; this takes long on a loaded machine.
pytestmark = pytest.mark.timeout(300)
BOUND = 1e-4  # between losses of different numbers of ranks: float32 sums in another order
STEPS = {"expert_parallel": 20, "pipeline": 15, "tensor_parallel": 20, "transformer": 25, "two_d_parallel": 15}


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Makes one process compute with one thread, as a rank does."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def train(rank, name, arguments):
    """Returns the report of an example, on a rank or, as rank 0 of 1, in this process."""
    return importlib.import_module(name).train(**arguments)


@pytest.fixture(scope="module")
def alone():
    """Returns the report of an example in one process."""
    reports = {}

    def report(name):
        if name not in reports:
            reports[name] = train(0, name, {"steps": STEPS[name]})
        return reports[name]

    return report


def check(reports, single, ranks):
    """Checks that losses fall and equal those of one process, and that all ranks hold the same bits."""
    first = reports[0]
    assert first["ranks"] == ranks and single["ranks"] == 1
    assert len(first["digests"]) == ranks and len(set(first["digests"])) == 1, first["digests"]
    assert all(each["losses"] == first["losses"] for each in reports)
    apart = [abs(a - b) for a, b in zip(first["losses"], single["losses"], strict=True)]
    assert max(apart) <= BOUND, apart  # false where one is nan
    assert sum(first["losses"][-3:]) < 0.9 * sum(first["losses"][:3]), first["losses"]


@pytest.mark.parametrize("name", ["expert_parallel", *(pytest.param(name, marks=pytest.mark.long)
                                                        for name in STEPS if name != "expert_parallel")])
def test_two_ranks_are_one_process(pair, alone, name):
    check(pair.run(train, name, {"steps": STEPS[name]}), alone(name), 2)


@pytest.mark.long
@pytest.mark.parametrize("name", ["expert_parallel", "pipeline", "tensor_parallel"])
def test_four_ranks_are_one_process(quartet, alone, name):
    check(quartet.run(train, name, {"steps": STEPS[name]}), alone(name), 4)


def test_two_by_two(quartet, alone):
    reports = quartet.run(train, "two_d_parallel", {"steps": STEPS["two_d_parallel"]})
    assert reports[0]["mesh"] == [2, 2]
    check(reports, alone("two_d_parallel"), 4)


def test_fsdp2_and_its_checkpoint(pair, quartet, tmp_path):
    """Two ranks write a checkpoint, from which two ranks, four ranks and one process continue with the same losses."""
    arguments = {"folder": str(tmp_path / "two"), "steps": 16}
    reports = pair.run(train, "fsdp2", arguments)
    single = train(0, "fsdp2", {"folder": str(tmp_path / "one"), "steps": 16})
    check(reports, single, 2)
    assert all(each["resumed_equal"] for each in [*reports, single])  # bit for bit
    later = reports[0]["losses"][8:]
    for resumed in (quartet.run(train, "fsdp2", arguments | {"resume": True})[0],
                    train(0, "fsdp2", arguments | {"resume": True})):
        assert len(resumed["losses"]) == len(later) == 8
        assert max(abs(a - b) for a, b in zip(resumed["losses"], later)) <= BOUND, (resumed["losses"], later)


@pytest.mark.long
def test_fsdp2_in_bfloat16(pair, tmp_path):
    """Its losses are near those of float32 but not equal, since 8 bits are fewer than 24."""
    wide, narrow = (
        pair.run(train, "fsdp2", {"folder": str(tmp_path / str(bf16)), "steps": 10, "bf16": bf16})[0]["losses"]
        for bf16 in (False, True))
    assert wide != narrow
    assert max(abs(a - b) for a, b in zip(wide, narrow)) < 0.05, (wide, narrow)


def digits(rank, ranks):
    """Runs train_digits for one epoch; returns the losses, and a hash of losses and weights."""
    import train_digits

    torch.manual_seed(0)
    model, data = train_digits.network(), train_digits.digits()[0]
    options = types.SimpleNamespace(seed=0, batch=64, lr=0.02, epochs=1, backend="goccl")
    losses, _, _ = train_digits.train(model, data, options, rank, ranks)
    return {"ranks": ranks, "losses": losses.tolist(), "digest": train_digits.digest([losses, *model.parameters()])}


@pytest.mark.long  # make demo compares the same
def test_data_parallel_is_one_process(pair):
    reports = pair.run(digits, 2)
    check([each | {"digests": [every["digest"] for every in reports]} for each in reports], digits(0, 1), 2)


def test_transformer_with_torchrun_and_bit_for_bit(pair, tmp_path):
    """The bits of the losses equal those of another run on two ranks, by other processes, which torchrun starts."""
    out = tmp_path / "report.json"
    done = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
                           EXAMPLES / "transformer.py", "--steps", str(STEPS["transformer"]), "--json", out],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=200,
                          env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stdout
    assert "2 ranks: loss" in done.stdout and "It writes: The " in done.stdout, done.stdout
    launched = json.loads(out.read_text())
    here = pair.run(train, "transformer", {"steps": STEPS["transformer"]})[0]
    assert [loss.hex() for loss in here["losses"]] == [loss.hex() for loss in launched["losses"]]
    assert here["digests"] == launched["digests"] and here["sample"] == launched["sample"]


def test_each_example_is_in_the_table():
    text = (EXAMPLES / "README.md").read_text()
    assert not [path.name for path in EXAMPLES.glob("*.py") if f"({path.name})" not in text]
