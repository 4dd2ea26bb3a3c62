"""What several test files share."""
import datetime
import time

import pytest
import torch

TORCH = tuple(int(part) for part in torch.__version__.split(".")[:2])


def since(version, what):
    """Skips a test where torch is older than version, a pair of numbers; what says what it lacks then."""
    return pytest.mark.skipif(TORCH < version, reason=f"{what}; this is torch {torch.__version__}")


def seconds(s):
    return datetime.timedelta(seconds=s)


def until(condition, what):
    """Returns when the condition holds; what is the message if it does not come to hold in half a minute."""
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.002)


def has_exception(work):
    """What the Work says of its exception. torch before 2.13 cannot hand an exception_ptr to Python, there only is_success is asked."""
    return not work.is_success() if TORCH < (2, 13) else work.exception() is not None
