"""The examples on ranks with a device each have the losses of one process on the CPU."""
import contextlib
import importlib
import os
import types

import launch
import pytest
import sim
import torch
from torch.utils.data import Subset

BOUND = 1e-4  # float32 sums in another order
STEPS = {"fsdp2": 4, "tensor_parallel": 3, "expert_parallel": 2, "pipeline": 2}


def train(rank, name, kind, folder):
    """Returns the losses of an example, and the digests of all ranks."""
    more = {"folder": str(folder)} if name == "fsdp2" else {}
    with sim.lenient() if kind == sim.NAME else contextlib.nullcontext():
        report = importlib.import_module(name).train(steps=STEPS[name], device=torch.device(kind, 0), **more)
    assert report.get("resumed_equal", True)
    return report["losses"], report["digests"]


def digits(rank, ranks, kind):
    """Trains as train_digits.py does, some steps."""
    import train_digits

    torch.manual_seed(0)
    device = torch.device(kind, 0)
    data = Subset(train_digits.digits()[0], range(256))
    options = types.SimpleNamespace(seed=0, batch=64, lr=0.02, epochs=1, backend="goccl")
    losses, _, _ = train_digits.train(train_digits.network().to(device), data, options, rank, ranks, device)
    return losses.tolist(), [train_digits.digest([losses])]


def same(ranks, alone):
    """Checks that all ranks hold the same bits, and that their losses are those of one process."""
    assert len({digest for _, digests in ranks for digest in digests}) == 1
    for losses, _ in ranks:
        assert losses == pytest.approx(alone, abs=BOUND, rel=0)


@pytest.mark.parametrize("name", STEPS)
def test_example(pair, name, tmp_path):
    alone, _ = train(0, name, "cpu", tmp_path / "alone")
    same(pair.checked(train, name, sim.NAME, tmp_path / "pair"), alone)


def test_train_digits(pair):
    alone, _ = digits(0, 1, "cpu")
    same(pair.checked(digits, 2, sim.NAME), alone)


def _place(rank):
    os.environ["LOCAL_RANK"] = "3"
    try:
        assert launch.place(sim.NAME) == torch.device(sim.NAME, 1) and torch.sim.current_device() == 1
    finally:
        del os.environ["LOCAL_RANK"]
        torch.sim.set_device(0)
        torch.use_deterministic_algorithms(False)


def test_ranks_share_devices(one):
    one.checked(_place)


@pytest.mark.parametrize("kind", ["cuda", "nonsense", "nn"])
def test_a_device_that_is_not_there(kind):
    if kind == "cuda" and torch.cuda.is_available():
        pytest.skip("this machine has such a device")
    with pytest.raises(SystemExit, match=f"--device {kind}: torch .* finds no such device"):
        launch.place(kind)
