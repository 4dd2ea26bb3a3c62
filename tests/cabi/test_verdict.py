"""A message from another process is read within its bounds.

Rank 0 is this test, through the C ABI, and rank 1 is a group of torch.
"""
import ctypes
import datetime
import threading
import time

import pytest
import torch.distributed as dist
from test_cabi import OK, SEND, Block, Call, lib, open_group  # noqa: F401
from test_cabi_meeting import ADD, CHECK, PAUSE, READ, SET, SWAP, meet

U8 = 6
VERDICT = 0x80000001  # the tag of the first monitored barrier's verdict
BYTES = 512


class Board:
    """The records of a meeting, in a store of torch."""

    def __init__(self, store):
        self.store = store

    def carry_out(self, op, keys, value, number):
        """(number, values) of the answer."""
        if op == ADD:
            return self.store.add(keys[0], number), []
        if op == SET:
            self.store.set(keys[0], value)
        if op == CHECK:
            return int(self.store.check(keys)), []
        if op == READ:
            return 0, [self.store.get(key) for key in keys]
        if op == SWAP:
            return 0, [self.store.compare_set(keys[0], "", value.decode())]
        if op == PAUSE:
            time.sleep(number / 1e9)
        return 0, []


def test_a_verdict_without_a_zero(lib):  # noqa: F811
    from goccl import __version__, _loader

    store, seen = dist.HashStore(), []

    def rank_1():
        core = _loader.core()
        backend = core.create(store, 1, 2, core.Options(datetime.timedelta(seconds=20)))
        with pytest.raises(dist.DistBackendError) as caught:
            backend.monitored_barrier(datetime.timedelta(seconds=10), False)
        seen.append(str(caught.value))
        backend.shutdown()

    thread = threading.Thread(target=rank_1)
    thread.start()
    code, error, group, address = open_group(lib, 0, 2, timeout=20, shim=__version__.encode())
    assert code == OK, error.text
    code, why, meeting = meet(lib, Board(store), 0, 2, address)
    assert code == OK, why
    assert lib.goccl_meeting_join(meeting, group, ctypes.c_int64(0), None, ctypes.byref(error)) == OK, error.text
    assert lib.goccl_meeting_free(meeting) == OK
    text = ctypes.create_string_buffer(b"A" * BYTES, BYTES)
    block = Block(ctypes.cast(text, ctypes.c_void_p), BYTES)
    call = Call(SEND, U8, 0, 1, VERDICT, 1, 0, 0, ctypes.pointer(block), None, 1.0, -1)
    assert lib.goccl_run(group, ctypes.byref(call), ctypes.c_int64(0), None, None) == OK
    thread.join(30)
    lib.goccl_group_close(group, None)
    [message] = seen
    assert message.splitlines()[1] == " Original exception: " + "A" * BYTES + " [goccl E3]"
