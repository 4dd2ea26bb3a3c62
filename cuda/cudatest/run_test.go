package cudatest_test

import (
	"strings"
	"testing"

	"github.com/goccl/goccl/cuda"
	"github.com/goccl/goccl/cuda/cudatest"
	"github.com/goccl/goccl/cuda/kernel"
)

// tables are two ranks whose kernels wait for each other: each has flags, and behind them a slot
// and an output.
type tables struct {
	*bench
	ranks   [2]cuda.Memory
	streams [2]cuda.Stream
	words   cuda.Registered
}

const (
	slotAt = 4096
	outAt  = 8192
	moved  = 300 // bytes
)

func newTables(t *testing.T, o cudatest.Options) *tables {
	b := &tables{bench: newBench(t, o)}
	b.words = b.register(4096)
	zeros, clearing := b.register(4096), b.stream()
	b.writes(zeros, 0, kernel.FlagBytes)
	for rank := range b.ranks {
		b.ranks[rank], b.streams[rank] = b.alloc(outAt+4096), b.stream()
		b.must(clearing.Copy(b.ranks[rank].Ptr(), zeros.Ptr(), kernel.FlagBytes))
	}
	b.must(clearing.Synchronize())
	return b
}

func (b *tables) at(rank, offset int) uint64 { return uint64(b.ranks[rank].Ptr()) + uint64(offset) }

// exchange makes the table of a rank that gets the slot of the other one, once that has signalled.
func (b *tables) exchange(rank int) *kernel.Table {
	t := &kernel.Table{Rank: uint32(rank), Released: uint64(b.words.Ptr()) + uint64(512*rank),
		Awaited: uint64(b.words.Ptr()) + uint64(512*rank) + 64, Flags: [kernel.MostRanks]uint64{b.at(0, 0), b.at(1, 0)}}
	t.Add(kernel.Copies, kernel.Copy().Arguments(b.at(rank, slotAt), moved, 1, b.at(rank, outAt+1024)).Step)
	t.Signal(1<<(1-rank), 1)
	t.Wait(1<<(1-rank), 1, 0)
	t.Add(kernel.Copies, kernel.Copy().Arguments(b.at(rank, outAt), moved, 1, b.at(1-rank, slotAt)).Step)
	return t
}

func (b *tables) launch(rank int, t *kernel.Table, blocks int) error {
	return b.streams[rank].Launch(b.function(kernel.RunCopies().Name), blocks, kernel.BlockSize, t.Bytes())
}

// What the flags order is no race, in whatever order blocks are executed.
func TestTables(t *testing.T) {
	for seed := range uint64(30) {
		b := newTables(t, cudatest.Options{Seed: seed, Delay: -1})
		for rank := range b.ranks {
			b.must(b.launch(rank, b.exchange(rank), 1+int(seed%4)))
		}
		b.ends(b.streams[:]...)
		b.d.Check(t)
	}
}

// A signal before its data, or of another number of blocks, orders too little.
func TestTablesRace(t *testing.T) {
	for _, wrong := range []func(t *kernel.Table) (blocks int){
		func(t *kernel.Table) int { t.Steps[0], t.Steps[1] = t.Steps[1], t.Steps[0]; return 2 },
		func(t *kernel.Table) int { return 3 },
	} {
		b := newTables(t, cudatest.Options{Delay: -1})
		lame := b.exchange(0)
		blocks := wrong(lame)
		b.must(b.launch(0, lame, blocks))
		b.must(b.launch(1, b.exchange(1), 2))
		if blocks == 3 { // of which nobody signals the last one
			for b.d.Settle(); !strings.Contains(b.d.Blocked(), "block 2"); b.d.Settle() {
			}
			b.words.Store(0, 1<<62)
		}
		b.ends(b.streams[:]...)
		b.d.Settle()
		if len(b.d.Reports()) == 0 {
			t.Error("nothing is reported")
		}
		for _, r := range b.d.Reports() {
			if r.Kind != cudatest.Race || !strings.Contains(r.Text, "reads in a table at allocation") {
				t.Error(r)
			}
		}
	}
}

// A kernel that waits for a flag that nobody writes is a deadlock, tells its host what it waits
// for, and goes when that lets it go. It does nothing more then.
func TestTablesDeadlock(t *testing.T) {
	b := newTables(t, cudatest.Options{Stuck: soon, Delay: -1})
	lame := b.exchange(0)
	lame.Signal(1<<1, 7)
	b.must(b.launch(0, lame, 2))
	b.stuck()
	b.reported(cudatest.Deadlock, "goccl_run_copies, a table of 5 steps in 2 blocks",
		"in block 0 for the flag at allocation", "in block 1 for the flag at allocation", "it is 0, wanted 1")
	b.until(b.words, 64+8, 1)
	b.words.Store(0, 1<<62)
	b.ends(b.streams[0])
	b.must(b.launch(1, b.exchange(1), 2)) // whose flags stay as they were: they are not 7
	b.ends(b.streams[1])
	b.d.Forget()
	b.d.Check(t)
}

func TestTablesRefused(t *testing.T) {
	b := newTables(t, cudatest.Options{Delay: -1})
	if err := b.launch(0, b.exchange(0), 9); err == nil {
		t.Error("nine blocks are launched")
	}
	b.reported(cudatest.Misuse, "9 blocks")
	b.d.Forget()
	outside := b.exchange(0)
	outside.Steps[0].Dst = 8
	b.must(b.launch(0, outside, 1))
	b.d.Settle()
	b.reported(cudatest.Address, "where there is no memory of a device")
}
