package program_test

import (
	"fmt"
	"slices"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/algo/algotest"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/program"
)

// rooms returns what a group offers to each of its ranks, with windows of the given slots (0:
// none).
func rooms(ranks, slot int) []program.Room {
	room := program.Room{Ranks: ranks, Channels: 2, Slot: slot, RecordBytes: 1 << 10, Exposes: slot > 0, Rotates: true}
	for range ranks {
		if memory := make([]byte, program.InlineBytes+2*slot); slot > 0 {
			room.Windows = append(room.Windows, program.Window{
				Inline: unsafe.Pointer(&memory[0]), Slots: unsafe.Pointer(&memory[program.InlineBytes])})
		}
	}
	all := slices.Repeat([]program.Room{room}, ranks)
	for rank := range all {
		all[rank].Rank = rank
	}
	return all
}

// callOf returns the call of a rank with blocks of n elements, and the lengths of all blocks.
func callOf(spec plan.Spec, rank, n int) (*program.Call, *program.Lengths) {
	call := &program.Call{Coll: spec.Coll, Type: dtype.F32, Root: spec.Root}
	for range spec.Coll.InBlocks(spec.Ranks, rank, spec.Root) {
		call.In = append(call.In, program.Block{Count: n})
	}
	for range spec.Coll.OutBlocks(spec.Ranks, rank, spec.Root) {
		call.Out = append(call.Out, program.Block{Count: n})
	}
	lengths := &program.Lengths{Row: 1}
	if spec.Coll == dtype.AllToAll {
		lengths.Row = spec.Ranks
	}
	lengths.Matrix = slices.Repeat([]uint64{uint64(n)}, spec.Ranks*lengths.Row)
	return call, lengths
}

// TestCompile compiles every plan of the catalogue for many lengths, with room for all of a block,
// for a part, and for none. The pieces have every element of every block once, chunks lie in the
// memory that there is, instructions work on chunks of one length, all ranks come to the same
// pieces, and a program that was made from another one is like a new one.
func TestCompile(t *testing.T) {
	const ranks = 4
	all, _ := algotest.Subjects(ranks)
	pieces, moving := map[bool]int{}, false
	scratch := make([]program.Program, ranks) // by rank: as an executor has it, which compiles one plan after another
	for _, s := range all {
		spec := plan.Spec{Coll: s.Coll, Ranks: ranks, Shape: s.Shape}
		if s.Coll.Rooted() {
			spec.Root = 1
		}
		p, err := s.Make(spec)
		require.NoError(t, err)
		for _, slot := range []int{0, 64 * max(p.Win, 1), 1 << 20} {
			if slot == 0 && s.Gets {
				continue
			}
			last, step := map[int]int{}, map[int]int{} // by length
			for rank, room := range rooms(ranks, slot) {
				low, err := program.Lower(p, &room)
				require.NoError(t, err)
				kept := &scratch[rank]
				for _, n := range []int{5, 0, 1, 7, 333} {
					what := fmt.Sprintf("%v/%s %v, rank %d, slots of %d bytes, %d elements", s.Coll, s.Name, s.Shape, rank, slot, n)
					call, lengths := callOf(p.Spec, rank, n)
					if n == 7 && s.Coll.Reduces() { // one call with a factor among others without
						call.Op, call.Factor = dtype.PremulSum, 0.5
					}
					have := map[[2]int][]interval{} // by buffer and block
					for piece := 0; piece == 0 || piece <= kept.Last; piece++ {
						require.NoError(t, kept.Compile(&room, low, call, lengths, piece), what)
						checkChunks(t, what, kept, &room, have)
						checkInstructions(t, what, kept, &room)
						var made program.Program
						require.NoError(t, made.Compile(&room, low, call, lengths, piece), what)
						require.Equal(t, plain(&made), plain(kept), what)
						pieces[piece > 0]++
					}
					checkIntervals(t, what, call, have)
					if _, known := last[n]; !known {
						last[n], step[n] = kept.Last, kept.Step
					}
					require.Equal(t, step[n], kept.Step, "%s: the ranks do not agree on the places", what)
					moving = moving || step[n] > 0
					require.Equal(t, last[n], kept.Last, "%s: the ranks do not agree on the pieces", what)
				}
			}
		}
	}
	require.True(t, moving)
	t.Logf("%d programs of first pieces, %d of later ones", pieces[false], pieces[true])
	require.NotZero(t, pieces[true])
}

