//go:build amd64 && !noasm

package kernel

import (
	"bytes"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/cpu"
)

// TestClaimingCopy runs the copy wherever the processor can, also where it does not pay.
func TestClaimingCopy(t *testing.T) {
	if !cpu.X86.HasAVX512F {
		t.Skip("no AVX-512")
	}
	testCopy(t, copyClaiming, 0, 1, 63, claimLeast-1, claimLeast, 1024, 1279, 1280, 4096, 65537, stringMost,
		2*stringMost+777)
}

// TestClaimWritesNothing claims lines up to the end of memory.
func TestClaimWritesNothing(t *testing.T) {
	memory := bytes.Repeat([]byte{7}, 8192)
	for _, n := range []int{1, 64, 100, 4096, 8192} {
		claimLines(unsafe.Pointer(&memory[len(memory)-n]), n)
	}
	Claim(memory)
	Claim(nil)
	require.Equal(t, bytes.Repeat([]byte{7}, 8192), memory)
	require.Equal(t, claims, Claiming() != nil)
}

func TestClaimsAllocateNothing(t *testing.T) {
	a, b := make([]byte, 8192), make([]byte, 8192)
	require.Zero(t, testing.AllocsPerRun(100, func() { CopyAcross(a, b); Claim(b) }))
}
