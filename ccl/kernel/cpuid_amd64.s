//go:build amd64 && !noasm

#include "textflag.h"

// func cpuid7() (highest, edx uint32)
TEXT ·cpuid7(SB), NOSPLIT, $0-8
	XORL AX, AX
	XORL CX, CX
	CPUID
	MOVL AX, highest+0(FP)
	MOVL $7, AX
	XORL CX, CX
	CPUID
	MOVL DX, edx+4(FP)
	RET
