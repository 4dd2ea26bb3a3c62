// copy: n bytes, in the largest units in which dst and src[0] are aligned alike.

#include "fold.h"

template <class T> INLINE void copy_units(const Arguments &a)
{
    const int unroll = 4;
    const u64 thread = thread_index(), threads = thread_count();
    u64 head = (0 - a.dst) % sizeof(T);
    if (head > a.n)
        head = a.n;
    const u64 units = (a.n - head) / sizeof(T), whole = units * sizeof(T);
    NOT_UNROLLED
    for (u64 i = thread; i < units; i += unroll * threads) {
        u64 at[unroll];
        T x[unroll];
        UNROLLED
        for (int j = 0; j < unroll; j++) {
            at[j] = i + j * threads < units ? i + j * threads : i; // the same twice, behind the end
            x[j] = Memory<T>::load(a.src[0] + head, at[j]);
        }
        UNROLLED
        for (int j = 0; j < unroll; j++)
            Memory<T>::store(a.dst + head, at[j], x[j]);
    }
    NOT_UNROLLED
    for (u64 i = thread; i < a.n - whole; i += threads) {
        const u64 at = i < head ? i : i + whole;
        Memory<u8>::store(a.dst, at, Memory<u8>::load(a.src[0], at));
    }
}

INLINE void copy(const Arguments &a)
{
    const u64 apart = a.dst ^ a.src[0];
    if (apart % 16 == 0)
        copy_units<Pack>(a);
    else if (apart % 8 == 0)
        copy_units<u64>(a);
    else if (apart % 4 == 0)
        copy_units<u32>(a);
    else if (apart % 2 == 0)
        copy_units<u16>(a);
    else
        copy_units<u8>(a);
}

KERNEL(copy, copy)
