"""Helpers that several test files share."""
import datetime
import time

import pytest
import torch

TORCH = tuple(int(part) for part in torch.__version__.split(".")[:2])


def since(version, what):
    """Skips a test if torch is older than version, a pair of numbers; what names the feature that it lacks."""
    return pytest.mark.skipif(TORCH < version, reason=f"{what}; this is torch {torch.__version__}")


def seconds(s):
    return datetime.timedelta(seconds=s)


def until(condition, what):
    """Returns when the condition holds; fails with the message what if it does not hold within half a minute."""
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.002)


def is_stopped(pid):
    """Whether a process has stopped for a signal."""
    with open(f"/proc/{pid}/stat") as stat:
        return stat.read().rpartition(")")[2].split()[0] == "T"


def has_exception(work):
    """Returns whether the Work has an exception.

    torch before 2.13 cannot hand an exception_ptr to Python; there only is_success is checked.
    """
    return not work.is_success() if TORCH < (2, 13) else work.exception() is not None
