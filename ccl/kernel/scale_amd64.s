//go:build amd64 && !noasm

#include "textflag.h"

// dst = src × factor, the product in F64. The first source of every multiplication is src, whose NaN wins.
// DI, SI: dst, src. BX: elements left, less one vector. R8: offset in bytes. Z31 or Y15: factor. Constants are in every lane.

#define OPERANDS \
	MOVQ dst+0(FP), DI \
	MOVQ src+8(FP), SI \
	MOVQ n+16(FP), BX  \
	XORQ R8, R8

// MASK sets K1 to the first BX elements.
#define MASK \
	MOVQ  BX, CX \
	MOVQ  $1, R9 \
	SHLQ  CX, R9 \
	DECQ  R9     \
	KMOVW R9, K1

// func mulF64AVX512(dst, src unsafe.Pointer, n int, factor float64)
TEXT ·mulF64AVX512(SB), NOSPLIT, $0-32
	OPERANDS
	VBROADCASTSD factor+24(FP), Z31
	SUBQ         $32, BX
	JB           fewer

four:
	VMOVUPD (SI)(R8*1), Z0
	VMOVUPD 64(SI)(R8*1), Z1
	VMOVUPD 128(SI)(R8*1), Z2
	VMOVUPD 192(SI)(R8*1), Z3
	VMULPD  Z31, Z0, Z0
	VMULPD  Z31, Z1, Z1
	VMULPD  Z31, Z2, Z2
	VMULPD  Z31, Z3, Z3
	VMOVUPD Z0, (DI)(R8*1)
	VMOVUPD Z1, 64(DI)(R8*1)
	VMOVUPD Z2, 128(DI)(R8*1)
	VMOVUPD Z3, 192(DI)(R8*1)
	ADDQ    $256, R8
	SUBQ    $32, BX
	JAE     four

fewer:
	ADDQ $(32-8), BX
	JL   rest

one:
	VMOVUPD (SI)(R8*1), Z0
	VMULPD  Z31, Z0, Z0
	VMOVUPD Z0, (DI)(R8*1)
	ADDQ    $64, R8
	SUBQ    $8, BX
	JGE     one

rest:
	ADDQ      $8, BX
	JZ        done
	MASK
	VMOVUPD.Z (SI)(R8*1), K1, Z0
	VMULPD    Z31, Z0, Z0
	VMOVUPD   Z0, K1, (DI)(R8*1)

done:
	VZEROUPPER
	RET

// func mulF32AVX512(dst, src unsafe.Pointer, n int, factor float64)
TEXT ·mulF32AVX512(SB), NOSPLIT, $0-32
	OPERANDS
	VBROADCASTSD factor+24(FP), Z31
	SUBQ         $32, BX
	JB           fewer

four:
	VCVTPS2PD (SI)(R8*1), Z0
	VCVTPS2PD 32(SI)(R8*1), Z1
	VCVTPS2PD 64(SI)(R8*1), Z2
	VCVTPS2PD 96(SI)(R8*1), Z3
	VMULPD    Z31, Z0, Z0
	VMULPD    Z31, Z1, Z1
	VMULPD    Z31, Z2, Z2
	VMULPD    Z31, Z3, Z3
	VCVTPD2PS Z0, Y0
	VCVTPD2PS Z1, Y1
	VCVTPD2PS Z2, Y2
	VCVTPD2PS Z3, Y3
	VMOVUPS   Y0, (DI)(R8*1)
	VMOVUPS   Y1, 32(DI)(R8*1)
	VMOVUPS   Y2, 64(DI)(R8*1)
	VMOVUPS   Y3, 96(DI)(R8*1)
	ADDQ      $128, R8
	SUBQ      $32, BX
	JAE       four

fewer:
	ADDQ $(32-8), BX
	JL   rest

one:
	VCVTPS2PD (SI)(R8*1), Z0
	VMULPD    Z31, Z0, Z0
	VCVTPD2PS Z0, Y0
	VMOVUPS   Y0, (DI)(R8*1)
	ADDQ      $32, R8
	SUBQ      $8, BX
	JGE       one

rest:
	ADDQ      $8, BX
	JZ        done
	MASK
	VMOVUPS.Z (SI)(R8*1), K1, Y0
	VCVTPS2PD Y0, Z0
	VMULPD    Z31, Z0, Z0
	VCVTPD2PS Z0, Y0
	VMOVUPS   Y0, K1, (DI)(R8*1)

done:
	VZEROUPPER
	RET

