"""Meetings through the C ABI, over a dictionary, as a carrier without torch would do them."""
import ctypes
import pathlib
import threading
import time

import pytest
from structs import Error, GroupOptions, MeetingOptions, MeetingRequest

ADD, SET, CHECK, READ, SWAP, PAUSE, LOOK, OVER = range(1, 9)
OK, INVALID, PEER_LEFT = 0, 1, 5
MAX_ADDRESS = 16384


@pytest.fixture(scope="module")
def lib():
    import goccl
    return ctypes.CDLL(str(pathlib.Path(goccl.__file__).with_name("libgoccl.so")))


class Board:
    def __init__(self):
        self.values, self.lock = {}, threading.Lock()

    def carry_out(self, op, keys, value, number):
        """(number, values) of the answer."""
        with self.lock:
            if op == ADD:
                total = int(self.values.get(keys[0], b"0")) + number
                self.values[keys[0]] = str(total).encode()
                return total, []
            if op == SET:
                self.values[keys[0]] = value
            if op == CHECK:
                return int(all(key in self.values for key in keys)), []
            if op == READ:
                return 0, [self.values[key] for key in keys]
            if op == SWAP:
                return 0, [self.values.setdefault(keys[0], value)]
        if op == PAUSE:
            time.sleep(number / 1e9)
        return 0, []


def meet(lib, board, rank, size, address, failed=None):
    """(code, text, handle) of the meeting of a rank."""
    options = MeetingOptions(rank, size, 0, 10 * 10**9, b"cabi", None, 0, address, len(address), failed)
    meeting, error, request = ctypes.c_uint64(), Error(), MeetingRequest()
    assert lib.goccl_meeting_open(ctypes.byref(options), ctypes.byref(meeting), None) == OK
    buffer = ctypes.create_string_buffer(65536 + 192 * size)
    number, values = 0, []
    while True:
        array = (ctypes.c_void_p * len(values))(*[ctypes.cast(ctypes.c_char_p(v), ctypes.c_void_p) for v in values])
        lengths = (ctypes.c_size_t * len(values))(*map(len, values))
        code = lib.goccl_meeting_step(meeting, ctypes.c_int64(number), array, lengths, ctypes.c_size_t(len(values)),
                                      ctypes.byref(request), buffer, ctypes.c_size_t(len(buffer)), ctypes.byref(error))
        if code != OK or request.op == OVER:
            return code, error.text.decode(), meeting
        keys = buffer.raw[:request.keys_len].decode().splitlines()
        value = buffer.raw[request.keys_len : request.keys_len + request.value_len]
        number, values = board.carry_out(request.op, keys, value, request.number)


def in_threads(*calls):
    results = [None] * len(calls)

    def run(at):
        results[at] = calls[at]()
    threads = [threading.Thread(target=run, args=(at,)) for at in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return results


def opened(lib, rank):
    group, length, error = ctypes.c_uint64(), ctypes.c_size_t(), Error()
    buffer = ctypes.create_string_buffer(MAX_ADDRESS)
    options = GroupOptions(5, rank, 2, 10 * 10**9, b"cabi", b"", b"test", None)
    assert lib.goccl_group_open(ctypes.byref(options), ctypes.byref(group), buffer, ctypes.c_size_t(MAX_ADDRESS),
                                ctypes.byref(length), ctypes.byref(error)) == OK, error.text
    return group, buffer.raw[: length.value]


def test_ranks_meet_and_join(lib):
    board, groups = Board(), [opened(lib, rank) for rank in range(2)]

    def join(rank):
        code, text, meeting = meet(lib, board, rank, 2, groups[rank][1])
        assert code == OK, text
        error = Error()
        code = lib.goccl_meeting_join(meeting, groups[rank][0], ctypes.c_int64(0), None, ctypes.byref(error))
        assert lib.goccl_meeting_free(meeting) == OK
        return code, error.text
    assert in_threads(lambda: join(0), lambda: join(1)) == [(OK, b"")] * 2
    for group, _ in groups:
        assert lib.goccl_group_free(group) == OK


def test_a_rank_that_cannot_join_is_named(lib):
    board = Board()
    results = in_threads(lambda: meet(lib, board, 0, 2, b"address"), lambda: meet(lib, board, 1, 2, b"", b"no memory"))
    for code, text, meeting in results:
        assert code == PEER_LEFT and "(rank 1)" in text and text.endswith("cannot join: no memory [goccl E5]"), text
        assert lib.goccl_meeting_join(meeting, ctypes.c_uint64(1 << 40), ctypes.c_int64(0), None, None) != OK
        assert lib.goccl_meeting_free(meeting) == OK
        assert lib.goccl_meeting_free(meeting) == INVALID


def test_one_that_is_interrupted_is_named(lib):
    board, error, request = Board(), Error(), MeetingRequest()
    options = MeetingOptions(0, 2, 0, 10 * 10**9, b"cabi", None, 0, b"address", 7, None)
    meeting = ctypes.c_uint64()
    assert lib.goccl_meeting_open(ctypes.byref(options), ctypes.byref(meeting), None) == OK
    small = ctypes.create_string_buffer(4)
    assert lib.goccl_meeting_step(meeting, ctypes.c_int64(0), None, None, ctypes.c_size_t(0), ctypes.byref(request),
                                  small, ctypes.c_size_t(4), ctypes.byref(error)) == INVALID
    assert b"GOCCL_MEETING_BUFFER" in error.text
    code = lib.goccl_meeting_interrupt(meeting, b"Ctrl-C", ctypes.byref(request), small, ctypes.c_size_t(4),
                                       ctypes.byref(error))
    assert code != OK and b"Ctrl-C" in error.text
    assert lib.goccl_meeting_free(meeting) == OK
    assert board.values == {}
