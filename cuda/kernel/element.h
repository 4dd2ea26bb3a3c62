#pragma once

// The arithmetic of elements, which has the bits of ccl/kernel. Every function rounds once: the intrinsics __fadd_rn,
// __fmul_rn and so on are never fused, and everything is compiled with -fmad=false -ftz=false besides.

#ifdef __CUDACC_RTC__
#include "device.h"
#else
#include "host.h"
#endif

#define INLINE static __device__ __forceinline__

// A format of floating-point numbers is described by its bits. Infinity is the largest magnitude that is not NaN,
// and Quiet are the bits that every NaN result has.
template <class B, class S, B Magnitude, B Infinity, B Quiet> struct Format {
    typedef B Bits;

    INLINE bool is_nan(B x) { return (B)(x & Magnitude) > Infinity; }

    // The result of an operation on x and y that gives NaN: the first NaN operand, made quiet. Where no operand is
    // NaN it is the negative NaN without a payload.
    INLINE B nan_of(B x, B y)
    {
        if (is_nan(x))
            return x | Quiet;
        if (is_nan(y))
            return y | Quiet;
        return nan_with(0) | (B)~Magnitude;
    }

    INLINE B nan_with(u32 payload) { return (B)payload | Infinity | Quiet; }

    // Not 0 if one of the two numbers in a word is NaN: only then the sum carries, into the place of its sign.
    INLINE u32 nan_in_pair(u32 word) { return ((word & 0x7fff7fff) + (0x7fff - Infinity) * 0x10001u) & 0x80008000; }

    // Maps sign and magnitude to an integer, so that -0 comes right before +0.
    INLINE S order(B x) { return (S)x < 0 ? (S)(x ^ Magnitude) : (S)x; }

    INLINE B min(B x, B y)
    {
        if (is_nan(x) || is_nan(y))
            return nan_of(x, y);
        return order(y) < order(x) ? y : x;
    }

    INLINE B max(B x, B y)
    {
        if (is_nan(x) || is_nan(y))
            return nan_of(x, y);
        return order(y) > order(x) ? y : x;
    }
};

// F is a format that can widen its numbers to F32 and narrow an F32, which is not NaN, to nearest even.
template <class F, class B> struct Short {
    INLINE B sum(B x, B y)
    {
        float s = __fadd_rn(F::widen(x), F::widen(y));
        return s != s ? F::nan_of(x, y) : F::narrow(s);
    }

    INLINE B product(B x, B y)
    {
        float s = __fmul_rn(F::widen(x), F::widen(y));
        return s != s ? F::nan_of(x, y) : F::narrow(s);
    }

    INLINE B scaled(B x, double factor)
    {
        double p = __dmul_rn((double)F::widen(x), factor);
        if (p != p)
            return F::nan_of(x, 0);
        // Cut to 14 bits, of which the last is set if that lost anything, p is rounded in the next step only.
        const u64 lost = (1ull << 39) - 1;
        u64 u = (u64)__double_as_longlong(p);
        u = (u | ((u & lost) + lost)) & ~lost;
        return F::narrow(__double2float_rn(__longlong_as_double((s64)u)));
    }
};

struct F64 : Format<u64, s64, 0x7fffffffffffffffull, 0x7ff0000000000000ull, 0x0008000000000000ull> {
    INLINE double value(u64 x) { return __longlong_as_double((s64)x); }
    INLINE u64 bits(double f) { return (u64)__double_as_longlong(f); }

    INLINE u64 sum(u64 x, u64 y)
    {
        double s = __dadd_rn(value(x), value(y));
        return s != s ? nan_of(x, y) : bits(s);
    }

    INLINE u64 product(u64 x, u64 y)
    {
        double s = __dmul_rn(value(x), value(y));
        return s != s ? nan_of(x, y) : bits(s);
    }

    INLINE u64 scaled(u64 x, double factor)
    {
        double s = __dmul_rn(value(x), factor);
        return s != s ? nan_of(x, 0) : bits(s);
    }
};

struct F32 : Format<u32, s32, 0x7fffffff, 0x7f800000, 0x00400000> {
    INLINE float value(u32 x) { return __uint_as_float(x); }
    INLINE u32 bits(float f) { return __float_as_uint(f); }

