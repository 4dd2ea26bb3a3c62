"""The structures of goccl.h, for ctypes."""
import ctypes


class Error(ctypes.Structure):
    _fields_ = [("code", ctypes.c_int32), ("peer", ctypes.c_int32), ("text", ctypes.c_char * 2048)]


class Block(ctypes.Structure):
    _fields_ = [("ptr", ctypes.c_void_p), ("count", ctypes.c_uint64)]


class Call(ctypes.Structure):
    _fields_ = [("coll", ctypes.c_int32), ("dtype", ctypes.c_int32), ("redop", ctypes.c_int32),
                ("root", ctypes.c_int32), ("tag", ctypes.c_uint32), ("n_in", ctypes.c_uint32),
                ("n_out", ctypes.c_uint32), ("batch", ctypes.c_uint32), ("inputs", ctypes.POINTER(Block)),
                ("outputs", ctypes.POINTER(Block)), ("factor", ctypes.c_double), ("timeout_ns", ctypes.c_int64),
                ("key", ctypes.c_uint64), ("within", ctypes.c_uint64)]


class MeetingOptions(ctypes.Structure):
    _fields_ = [("rank", ctypes.c_int32), ("size", ctypes.c_int32), ("keeps_store", ctypes.c_int32),
                ("timeout_ns", ctypes.c_int64), ("name", ctypes.c_char_p),
                ("global_ranks", ctypes.POINTER(ctypes.c_uint64)), ("n_global_ranks", ctypes.c_size_t),
                ("address", ctypes.c_char_p), ("address_len", ctypes.c_size_t), ("failed", ctypes.c_char_p)]


class MeetingRequest(ctypes.Structure):
    _fields_ = [("op", ctypes.c_int32), ("number", ctypes.c_int64), ("keys_len", ctypes.c_size_t),
                ("value_len", ctypes.c_size_t)]


class GroupOptions(ctypes.Structure):
    _fields_ = [("abi", ctypes.c_uint32), ("rank", ctypes.c_int32), ("size", ctypes.c_int32),
                ("timeout_ns", ctypes.c_int64), ("name", ctypes.c_char_p), ("options", ctypes.c_char_p),
                ("shim_version", ctypes.c_char_p), ("device", ctypes.c_char_p)]
