// convert_TO_from_FROM: dst = src[0] in another type, which is F32 on one side.

#include "fold.h"

template <class F> struct Widened {
    typedef typename F::Bits From;
    typedef u32 To;

    // NaN keep their payload, and become quiet where their format is not the upper part of F32.
    INLINE u32 apply(From x)
    {
        if (sizeof(From) == 2 && F::fraction == 7)
            return (u32)x << 16;
        if (!F::is_nan(x))
            return __float_as_uint(F::widen(x));
        u32 payload = x & ((1u << F::fraction) - 1);
        u32 sign = (u32)x >> (8 * sizeof(From) - 1);
        return sign << 31 | 0x7fc00000 | payload << (23 - F::fraction);
    }
};

template <class F> struct Narrowed {
    typedef u32 From;
    typedef typename F::Bits To;

    INLINE To apply(u32 x)
    {
        if (!F32::is_nan(x))
            return F::narrow(__uint_as_float(x));
        u32 payload = (x & 0x007fffff) >> (23 - F::fraction);
        To sign = (To)((x >> 31) << (8 * sizeof(To) - 1));
        return (To)(sign | F::nan_with(payload));
    }
};

// Four elements of a type, as they are loaded and stored at once.
template <class T> struct Four;
template <> struct Four<u32> {
    typedef Pack Unit;
    enum { bytes = 16 };
    INLINE u32 get(const Pack &p, int i) { return p.word[i]; }
    INLINE void put(Pack &p, int i, u32 x) { p.word[i] = x; }
};

template <class T, class U> struct FourShort {
    typedef U Unit;
    enum { bytes = sizeof(U), bits = 8 * sizeof(T) };
    INLINE T get(U u, int i) { return (T)(u >> i * bits); }
    INLINE void put(U &u, int i, T x) { u |= (U)x << i * bits; }
};
template <> struct Four<u16> : FourShort<u16, u64> {};
template <> struct Four<u8> : FourShort<u8, u32> {};

template <class Each> INLINE void convert(const Arguments &a)
{
    typedef typename Each::From From;
    typedef typename Each::To To;
    typedef Four<From> Froms;
    typedef Four<To> Tos;
    u64 head = 0; // elements before the first four that are aligned on both sides, if there are any
    while (head < 4 && ((a.src[0] + head * sizeof(From)) % Froms::bytes || (a.dst + head * sizeof(To)) % Tos::bytes))
        head++;
    if (head == 4 || head > a.n)
        head = a.n;
    const u64 fours = (a.n - head) / 4, thread = thread_index(), threads = thread_count();
    NOT_UNROLLED
    for (u64 i = thread; i < fours; i += threads) {
        const typename Froms::Unit x = Memory<typename Froms::Unit>::load(a.src[0] + head * sizeof(From), i);
        typename Tos::Unit r = {};
        UNROLLED
        for (int j = 0; j < 4; j++)
            Tos::put(r, j, Each::apply(Froms::get(x, j)));
        Memory<typename Tos::Unit>::store(a.dst + head * sizeof(To), i, r);
    }
    NOT_UNROLLED
    for (u64 i = thread; i < a.n - 4 * fours; i += threads) {
        const u64 at = i < head ? i : i + 4 * fours;
        Memory<To>::store(a.dst, at, Each::apply(Memory<From>::load(a.src[0], at)));
    }
}

#define BOTH_WAYS(name, F)                                   \
    KERNEL(convert_f32_from_##name, convert<Widened<F>>)     \
    KERNEL(convert_##name##_from_f32, convert<Narrowed<F>>)
BOTH_WAYS(f16, F16)
BOTH_WAYS(bf16, BF16)
BOTH_WAYS(f8e4m3, F8E4M3)
BOTH_WAYS(f8e5m2, F8E5M2)
