package exec

import (
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/exec/p2p"
	"github.com/goccl/goccl/ccl/program"
)

// TestPlainMessage checks that plainMessage accepts the calls that Check accepts, except receives
// from any rank.
func TestPlainMessage(t *testing.T) {
	const ranks = 3
	var memory [64]byte
	blocks := map[string][]Block{
		"none":      nil,
		"empty":     {{}},
		"some":      {{Ptr: unsafe.Pointer(&memory[0]), Count: 8}},
		"two":       {{Ptr: unsafe.Pointer(&memory[0]), Count: 8}, {Ptr: unsafe.Pointer(&memory[32]), Count: 8}},
		"no memory": {{Count: 8}},
		"negative":  {{Ptr: unsafe.Pointer(&memory[0]), Count: -1}},
		"longest":   {{Ptr: unsafe.Pointer(&memory[0]), Count: program.MaxBytes / 4}},
		"too long":  {{Ptr: unsafe.Pointer(&memory[0]), Count: program.MaxBytes/4 + 1}},
	}
	plain := 0
	for _, coll := range []dtype.Collective{dtype.NoCollective, dtype.Send, dtype.Recv, 200} {
		for _, typ := range []dtype.Type{dtype.F32, 200} {
			for _, root := range []int{p2p.AnySource, 0, 2, ranks, -2} {
				for _, timeout := range []time.Duration{0, time.Second, -1} {
					for in := range blocks {
						for out := range blocks {
							call := Call{Coll: coll, Type: typ, Root: root, Timeout: timeout,
								In: blocks[in], Out: blocks[out]}
							want := call.Check(1, ranks) == nil && root != p2p.AnySource
							require.Equal(t, want, plainMessage(&call, ranks),
								"%v %v root %d timeout %v in %s out %s", coll, typ, root, timeout, in, out)
							if want {
								plain++
							}
						}
					}
				}
			}
		}
	}
	require.Equal(t, 2*2*2*3, plain) // send or recv, two peers, two timeouts, three kinds of blocks
}
