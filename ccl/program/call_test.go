package program_test

import (
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/program"
)

// TestCheck gives rank 1 of 3 calls that are wrong in one thing each.
func TestCheck(t *testing.T) {
	memory := make([]float32, 16)
	block := func(at, n int) program.Block { return program.Block{Ptr: unsafe.Pointer(&memory[at]), Count: n} }
	reduce := func(change func(c *program.Call)) program.Call {
		c := program.Call{Coll: dtype.AllReduce, Type: dtype.F32, Op: dtype.Sum,
			In: []program.Block{block(0, 4)}, Out: []program.Block{block(8, 4)}}
		change(&c)
		return c
	}
	for _, c := range []struct {
		name string
		call program.Call
		code fault.Code
		want string
	}{
		{"right", reduce(func(*program.Call) {}), fault.OK, ""},
		{"empty", reduce(func(c *program.Call) { c.In[0], c.Out[0] = program.Block{}, program.Block{} }), fault.OK, ""},
		{"barrier", program.Call{Coll: dtype.Barrier}, fault.OK, ""},
		{"send", program.Call{Coll: dtype.Send, Type: dtype.F32, Root: 2, In: []program.Block{block(0, 1)}},
			fault.OK, ""},
		{"receive from any rank", program.Call{Coll: dtype.Recv, Type: dtype.F32, Root: -1,
			Out: []program.Block{block(0, 1)}}, fault.OK, ""},
		{"no collective", reduce(func(c *program.Call) { c.Coll = 200 }), fault.Invalid, "is not an operation"},
		{"no type", reduce(func(c *program.Call) { c.Type = 200 }), fault.Invalid, "is not an element type"},
		{"mean of integers", reduce(func(c *program.Call) { c.Type, c.Op = dtype.I32, dtype.Avg }),
			fault.NotSupported, "all_reduce"},
		{"no such root", program.Call{Coll: dtype.Broadcast, Type: dtype.F32, Root: 3,
			Out: []program.Block{block(0, 1)}}, fault.Invalid, "root 3 is not a rank of a group of 3"},
		{"no such peer", program.Call{Coll: dtype.Send, Type: dtype.F32, Root: -1, In: []program.Block{block(0, 1)}},
			fault.Invalid, "peer -1 is not a rank of a group of 3"},
		{"negative timeout", reduce(func(c *program.Call) { c.Timeout = -time.Second }), fault.Invalid,
			"timeout -1s is negative"},
		{"too many blocks", reduce(func(c *program.Call) { c.In = append(c.In, block(4, 1)) }), fault.Invalid,
			"got 2 input and 1 output blocks, want 1 and 1 on rank 1 of 3"},
		{"negative length", reduce(func(c *program.Call) { c.Out[0].Count = -1 }), fault.Invalid, "has -1 elements"},
		{"too long", reduce(func(c *program.Call) { c.In[0].Count = program.MaxBytes/4 + 1 }), fault.Invalid,
			"elements"},
		{"no memory", reduce(func(c *program.Call) { c.In[0].Ptr = nil }), fault.Invalid,
			"has 4 elements and no memory"},
		{"two lengths", reduce(func(c *program.Call) { c.Out[0].Count = 3 }), fault.Invalid,
			"the input block of this rank has 4 elements, the output block 3; they must be equal"},
		{"its own block of several", program.Call{Coll: dtype.AllGather, Type: dtype.F32,
			In:  []program.Block{block(0, 2)},
			Out: []program.Block{block(4, 2), block(6, 1), block(8, 2)}}, fault.Invalid, "they must be equal"},
		{"blocks of other ranks differ", program.Call{Coll: dtype.AllGather, Type: dtype.F32,
			In:  []program.Block{block(0, 2)},
			Out: []program.Block{block(4, 1), block(6, 2), block(8, 3)}}, fault.OK, ""},
	} {
		err := c.call.Check(1, 3)
		if c.code == fault.OK {
			require.NoError(t, err, c.name)
			continue
		}
		require.ErrorIs(t, err, c.code, c.name)
		require.ErrorContains(t, err, c.want, c.name)
	}
}

