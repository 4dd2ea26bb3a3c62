#pragma once

// What CUDA gives to the kernels, in C++: with it a compiler of the host makes a library in which each kernel is a
// function that runs the threads of a launch one after the other. The tests compare that library with ccl/kernel.

#include <sched.h>
#include <string.h>

#include "table.h"

static_assert(__builtin_offsetof(Step, src) == 8, "arguments.go says so");
static_assert(__builtin_offsetof(Step, n) == 72, "arguments.go says so");
static_assert(__builtin_offsetof(Step, factor) == 80, "arguments.go says so");
static_assert(__builtin_offsetof(Step, count) == 88, "arguments.go says so");
static_assert(__builtin_offsetof(Step, kind) == 92, "arguments.go says so");

#define __device__
#define __forceinline__ inline __attribute__((always_inline))
#define UNROLLED
#define NOT_UNROLLED
#define SHARED static thread_local

struct Place {
    u32 x;
};

static thread_local Place gridDim, blockIdx, blockDim, threadIdx;

struct alignas(16) uint4 {
    u32 x, y, z, w;
};

static inline uint4 load_words(const void *p) { return *(const uint4 *)p; }
static inline void store_words(void *p, uint4 v) { *(uint4 *)p = v; }

static inline u64 load_place(u64 address) { return *(const u64 *)address; }

template <class T> static inline T *global(u64 address) { return (T *)address; }

template <class Parameter>
static void launch(void (*kernel)(const Parameter &), const Parameter &p, u32 grid, u32 block)
{
    gridDim.x = grid;
    blockDim.x = block;
    for (blockIdx.x = 0; blockIdx.x < grid; blockIdx.x++)
        for (threadIdx.x = 0; threadIdx.x < block; threadIdx.x++)
            kernel(p);
}

#define KERNEL_OF(Parameter, name, ...)                                   \
    static void body_##name(const Parameter &p) { __VA_ARGS__(p); }       \
    extern "C" void goccl_##name(const Parameter *p, u32 grid, u32 block) \
    {                                                                     \
        launch(body_##name, *p, grid, block);                             \
    }
#define KERNEL(name, ...) KERNEL_OF(Arguments, name, __VA_ARGS__)
#define RUN(name, ...) KERNEL_OF(Table, name, __VA_ARGS__)

template <class To, class From> static inline To bits_of(From from)
{
    static_assert(sizeof(To) == sizeof(From), "the bits of a number");
    To to;
    memcpy(&to, &from, sizeof(to));
    return to;
}

// The threads of a block go one after the other, the first one first, which finds the sources. A block of a table has
// one thread, and each launch is one of the host: ranks that wait for each other are threads of the host.
static inline void __threadfence_system() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
static inline void __syncthreads() {}
static inline int __syncthreads_or(int x) { return x; }
static inline void __nanosleep(u32) { sched_yield(); }
static inline u64 load_acquire(u64 address) { return __atomic_load_n((const u64 *)address, __ATOMIC_ACQUIRE); }
static inline void store_release(u64 address, u64 v) { __atomic_store_n((u64 *)address, v, __ATOMIC_RELEASE); }
static inline u64 load_relaxed(u64 address) { return __atomic_load_n((const u64 *)address, __ATOMIC_RELAXED); }
static inline void store_relaxed(u64 address, u64 v) { __atomic_store_n((u64 *)address, v, __ATOMIC_RELAXED); }

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

static inline float bfloat_to_float(u16 h) { return __uint_as_float((u32)h << 16); }

static inline u16 float_to_bfloat(float f) // which is not NaN
{
    const u32 u = __float_as_uint(f), lost = u & 0xffff, odd = u >> 16 & 1;
    return (u16)((u >> 16) + (lost + odd > 0x8000));
}

// The instructions on pairs, which have one NaN.
#define ON_PAIRS(name, widen, sign, narrow)                                      \
    static inline u32 name(u32 x, u32 y)                                         \
    {                                                                            \
        u32 r = 0;                                                               \
        for (int shift = 0; shift < 32; shift += 16) {                           \
            float f = widen((u16)(x >> shift)) sign widen((u16)(y >> shift));    \
            r |= (f != f ? 0x7fffu : narrow(f)) << shift;                        \
        }                                                                        \
        return r;                                                                \
    }
#define BF16X2
ON_PAIRS(add_f16x2, half_to_float, +, float_to_half)
ON_PAIRS(mul_f16x2, half_to_float, *, float_to_half)
ON_PAIRS(add_bf16x2, bfloat_to_float, +, float_to_bfloat)
ON_PAIRS(mul_bf16x2, bfloat_to_float, *, float_to_bfloat)

// Where the fields of Arguments and Table are, for a test.
extern "C" void goccl_offsets(u64 *at)
{
    static const Arguments a = {};
    const u64 indirect = (u64)((const char *)&a.indirect - (const char *)&a);
    const u64 lent = (u64)((const char *)&a.lent - (const char *)&a);
    const u64 all[] = {sizeof(Step), __builtin_offsetof(Step, dst), __builtin_offsetof(Step, src),
                       __builtin_offsetof(Step, n), __builtin_offsetof(Step, factor),
                       __builtin_offsetof(Step, count), __builtin_offsetof(Step, kind),
                       sizeof(Arguments), indirect, lent,
                       sizeof(Table), __builtin_offsetof(Table, released), __builtin_offsetof(Table, awaited),
                       __builtin_offsetof(Table, rank), __builtin_offsetof(Table, count),
                       __builtin_offsetof(Table, step)};
    memcpy(at, all, sizeof(all));
}
