#pragma once

// How the threads of a launch go over the elements: 16 bytes at a time where all operands allow it.

#include "sources.h"

struct Pack {
    u32 word[4];
};

// The elements of a pack.
template <class T> struct Lanes {
    enum { count = 16 / sizeof(T), inWord = 4 / sizeof(T), bits = 8 * sizeof(T) };
    INLINE T get(const Pack &p, int i) { return (T)(p.word[i / inWord] >> i % inWord * bits); }

    // The first element of a word is put first.
    INLINE void put(Pack &p, int i, T x)
    {
        u32 moved = (u32)x << i % inWord * bits;
        p.word[i / inWord] = i % inWord == 0 ? moved : p.word[i / inWord] | moved;
    }
};

template <> struct Lanes<u64> {
    enum { count = 2 };
    INLINE u64 get(const Pack &p, int i) { return p.word[2 * i] | (u64)p.word[2 * i + 1] << 32; }

    INLINE void put(Pack &p, int i, u64 x)
    {
        p.word[2 * i] = (u32)x;
        p.word[2 * i + 1] = (u32)(x >> 32);
    }
};

template <class P> struct Lanes<Complex<P>> {
    typedef Lanes<typename P::Bits> Parts;
    enum { count = Parts::count / 2 };

    INLINE Complex<P> get(const Pack &p, int i)
    {
        Complex<P> x;
        x.real = Parts::get(p, 2 * i);
        x.imaginary = Parts::get(p, 2 * i + 1);
        return x;
    }

    INLINE void put(Pack &p, int i, Complex<P> x)
    {
        Parts::put(p, 2 * i, x.real);
        Parts::put(p, 2 * i + 1, x.imaginary);
    }
};

template <class T> struct Memory {
    INLINE T load(u64 address, u64 at) { return global<const T>(address)[at]; }
    INLINE void store(u64 address, u64 at, T x) { global<T>(address)[at] = x; }
};

template <> struct Memory<Pack> {
    INLINE Pack load(u64 address, u64 at)
    {
        uint4 v = load_words((const void *)(address + at * sizeof(Pack)));
        Pack p = {{v.x, v.y, v.z, v.w}};
        return p;
    }

    INLINE void store(u64 address, u64 at, const Pack &p)
    {
        uint4 v = {p.word[0], p.word[1], p.word[2], p.word[3]};
        store_words((void *)(address + at * sizeof(Pack)), v);
    }
};

template <class P> struct Memory<Complex<P>> {
    typedef Memory<typename P::Bits> Parts;

    INLINE Complex<P> load(u64 address, u64 at)
    {
        Complex<P> x;
        x.real = Parts::load(address, 2 * at);
        x.imaginary = Parts::load(address, 2 * at + 1);
        return x;
    }

    INLINE void store(u64 address, u64 at, Complex<P> x)
    {
        Parts::store(address, 2 * at, x.real);
        Parts::store(address, 2 * at + 1, x.imaginary);
    }
};

INLINE u64 thread_index() { return (u64)blockIdx.x * blockDim.x + threadIdx.x; }
INLINE u64 thread_count() { return (u64)gridDim.x * blockDim.x; }

// What some threads do of a launch, or of a step: n units, behind so many bytes.
struct Share {
    u64 thread, threads, n, bytes;
};

// All threads do all of it.
INLINE Share whole(const Step &a)
{
    Share s = {thread_index(), thread_count(), a.n, 0};
    return s;
}

// Elements before the first pack, and the packs. With head == n there is none.
struct Split {
    u64 head, packs;
};

template <class T> INLINE Split split(const Step &a, const u64 *src, const Share &share)
{
    u64 skew = (a.dst + share.bytes) % 16, before = (16 - skew) % 16;
    bool alike = before % sizeof(T) == 0;
    NOT_UNROLLED
    for (u32 k = 0; k < a.count; k++)
        alike = alike && (src[k] + share.bytes) % 16 == skew;
    Split s = {share.n, 0};
    if (alike && before / sizeof(T) < share.n) {
        s.head = before / sizeof(T);
        s.packs = (share.n - s.head) * sizeof(T) / 16;
    }
    return s;
}

