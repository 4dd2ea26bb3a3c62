"""As much of NVIDIA's driver as the four questions need, by ctypes: nothing of goccl, and no torch.

test_gpu.py runs it on the library of cuda/driver/testdata/fakecuda.c.
"""
import ctypes
import mmap
import os
import time
from ctypes import POINTER, byref, c_int, c_size_t, c_uint, c_uint64, c_void_p

WAIT, WRITE = 4, 5  # CU_STREAM_MEM_OP_WAIT_VALUE_64, WRITE_VALUE_64; waits are for "not before", writes are fenced
NOT_READY = 600
WORDS, REGISTERS, DESCRIPTORS = 122, 99, 103  # attributes of a device
MEGABYTES_2 = 2 << 20


class CudaError(Exception):
    pass


class Word(ctypes.Structure):
    """CUstreamBatchMemOpParams."""

    _fields_ = [("operation", c_uint64), ("address", c_uint64), ("value", c_uint64), ("flags", c_uint64),
                ("alias", c_uint64), ("unused", c_uint64)]


class Properties(ctypes.Structure):
    """CUmemAllocationProp of pinned memory of a device, with a descriptor."""

    _fields_ = [("kind", c_int), ("handles", c_int), ("location", c_int), ("device", c_int), ("windows", c_void_p),
                ("flags", c_uint64)]


class Access(ctypes.Structure):
    _fields_ = [("location", c_int), ("device", c_int), ("flags", c_int)]


SIGNATURES = {
    "cuInit": [c_uint], "cuDriverGetVersion": [POINTER(c_int)], "cuGetErrorName": [c_int, POINTER(ctypes.c_char_p)],
    "cuDeviceGet": [POINTER(c_int), c_int], "cuDeviceGetAttribute": [POINTER(c_int), c_int, c_int],
    "cuDevicePrimaryCtxRetain": [POINTER(c_void_p), c_int], "cuCtxPushCurrent_v2": [c_void_p],
    "cuCtxPopCurrent_v2": [POINTER(c_void_p)],
    "cuStreamCreateWithPriority": [POINTER(c_void_p), c_uint, c_int], "cuStreamQuery": [c_void_p],
    "cuCtxGetStreamPriorityRange": [POINTER(c_int), POINTER(c_int)],
    "cuStreamBatchMemOp_v2": [c_void_p, c_uint, c_void_p, c_uint],
    "cuMemcpyAsync": [c_uint64, c_uint64, c_size_t, c_void_p],
    "cuMemHostRegister_v2": [c_void_p, c_size_t, c_uint], "cuMemHostUnregister": [c_void_p],
    "cuMemHostGetDevicePointer_v2": [POINTER(c_uint64), c_void_p, c_uint],
    "cuMemCreate": [POINTER(c_uint64), c_size_t, POINTER(Properties), c_uint64], "cuMemRelease": [c_uint64],
    "cuMemAddressReserve": [POINTER(c_uint64), c_size_t, c_size_t, c_uint64, c_uint64],
    "cuMemMap": [c_uint64, c_size_t, c_size_t, c_uint64, c_uint64],
    "cuMemSetAccess": [c_uint64, c_size_t, POINTER(Access), c_size_t],
    "cuMemExportToShareableHandle": [POINTER(c_int), c_uint64, c_int, c_uint64],
    "cuMemImportFromShareableHandle": [POINTER(c_uint64), c_void_p, c_int],
}


