#pragma once

// What the kernels need of CUDA and CUDA has under other names; host.h has the same for a host.

#include "arguments.h"

#define UNROLLED _Pragma("unroll")
#define NOT_UNROLLED _Pragma("unroll 1")

// The largest block of a launch; blockSize in launch.go is the same.
#define LARGEST_BLOCK 512

#define KERNEL(name, ...)                                                                                        \
    extern "C" __global__ void __launch_bounds__(LARGEST_BLOCK) goccl_##name(const __grid_constant__ Arguments a) \
    {                                                                                                            \
        __VA_ARGS__(a);                                                                                          \
    }

// The instructions keep subnormals and round to nearest even.
static __device__ __forceinline__ float half_to_float(u16 h)
{
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
    return f;
}

static __device__ __forceinline__ u16 float_to_half(float f)
{
    u16 h;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f));
    return h;
}

// The operands are in memory that has an address in global space; other accesses would look first which space it is.
template <class T> static __device__ __forceinline__ T *global(u64 address)
{
    void *p = (void *)address;
    __builtin_assume(__isGlobal(p));
    return (T *)p;
}

// For these the compiler does not see it. They are volatile, so they stay in their order.
static __device__ __forceinline__ uint4 load_words(const void *p)
{
    uint4 v;
    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(__cvta_generic_to_global(p)));
    return v;
}

static __device__ __forceinline__ void store_words(void *p, uint4 v)
{
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};"
                 :
                 : "l"(__cvta_generic_to_global(p)), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w));
}
