//go:build amd64 && !noasm

#include "textflag.h"

// dst = a + b for F32 and F64. The first source of every addition is a, whose NaN wins.
// DI, SI, DX: dst, a, b. BX: bytes left. R8: offset.

#define OPERANDS(SHIFT) \
	MOVQ dst+0(FP), DI \
	MOVQ a+8(FP), SI   \
	MOVQ b+16(FP), DX  \
	MOVQ n+24(FP), BX  \
	SHLQ $SHIFT, BX    \
	XORQ R8, R8

// MASK sets K1 to the first CX lanes.
#define MASK \
	MOVQ  $1, R9 \
	SHLQ  CX, R9 \
	DECQ  R9     \
	KMOVW R9, K1

// SUM_MASKED adds the first CX lanes at R8.
#define SUM_MASKED(MOV, MOVZ, ADD) \
	MASK                        \
	MOVZ (SI)(R8*1), K1, Z0     \
	MOVZ (DX)(R8*1), K1, Z1     \
	ADD  Z1, Z0, Z0             \
	MOV  Z0, K1, (DI)(R8*1)

// A masked vector brings dst to a multiple of 64 where that brings a or b there too, as in place: an access across cache
// lines costs two.
#define SUM_AVX512(MOV, MOVZ, ADD, SHIFT) \
	OPERANDS(SHIFT)             \
	CMPQ BX, $1024              \
	JB   lines                  \
	MOVQ DI, CX                 \
	MOVQ DI, R11                \
	XORQ SI, CX                 \
	XORQ DX, R11                \
	TESTQ $63, CX               \
	JZ   head                   \
	TESTQ $63, R11              \
	JNZ  lines                  \
head:                               \
	MOVQ DI, CX                 \
	NEGQ CX                     \
	ANDQ $63, CX                \
	SHRQ $SHIFT, CX             \
	JZ   lines                  \
	MOVQ CX, R10                \
	SHLQ $SHIFT, R10            \
	SUM_MASKED(MOV, MOVZ, ADD)  \
	ADDQ R10, R8                \
	SUBQ R10, BX                \
lines:                              \
	SUBQ $256, BX               \
	JB   fewer                  \
four:                               \
	MOV  (SI)(R8*1), Z0         \
	MOV  64(SI)(R8*1), Z1       \
	MOV  128(SI)(R8*1), Z2      \
	MOV  192(SI)(R8*1), Z3      \
	ADD  (DX)(R8*1), Z0, Z0     \
	ADD  64(DX)(R8*1), Z1, Z1   \
	ADD  128(DX)(R8*1), Z2, Z2  \
	ADD  192(DX)(R8*1), Z3, Z3  \
	MOV  Z0, (DI)(R8*1)         \
	MOV  Z1, 64(DI)(R8*1)       \
	MOV  Z2, 128(DI)(R8*1)      \
	MOV  Z3, 192(DI)(R8*1)      \
	ADDQ $256, R8               \
	SUBQ $256, BX               \
	JAE  four                   \
fewer:                              \
	ADDQ $(256-64), BX          \
	JL   rest                   \
one:                                \
	MOV  (SI)(R8*1), Z0         \
	ADD  (DX)(R8*1), Z0, Z0     \
	MOV  Z0, (DI)(R8*1)         \
	ADDQ $64, R8                \
	SUBQ $64, BX                \
	JGE  one                    \
rest:                               \
	ADDQ $64, BX                \
	JZ   done                   \
	MOVQ BX, CX                 \
	SHRQ $SHIFT, CX             \
	SUM_MASKED(MOV, MOVZ, ADD)  \
done:                               \
	VZEROUPPER                  \
	RET

// func addF32AVX512(dst, a, b unsafe.Pointer, n int)
TEXT ·addF32AVX512(SB), NOSPLIT, $0-32
	SUM_AVX512(VMOVUPS, VMOVUPS.Z, VADDPS, 2)

// func addF64AVX512(dst, a, b unsafe.Pointer, n int)
TEXT ·addF64AVX512(SB), NOSPLIT, $0-32
	SUM_AVX512(VMOVUPD, VMOVUPD.Z, VADDPD, 3)

#define SUM_AVX2(MOV, ADD, SHIFT) \
	OPERANDS(SHIFT)             \
	SUBQ $128, BX               \
	JB   fewer                  \
four:                               \
	MOV  (SI)(R8*1), Y0         \
	MOV  32(SI)(R8*1), Y1       \
	MOV  64(SI)(R8*1), Y2       \
	MOV  96(SI)(R8*1), Y3       \
	ADD  (DX)(R8*1), Y0, Y0     \
	ADD  32(DX)(R8*1), Y1, Y1   \
	ADD  64(DX)(R8*1), Y2, Y2   \
	ADD  96(DX)(R8*1), Y3, Y3   \
	MOV  Y0, (DI)(R8*1)         \
	MOV  Y1, 32(DI)(R8*1)       \
	MOV  Y2, 64(DI)(R8*1)       \
	MOV  Y3, 96(DI)(R8*1)       \
	ADDQ $128, R8               \
	SUBQ $128, BX               \
	JAE  four                   \
fewer:                              \
	ADDQ $(128-32), BX          \
	JL   done                   \
one:                                \
	MOV  (SI)(R8*1), Y0         \
	ADD  (DX)(R8*1), Y0, Y0     \
	MOV  Y0, (DI)(R8*1)         \
	ADDQ $32, R8                \
	SUBQ $32, BX                \
	JGE  one                    \
done:                               \
	VZEROUPPER                  \
	RET

// func addF32AVX2(dst, a, b unsafe.Pointer, n int)
TEXT ·addF32AVX2(SB), NOSPLIT, $0-32
	SUM_AVX2(VMOVUPS, VADDPS, 2)

// func addF64AVX2(dst, a, b unsafe.Pointer, n int)
TEXT ·addF64AVX2(SB), NOSPLIT, $0-32
	SUM_AVX2(VMOVUPD, VADDPD, 3)
