//go:build amd64 && !noasm

#include "textflag.h"

// dst = a + b for 16-bit floats, in F32, rounded to nearest even.
// DI, SI, DX: dst, a, b. BX: elements left, less one vector. R8: offset in bytes.

#define OPERANDS \
	MOVQ dst+0(FP), DI \
	MOVQ a+8(FP), SI   \
	MOVQ b+16(FP), DX  \
	MOVQ n+24(FP), BX  \
	XORQ R8, R8

// BF16: the 32-bit lanes of a vector hold an even and an odd element. Shifted left the even one is an F32, with the lower half
// cleared the odd one is; so there is no shuffling. A sum s becomes s + 0x7fff + (bit 16 of s), of which the upper
// half counts. That does no harm to a NaN: its lower half is 0, as both operands' were, so nothing carries.

// ROUND_Z rounds S in its upper half. T is spoilt.
#define ROUND_Z(S, T) \
	VPSRLD $16, S, T \
	VPANDD Z30, T, T \
	VPADDD Z29, T, T \
	VPADDD T, S, S

// SUM_BF16_Z sets E to the sums of the elements in A and B, which are spoilt.
#define SUM_BF16_Z(A, B, E, T) \
	VPSLLD    $16, A, E   \
	VPSLLD    $16, B, T   \
	VADDPS    T, E, E     \
	VPANDD    Z31, A, A   \
	VPANDD    Z31, B, B   \
	VADDPS    B, A, A     \
	ROUND_Z(E, T)         \
	ROUND_Z(A, B)         \
	VPSRLD    $16, E, E   \
	VMOVDQU16 A, K7, E

// func addBF16AVX512(dst, a, b unsafe.Pointer, n int)
TEXT ·addBF16AVX512(SB), NOSPLIT, $0-32
	OPERANDS
	MOVL         $0xffff0000, AX
	VPBROADCASTD AX, Z31
	MOVL         $1, AX
	VPBROADCASTD AX, Z30
	MOVL         $0x7fff, AX
	VPBROADCASTD AX, Z29
	MOVL         $0xaaaaaaaa, AX
	KMOVD        AX, K7
	SUBQ         $64, BX
	JB           fewer

two:
	VMOVDQU64 (SI)(R8*1), Z0
	VMOVDQU64 (DX)(R8*1), Z1
	VMOVDQU64 64(SI)(R8*1), Z4
	VMOVDQU64 64(DX)(R8*1), Z5
	SUM_BF16_Z(Z0, Z1, Z2, Z3)
	SUM_BF16_Z(Z4, Z5, Z6, Z7)
	VMOVDQU64 Z2, (DI)(R8*1)
	VMOVDQU64 Z6, 64(DI)(R8*1)
	ADDQ      $128, R8
	SUBQ      $64, BX
	JAE       two

fewer:
	ADDQ      $(64-32), BX
	JL        rest
	VMOVDQU64 (SI)(R8*1), Z0
	VMOVDQU64 (DX)(R8*1), Z1
	SUM_BF16_Z(Z0, Z1, Z2, Z3)
	VMOVDQU64 Z2, (DI)(R8*1)
	ADDQ      $64, R8
	SUBQ      $32, BX

rest:
	ADDQ        $32, BX
	JZ          done
	MOVQ        BX, CX
	MOVQ        $1, R9
	SHLQ        CX, R9
	DECQ        R9
	KMOVD       R9, K1
	VMOVDQU16.Z (SI)(R8*1), K1, Z0
	VMOVDQU16.Z (DX)(R8*1), K1, Z1
	SUM_BF16_Z(Z0, Z1, Z2, Z3)
	VMOVDQU16   Z2, K1, (DI)(R8*1)

done:
	VZEROUPPER
	RET

// ROUND_Y is ROUND_Z for AVX2.
#define ROUND_Y(S, T) \
	VPSRLD $16, S, T \
	VPAND  Y14, T, T \
	VPADDD Y13, T, T \
	VPADDD T, S, S

// SUM_BF16_Y is SUM_BF16_Z for AVX2.
#define SUM_BF16_Y(A, B, E, T) \
	VPSLLD   $16, A, E       \
	VPSLLD   $16, B, T       \
	VADDPS   T, E, E         \
	VPAND    Y15, A, A       \
	VPAND    Y15, B, B       \
	VADDPS   B, A, A         \
	ROUND_Y(E, T)            \
	ROUND_Y(A, B)            \
	VPSRLD   $16, E, E       \
	VPBLENDW $0xaa, A, E, E

// func addBF16AVX2(dst, a, b unsafe.Pointer, n int)
TEXT ·addBF16AVX2(SB), NOSPLIT, $0-32
	OPERANDS
	VPCMPEQD Y15, Y15, Y15
	VPSRLD   $31, Y15, Y14
	VPSRLD   $17, Y15, Y13
	VPSLLD   $16, Y15, Y15
	SUBQ     $32, BX
	JB       fewer

