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
    typedef typename Operator::Element T;
    fold<Operator>(a, find_sources(a, sizeof(T), alignof(T)), Plain<T>(), whole(a));
}

#define REDUCTION(name, ...) KERNEL(reduce_##name, reduce<__VA_ARGS__>)
#include "reductions.h"
#undef REDUCTION