    INLINE u32 sum(u32 x, u32 y)
    {
        float s = __fadd_rn(value(x), value(y));
        return s != s ? nan_of(x, y) : bits(s);
    }

    INLINE u32 product(u32 x, u32 y)
    {
        float s = __fmul_rn(value(x), value(y));
        return s != s ? nan_of(x, y) : bits(s);
    }

    INLINE u32 scaled(u32 x, double factor)
    {
        float s = __double2float_rn(__dmul_rn((double)value(x), factor));
        return s != s ? nan_of(x, 0) : bits(s);
    }
};

struct F16 : Format<u16, s16, 0x7fff, 0x7c00, 0x0200>, Short<F16, u16> {
    enum { fraction = 10 };
    INLINE float widen(u16 x) { return half_to_float(x); }
    INLINE u16 narrow(float f) { return float_to_half(f); }
};

struct BF16 : Format<u16, s16, 0x7fff, 0x7f80, 0x0040>, Short<BF16, u16> {
    enum { fraction = 7 };
    INLINE float widen(u16 x) { return __uint_as_float((u32)x << 16); }

    INLINE u16 narrow(float f)
    {
        u32 u = __float_as_uint(f);
        return (u16)((u + 0x7fff + (u >> 16 & 1)) >> 16);
    }
};

// E4M3 has no infinity: the largest number takes its place, also for what is too large. One NaN follows it.
struct F8E4M3 : Format<u8, s8, 0x7f, 0x7e, 0x7f>, Short<F8E4M3, u8> {
    enum { fraction = 3 };

    INLINE float widen(u8 x)
    {
        u32 sign = (u32)(x & 0x80) << 24, m = x & 0x7f;
        if (m == 0x7f)
            return __uint_as_float(sign | 0x7fc00000);
        return __uint_as_float(sign | __float_as_uint(__fmul_rn(__uint_as_float(m << 20), 0x1p120f)));
    }

    INLINE u8 narrow(float f)
    {
        u32 u = __float_as_uint(f), m = u & 0x7fffffff;
        u8 sign = (u8)(u >> 24 & 0x80);
        if (m >= 0x43e00000) // 448
            return sign | 0x7e;
        if (m < 0x3c800000) // 2^-6: the last place of 2^14 is that of a subnormal
            return sign | (u8)(__float_as_uint(__fadd_rn(__uint_as_float(m), 0x1p14f)) - 0x46800000);
        return sign | (u8)((m - (120u << 23) + 0x7ffff + (m >> 20 & 1)) >> 20);
    }
};

struct F8E5M2 : Format<u8, s8, 0x7f, 0x7c, 0x7f>, Short<F8E5M2, u8> {
    enum { fraction = 2 };
    INLINE float widen(u8 x) { return half_to_float((u16)(x << 8)); }

    INLINE u8 narrow(float f)
    {
        u32 u = __float_as_uint(f), m = u & 0x7fffffff;
        u8 sign = (u8)(u >> 24 & 0x80);
        if (m >= 0x47700000) // 61440, half way from the largest number to 2^16
            return sign | 0x7c;
        if (m < 0x38800000) // 2^-14: the last place of 2^7 is that of a subnormal
            return sign | (u8)(__float_as_uint(__fadd_rn(__uint_as_float(m), 0x1p7f)) - 0x43000000);
        return sign | (u8)((m - (112u << 23) + 0xfffff + (m >> 21 & 1)) >> 21);
    }
};

// The parts of a complex number.
template <class P> struct Complex {
    typename P::Bits real, imaginary;
};

// T is signed or not, which only min and max tell apart. U is the same without a sign.
template <class T, class U> struct Integer {
    typedef U Bits;
    INLINE U sum(U x, U y) { return x + y; }
    INLINE U product(U x, U y) { return (U)((u64)x * y); }
    INLINE U min(U x, U y) { return (T)y < (T)x ? y : x; }
    INLINE U max(U x, U y) { return (T)y > (T)x ? y : x; }
};

// Maps each byte of a word to 1, or to 0 if it is 0.
INLINE u32 truth(u32 word) { return (((word & 0x7f7f7f7f) + 0x7f7f7f7f) | word) >> 7 & 0x01010101; }