// 16-bit floats: two roundings would not be one, so the product is rounded to odd before it becomes an F32: see roundToOdd.

// ODD_Z does that to the F64 in P. Z30: lostBits. T is spoilt.
#define ODD_Z(P, T) \
	VPANDQ  Z30, P, T \
	VPADDQ  Z30, T, T \
	VPORQ   T, P, P   \
	VPANDNQ P, Z30, P

// PRODUCT_Z multiplies the 16 F32 in Z0.
#define PRODUCT_Z \
	VEXTRACTF64X4 $1, Z0, Y1     \
	VCVTPS2PD     Y0, Z2         \
	VCVTPS2PD     Y1, Z3         \
	VMULPD        Z31, Z2, Z2    \
	VMULPD        Z31, Z3, Z3    \
	ODD_Z(Z2, Z4)                \
	ODD_Z(Z3, Z5)                \
	VCVTPD2PS     Z2, Y0         \
	VCVTPD2PS     Z3, Y1         \
	VINSERTF64X4  $1, Y1, Z0, Z0

// func mulF16AVX512(dst, src unsafe.Pointer, n int, factor float64)
TEXT ·mulF16AVX512(SB), NOSPLIT, $0-32
	OPERANDS
	VBROADCASTSD factor+24(FP), Z31
	MOVQ         $0x7fffffffff, AX
	VPBROADCASTQ AX, Z30
	SUBQ         $16, BX
	JB           rest

one:
	VCVTPH2PS (SI)(R8*1), Z0
	PRODUCT_Z
	VCVTPS2PH $0, Z0, (DI)(R8*1)
	ADDQ      $32, R8
	SUBQ      $16, BX
	JAE       one

rest:
	ADDQ        $16, BX
	JZ          done
	MASK
	VMOVDQU16.Z (SI)(R8*1), K1, Y0
	VCVTPH2PS   Y0, Z0
	PRODUCT_Z
	VCVTPS2PH   $0, Z0, Y0
	VMOVDQU16   Y0, K1, (DI)(R8*1)

done:
	VZEROUPPER
	RET

// NARROW_BF16 rounds the 16 F32 in Z0, as ROUND_Z in half_amd64.s does, to 16 BF16 in Y0. Z29: 0x7fff. Z28: 1.
#define NARROW_BF16_Z \
	VPSRLD  $16, Z0, Z1     \
	VPANDD  Z28, Z1, Z1     \
	VPADDD  Z29, Z1, Z1     \
	VPADDD  Z1, Z0, Z0      \
	VPSRLD  $16, Z0, Z0     \
	VPMOVDW Z0, Y0

// func mulBF16AVX512(dst, src unsafe.Pointer, n int, factor float64)
TEXT ·mulBF16AVX512(SB), NOSPLIT, $0-32
	OPERANDS
	VBROADCASTSD factor+24(FP), Z31
	MOVQ         $0x7fffffffff, AX
	VPBROADCASTQ AX, Z30
	MOVL         $0x7fff, AX
	VPBROADCASTD AX, Z29
	MOVL         $1, AX
	VPBROADCASTD AX, Z28
	SUBQ         $16, BX
	JB           rest

one:
	VPMOVZXWD (SI)(R8*1), Z0
	VPSLLD    $16, Z0, Z0
	PRODUCT_Z
	NARROW_BF16_Z
	VMOVDQU   Y0, (DI)(R8*1)
	ADDQ      $32, R8
	SUBQ      $16, BX
	JAE       one

rest:
	ADDQ        $16, BX
	JZ          done
	MASK
	VMOVDQU16.Z (SI)(R8*1), K1, Y0
	VPMOVZXWD   Y0, Z0
	VPSLLD      $16, Z0, Z0
	PRODUCT_Z
	NARROW_BF16_Z
	VMOVDQU16   Y0, K1, (DI)(R8*1)

done:
	VZEROUPPER
	RET

// func mulF64AVX2(dst, src unsafe.Pointer, n int, factor float64)
TEXT ·mulF64AVX2(SB), NOSPLIT, $0-32
	OPERANDS
	VBROADCASTSD factor+24(FP), Y15
	SUBQ         $16, BX
	JB           fewer

