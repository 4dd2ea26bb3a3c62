"""Every form of every collective with tensors of a device, as tests/python has them for those of the host."""
import pytest
import test_matrix
import torch

# Of each size, and each kind of operator; tests/python has all types, and the device only moves their bytes.
TYPES = [torch.float32, torch.bool, torch.complex128,
         *(pytest.param(each, marks=pytest.mark.long) for each in (torch.bfloat16, torch.int64, torch.complex64))]


def on_device(rank, check, *args):
    with torch.device("sim"):
        check(rank, *args)


@pytest.mark.parametrize("check", [test_matrix.check_moves, test_matrix.check_reductions])
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_forms(pair, check, dtype):
    pair.checked(on_device, check, 2, [dtype])


def test_lazy_views(pair):
    pair.checked(on_device, test_matrix.check_lazy)
