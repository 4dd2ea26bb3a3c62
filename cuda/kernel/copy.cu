// copy: n bytes, in the largest units in which dst and src[0] are aligned alike.

#pragma once

#include "fold.h"

template <class T> INLINE void copy_units(u64 to, u64 from, const Share &share)
{
    const int unroll = 4;
    const u64 thread = share.thread, threads = share.threads, dst = to + share.bytes, src = from + share.bytes;
    u64 head = (0 - dst) % sizeof(T);
    if (head > share.n)
        head = share.n;
    const u64 units = (share.n - head) / sizeof(T), whole = units * sizeof(T);
    NOT_UNROLLED
    for (u64 i = thread; i < units; i += unroll * threads) {
        u64 at[unroll];
        T x[unroll];
        UNROLLED
        for (int j = 0; j < unroll; j++) {
            at[j] = i + j * threads < units ? i + j * threads : i; // the same twice, behind the end
            x[j] = Memory<T>::load(src + head, at[j]);
        }
        UNROLLED
        for (int j = 0; j < unroll; j++)
            Memory<T>::store(dst + head, at[j], x[j]);
    }
    NOT_UNROLLED
    for (u64 i = thread; i < share.n - whole; i += threads) {
        const u64 at = i < head ? i : i + whole;
        Memory<u8>::store(dst, at, Memory<u8>::load(src, at));
    }
}

INLINE void copy_bytes(u64 to, u64 from, const Share &share)
{
    const u64 apart = to ^ from;
    if (apart % 16 == 0)
        copy_units<Pack>(to, from, share);
    else if (apart % 8 == 0)
        copy_units<u64>(to, from, share);
    else if (apart % 4 == 0)
        copy_units<u32>(to, from, share);
    else if (apart % 2 == 0)
        copy_units<u16>(to, from, share);
    else
        copy_units<u8>(to, from, share);
}

INLINE void copy(const Arguments &a) { copy_bytes(a.dst, find_sources(a, 1, 1)[0], whole(a)); }

KERNEL(copy, copy)