// interval is a part of a block, in bytes.
type interval struct{ at, end int }

// checkChunks checks where the chunks of a program lie, and notes those of In and Out.
func checkChunks(t *testing.T, what string, p *program.Program, room *program.Room, have map[[2]int][]interval) {
	t.Helper()
	for buf, chunks := range p.Chunks {
		end := 0
		for i, c := range chunks {
			switch {
			case plan.Buffer(buf) == plan.In || plan.Buffer(buf) == plan.Out:
				key := [2]int{buf, int(c.Index)}
				have[key] = append(have[key], interval{c.Off, c.Off + c.Bytes})
			case plan.Buffer(buf) == plan.Win && p.Low.Slots && p.Inline > 0:
				require.Equal(t, room.Windows[room.Rank].Inline, c.At, what)
				require.LessOrEqual(t, c.Bytes, p.Inline, what)
				require.LessOrEqual(t, c.Off+c.Bytes, program.InlineBytes, what)
			case plan.Buffer(buf) == plan.Win && p.Low.Slots:
				require.Equal(t, room.Windows[room.Rank].Slots, c.At, what)
				require.LessOrEqual(t, c.Bytes+p.Moved(15), p.Cell, what)
				if p.Step > 0 {
					require.LessOrEqual(t, c.Bytes, p.Step, what)
				}
				require.LessOrEqual(t, (i+1)*p.Cell, room.Slot, what)
				require.Equal(t, i*p.Cell, c.Off, what)
			default:
				require.Equal(t, program.BaseTmp, c.Base, what)
				require.LessOrEqual(t, end, c.Off, "%s: %v[%d] lies in another chunk", what, plan.Buffer(buf), i)
				end = c.Off + c.Bytes
				require.LessOrEqual(t, end, p.Tmp, what)
			}
		}
	}
}

// checkInstructions checks that copies and reductions work on chunks of one length.
func checkInstructions(t *testing.T, what string, p *program.Program, room *program.Room) {
	t.Helper()
	for _, lane := range p.Lanes {
		for i := range lane {
			b := &lane[i]
			if b.Op != program.OpCopy && b.Op != program.OpReduce {
				continue
			}
			dst := p.Chunks[b.Dst.Buf][b.Dst.Chunk]
			require.Equal(t, dst.Bytes, b.Bytes, what)
			require.Equal(t, dst.Off, b.Dst.Off, what)
			for _, src := range b.Src {
				if src.Base == program.BasePeer {
					window := room.Windows[src.Index]
					require.Contains(t, []unsafe.Pointer{window.Inline, window.Slots}, src.At, what)
					continue
				}
				chunk := p.Chunks[src.Buf][src.Chunk]
				require.Equal(t, dst.Bytes, chunk.Bytes, "%s: step %d", what, b.PC)
				require.Equal(t, chunk.Off, src.Off, what)
			}
			if b.Op == program.OpReduce {
				require.Equal(t, b.Bytes, b.Elems*p.Elem, what)
			}
		}
	}
}

// checkIntervals checks that the chunks of all pieces together are each block once.
func checkIntervals(t *testing.T, what string, call *program.Call, have map[[2]int][]interval) {
	t.Helper()
	for buf, blocks := range map[plan.Buffer][]program.Block{plan.In: call.In, plan.Out: call.Out} {
		for i, block := range blocks {
			parts := slices.DeleteFunc(have[[2]int{int(buf), i}], func(x interval) bool { return x.at == x.end })
			slices.SortFunc(parts, func(a, b interval) int { return a.at - b.at })
			end := 0
			for _, x := range parts {
				require.Equal(t, end, x.at, "%s: block %d of %v", what, i, buf)
				end = x.end
			}
			require.Equal(t, block.Count*call.Type.Size(), end, "%s: block %d of %v", what, i, buf)
		}
	}
}

// plain is a program in a form that can be compared: memory of one that was reused is empty, and
// not nil.
func plain(p *program.Program) string { return fmt.Sprintf("%+v", *p) }