class Device:
    """The first device, with its primary context current on this thread. What it makes lives until the process ends."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libcuda.so.1")
        for name, arguments in SIGNATURES.items():
            getattr(self._library, name).argtypes = arguments
        self.call("cuInit", 0)
        version, device, context = c_int(), c_int(), c_void_p()
        self.call("cuDriverGetVersion", byref(version))
        self.call("cuDeviceGet", byref(device), 0)
        self.call("cuDevicePrimaryCtxRetain", byref(context), device)
        self.call("cuCtxPushCurrent_v2", context)
        self.version, self.handle, self.context = version.value, device.value, context.value

    def call(self, name: str, *arguments) -> None:
        code = getattr(self._library, name)(*arguments)
        if code:
            text = ctypes.c_char_p()
            self._library.cuGetErrorName(code, byref(text))
            raise CudaError(f"{name}: {(text.value or b'unknown').decode()} ({code})")

    def attribute(self, number: int) -> int:
        value = c_int()
        self.call("cuDeviceGetAttribute", byref(value), number, self.handle)
        return value.value

    def current(self) -> int | None:
        """Returns the context that is current on this thread."""
        context = c_void_p()
        self.call("cuCtxPopCurrent_v2", byref(context))
        self.call("cuCtxPushCurrent_v2", context)
        return context.value

    def stream(self) -> c_void_p:
        """Returns a stream as urgent as the device has them."""
        least, greatest, stream = c_int(), c_int(), c_void_p()
        self.call("cuCtxGetStreamPriorityRange", byref(least), byref(greatest))
        self.call("cuStreamCreateWithPriority", byref(stream), 1, greatest.value)
        return stream

    def words(self, stream: c_void_p, *operations: tuple[int, int, int]) -> None:
        """Enqueues writes and waits: (WRITE or WAIT, address, value)."""
        array = (Word * len(operations))(*(Word(what, at, value, 0, 0, 0) for what, at, value in operations))
        self.call("cuStreamBatchMemOp_v2", stream, len(operations), array, 0)

    def copy(self, to: int, source: int, count: int, stream: c_void_p) -> None:
        self.call("cuMemcpyAsync", to, source, count, stream)

    def done(self, stream: c_void_p) -> bool:
        if (code := self._library.cuStreamQuery(stream)) == NOT_READY:
            return False
        if code:
            self.call("cuStreamQuery", stream)
        return True

    def ends(self, stream: c_void_p, seconds: float, what: str) -> None:
        """Returns when everything in the stream has ended; an error after the given seconds."""
        end = time.monotonic() + seconds
        while not self.done(stream):
            if time.monotonic() > end:
                raise CudaError(f"{what} did not end in {seconds:g} s")

    def register(self, memory: "Shared") -> int:
        """Returns the device's address of memory of the host."""
        address = c_uint64()
        self.call("cuMemHostRegister_v2", memory.address, memory.bytes, 3)
        self.call("cuMemHostGetDevicePointer_v2", byref(address), memory.address, 0)
        return address.value

    def allocate(self, count: int = MEGABYTES_2) -> tuple[int, int]:
        """Returns the address of new memory of the device, and a descriptor."""
        handle, descriptor = c_uint64(), c_int()
        properties = Properties(1, 1, 1, self.handle, None, 0)
        self.call("cuMemCreate", byref(handle), count, byref(properties), 0)
        self.call("cuMemExportToShareableHandle", byref(descriptor), handle, 1, 0)
        return self._map(handle, count), descriptor.value

    def take(self, descriptor: int, count: int = MEGABYTES_2) -> int:
        """Returns the address of memory that another process has allocated."""
        handle = c_uint64()
        self.call("cuMemImportFromShareableHandle", byref(handle), c_void_p(descriptor), 1)
        return self._map(handle, count)

    def _map(self, handle: c_uint64, count: int) -> int:
        address = c_uint64()
        self.call("cuMemAddressReserve", byref(address), count, 0, 0, 0)
        self.call("cuMemMap", address, count, 0, handle, 0)
        self.call("cuMemSetAccess", address, count, byref(Access(1, self.handle, 3)), 1)
        self.call("cuMemRelease", handle)
        return address.value


class Shared:
    """Memory of a memfd, or of the descriptor of one."""

    def __init__(self, count: int, descriptor: int | None = None) -> None:
        self.descriptor = os.memfd_create("goccl-gpu") if descriptor is None else descriptor
        if descriptor is None:
            os.ftruncate(self.descriptor, count)
        self.bytes, self.view = count, mmap.mmap(self.descriptor, count)
        self._anchor = ctypes.c_char.from_buffer(self.view)
        self.address = ctypes.addressof(self._anchor)

    def word(self, at: int) -> c_uint64:
        return c_uint64.from_buffer(self.view, at)
