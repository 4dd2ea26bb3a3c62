"""NULL in the C ABI is an invalid argument that is named, not an internal error with a stack."""
import ctypes

import goccl._loader
import pytest


class Error(ctypes.Structure):
    _fields_ = [("code", ctypes.c_int32), ("peer", ctypes.c_int32), ("text", ctypes.c_char * 2048)]


@pytest.fixture(scope="module")
def library():
    return ctypes.CDLL(goccl._loader.core().library_path())


def refused(function, *args):
    error = Error()
    code = function(*args, ctypes.byref(error))
    text = error.text.decode(errors="replace")
    assert code and "goroutine" not in text and "internal" not in text, text
    return text


def test_null(library):
    number, handle, none = ctypes.c_int64(), ctypes.c_uint64(1 << 40), None
    size = ctypes.c_size_t
    assert "options is NULL" in refused(library.goccl_group_open, none, ctypes.byref(handle), none, size(0), none)
    assert "addresses is NULL" in refused(library.goccl_group_join, handle, none, none, 2, number, none)
    assert "next is NULL" in refused(library.goccl_group_shrink, handle, none, size(0), 0, ctypes.c_int64(1), none, number, none)
    assert "options is NULL" in refused(library.goccl_meeting_open, none, ctypes.byref(handle))
    assert "values is NULL" in refused(library.goccl_meeting_step, handle, number, none, none, size(1), none, none, size(0))
    assert "call is NULL" in refused(library.goccl_run, handle, none, number, none)
    assert "call is NULL" in refused(library.goccl_start, handle, none, none, none)
    assert "done is NULL" in refused(library.goccl_group_drain, handle, number, none)
    assert "state is NULL" in refused(library.goccl_group_state_of, handle, none)
    assert "memory is NULL" in refused(library.goccl_alloc, b"", size(64), none)


def test_a_group_cannot_become_itself(library):
    assert refused(library.goccl_group_become, ctypes.c_uint64(1 << 40), ctypes.c_uint64(1 << 40))
