// reduce_OPERATOR_TYPE: dst = (src[0] + src[1]) + src[2] ..., of 1 to 8 sources, where + is the operator.

#include "fold.h"

// Every product and every sum is rounded.
template <class P> struct ComplexProduct : ByElement<ComplexProduct<P>, Complex<P>> {
    typedef Complex<P> T;

    INLINE T apply(T x, T y)
    {
        typedef typename P::Bits B;
        const B sign = (B)1 << (8 * sizeof(B) - 1);
        T r;
        r.real = P::sum(P::product(x.real, y.real), P::product(x.imaginary, y.imaginary) ^ sign);
        r.imaginary = P::sum(P::product(x.real, y.imaginary), P::product(x.imaginary, y.real));
        return r;
    }
};

#define BITWISE(Name, expression)                                                                \
    template <class T> struct Name : ByWord<Name<T>, T> {                                        \
        INLINE u64 apply(u64 x, u64 y) { return expression; }                                    \
    };
BITWISE(And, x & y)
BITWISE(Or, x | y)
BITWISE(Xor, x ^ y)

// A byte other than 0 counts as true.
#define LOGICAL(Name, expression)                                                                \
    struct Name : ByWord<Name, u8> {                                                             \
        INLINE u32 apply(u32 x, u32 y) { return expression; }                                    \
    };
LOGICAL(LogicalAnd, truth(x) & truth(y))
LOGICAL(LogicalOr, truth(x | y))
LOGICAL(LogicalXor, truth(x) ^ truth(y))

template <class Operator> INLINE void reduce(const Arguments &a)
{
    fold<Operator>(a, Plain<typename Operator::Element>());
}

#define FLOATS(name, F)                             \
    KERNEL(reduce_sum_##name, reduce<Sum<F>>)       \
    KERNEL(reduce_prod_##name, reduce<Product<F>>)  \
    KERNEL(reduce_min_##name, reduce<Min<F>>)       \
    KERNEL(reduce_max_##name, reduce<Max<F>>)
FLOATS(f64, F64)
FLOATS(f32, F32)
FLOATS(f16, F16)
FLOATS(bf16, BF16)
FLOATS(f8e4m3, F8E4M3)
FLOATS(f8e5m2, F8E5M2)

// Sums, products and bitwise operators do not depend on the sign.
#define SIGNED(name, T, U)                                  \
    KERNEL(reduce_min_##name, reduce<Min<Integer<T, U>>>)   \
    KERNEL(reduce_max_##name, reduce<Max<Integer<T, U>>>)
#define UNSIGNED(name, U)                                       \
    SIGNED(name, U, U)                                          \
    KERNEL(reduce_sum_##name, reduce<Sum<Integer<U, U>>>)       \
    KERNEL(reduce_prod_##name, reduce<Product<Integer<U, U>>>)  \
    KERNEL(reduce_band_##name, reduce<And<U>>)                  \
    KERNEL(reduce_bor_##name, reduce<Or<U>>)                    \
    KERNEL(reduce_bxor_##name, reduce<Xor<U>>)
SIGNED(i8, s8, u8)
SIGNED(i16, s16, u16)
SIGNED(i32, s32, u32)
SIGNED(i64, s64, u64)
UNSIGNED(u8, u8)
UNSIGNED(u16, u16)
UNSIGNED(u32, u32)
UNSIGNED(u64, u64)

KERNEL(reduce_band_bool, reduce<LogicalAnd>)
KERNEL(reduce_bor_bool, reduce<LogicalOr>)
KERNEL(reduce_bxor_bool, reduce<LogicalXor>)

KERNEL(reduce_prod_c64, reduce<ComplexProduct<F32>>)
KERNEL(reduce_prod_c128, reduce<ComplexProduct<F64>>)
