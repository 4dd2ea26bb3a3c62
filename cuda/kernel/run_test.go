package kernel

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/fault"
	processor "github.com/goccl/goccl/ccl/kernel"
)

// member is what a rank has for tables: its flags, two slots, its words and its buffers.
type member struct {
	flags   []uint64
	words   []uint64 // released, and then what is awaited of each rank
	slots   [2][]byte
	in, out []byte
	packets [2][]uint64 // of each rank, one after the other
	taken   []byte      // what was in them
	used    [2]uint64
	usedBy  [2]int // blocks
}

const slotBytes = 4 << 10

func members(n int) []*member {
	all := make([]*member, n)
	for i := range all {
		m := &member{flags: make([]uint64, MostRanks*MostBlocks), words: make([]uint64, 1+MostRanks)}
		m.slots = [2][]byte{memory(slotBytes, 0), memory(slotBytes, 0)}
		m.packets = [2][]uint64{make([]uint64, n*Packets(slotBytes)), make([]uint64, n*Packets(slotBytes))}
		m.taken = memory(n*slotBytes, 0)
		all[i] = m
	}
	return all
}

func wordAddress(words []uint64, i int) uint64 { return uint64(uintptr(unsafe.Pointer(&words[i]))) }

// table begins the table of a rank.
func table(all []*member, rank int) *Table {
	t := &Table{Rank: uint32(rank), Released: wordAddress(all[rank].words, 0), Awaited: wordAddress(all[rank].words, 1)}
	for i, m := range all {
		t.Flags[i] = wordAddress(m.flags, 0)
	}
	return t
}

// oneShot is an all_reduce, the nth call from 1, of n units: each rank copies its block into its
// slot, and reduces the slots of all.
func oneShot(all []*member, rank, nth, n, blocks int, f *Function) *Table {
	t, own := table(all, rank), all[rank]
	peers, slot := uint32(1<<len(all)-1)&^(1<<rank), nth%2
	call := Call{f, 1}
	if own.used[slot] > 0 {
		t.Wait(peers, own.used[slot], own.usedBy[slot])
	}
	t.Add(Copies, Copy().Arguments(address(own.slots[slot]), n*f.to.Size(), 1, address(own.in)).Step)
	t.Signal(peers, uint64(2*nth))
	t.Wait(peers, uint64(2*nth), 0)
	var from []uint64
	for i, m := range all {
		if i == rank {
			from = append(from, address(own.in))
		} else {
			from = append(from, address(m.slots[slot]))
		}
	}
	if f == copyRunner.Function { // an all_gather
		for i := range all {
			t.Add(Copies, Copy().Arguments(address(own.out)+uint64(i*n), n, 1, from[i]).Step)
		}
	} else {
		t.Add(Reduces, call.Arguments(address(own.out), n, 1, from...).Step)
	}
	t.Signal(peers, uint64(2*nth+1))
	own.used[slot], own.usedBy[slot] = uint64(2*nth+1), blocks
	return t
}

// inPackets is the same without flags: each rank puts its block into packets of all others.
func inPackets(all []*member, rank, nth, n, _ int, f *Function) *Table {
	t, own, bytes := table(all, rank), all[rank], n*f.to.Size()
	flag, packets := uint32(math.MaxUint32-6+2*nth), nth%3*Packets(slotBytes)/2
	area := func(owner, writer int) uint64 {
		return wordAddress(all[owner].packets[nth%2], writer*Packets(slotBytes))
	}
	var from []uint64
	for i := range all {
		if i == rank {
			from = append(from, address(own.in))
			continue
		}
		t.Put(area(i, rank), address(own.in), bytes, flag, packets)
		from = append(from, address(own.taken[i*slotBytes:]))
	}
	for i := range all {
		if i != rank {
			t.Take(from[i], area(rank, i), bytes, flag, i)
		}
	}
	if f == copyRunner.Function { // an all_gather
		for i := range all {
			t.Add(Copies, Copy().Arguments(address(own.out)+uint64(i*n), n, 1, from[i]).Step)
		}
	} else {
		t.Add(Reduces, Call{f, 1}.Arguments(address(own.out), n, 1, from...).Step)
	}
	return t
}

// tables returns the functions that execute tables.
func tables() (all []*Function) {
	for _, f := range Functions() {
		if f.kind == runs {
			all = append(all, f)
		}
	}
	return all
}

