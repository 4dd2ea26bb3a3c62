"""Prints what torch makes of 8-bit floats, for float8_test.go: a line for each type and question, in hexadecimal."""
import hashlib
import random

import torch

random.seed(1)


def raw(t):
    return bytes(t.contiguous().view(torch.uint8).tolist())


def sources(values):
    """The bits of F32 where rounding can go wrong: the values, the middles between them, what is beside these; and others."""
    finite = sorted(v for v in set(values.tolist()) if 0 <= v < float("inf"))
    points = (finite + [(a + b) / 2 for a, b in zip(finite, finite[1:])]
              + [finite[-1] * (1 + s / 32) for s in range(1, 17)])
    bits = torch.tensor(points, dtype=torch.float32).view(torch.int32).tolist()
    all_bits = {b + d for b in bits for d in (-1, 0, 1) if b + d >= 0}
    all_bits |= {0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FC00000, 0x7FFFFFFF, 0x00800000, 0x007FFFFF}
    all_bits |= ({random.randrange(0x7F800000) for _ in range(300)}
                 | {random.randrange(0x34000000, 0x48000000) for _ in range(300)})
    return sorted(all_bits | {b | 0x80000000 for b in all_bits})


print("torch", torch.__version__)
for name, dtype in [("f8e4m3", torch.float8_e4m3fn), ("f8e5m2", torch.float8_e5m2)]:
    every = torch.arange(256).to(torch.uint8).view(dtype)
    print(name, "widen", raw(every.float()).hex())
    bits = sources(every.float())
    singles = torch.tensor([b - (b >> 31 << 32) for b in bits], dtype=torch.int32).view(torch.float32)
    print(name, "from", raw(singles).hex())
    print(name, "narrow", raw(singles.to(dtype)).hex())
    a, b = every.float().repeat_interleave(256), every.float().repeat(256)
    for op, result in [("sum", a + b), ("prod", a * b), ("min", torch.minimum(a, b)), ("max", torch.maximum(a, b))]:
        out = result.to(dtype).view(torch.uint8).clone()
        out[result.isnan()] &= 0x7F  # in torch the compiler chooses which of two NaN counts
        if op in ("min", "max"):  # which order no zeros in torch
            out[out == 0x80] = 0
        print(name, op, hashlib.sha256(raw(out)).hexdigest())
