"""CUDA_DEVICE_MAX_CONNECTIONS is set where that is of use, and nothing else is ever set."""
import ctypes
import os

import pytest
import torch

from goccl import _queues

# What decides: whether the variable is set, torch has CUDA, CUDA has begun, and there is a device.
CASES = {
    "of use": (None, "13.0", False, True, "32"),
    "set by the user": ("8", "13.0", False, True, "8"),
    "set to nothing": ("", "13.0", False, True, ""),
    "torch without CUDA": (None, None, False, True, None),
    "CUDA has begun": (None, "13.0", True, True, None),
    "no device": (None, "13.0", False, False, None),
}


def getenv(name: str) -> str | None:
    """What a library written in C sees."""
    get = ctypes.CDLL(None).getenv
    get.argtypes, get.restype = [ctypes.c_char_p], ctypes.c_char_p
    value = get(name.encode())
    return None if value is None else value.decode()


@pytest.mark.parametrize("case", CASES)
def test_variable(case, monkeypatch, tmp_path):
    value, cuda, begun, device, want = CASES[case]
    monkeypatch.delenv(_queues.VARIABLE, raising=False)
    if value is not None:
        monkeypatch.setenv(_queues.VARIABLE, value)
    monkeypatch.setattr(torch.version, "cuda", cuda)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: begun)
    monkeypatch.setattr(_queues, "DEVICES", str(tmp_path / "nvidia[0-9]*"))
    if device:
        (tmp_path / "nvidia0").touch()
    (tmp_path / "nvidiactl").touch()
    before = dict(os.environ)
    monkeypatch.setenv("GOCCL_TEST_QUEUES", "1")  # puts the environment back, whatever happens
    assert _queues.ask_for_all() == (want == "32")
    assert os.environ.get(_queues.VARIABLE) == want
    assert getenv(_queues.VARIABLE) == want
    after = dict(os.environ)
    for name in _queues.VARIABLE, "GOCCL_TEST_QUEUES":
        before.pop(name, None)
        after.pop(name, None)
    assert after == before
    monkeypatch.delenv(_queues.VARIABLE, raising=False)


def test_import_sets_nothing_without_a_device(python):
    python("""
        import glob, os, torch
        before = dict(os.environ)
        import goccl
        after = dict(os.environ)
        if glob.glob("/dev/nvidia[0-9]*"):  # the one exception
            after.pop("CUDA_DEVICE_MAX_CONNECTIONS", None)
            before.pop("CUDA_DEVICE_MAX_CONNECTIONS", None)
        assert after == before, (before, after)
    """)
