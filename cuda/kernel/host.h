#pragma once

// What CUDA gives to the kernels, in C++: with it a compiler of the host makes a library in which each kernel is a
// function that runs the threads of a launch one after the other. The tests compare that library with ccl/kernel.

#include <string.h>

#include "arguments.h"

static_assert(__builtin_offsetof(Arguments, src) == 8, "arguments.go says so");
static_assert(__builtin_offsetof(Arguments, n) == 72, "arguments.go says so");
static_assert(__builtin_offsetof(Arguments, factor) == 80, "arguments.go says so");
static_assert(__builtin_offsetof(Arguments, count) == 88, "arguments.go says so");

#define __device__
#define __forceinline__ inline __attribute__((always_inline))
#define UNROLLED
#define NOT_UNROLLED

struct Place {
    u32 x;
};

static Place gridDim, blockIdx, blockDim, threadIdx;

struct alignas(16) uint4 {
    u32 x, y, z, w;
};

static inline uint4 load_words(const void *p) { return *(const uint4 *)p; }
static inline void store_words(void *p, uint4 v) { *(uint4 *)p = v; }

template <class T> static inline T *global(u64 address) { return (T *)address; }

typedef void Kernel(const Arguments &);

static void launch(Kernel *kernel, const Arguments &a, u32 grid, u32 block)
{
    gridDim.x = grid;
    blockDim.x = block;
    for (blockIdx.x = 0; blockIdx.x < grid; blockIdx.x++)
        for (threadIdx.x = 0; threadIdx.x < block; threadIdx.x++)
            kernel(a);
}

#define KERNEL(name, ...)                                                 \
    static void run_##name(const Arguments &a) { __VA_ARGS__(a); }        \
    extern "C" void goccl_##name(const Arguments *a, u32 grid, u32 block) \
    {                                                                     \
        launch(run_##name, *a, grid, block);                              \
    }

template <class To, class From> static inline To bits_of(From from)
{
    static_assert(sizeof(To) == sizeof(From), "the bits of a number");
    To to;
    memcpy(&to, &from, sizeof(to));
    return to;
}

// There is one thread, and nobody else looks.
static inline void __threadfence_system() {}

static inline u64 atomicAdd_system(u64 *at, u64 more)
{
    const u64 before = *at;
    *at = before + more;
    return before;
}

static inline u32 __float_as_uint(float f) { return bits_of<u32>(f); }
static inline float __uint_as_float(u32 u) { return bits_of<float>(u); }
static inline s64 __double_as_longlong(double f) { return bits_of<s64>(f); }
static inline double __longlong_as_double(s64 u) { return bits_of<double>(u); }

// One rounding each: these are compiled with -ffp-contract=off.
static inline float __fadd_rn(float x, float y) { return x + y; }
static inline float __fmul_rn(float x, float y) { return x * y; }
static inline double __dadd_rn(double x, double y) { return x + y; }
static inline double __dmul_rn(double x, double y) { return x * y; }
static inline float __double2float_rn(double x) { return (float)x; }

static inline float half_to_float(u16 h)
{
    u32 sign = (u32)(h & 0x8000) << 16, m = (u32)(h & 0x7fff) << 13;
    if (m >= 0x7c00u << 13)
        return __uint_as_float(sign | (m + (224u << 23)));
    return __uint_as_float(sign | __float_as_uint(__uint_as_float(m) * 0x1p112f));
}

static inline u16 float_to_half(float f) // which is not NaN
{
    u32 u = __float_as_uint(f), m = u & 0x7fffffff;
    u16 sign = (u16)(u >> 16 & 0x8000);
    if (m >= 0x477ff000) // from here rounding reaches infinity
        return sign | 0x7c00;
    if (m < 0x38800000) // 2^-14: the last place of 0.5 is that of a subnormal
        return sign | (u16)(__float_as_uint(__uint_as_float(m) + 0.5f) - 0x3f000000);
    return sign | (u16)((m - (112u << 23) + 0xfff + (m >> 13 & 1)) >> 13);
}

// Where the fields of Arguments are, for a test.
extern "C" void goccl_offsets(u64 *at)
{
    const u64 all[] = {sizeof(Arguments), __builtin_offsetof(Arguments, dst), __builtin_offsetof(Arguments, src),
                       __builtin_offsetof(Arguments, n), __builtin_offsetof(Arguments, factor),
                       __builtin_offsetof(Arguments, count)};
    memcpy(at, all, sizeof(all));
}