four:
	VMOVUPD (SI)(R8*1), Y0
	VMOVUPD 32(SI)(R8*1), Y1
	VMOVUPD 64(SI)(R8*1), Y2
	VMOVUPD 96(SI)(R8*1), Y3
	VMULPD  Y15, Y0, Y0
	VMULPD  Y15, Y1, Y1
	VMULPD  Y15, Y2, Y2
	VMULPD  Y15, Y3, Y3
	VMOVUPD Y0, (DI)(R8*1)
	VMOVUPD Y1, 32(DI)(R8*1)
	VMOVUPD Y2, 64(DI)(R8*1)
	VMOVUPD Y3, 96(DI)(R8*1)
	ADDQ    $128, R8
	SUBQ    $16, BX
	JAE     four

fewer:
	ADDQ $(16-4), BX
	JL   done

one:
	VMOVUPD (SI)(R8*1), Y0
	VMULPD  Y15, Y0, Y0
	VMOVUPD Y0, (DI)(R8*1)
	ADDQ    $32, R8
	SUBQ    $4, BX
	JGE     one

done:
	VZEROUPPER
	RET

// func mulF32AVX2(dst, src unsafe.Pointer, n int, factor float64)
TEXT ·mulF32AVX2(SB), NOSPLIT, $0-32
	OPERANDS
	VBROADCASTSD factor+24(FP), Y15
	SUBQ         $8, BX
	JB           done

two:
	VCVTPS2PD  (SI)(R8*1), Y0
	VCVTPS2PD  16(SI)(R8*1), Y1
	VMULPD     Y15, Y0, Y0
	VMULPD     Y15, Y1, Y1
	VCVTPD2PSY Y0, X0
	VCVTPD2PSY Y1, X1
	VMOVUPS    X0, (DI)(R8*1)
	VMOVUPS    X1, 16(DI)(R8*1)
	ADDQ       $32, R8
	SUBQ       $8, BX
	JAE        two

done:
	VZEROUPPER
	RET

// ODD_Y is ODD_Z for AVX2. Y14: lostBits.
#define ODD_Y(P, T) \
	VPAND  Y14, P, T \
	VPADDQ Y14, T, T \
	VPOR   T, P, P   \
	VPANDN P, Y14, P

// PRODUCT_Y multiplies the 8 F32 in Y0.
#define PRODUCT_Y \
	VEXTRACTF128 $1, Y0, X1     \
	VCVTPS2PD    X0, Y2         \
	VCVTPS2PD    X1, Y3         \
	VMULPD       Y15, Y2, Y2    \
	VMULPD       Y15, Y3, Y3    \
	ODD_Y(Y2, Y4)               \
	ODD_Y(Y3, Y5)               \
	VCVTPD2PSY   Y2, X0         \
	VCVTPD2PSY   Y3, X1         \
	VINSERTF128  $1, X1, Y0, Y0

// func mulF16AVX2(dst, src unsafe.Pointer, n int, factor float64)
TEXT ·mulF16AVX2(SB), NOSPLIT, $0-32
	OPERANDS
	VBROADCASTSD factor+24(FP), Y15
	VPCMPEQD     Y14, Y14, Y14
	VPSRLQ       $25, Y14, Y14
	SUBQ         $8, BX
	JB           done

one:
	VCVTPH2PS (SI)(R8*1), Y0
	PRODUCT_Y
	VCVTPS2PH $0, Y0, (DI)(R8*1)
	ADDQ      $16, R8
	SUBQ      $8, BX
	JAE       one

done:
	VZEROUPPER
	RET

// func mulBF16AVX2(dst, src unsafe.Pointer, n int, factor float64)
TEXT ·mulBF16AVX2(SB), NOSPLIT, $0-32
	OPERANDS
	VBROADCASTSD factor+24(FP), Y15
	VPCMPEQD     Y12, Y12, Y12
	VPSRLQ       $25, Y12, Y14
	VPSRLD       $17, Y12, Y13
	VPSRLD       $31, Y12, Y12
	SUBQ         $8, BX
	JB           done

one:
	VPMOVZXWD    (SI)(R8*1), Y0
	VPSLLD       $16, Y0, Y0
	PRODUCT_Y
	VPSRLD       $16, Y0, Y1
	VPAND        Y12, Y1, Y1
	VPADDD       Y13, Y1, Y1
	VPADDD       Y1, Y0, Y0
	VPSRLD       $16, Y0, Y0
	VEXTRACTI128 $1, Y0, X1
	VPACKUSDW    X1, X0, X0
	VMOVDQU      X0, (DI)(R8*1)
	ADDQ         $16, R8
	SUBQ         $8, BX
	JAE          one

done:
	VZEROUPPER
	RET
