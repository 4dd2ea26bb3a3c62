package conformance

import (
	"bytes"
	"math/rand/v2"
	"strings"

	"github.com/goccl/goccl/cuda"
	"github.com/goccl/goccl/cuda/kernel"
)

// Where a rank of testTables has its flags, what it offers the other, and its buffers.
const (
	tableUnits = 3001
	tableSlot  = 4096
	tableIn    = tableSlot + 1<<16
	tableOut   = tableIn + 1<<16
	tableBytes = tableOut + 1<<16
)

// testTables has two kernels in two streams wait for each other, in a few blocks, in call after
// call: each of those that execute tables. They reduce what both have copied into a slot, or copy
// it.
func testTables(b *bench) {
	const blocks = 3
	host, back, device := b.register(2*tableBytes), b.register(2*tableBytes), b.alloc(2*tableBytes)
	words, m, r := b.words(), b.module(), rand.New(rand.NewPCG(3, 4))
	streams := [2]cuda.Stream{b.newStream(0), b.newStream(1)} // in different queues
	place := func(rank, at int) uint64 { return uint64(device.Ptr()) + uint64(rank*tableBytes+at) }
	functions := map[*kernel.Function]cuda.Function{}
	for _, f := range kernel.Functions() {
		if kernel.TakesTable(f.Name) {
			functions[f] = b.function(m, f.Name)
		}
	}
	want := make([]byte, 2*tableBytes)
	calls, flags := uint64(0), 0 // which are cleared once
	for f, function := range functions {
		for i := range want {
			want[i] = byte(r.Uint32())
		}
		for rank := range streams {
			clear(want[rank*tableBytes:][:kernel.FlagBytes])
		}
		ended := access(b.c, host, 0, len(want), true)
		copy(host.Host(), want)
		ended()
		for rank := range streams {
			at := cuda.Ptr(rank*tableBytes + flags)
			b.copy(streams[0], device.Ptr()+at, host.Ptr()+at, tableBytes-flags)
		}
		b.must(streams[0].Synchronize())
		flags = kernel.FlagBytes
		for call := calls; call < calls+3; call++ {
			for rank, s := range streams {
				t := kernel.Table{Rank: uint32(rank), Released: uint64(words.Ptr()), Awaited: uint64(words.Ptr()) + 64,
					Flags: [kernel.MostRanks]uint64{place(0, 0), place(1, 0)}}
				meeting(&t, f, rank, call, blocks, place)
				b.must(s.Launch(function, blocks, kernel.BlockSize, t.Bytes()))
			}
		}
		calls += 3
		for _, s := range streams {
			b.ends(s)
		}
		b.copy(streams[0], back.Ptr(), device.Ptr(), len(want))
		b.must(streams[0].Synchronize())
		ended = access(b.c, back, 0, len(want), false)
		b.met(f, want, place)
		for rank := range streams {
			got, want := back.Host()[rank*tableBytes:][:tableBytes], want[rank*tableBytes:][:tableBytes]
			if !bytes.Equal(got[kernel.FlagBytes:], want[kernel.FlagBytes:]) {
				b.t.Errorf("%s: rank %d has other bytes than on the processor", f.Name, rank)
			}
		}
		ended()
	}
}

// meeting makes the table of a rank in a call.
func meeting(t *kernel.Table, f *kernel.Function, rank int, call uint64, blocks int, place func(rank, at int) uint64) {
	peer := 1 - rank
	if call > 0 {
		t.Wait(1<<peer, 2*call, blocks)
	}
	bytes := tableUnits * f.UnitBytes()
	t.Add(kernel.Copies, kernel.Copy().Arguments(place(rank, tableSlot), bytes, 1, place(rank, tableIn)).Step)
	t.Signal(1<<peer, 2*call+1)
	t.Wait(1<<peer, 2*call+1, 0)
	if f == kernel.RunCopies().Function {
		t.Add(kernel.Copies, kernel.Copy().Arguments(place(rank, tableOut), tableUnits, 1, place(peer, tableSlot)).Step)
	} else {
		t.Add(kernel.Reduces, sumOf(f, rank, place).Step)
	}
	t.Signal(1<<peer, 2*call+2)
}

// sumOf returns the arguments of the reduction of a rank.
func sumOf(f *kernel.Function, rank int, place func(rank, at int) uint64) kernel.Arguments {
	c := kernel.Call{Function: f, Units: 1}
	return c.Arguments(place(rank, tableOut), tableUnits, 1, place(0, tableSlot), place(1, tableSlot))
}

// met does on the processor what both ranks do.
func (b *bench) met(f *kernel.Function, memory []byte, place func(rank, at int) uint64) {
	at := func(p uint64, bytes int) []byte { return memory[p-place(0, 0):][:bytes] }
	bytes := tableUnits * f.UnitBytes()
	for rank := range 2 {
		copy(at(place(rank, tableSlot), bytes), at(place(rank, tableIn), bytes))
	}
	for rank := range 2 {
		if f == kernel.RunCopies().Function {
			copy(at(place(rank, tableOut), bytes), at(place(1-rank, tableSlot), bytes))
			continue
		}
		a := sumOf(f, rank, place)
		b.must(kernel.Execute(strings.Replace(f.Name, "_run_", "_reduce_", 1), a.Bytes(), at))
	}
}