// TestOverlap checks which blocks may share memory: those of the same data, if they are the same.
func TestOverlap(t *testing.T) {
	memory := make([]float32, 16)
	block := func(at, n int) program.Block { return program.Block{Ptr: unsafe.Pointer(&memory[at]), Count: n} }
	blocks := func(b ...program.Block) []program.Block { return b }
	for _, c := range []struct {
		name    string
		coll    dtype.Collective
		in, out []program.Block
		inPlace bool
		wrong   string
	}{
		{"apart", dtype.AllReduce, blocks(block(0, 4)), blocks(block(4, 4)), false, ""},
		{"in place", dtype.AllReduce, blocks(block(0, 4)), blocks(block(0, 4)), true, ""},
		{"nothing in common", dtype.AllReduce, blocks(block(0, 0)), blocks(block(0, 4)), false, ""},
		{"shifted", dtype.AllReduce, blocks(block(0, 4)), blocks(block(2, 4)), false, "input block 0 and output block 0 share memory"},
		{"longer", dtype.AllReduce, blocks(block(0, 4)), blocks(block(0, 5)), false, "share memory"},
		{"gathered in place", dtype.AllGather, blocks(block(4, 4)), blocks(block(0, 4), block(4, 4)), true, ""},
		{"gathered over another rank's", dtype.AllGather, blocks(block(0, 4)), blocks(block(0, 4), block(4, 4)), false,
			"input block 0 and output block 0 share memory"},
		{"scattered in place", dtype.ReduceScatter, blocks(block(0, 4), block(4, 4)), blocks(block(4, 4)), true, ""},
		{"exchanged in place", dtype.AllToAll, blocks(block(0, 4), block(4, 4)), blocks(block(0, 4), block(4, 4)),
			true, ""},
		{"exchanged crosswise", dtype.AllToAll, blocks(block(0, 4), block(4, 4)), blocks(block(4, 4), block(0, 4)),
			false, "input block 0 and output block 1 share memory"},
	} {
		call := program.Call{Coll: c.coll, Type: dtype.F32, In: c.in, Out: c.out}
		inPlace, err := call.Overlap(1)
		require.Equal(t, c.inPlace, inPlace, c.name)
		if c.wrong == "" {
			require.NoError(t, err, c.name)
		} else {
			require.ErrorIs(t, err, fault.Invalid, c.name)
			require.ErrorContains(t, err, c.wrong, c.name)
		}
	}
}

// TestCallsAsText checks how calls are named in messages, and the size by which algorithms are
// chosen.
func TestCallsAsText(t *testing.T) {
	of := func(counts ...int) (blocks []program.Block) {
		for _, n := range counts {
			blocks = append(blocks, program.Block{Count: n})
		}
		return blocks
	}
	for _, c := range []struct {
		call  program.Call
		want  string
		bytes int64
	}{
		{program.Call{Coll: dtype.Barrier}, "barrier", 0},
		{program.Call{Coll: dtype.AllReduce, Type: dtype.F32, In: of(8), Out: of(8)}, "all_reduce of 8 x f32 (sum)",
			32},
		{program.Call{Coll: dtype.Reduce, Type: dtype.F64, Op: dtype.Max, Root: 2, In: of(8)},
			"reduce of 8 x f64 (max), root 2", 64},
		{program.Call{Coll: dtype.AllGather, Type: dtype.F32, In: of(2), Out: of(2, 2, 2)},
			"all_gather of 3x2 x f32", 24},
		{program.Call{Coll: dtype.ReduceScatter, Type: dtype.F32, In: of(1, 2, 3), Out: of(2)},
			"reduce_scatter of 6 (in 3 blocks) x f32 (sum)", 24},
		{program.Call{Coll: dtype.Scatter, Type: dtype.F32, Root: 1, Out: of(5)}, "scatter of 5 x f32, root 1", 0},
		{program.Call{Coll: dtype.Send, Type: dtype.U8, Root: 1, Tag: 7, In: of(5)},
			"send of 5 x u8 to rank 1, tag 7", 0},
		{program.Call{Coll: dtype.Recv, Type: dtype.U8, Root: 1, Tag: 7, Out: of(5)},
			"recv of 5 x u8 from rank 1, tag 7", 0},
		{program.Call{Coll: dtype.Recv, Type: dtype.U8, Root: -1, Tag: 7, Out: of(5)},
			"recv of 5 x u8 from any rank, tag 7", 0},
	} {
		require.Equal(t, c.want, c.call.String())
		require.Equal(t, c.bytes, c.call.Bytes(), c.want)
	}
}
