"""Hardware queues of GPUs: the one variable of the environment that importing goccl may set."""

from __future__ import annotations

import glob
import os

import torch

VARIABLE = "CUDA_DEVICE_MAX_CONNECTIONS"
MOST = "32"  # of a process, by default 8
DEVICES = "/dev/nvidia[0-9]*"


def ask_for_all() -> bool:
    """Sets ``CUDA_DEVICE_MAX_CONNECTIONS=32`` if it is of use here, and nobody has set it. Returns whether it has.

    A group that waits for a late rank stops some hardware queues of its process, and what the program computes may be
    in one of them: with 8 queues a quarter of all programs lost the overlap so, with 32 one in sixteen. The driver reads
    the variable when CUDA begins. So this is called when goccl is imported, before it asks torch for devices, and not
    when a group is made: programs call ``torch.cuda.set_device`` before that. Processes that the program starts
    inherit the variable. ``docs/cuda.md`` describes it.
    """
    if VARIABLE in os.environ or torch.version.cuda is None or torch.cuda.is_initialized() or not glob.glob(DEVICES):
        return False
    os.environ[VARIABLE] = MOST  # that of C, too, where the driver looks
    return True
