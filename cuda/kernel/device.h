#pragma once

// What the kernels need of CUDA and CUDA has under other names; host.h has the same for a host.

#include "table.h"

#define UNROLLED _Pragma("unroll")
#define NOT_UNROLLED _Pragma("unroll 1")
#define SHARED __shared__

// The largest block of a launch; blockSize in launch.go is the same.
#define LARGEST_BLOCK 512

#define KERNEL_OF(Parameter, name, ...)                                                                          \
    extern "C" __global__ void __launch_bounds__(LARGEST_BLOCK) goccl_##name(const __grid_constant__ Parameter p) \
    {                                                                                                            \
        __VA_ARGS__(p);                                                                                          \
    }
#define KERNEL(name, ...) KERNEL_OF(Arguments, name, __VA_ARGS__)
#define RUN(name, ...) KERNEL_OF(Table, name, __VA_ARGS__)

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

// Two numbers of 16 bits in a word, of which each result is rounded once. That gives the bits of rounding to F32 first,
// as F32 has more than twice their digits; but a NaN is the device's own.
#define ON_PAIRS(name, instruction)                                \
    static __device__ __forceinline__ u32 name(u32 x, u32 y)       \
    {                                                              \
        u32 r;                                                     \
        asm(instruction : "=r"(r) : "r"(x), "r"(y));               \
        return r;                                                  \
    }
ON_PAIRS(add_f16x2, "add.rn.f16x2 %0, %1, %2;")
ON_PAIRS(mul_f16x2, "mul.rn.f16x2 %0, %1, %2;")

// For BF16 they are x * 1 + y and x * y + -0, which have the same zeros, too: these come with sm_80, others with sm_90.
#if __CUDA_ARCH__ >= 800
#define BF16X2
ON_PAIRS(add_bf16x2, "{.reg .b32 one; mov.b32 one, 0x3f803f80; fma.rn.bf16x2 %0, %1, one, %2;}")
ON_PAIRS(mul_bf16x2, "{.reg .b32 zero; mov.b32 zero, 0x80008000; fma.rn.bf16x2 %0, %1, %2, zero;}")
#endif

// The operands are in memory that has an address in global space; other accesses would look first which space it is.
template <class T> static __device__ __forceinline__ T *global(u64 address)
{
    void *p = (void *)address;
    __builtin_assume(__isGlobal(p));
    return (T *)p;
}

// A word in memory of the host, which another device has written.
static __device__ __forceinline__ u64 load_place(u64 address)
{
    u64 place;
    asm volatile("ld.relaxed.sys.global.u64 %0, [%1];"
                 : "=l"(place)
                 : "l"(__cvta_generic_to_global((const void *)address)));
    return place;
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

// Flags and words that another device, or the host, writes or reads while the kernel runs. The compiler keeps all other
// accesses on their side.
static __device__ __forceinline__ u64 load_acquire(u64 address)
{
    u64 v;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];"
                 : "=l"(v)
                 : "l"(__cvta_generic_to_global((void *)address))
                 : "memory");
    return v;
}

static __device__ __forceinline__ void store_release(u64 address, u64 v)
{
    asm volatile("st.release.sys.global.u64 [%0], %1;"
                 :
                 : "l"(__cvta_generic_to_global((void *)address)), "l"(v)
                 : "memory");
}

// Packets, which order nothing but themselves.
static __device__ __forceinline__ u64 load_relaxed(u64 address)
{
    u64 v;
    asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(__cvta_generic_to_global((void *)address)));
    return v;
}

static __device__ __forceinline__ void store_relaxed(u64 address, u64 v)
{
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;"
                 :
                 : "l"(__cvta_generic_to_global((void *)address)), "l"(v));
}
