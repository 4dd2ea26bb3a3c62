"""Registered memory of devices: a pool of torch's allocator, whose memory comes from the core.

torch's allocator knows which streams use a tensor, and gives its memory to another one only after them. The core keeps
no such books.
"""

from __future__ import annotations

import threading
from types import ModuleType
from typing import Any

import torch

_lock = threading.Lock()
_pools: dict[torch.device, Any] = {}


def allocator(device: torch.device | str = "cuda") -> Any:
    """Returns what a MemPool of a type of device takes.

    Raises:
        NotImplementedError: if torch has no such devices.
    """
    from . import _loader

    module = _module(torch.device(device))
    return module.memory.CUDAPluggableAllocator(
        _loader.core().library_path(), "goccl_device_alloc", "goccl_device_free"
    ).allocator()


def _module(device: torch.device) -> ModuleType:
    module: ModuleType = torch.get_device_module(device)
    if not hasattr(module, "MemPool") or not module.is_available():
        raise NotImplementedError(
            f"goccl: there is no {device.type} device here, or torch has no pools of its memory; goccl.empty without a "
            "device gives tensors in registered memory of the host"
        )
    return module


def pool(device: torch.device | str | None) -> tuple[ModuleType, torch.device, Any]:
    """Returns the module and the pool of a device, the current one if it has no index."""
    from . import _loader
    from ._options import lines

    wanted = torch.device("cuda" if device is None else device)
    module = _module(wanted)
    index = module.current_device() if wanted.index is None else wanted.index
    place = torch.device(wanted.type, index)
    with _lock:
        if place not in _pools:
            _loader.core().device_arena(f"cuda:{index}", lines(None))
            with module.device(index):
                _pools[place] = module.MemPool(allocator(place))
        return module, place, _pools[place]


def empty(sizes: list[int], dtype: torch.dtype, device: torch.device | str) -> torch.Tensor:
    """Returns a tensor in registered memory of a device."""
    module, place, made = pool(device)
    try:
        with module.use_mem_pool(made, place):
            return torch.empty(sizes, dtype=dtype, device=place)
    except torch.OutOfMemoryError as e:
        raise torch.OutOfMemoryError(
            f"goccl.empty: no registered memory is left on {place} for {sizes} of {dtype}; a larger "
            "GOCCL_CUDA_REGISTERED would help"
        ) from e
