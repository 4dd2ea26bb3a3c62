"""User-defined plans (GOCCL_PLAN) and GOCCL_DETERMINISM, as options of a group."""
import pytest
import torch
import torch.distributed as dist

import goccl

# An all-reduce of three ranks that adds x₂ + x₁ + x₀.
BACKWARDS = """
goccl plan format 2
plan backwards all_reduce ranks=3 split=1 chans=1 needs=messages alias=in_place
rank 0
  tmp 0/0
  lane 0
    0 send in[0] to 1
    1 send in[0] to 2
  lane 1
    0 recv tmp[0] from 2
    1 recvreduce tmp[0] = tmp[0] + msg from 1
    2 reduce out[0] = tmp[0] + in[0] final after 0.1
rank 1
  tmp 0/0
  lane 0
    0 send in[0] to 0
    1 send in[0] to 2
  lane 1
    0 recv tmp[0] from 2
    1 reduce tmp[0] = tmp[0] + in[0]
    2 recvreduce out[0] = tmp[0] + msg from 0 final after 0.1
rank 2
  tmp 0/0
  lane 0
    0 send in[0] to 0
    1 send in[0] to 1
  lane 1
    0 recvreduce tmp[0] = in[0] + msg from 1
    1 recvreduce out[0] = tmp[0] + msg from 0 final after 0.1
"""


def sum_of(rank, options):
    """From left to right the sum is 0, from right to left it is 1."""
    group = dist.new_group([0, 1, 2], pg_options=options)
    given = torch.tensor([1.0, 2.0**30, -(2.0**30)])[rank].reshape(1)
    dist.all_reduce(given, group=group)
    return given.item()


def check_own_plan(rank, file):
    assert sum_of(rank, goccl.Options(determinism=4)) == 0
    assert sum_of(rank, goccl.Options(plan=file)) == 1


def test_own_plan(trio, tmp_path):
    file = tmp_path / "backwards.plan"
    file.write_text(BACKWARDS.lstrip())
    trio.run(check_own_plan, str(file))


def check_wrong_plan(rank, file):
    with pytest.raises(ValueError) as caught:
        sum_of(rank, goccl.Options(plan=file))
    assert "is wrong: " in str(caught.value) and "rank 0" in str(caught.value), str(caught.value)


def test_wrong_plan_is_refused(trio, tmp_path):
    file = tmp_path / "wrong.plan"
    file.write_text(BACKWARDS.lstrip().replace("1 send in[0] to 2\n", "1 send in[0] to 1\n", 1))
    trio.run(check_wrong_plan, str(file))
