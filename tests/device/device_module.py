"""What torch.sim is: the functions that torch, DistributedDataParallel, FSDP and DeviceMesh ask of a device's module.

All of it is torch's own, by way of the device's guard (device.cpp).
"""
import contextlib
import ctypes

import torch

NAME = "sim"


def _index(device):
    if device is None:
        return torch.accelerator.current_device_index()
    if isinstance(device, int):
        return torch.accelerator.current_device_index() if device < 0 else device
    index = torch.device(device).index
    return torch.accelerator.current_device_index() if index is None else index


class Stream(torch.Stream):
    def __new__(cls, device=None, priority=0):
        return super().__new__(cls, device=torch.device(NAME, _index(device)), priority=priority)


class Event(torch.Event):
    def __new__(cls, enable_timing=False, blocking=False, interprocess=False):
        return super().__new__(cls, device=NAME, enable_timing=enable_timing, blocking=blocking,
                               interprocess=interprocess)


@contextlib.contextmanager
def stream(chosen):
    """Makes a stream the current one of its device; None changes nothing."""
    if chosen is None:
        yield
        return
    device = torch.accelerator.current_device_index()
    former = torch.accelerator.current_stream(chosen.device_index)
    torch.accelerator.set_stream(chosen)
    try:
        yield
    finally:
        torch.accelerator.set_stream(former)
        torch.accelerator.set_device_index(device)


@contextlib.contextmanager
def device(chosen):
    """Makes a device the current one; a negative index changes nothing."""
    former = torch.accelerator.current_device_index()
    torch.accelerator.set_device_index(_index(chosen))
    try:
        yield
    finally:
        torch.accelerator.set_device_index(former)


def is_available():
    return device_count() > 0


def is_initialized():
    return True


def init():
    pass


_lazy_init = init


def device_count():
    return torch.ops.goccl_sim.device_count()


def current_device():
    return torch.accelerator.current_device_index()


def set_device(device):
    torch.accelerator.set_device_index(_index(device))


def set_stream(chosen):
    torch.accelerator.set_stream(chosen)


def current_stream(device=None):
    return torch.accelerator.current_stream(_index(device))


def default_stream(device=None):
    kind = torch.Stream(device=NAME).device_type
    return torch.Stream(stream_id=0, device_index=_index(device), device_type=kind)


def synchronize(device=None):
    torch.accelerator.synchronize(_index(device))


def empty_cache():
    torch.ops.goccl_sim.trim()


class memory:  # the name of a module of torch.cuda
    class CUDAPluggableAllocator:
        """The functions from which a pool has its memory."""

        def __init__(self, path, alloc, free):
            library = ctypes.CDLL(path)
            self._functions = [ctypes.cast(getattr(library, name), ctypes.c_void_p).value for name in (alloc, free)]

        def allocator(self):
            return self._functions


class MemPool:
    """A pool of memory that comes from an allocator. It keeps what was freed until empty_cache."""

    def __init__(self, allocator):
        self.id = torch.ops.goccl_sim.pool(*allocator)


@contextlib.contextmanager
def use_mem_pool(pool, device=None):
    former = torch.ops.goccl_sim.use_pool(pool.id)
    try:
        yield
    finally:
        torch.ops.goccl_sim.use_pool(former)


def is_bf16_supported(including_emulation=True):
    return True


def get_amp_supported_dtype():
    return [torch.float16, torch.bfloat16, torch.float32]


# The kernels are the CPU's, and draw their numbers as it does.


def _is_in_bad_fork():
    return False


def manual_seed(seed):
    pass


manual_seed_all = manual_seed


def initial_seed():
    return torch.initial_seed()


def get_rng_state(device=NAME):
    return torch.default_generator.get_state()


def set_rng_state(state, device=NAME):
    torch.default_generator.set_state(state)
