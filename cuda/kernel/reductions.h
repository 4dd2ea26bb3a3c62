// All reductions, as REDUCTION(name, operator), for whoever includes this file to make of it.

#define FLOATS(name, F)                 \
    REDUCTION(sum_##name, Sum<F>)       \
    REDUCTION(prod_##name, Product<F>)  \
    REDUCTION(min_##name, Min<F>)       \
    REDUCTION(max_##name, Max<F>)
FLOATS(f64, F64)
FLOATS(f32, F32)
FLOATS(f16, F16)
FLOATS(bf16, BF16)
FLOATS(f8e4m3, F8E4M3)
FLOATS(f8e5m2, F8E5M2)

// Sums, products and bitwise operators do not depend on the sign.
#define SIGNED(name, T, U)                     \
    REDUCTION(min_##name, Min<Integer<T, U>>)  \
    REDUCTION(max_##name, Max<Integer<T, U>>)
#define UNSIGNED(name, U)                           \
    SIGNED(name, U, U)                              \
    REDUCTION(sum_##name, Sum<Integer<U, U>>)       \
    REDUCTION(prod_##name, Product<Integer<U, U>>)  \
    REDUCTION(band_##name, And<U>)                  \
    REDUCTION(bor_##name, Or<U>)                    \
    REDUCTION(bxor_##name, Xor<U>)
SIGNED(i8, s8, u8)
SIGNED(i16, s16, u16)
SIGNED(i32, s32, u32)
SIGNED(i64, s64, u64)
UNSIGNED(u8, u8)
UNSIGNED(u16, u16)
UNSIGNED(u32, u32)
UNSIGNED(u64, u64)

REDUCTION(band_bool, LogicalAnd)
REDUCTION(bor_bool, LogicalOr)
REDUCTION(bxor_bool, LogicalXor)

REDUCTION(prod_c64, ComplexProduct<F32>)
REDUCTION(prod_c128, ComplexProduct<F64>)

#undef FLOATS
#undef SIGNED
#undef UNSIGNED
