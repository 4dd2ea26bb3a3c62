"""Runs tests that torch wrote for one GPU a rank on CPU tensors: calls for a GPU get the CPU.

Most of these tests are about DistributedDataParallel or about process groups, and use a GPU only because NCCL needs
one.
"""
import contextlib
from unittest import mock

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.overrides import TorchFunctionMode


def is_device(value):
    if isinstance(value, str):
        return value.startswith("cuda")
    return isinstance(value, torch.device) or type(value) is int


class Tensors(TorchFunctionMode):
    """Executes on the CPU every call of torch that names a device."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if kwargs.get("device") is not None:
            kwargs = {**kwargs, "device": "cpu"}
        if function is torch.Tensor.cuda:
            return args[0]
        if function is torch.Tensor.to and len(args) > 1 and is_device(args[1]):
            args = (args[0], "cpu", *args[2:])
        return function(*args, **kwargs)


def module_to(to):
    def on_cpu(self, *args, **kwargs):
        kwargs.pop("device", None)
        args = [arg for arg in args if not is_device(arg)]
        return to(self, *args, **kwargs) if args or kwargs else self

    return on_cpu


def ddp_init(init):
    def on_cpu(self, module, device_ids=None, output_device=None, *args, **kwargs):
        return init(self, module, None, None, *args, **kwargs)

    return on_cpu


class Stream(contextlib.nullcontext):
    """A stream, an event or a choice of device, for a device that does everything at once."""

    def __init__(self, *_args, **_kwargs):
        super().__init__()

    def __getattr__(self, name):
        return nothing(None)


def nothing(result):
    """Returns a new function each time, so that torch.compile can tell the functions apart."""
    return lambda *_args, **_kwargs: result


@contextlib.contextmanager
def dressed(rank):
    """Inside this context the process acts as if its CPU were the GPU with its rank's number."""
    replacements = [
        (torch.nn.Module, "cuda", lambda self, device=None: self),
        (torch.nn.Module, "to", module_to(torch.nn.Module.to)),
        (DistributedDataParallel, "__init__", ddp_init(DistributedDataParallel.__init__)),
        (torch, "Stream", type("Stream", (Stream,), {})),
        (torch, "Event", type("Event", (Stream,), {})),
    ]
    for module in (torch.cuda, torch.accelerator):
        replacements += [(module, name, nothing(None))
                         for name in ("set_device", "set_device_index", "synchronize", "empty_cache")]
        replacements += [(module, name, nothing(rank)) for name in ("current_device", "current_device_index")]
        replacements += [(module, name, type("Stream", (Stream,), {})) for name in ("Stream", "Event", "device")]
        replacements += [(module, name, type("Stream", (Stream,), {})) for name in ("stream", "current_stream")]
    with contextlib.ExitStack() as stack:
        for where, name, value in replacements:
            if hasattr(where, name):
                stack.enter_context(mock.patch.object(where, name, value))
        stack.enter_context(Tensors())
        yield