// Ranks that wait for each other have the bits of ccl/kernel in call after call, with every
// operator and type, when the kernels run as threads, and when their steps are executed one at a
// time, in any order.
func TestTables(t *testing.T) {
	l := hostLibrary(t)
	r := rand.New(rand.NewPCG(8, 8))
	for i, f := range tables() {
		for _, ranks := range []int{2, 3 + i%5, 8} {
			if testing.Short() && ranks > 2 {
				continue
			}
			for packets, make := range [](func([]*member, int, int, int, int, *Function) *Table){oneShot, inPackets} {
				if err := runCalls(l, r, f, ranks, i%2 == packets, make); err != nil {
					t.Fatalf("%s, %d ranks, packets %d: %v", f.Name, ranks, packets, err)
				}
			}
		}
	}
}

// runCalls makes some calls of ranks, as threads or stepwise.
func runCalls(l *library, r *rand.Rand, f *Function, ranks int, stepwise bool,
	make func([]*member, int, int, int, int, *Function) *Table) error {
	all := members(ranks)
	typ := f.to
	for nth := 1; nth <= 6; nth++ {
		n, blocks := r.IntN(slotBytes/typ.Size())+1, 1+r.IntN(MostBlocks)
		if r.IntN(2) == 0 {
			n = 1 + r.IntN(min(n, 40))
		}
		var sources []unsafe.Pointer
		var gathered []byte
		for _, m := range all {
			m.in, m.out = memory(n*typ.Size(), 0), memory(n*typ.Size()*ranks, 0)
			fill(r, typ, m.in)
			sources, gathered = append(sources, unsafe.Pointer(&m.in[0])), append(gathered, m.in...)
		}
		want := memory(n*typ.Size(), 0)
		if f == copyRunner.Function {
			want = gathered
		} else {
			processor.Reduce(typ, f.op)(unsafe.Pointer(&want[0]), sources, n)
		}
		var launched [MostRanks]*Table
		for rank := range all {
			launched[rank] = make(all, rank, nth, n, blocks, f)
		}
		if stepwise {
			if err := interleave(r, all, launched[:ranks], f.Name, blocks); err != nil {
				return err
			}
		} else {
			var done sync.WaitGroup
			for _, table := range launched[:ranks] {
				done.Go(func() { l.run(f.Name, table, blocks) })
			}
			done.Wait()
		}
		for rank, m := range all {
			if !bytes.Equal(m.out[:len(want)], want) {
				return fmt.Errorf("call %d of %d units by %d blocks, stepwise %v: rank %d has other bits", nth, n, blocks,
					stepwise, rank)
			}
		}
	}
	return nil
}

// interleave executes the steps of all ranks and blocks in any order.
func interleave(r *rand.Rand, all []*member, launched []*Table, name string, blocks int) error {
	word := func(at uint64) *uint64 { return *(**uint64)(unsafe.Pointer(&at)) }
	anywhere := func(ptr uint64, n int) []byte { return unsafe.Slice((*byte)(unsafe.Pointer(word(ptr))), n) }
	var left []*Run
	for _, table := range launched {
		run, err := NewRun(name, table.Bytes(), blocks)
		if err != nil {
			return err
		}
		left = append(left, run)
	}
	for idle := 0; idle < 1e6; idle++ {
		run, block := left[r.IntN(len(left))], r.IntN(blocks)
		a := run.Step(block)
		switch {
		case a == nil:
			continue
		case a.Kind == Signals:
			for peer := range all {
				if a.Count>>peer&1 == 1 {
					*word(run.Table.Flag(peer, int(run.Table.Rank), block)) = a.N
				}
			}
		case a.Kind == Waits && !run.Awaits(block, func(at uint64) bool { return int64(*word(at)-a.N) >= 0 }):
			continue
		case a.Kind == Puts:
			m := run.Moves(block)
			data := anywhere(m.Data, m.Bytes)
			for k := range Packets(m.Bytes) {
				*word(m.Packets + uint64(k)*PacketBytes) = Packet(data[k*PacketData:], m.Flag)
			}
			for k := range m.MorePackets {
				*word(m.More + uint64(k)*PacketBytes) = Packet(nil, m.Flag)
			}
		case a.Kind == Takes:
			m := run.Moves(block)
			if !m.Taken(func(packet uint64) uint64 { return *word(packet) }, anywhere(m.Data, m.Bytes)) {
				continue
			}
		case a.Kind != Waits:
			if err := run.Execute(block, anywhere); err != nil {
				return err
			}
		}
		run.Advance(block)
		if idle = 0; allEnded(left) {
			return nil
		}
	}
	return errors.New("nothing goes on")
}

