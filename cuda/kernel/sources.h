#pragma once

// Where a launch reads. A place is a word that a peer has written: it is not followed out of the memory that is lent,
// nor to an address that is not aligned.

#include "element.h"

// A place is an offset with this bit; without it the source is at its own address. The bits above are a number.
#define PLACE_LENT ((u64)1 << 40)

INLINE u64 placed(const Lent &lent, u64 own, u64 bytes, u64 align)
{
    const u64 place = load_place(lent.place), at = place % PLACE_LENT;
    if (!(place & PLACE_LENT) || at % align != 0 || bytes > lent.bytes || at > lent.bytes - bytes)
        return own;
    return lent.base + at;
}

INLINE u64 source(const Arguments &a, u32 k, u64 bytes, u64 align)
{
    if (!(a.indirect >> k & 1))
        return a.src[k];
    return placed(a.lent[k], a.src[k], bytes, align);
}

// Finds the addresses of all sources, once for a block. All threads call it.
INLINE const u64 *find_sources(const Arguments &a, u64 size, u64 align)
{
    SHARED u64 found[8];
    if (threadIdx.x == 0) {
        NOT_UNROLLED
        for (u32 k = 0; k < a.count; k++)
            found[k] = source(a, k, a.n * size, align);
    }
    __syncthreads();
    return found;
}
