//go:build !noasm

#include "textflag.h"

// dst = a + b in NEON, 16 elements at a time, up to the first 16 of which a sum is NaN: which NaN that is differs between CPUs, so
// a loop in Go does those. What was done is returned.
// R0, R1, R2: dst, a, b. R3: elements left. R4: elements done.

// The assembler has no names for these. FADD(m, n, d): d = n + m; FCMEQ(m, n, d): the lanes of d are set where n = m.
#define FADD(m, n, d) WORD $(0x4e20d400 | (m)<<16 | (n)<<5 | (d))
#define FCMEQ(m, n, d) WORD $(0x4e20e400 | (m)<<16 | (n)<<5 | (d))

#define OPERANDS \
	MOVD dst+0(FP), R0 \
	MOVD a+8(FP), R1   \
	MOVD b+16(FP), R2  \
	MOVD n+24(FP), R3  \
	MOVD ZR, R4

// UNLESS_SET goes to label where some lane of V is not set.
#define UNLESS_SET(V, label) \
	VMOV V.D[0], R5 \
	VMOV V.D[1], R6 \
	AND  R6, R5, R5 \
	CMN  $1, R5     \
	BNE  label

// func sumF32NEONBlock(dst, a, b unsafe.Pointer, n int) (done int)
TEXT ·sumF32NEONBlock(SB), NOSPLIT, $0-40
	OPERANDS

next:
	SUBS  $16, R3
	BLT   end
	VLD1  (R1), [V0.S4, V1.S4, V2.S4, V3.S4]
	VLD1  (R2), [V4.S4, V5.S4, V6.S4, V7.S4]
	FADD(4, 0, 0)
	FADD(5, 1, 1)
	FADD(6, 2, 2)
	FADD(7, 3, 3)
	FCMEQ(0, 0, 16)
	FCMEQ(1, 1, 17)
	FCMEQ(2, 2, 18)
	FCMEQ(3, 3, 19)
	VAND  V17.B16, V16.B16, V16.B16
	VAND  V19.B16, V18.B16, V18.B16
	VAND  V18.B16, V16.B16, V16.B16
	UNLESS_SET(V16, end)
	VST1  [V0.S4, V1.S4, V2.S4, V3.S4], (R0)
	ADD   $64, R0
	ADD   $64, R1
	ADD   $64, R2
	ADD   $16, R4
	B     next

end:
	MOVD R4, done+32(FP)
	RET

// ROUND rounds the F32 in S in their upper halves: see asmgen/float.go. T is spoilt. V30: 1. V29: 0x7fff.
#define ROUND(S, T) \
	VUSHR $16, S.S4, T.S4      \
	VAND  V30.B16, T.B16, T.B16 \
	VADD  V29.S4, T.S4, T.S4   \
	VADD  T.S4, S.S4, S.S4

// func sumBF16NEONBlock(dst, a, b unsafe.Pointer, n int) (done int)
TEXT ·sumBF16NEONBlock(SB), NOSPLIT, $0-40
	OPERANDS
	VEOR  V31.B16, V31.B16, V31.B16
	MOVD  $1, R5
	VDUP  R5, V30.S4
	MOVD  $0x7fff, R5
	VDUP  R5, V29.S4

next:
	SUBS  $16, R3
	BLT   end
	VLD1  (R1), [V0.H8, V1.H8]
	VLD1  (R2), [V4.H8, V5.H8]

	// Zipped with zeros an element becomes the upper half of an F32.
	VZIP1 V0.H8, V31.H8, V16.H8
	VZIP2 V0.H8, V31.H8, V17.H8
	VZIP1 V1.H8, V31.H8, V18.H8
	VZIP2 V1.H8, V31.H8, V19.H8
	VZIP1 V4.H8, V31.H8, V20.H8
	VZIP2 V4.H8, V31.H8, V21.H8
	VZIP1 V5.H8, V31.H8, V22.H8
	VZIP2 V5.H8, V31.H8, V23.H8
	FADD(20, 16, 16)
	FADD(21, 17, 17)
	FADD(22, 18, 18)
	FADD(23, 19, 19)
	FCMEQ(16, 16, 20)
	FCMEQ(17, 17, 21)
	FCMEQ(18, 18, 22)
	FCMEQ(19, 19, 23)
	VAND  V21.B16, V20.B16, V20.B16
	VAND  V23.B16, V22.B16, V22.B16
	VAND  V22.B16, V20.B16, V20.B16
	UNLESS_SET(V20, end)
	ROUND(V16, V20)
	ROUND(V17, V21)
	ROUND(V18, V22)
	ROUND(V19, V23)
	VUZP2 V17.H8, V16.H8, V0.H8
	VUZP2 V19.H8, V18.H8, V1.H8
	VST1  [V0.H8, V1.H8], (R0)
	ADD   $32, R0
	ADD   $32, R1
	ADD   $32, R2
	ADD   $16, R4
	B     next

end:
	MOVD R4, done+32(FP)
	RET