// TestCompileRefuses checks that lengths whose intermediate results no memory holds are refused,
// and that the program can be used afterwards.
func TestCompileRefuses(t *testing.T) {
	const ranks = 8
	all, _ := algotest.Subjects(ranks)
	i := slices.IndexFunc(all, func(s algotest.Subject) bool { return s.Coll == dtype.AllToAll && s.Name == "bruck" })
	require.GreaterOrEqual(t, i, 0)
	p, err := all[i].Make(plan.Spec{Coll: dtype.AllToAll, Ranks: ranks})
	require.NoError(t, err)
	room := rooms(ranks, 0)[0]
	low, err := program.Lower(p, &room)
	require.NoError(t, err)
	var made program.Program
	huge, lengths := callOf(p.Spec, 0, program.MaxBytes/4)
	err = made.Compile(&room, low, huge, lengths, 0)
	require.ErrorIs(t, err, fault.System)
	require.ErrorContains(t, err, "no memory for the intermediate results")
	small, lengths := callOf(p.Spec, 0, 4)
	require.NoError(t, made.Compile(&room, low, small, lengths, 0))
}

// TestFactors checks by what the elements of a reduction are multiplied.
func TestFactors(t *testing.T) {
	all, _ := algotest.Subjects(4)
	i := slices.IndexFunc(all, func(s algotest.Subject) bool { return s.Coll == dtype.AllReduce })
	p, err := all[i].Make(plan.Spec{Coll: dtype.AllReduce, Ranks: 4})
	require.NoError(t, err)
	room := rooms(4, 1<<20)[0]
	low, err := program.Lower(p, &room)
	require.NoError(t, err)
	for _, c := range []struct {
		op        dtype.Op
		pre, post float64
	}{{dtype.Sum, 1, 1}, {dtype.Avg, 1, 0.25}, {dtype.PremulSum, 3, 1}} {
		call, lengths := callOf(p.Spec, 0, 8)
		call.Op, call.Factor = c.op, 3
		var made program.Program
		require.NoError(t, made.Compile(&room, low, call, lengths, 0))
		require.Equal(t, [2]float64{c.pre, c.post}, [2]float64{made.Pre, made.Post}, c.op)
		require.Equal(t, 4, made.Elem)
		require.Positive(t, made.Size())
	}
}

// TestShape checks which calls have the shape of another one and the same key, and that a shape
// knows where the blocks of the call before were.
func TestShape(t *testing.T) {
	memory := make([]float32, 8)
	at := func(i, n int) program.Block { return program.Block{Ptr: unsafe.Pointer(&memory[i]), Count: n} }
	call := func() *program.Call {
		return &program.Call{Coll: dtype.AllReduce, Type: dtype.F32, Op: dtype.Sum,
			In: []program.Block{at(0, 3)}, Out: []program.Block{at(4, 3)}}
	}
	var shape program.Shape
	shape.Take(call())
	require.Equal(t, dtype.AllReduce, shape.Coll())
	is, same := shape.Compare(call())
	require.True(t, is && same)
	moved := call()
	moved.Out[0] = at(5, 3)
	is, same = shape.Compare(moved)
	require.True(t, is && !same)
	shape.TakeBlocks(moved)
	is, same = shape.Compare(moved)
	require.True(t, is && same)
	for name, change := range map[string]func(c *program.Call){
		"collective": func(c *program.Call) { c.Coll = dtype.Reduce },
		"type":       func(c *program.Call) { c.Type = dtype.F64 },
		"operator":   func(c *program.Call) { c.Op = dtype.Max },
		"root":       func(c *program.Call) { c.Root = 1 },
		"factor":     func(c *program.Call) { c.Factor = 2 },
		"input":      func(c *program.Call) { c.In[0].Count = 2 },
		"output":     func(c *program.Call) { c.Out[0].Count = 2 },
		"blocks":     func(c *program.Call) { c.Out = append(c.Out, at(0, 1)) },
	} {
		other := call()
		change(other)
		is, same = shape.Compare(other)
		require.False(t, is || same, name)
		require.NotEqual(t, call().Key(), other.Key(), name)
	}
	require.Equal(t, call().Key(), moved.Key(), "addresses do not count")
	require.NotZero(t, (&program.Call{}).Key())
	is, _ = new(program.Shape).Compare(call())
	require.False(t, is, "no call")
}