func allEnded(all []*Run) bool {
	for _, run := range all {
		if !run.Ended() {
			return false
		}
	}
	return true
}

// A kernel that waits says for whom, and goes when the host lets it go: it does nothing more.
func TestTableIsLetGo(t *testing.T) {
	l := hostLibrary(t)
	all := members(3)
	for _, m := range all {
		m.in, m.out = memory(100, 0), memory(300, 0)
	}
	all[0].flags[1*MostBlocks] = 2 // rank 1 has come, and rank 2 has not
	launched := oneShot(all, 0, 1, 25, 1, RunCopies().Function)
	var done atomic.Bool
	go func() {
		l.run(RunCopies().Name, launched, 1)
		done.Store(true)
	}()
	awaited := &all[0].words[1+2]
	for begin := time.Now(); atomic.LoadUint64(awaited) != 2; time.Sleep(time.Millisecond) {
		if time.Since(begin) > 20*time.Second || done.Load() {
			t.Fatal("the kernel does not say that it waits for rank 2")
		}
	}
	atomic.StoreUint64(&all[0].words[0], 1<<62)
	for begin := time.Now(); !done.Load(); time.Sleep(time.Millisecond) {
		if time.Since(begin) > 20*time.Second {
			t.Fatal("the kernel does not go")
		}
	}
	if got := [2]uint64{all[1].flags[0], all[2].flags[0]}; got != [2]uint64{2, 2} {
		t.Errorf("the flags of the peers are %d, want 2, as before the wait", got)
	}
	if all[0].words[1+1] != 0 || all[0].words[1+2] != 2 {
		t.Errorf("the kernel says that it has waited for %d", all[0].words[1:])
	}
}

func TestTableRefuses(t *testing.T) {
	sum, _ := RunOf(dtype.F32, dtype.Sum)
	bits, _ := RunOf(dtype.U8, dtype.BXor)
	with := func(kind StepKind, a Step) *Table {
		table := &Table{}
		table.Add(kind, a)
		return table
	}
	for _, c := range []struct {
		name   string
		t      *Table
		blocks int
		want   string
	}{
		{Copy().Name, &Table{}, 1, "no kernel"},
		{sum.Name, &Table{}, 9, "9 blocks"},
		{sum.Name, &Table{}, 0, "0 blocks"},
		{sum.Name, &Table{Rank: 8}, 1, "rank 8"},
		{sum.Name, &Table{Count: 41}, 1, "41 steps"},
		{sum.Name, with(0, Step{}), 1, "kind 0"},
		{sum.Name, with(Signals, Step{}), 1, "ranks 0"},
		{sum.Name, with(Waits, Step{Count: 256}), 1, "ranks 100000000"},
		{sum.Name, with(Waits, Step{Count: 1, Src: [8]uint64{9}}), 1, "9 blocks"},
		{sum.Name, with(Reduces, Step{N: 1, Count: 9}), 1, "9 sources"},
		{bits.Name, with(Scales, Step{N: 1, Count: 1}), 1, "kind 3"},
		{RunCopies().Name, with(Reduces, Step{N: 1, Count: 1}), 1, "kind 2"},
	} {
		_, err := NewRun(c.name, c.t.Bytes(), c.blocks)
		if !errors.Is(err, fault.Invalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want an error with %q", c.name, err, c.want)
		}
	}
	if _, err := NewRun(sum.Name, make([]byte, 96), 1); !errors.Is(err, fault.Invalid) {
		t.Errorf("96 bytes: %v", err)
	}
	if _, err := Operands(sum.Name, (&Table{}).Bytes()); !errors.Is(err, fault.Invalid) {
		t.Errorf("Operands of a table: %v", err)
	}
	full := &Table{Count: MostSteps}
	if full.Signal(1, 1) || full.Wait(1, 1, 0) || full.Count != MostSteps {
		t.Error("a full table has room")
	}
}
