// scale_TYPE: dst = ((src[0] + src[1]) + src[2] ...) * factor, of 1 to 8 sources. The sum is rounded before it is
// multiplied; the product, of two F64, is rounded once to the type.

#include "fold.h"

template <class F> struct Scaled {
    typedef typename F::Bits T;
    double factor;

    __device__ __forceinline__ T element(T x) const { return F::scaled(x, factor); }

    __device__ __forceinline__ Pack pack(const Pack &p) const
    {
        Pack r;
        UNROLLED
        for (int i = 0; i < Lanes<T>::count; i++)
            Lanes<T>::put(r, i, F::scaled(Lanes<T>::get(p, i), factor));
        return r;
    }
};

template <class F> INLINE void scale(const Arguments &a)
{
    Scaled<F> scaled = {a.factor};
    fold<Sum<F>>(a, find_sources(a, sizeof(typename F::Bits), alignof(typename F::Bits)), scaled, whole(a));
}

KERNEL(scale_f64, scale<F64>)
KERNEL(scale_f32, scale<F32>)
KERNEL(scale_f16, scale<F16>)
KERNEL(scale_bf16, scale<BF16>)
KERNEL(scale_f8e4m3, scale<F8E4M3>)
KERNEL(scale_f8e5m2, scale<F8E5M2>)