// Sets every element of dst to finish((src[0] + src[1]) + src[2] ...), where + is the operator, and src are where the
// sources are. dst may be the same memory as any source. The packs of the next source are under way while those of this
// one are combined.
template <class Operator, int unroll = Operator::unroll, class Finish>
INLINE void fold(const Step &a, const u64 *src, Finish finish, const Share &share)
{
    typedef typename Operator::Element T;
    const Split s = split<T>(a, src, share);
    const u64 thread = share.thread, threads = share.threads, begin = share.bytes, first = begin + s.head * sizeof(T);
    NOT_UNROLLED
    for (u64 i = thread; i < s.packs; i += unroll * threads) {
        u64 at[unroll];
        Pack sum[unroll], next[unroll];
        UNROLLED
        for (int j = 0; j < unroll; j++) {
            at[j] = i + j * threads < s.packs ? i + j * threads : i; // the same twice, behind the end
            sum[j] = Memory<Pack>::load(src[0] + first, at[j]);
            next[j] = sum[j];
        }
        if (a.count > 1) {
            UNROLLED
            for (int j = 0; j < unroll; j++)
                next[j] = Memory<Pack>::load(src[1] + first, at[j]);
        }
        NOT_UNROLLED
        for (u32 k = 1; k < a.count; k++) {
            Pack x[unroll];
            UNROLLED
            for (int j = 0; j < unroll; j++)
                x[j] = next[j];
            if (k + 1 < a.count) {
                UNROLLED
                for (int j = 0; j < unroll; j++)
                    next[j] = Memory<Pack>::load(src[k + 1] + first, at[j]);
            }
            UNROLLED
            for (int j = 0; j < unroll; j++)
                sum[j] = Operator::packs(sum[j], x[j]);
        }
        UNROLLED
        for (int j = 0; j < unroll; j++)
            Memory<Pack>::store(a.dst + first, at[j], finish.pack(sum[j]));
    }

    const u64 packed = s.packs * Lanes<T>::count;
    NOT_UNROLLED
    for (u64 i = thread; i < share.n - packed; i += threads) {
        const u64 at = i < s.head ? i : i + packed;
        T sum = Memory<T>::load(src[0] + begin, at);
        NOT_UNROLLED
        for (u32 k = 1; k < a.count; k++)
            sum = Operator::element(sum, Memory<T>::load(src[k] + begin, at));
        Memory<T>::store(a.dst + begin, at, finish.element(sum));
    }
}

// An operator that is described by one on elements.
template <class Each, class T> struct ByElement {
    typedef T Element;
    enum { unroll = sizeof(T) == 1 ? 1 : 2 };
    INLINE T element(T x, T y) { return Each::apply(x, y); }

    INLINE Pack packs(const Pack &x, const Pack &y)
    {
        Pack r;
        UNROLLED
        for (int i = 0; i < Lanes<T>::count; i++)
            Lanes<T>::put(r, i, Each::apply(Lanes<T>::get(x, i), Lanes<T>::get(y, i)));
        return r;
    }
};

// An operator that is described by one on words, whatever elements they hold.
template <class Each, class T> struct ByWord {
    typedef T Element;
    enum { unroll = 2 };

    INLINE T element(T x, T y) { return (T)Each::apply(x, y); }

    INLINE Pack packs(const Pack &x, const Pack &y)
    {
        Pack r;
        UNROLLED
        for (int i = 0; i < 4; i++)
            r.word[i] = (u32)Each::apply(x.word[i], y.word[i]);
        return r;
    }
};

// An operator on F16 or BF16 that is an instruction for the two elements of a word. Its NaN is not that of ccl/kernel,
// so a pack with a NaN in it is done again by elements.
template <class Each, class F> struct ByPair : ByElement<Each, typename F::Bits> {
    INLINE Pack packs(const Pack &x, const Pack &y)
    {
        Pack r;
        u32 nan = 0;
        UNROLLED
        for (int i = 0; i < 4; i++) {
            r.word[i] = Each::pair(x.word[i], y.word[i]);
            nan |= F::nan_in_pair(r.word[i]);
        }
        return nan ? ByElement<Each, typename F::Bits>::packs(x, y) : r;
    }
};

// Nothing is done to the result of a fold.
template <class T> struct Plain {
    INLINE T element(T x) { return x; }
    INLINE Pack pack(const Pack &p) { return p; }
};

#define OPERATOR(Name, function)                                            \
    template <class F> struct Name : ByElement<Name<F>, typename F::Bits> { \
        typedef typename F::Bits T;                                         \
        INLINE T apply(T x, T y) { return F::function(x, y); }              \
    };
OPERATOR(Sum, sum)
OPERATOR(Product, product)
OPERATOR(Min, min)
OPERATOR(Max, max)

#define PAIRED(Name, function, F, instruction)                        \
    template <> struct Name<F> : ByPair<Name<F>, F> {                 \
        typedef F::Bits T;                                            \
        INLINE T apply(T x, T y) { return F::function(x, y); }        \
        INLINE u32 pair(u32 x, u32 y) { return instruction(x, y); }   \
    };
PAIRED(Sum, sum, F16, add_f16x2)
PAIRED(Product, product, F16, mul_f16x2)
#ifdef BF16X2
PAIRED(Sum, sum, BF16, add_bf16x2)
PAIRED(Product, product, BF16, mul_bf16x2)
#endif