two:
	VMOVDQU (SI)(R8*1), Y0
	VMOVDQU (DX)(R8*1), Y1
	VMOVDQU 32(SI)(R8*1), Y5
	VMOVDQU 32(DX)(R8*1), Y6
	SUM_BF16_Y(Y0, Y1, Y2, Y3)
	SUM_BF16_Y(Y5, Y6, Y7, Y8)
	VMOVDQU Y2, (DI)(R8*1)
	VMOVDQU Y7, 32(DI)(R8*1)
	ADDQ    $64, R8
	SUBQ    $32, BX
	JAE     two

fewer:
	ADDQ    $(32-16), BX
	JL      done
	VMOVDQU (SI)(R8*1), Y0
	VMOVDQU (DX)(R8*1), Y1
	SUM_BF16_Y(Y0, Y1, Y2, Y3)
	VMOVDQU Y2, (DI)(R8*1)

done:
	VZEROUPPER
	RET

// F16: the conversions are instructions, which know subnormals whatever the control word says.

// func addF16AVX512(dst, a, b unsafe.Pointer, n int)
TEXT ·addF16AVX512(SB), NOSPLIT, $0-32
	OPERANDS
	SUBQ $64, BX
	JB   fewer

four:
	VCVTPH2PS (SI)(R8*1), Z0
	VCVTPH2PS 32(SI)(R8*1), Z1
	VCVTPH2PS 64(SI)(R8*1), Z2
	VCVTPH2PS 96(SI)(R8*1), Z3
	VCVTPH2PS (DX)(R8*1), Z4
	VCVTPH2PS 32(DX)(R8*1), Z5
	VCVTPH2PS 64(DX)(R8*1), Z6
	VCVTPH2PS 96(DX)(R8*1), Z7
	VADDPS    Z4, Z0, Z0
	VADDPS    Z5, Z1, Z1
	VADDPS    Z6, Z2, Z2
	VADDPS    Z7, Z3, Z3
	VCVTPS2PH $0, Z0, (DI)(R8*1)
	VCVTPS2PH $0, Z1, 32(DI)(R8*1)
	VCVTPS2PH $0, Z2, 64(DI)(R8*1)
	VCVTPS2PH $0, Z3, 96(DI)(R8*1)
	ADDQ      $128, R8
	SUBQ      $64, BX
	JAE       four

fewer:
	ADDQ $(64-16), BX
	JL   rest

one:
	VCVTPH2PS (SI)(R8*1), Z0
	VCVTPH2PS (DX)(R8*1), Z4
	VADDPS    Z4, Z0, Z0
	VCVTPS2PH $0, Z0, (DI)(R8*1)
	ADDQ      $32, R8
	SUBQ      $16, BX
	JGE       one

rest:
	ADDQ        $16, BX
	JZ          done
	MOVQ        BX, CX
	MOVQ        $1, R9
	SHLQ        CX, R9
	DECQ        R9
	KMOVD       R9, K1
	VMOVDQU16.Z (SI)(R8*1), K1, Y0
	VMOVDQU16.Z (DX)(R8*1), K1, Y1
	VCVTPH2PS   Y0, Z0
	VCVTPH2PS   Y1, Z1
	VADDPS      Z1, Z0, Z0
	VCVTPS2PH   $0, Z0, Y0
	VMOVDQU16   Y0, K1, (DI)(R8*1)

done:
	VZEROUPPER
	RET

// func addF16AVX2(dst, a, b unsafe.Pointer, n int)
TEXT ·addF16AVX2(SB), NOSPLIT, $0-32
	OPERANDS
	SUBQ $32, BX
	JB   fewer

four:
	VCVTPH2PS (SI)(R8*1), Y0
	VCVTPH2PS 16(SI)(R8*1), Y1
	VCVTPH2PS 32(SI)(R8*1), Y2
	VCVTPH2PS 48(SI)(R8*1), Y3
	VCVTPH2PS (DX)(R8*1), Y4
	VCVTPH2PS 16(DX)(R8*1), Y5
	VCVTPH2PS 32(DX)(R8*1), Y6
	VCVTPH2PS 48(DX)(R8*1), Y7
	VADDPS    Y4, Y0, Y0
	VADDPS    Y5, Y1, Y1
	VADDPS    Y6, Y2, Y2
	VADDPS    Y7, Y3, Y3
	VCVTPS2PH $0, Y0, (DI)(R8*1)
	VCVTPS2PH $0, Y1, 16(DI)(R8*1)
	VCVTPS2PH $0, Y2, 32(DI)(R8*1)
	VCVTPS2PH $0, Y3, 48(DI)(R8*1)
	ADDQ      $64, R8
	SUBQ      $32, BX
	JAE       four

fewer:
	ADDQ $(32-8), BX
	JL   done

one:
	VCVTPH2PS (SI)(R8*1), Y0
	VCVTPH2PS (DX)(R8*1), Y4
	VADDPS    Y4, Y0, Y0
	VCVTPS2PH $0, Y0, (DI)(R8*1)
	ADDQ      $16, R8
	SUBQ      $8, BX
	JGE       one

done:
	VZEROUPPER
	RET
