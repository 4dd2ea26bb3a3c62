// gather: copies 1 to 8 chunks, each from a place of its own to a place of its own. The blocks of a launch share the
// chunks: block b has chunk b % count, so what comes from several devices comes at the same time.

#include "copy.cu"

INLINE void gather(const Gather &a)
{
    SHARED u64 found[8];
    const u32 count = (u32)a.count, blocks = gridDim.x, first = blockIdx.x % count;
    if (threadIdx.x == 0) {
        NOT_UNROLLED
        for (u32 k = first; k < count; k += blocks)
            found[k] = a.chunk[k].lent.place ? placed(a.chunk[k].lent, a.chunk[k].src, a.chunk[k].n, 1) : a.chunk[k].src;
    }
    __syncthreads();
    NOT_UNROLLED
    for (u32 k = first; k < count; k += blocks) { // more than one where there are fewer blocks than chunks
        const u64 sharing = blocks > count ? (blocks - k + count - 1) / count : 1;
        const Share share = {(u64)(blockIdx.x / count) * blockDim.x + threadIdx.x, sharing * blockDim.x, a.chunk[k].n, 0};
        copy_bytes(a.chunk[k].dst, found[k], share);
    }
}

KERNEL_OF(Gather, gather, gather)
