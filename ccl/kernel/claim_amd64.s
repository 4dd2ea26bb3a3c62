//go:build amd64 && !noasm

#include "textflag.h"

// The assembler does not know PREFETCHW. These are its forms for (DI), 64(DI) …, and for (DI)(R8*1).
#define CLAIM BYTE $0x0F; BYTE $0x0D; BYTE $0x0F
#define CLAIM_AHEAD(offset) BYTE $0x42; BYTE $0x0F; BYTE $0x0D; BYTE $0x8C; BYTE $0x07; LONG $offset

// MOVE copies 256 bytes.
#define MOVE \
	VMOVDQU64 (SI), Z0; \
	VMOVDQU64 64(SI), Z1; \
	VMOVDQU64 128(SI), Z2; \
	VMOVDQU64 192(SI), Z3; \
	VMOVDQU64 Z0, (DI); \
	VMOVDQU64 Z1, 64(DI); \
	VMOVDQU64 Z2, 128(DI); \
	VMOVDQU64 Z3, 192(DI); \
	ADDQ $256, SI; \
	ADDQ $256, DI

// func cpuidVendor() (b, d, c uint32)
TEXT ·cpuidVendor(SB), NOSPLIT, $0-12
	XORL AX, AX
	XORL CX, CX
	CPUID
	MOVL BX, b+0(FP)
	MOVL DX, d+4(FP)
	MOVL CX, c+8(FP)
	RET

// func claimLines(p unsafe.Pointer, n int)
TEXT ·claimLines(SB), NOSPLIT, $0-16
	MOVQ p+0(FP), DI
	MOVQ n+8(FP), CX
	ADDQ DI, CX
	ANDQ $~63, DI

claim:
	CLAIM
	ADDQ $64, DI
	CMPQ DI, CX
	JB   claim
	RET

// func claimingCopy(dst, src unsafe.Pointer, n, ahead int)
TEXT ·claimingCopy(SB), NOSPLIT, $0-32
	MOVQ ahead+24(FP), R8
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX
	MOVQ DI, AX
	LEAQ (DI)(CX*1), DX    // the end of dst
	LEAQ (DI)(R8*1), BX
	CMPQ BX, DX
	CMOVQHI DX, BX         // what is claimed before the first store

first:
	CLAIM
	ADDQ $64, DI
	CMPQ DI, BX
	JB   first
	MOVQ AX, DI
	MOVQ DX, BX
	SUBQ R8, BX            // up to here, there is something to claim

ahead:
	CMPQ DI, BX
	JAE  rest
	CLAIM_AHEAD(0)
	CLAIM_AHEAD(64)
	CLAIM_AHEAD(128)
	CLAIM_AHEAD(192)
	MOVE
	JMP  ahead

rest:
	CMPQ DI, DX
	JAE  done
	MOVE
	JMP  rest

done:
	VZEROUPPER
	RET
