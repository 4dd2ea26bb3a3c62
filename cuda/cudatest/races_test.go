package cudatest_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/goccl/goccl/cuda"
	"github.com/goccl/goccl/cuda/cudatest"
)

// race is a program with two accesses that only one call orders, which is there if right.
type race struct {
	name  string
	texts []string // of the report
	run   func(b *bench, right bool)
}

var races = []race{
	{"Event", []string{"allocation 1 bytes 50..100", "stream 1 of context 0 writes at allocation 1 bytes 0..100",
		"stream 2 of context 0 writes at allocation 1 bytes 50..150", "races_test.go", "operation 1, enqueued at"},
		func(b *bench, right bool) {
			data, other := b.alloc(4096), b.alloc(4096)
			s, u, e := b.stream(), b.stream(), b.event()
			b.must(s.Copy(data.Ptr(), other.Ptr(), 100))
			b.must(e.Record(s))
			if right {
				b.must(u.Wait(e))
			}
			b.must(u.Copy(data.Ptr()+50, other.Ptr(), 100))
			b.ends(s, u)
		}},
	{"RecordTooEarly", []string{"reads", "writes"}, func(b *bench, right bool) {
		data, other := b.alloc(4096), b.alloc(4096)
		s, u, e := b.stream(), b.stream(), b.event()
		b.must(e.Record(s))
		b.must(s.Copy(data.Ptr(), other.Ptr(), 100))
		if right {
			b.must(e.Record(s))
		}
		b.must(u.Wait(e))
		b.must(u.Copy(other.Ptr()+200, data.Ptr(), 100))
		b.ends(s, u)
	}},
	{"KernelReads", []string{"allocation 1 bytes 96..100", "stream 1 of context 0 writes at",
		"stream 2 of context 0 reads in goccl_reduce_sum_f32 at allocation 1 bytes 96..136"}, func(b *bench, right bool) {
		data, other := b.alloc(4096), b.alloc(4096)
		s, u, e := b.stream(), b.stream(), b.event()
		b.function(sumName) // which is not loaded while something waits
		b.must(s.Copy(data.Ptr(), other.Ptr(), 100))
		b.must(e.Record(s))
		if right {
			b.must(u.Wait(e))
		}
		b.sum(u, 10, other.Ptr()+200, other.Ptr()+240, data.Ptr()+96)
		b.ends(s, u)
	}},
	{"KernelWrites", []string{"allocation 1 bytes 0..4", "stream 1 of context 0 writes in goccl_reduce_sum_f32 at",
		"stream 2 of context 0 reads at"}, func(b *bench, right bool) {
		data, other := b.alloc(4096), b.alloc(4096)
		s, u := b.stream(), b.stream()
		b.sum(s, 1, data.Ptr(), data.Ptr(), other.Ptr()) // in place
		from := data.Ptr()
		if right {
			from += 4
		}
		b.must(u.Copy(other.Ptr()+4, from, 10))
		b.ends(s, u)
	}},
	{"KernelsOfTwoStreams", []string{"allocation 1 bytes 8..12", "stream 1 of context 0 writes in goccl_reduce_sum_f32 at",
		"stream 2 of context 0 writes in goccl_reduce_sum_f32 at"}, func(b *bench, right bool) {
		data, other := b.alloc(4096), b.alloc(4096)
		s, u := b.stream(), b.stream()
		b.sum(s, 3, data.Ptr(), other.Ptr())
		to := data.Ptr() + 8
		if right {
			to += 4
		}
		b.sum(u, 3, to, other.Ptr()) // both read the same
		b.ends(s, u)
	}},
	{"HostReadsEarly", []string{"the host of context 0 reads", "stream 1 of context 0 writes"},
		func(b *bench, right bool) {
			data, stage, s := b.alloc(4096), b.register(4096), b.stream()
			b.must(s.Copy(stage.Ptr(), data.Ptr(), 100))
			if right {
				b.ends(s)
			}
			b.reads(stage, 99, 1)
			b.ends(s)
		}},
	{"HostWritesEarly", []string{"the host of context 0 writes", "stream 1 of context 0 reads"},
		func(b *bench, right bool) {
			data, stage, s := b.alloc(4096), b.register(4096), b.stream()
			b.must(s.Copy(data.Ptr(), stage.Ptr(), 100))
			if right {
				b.must(s.Synchronize())
			}
			b.writes(stage, 0, 100)
			b.ends(s)
		}},
	{"HostWritesBehindEnqueue", []string{"the host of context 0 writes", "reads"}, func(b *bench, right bool) {
		data, stage, words, s := b.alloc(4096), b.register(4096), b.register(8), b.stream()
		if right {
			b.wait(s, words, 0, 1)
		}
		b.must(s.Copy(data.Ptr(), stage.Ptr(), 100))
		b.writes(stage, 0, 100)
		words.Store(0, 1)
		b.ends(s)
	}},
	{"WordTooEarly", []string{"the host of context 0 reads", "writes"}, func(b *bench, right bool) {
		data, stage, words, s := b.alloc(4096), b.register(4096), b.register(8), b.stream()
		if !right {
			b.write(s, words, 0, 1)
		}
		b.must(s.Copy(stage.Ptr(), data.Ptr(), 100))
		if right {
			b.write(s, words, 0, 1)
		}
		b.until(words, 0, 1)
		b.reads(stage, 0, 100)
		b.ends(s)
	}},
	// By the time of the wait, the word has always reached the later value.
	{"WaitForTooLittle", []string{"stream 1 of context 0 writes", "stream 2 of context 0 reads"},
		func(b *bench, right bool) {
			data, other, words := b.alloc(4096), b.alloc(4096), b.register(8)
			s, u := b.stream(), b.stream()
			b.write(s, words, 0, 1)
			b.must(s.Copy(data.Ptr(), other.Ptr(), 100))
			b.write(s, words, 0, 2)
			b.d.Settle() // the host must not learn it from Done
			value := uint64(1)
			if right {
				value = 2
			}
			b.wait(u, words, 0, value)
			b.must(u.Copy(other.Ptr()+200, data.Ptr(), 100))
			b.ends(u)
		}},
	// A write tells of the waits before it, in the same batch, too.
	{"WriteBeforeWait", []string{"the host of context 0 reads", "stream 1 of context 0 writes"},
		func(b *bench, right bool) {
			data, stage, words := b.alloc(4096), b.register(4096), b.register(128)
			s, u := b.stream(), b.stream()
			b.must(s.Copy(stage.Ptr(), data.Ptr(), 100))
			b.write(s, words, 0, 1)
			wait := cuda.WordOp{At: words.Ptr(), Value: 1, Wait: true}
			write := cuda.WordOp{At: words.Ptr() + 64, Value: 1}
			if right {
				b.must(u.Words([]cuda.WordOp{wait, write}))
			} else {
				b.must(u.Words([]cuda.WordOp{write, wait}))
			}
			b.until(words, 64, 1)
			b.reads(stage, 0, 100)
			b.ends(s, u)
		}},
	{"TwoMappings", []string{"bytes 10..20", "allocation 1 bytes 10..20", "allocation 2 bytes 0..100"},
		func(b *bench, right bool) {
			data := b.alloc(4096)
			second, other := b.imported(data), b.alloc(4096)
			s, u, e := b.stream(), b.stream(), b.event()
			b.must(s.Copy(data.Ptr()+10, other.Ptr(), 10))
			b.must(e.Record(s))
			if right {
				b.must(u.Wait(e))
			}
			b.must(u.Copy(other.Ptr()+100, second.Ptr(), 100))
			b.ends(s, u)
		}},
	{"CopyOverWord", []string{"stores the word", "writes"}, func(b *bench, right bool) {
		data, words, s := b.alloc(4096), b.register(128), b.stream()
		b.must(s.Copy(words.Ptr(), data.Ptr(), 64))
		if right {
			b.ends(s)
		}
		words.Store(0, 1)
		b.ends(s)
	}},
	{"TwoWriters", []string{"two writers", "stream 1 of context 0 writes the word", "stores the word"},
		func(b *bench, right bool) {
			words, s := b.register(8), b.stream()
			b.write(s, words, 0, 1)
			b.d.Settle()
			if right {
				b.until(words, 0, 1)
			}
			words.Store(0, 2)
			b.ends(s)
		}},
	{"HostsOfTwoContexts", []string{"the host of context 0 writes", "stream 1 of context 1 reads"},
		func(b *bench, right bool) {
			stage, data := b.register(4096), b.alloc(4096)
			other := b.context(0)
			s, err := other.NewStream(0)
			b.must(err)
			b.writes(stage, 0, 100)
			if right {
				b.d.Order(b.c, other)
			}
			b.must(s.Copy(data.Ptr(), stage.Ptr(), 100))
			b.must(s.Synchronize())
		}},
	{"AdoptedStream", []string{"stream 1 of context 0 reads", "stream 2 of context 0 writes"},
		func(b *bench, right bool) {
			data, second := b.alloc(4096), b.alloc(4096)
			s, u := b.stream(), b.stream()
			if right {
				u = b.c.Adopt(s.Native())
			}
			b.must(s.Copy(second.Ptr(), data.Ptr(), 100))
			b.must(u.Copy(data.Ptr(), second.Ptr()+100, 100))
			b.ends(s, u)
		}},
}

// TestRaces runs each program with and without the call, with several seeds.
func TestRaces(t *testing.T) {
	for _, test := range slices.Concat(races, flagRaces, graphRaces) {
		t.Run(test.name, func(t *testing.T) {
			for seed := range uint64(10) {
				b := newBench(t, cudatest.Options{Seed: seed})
				test.run(b, true)
				b.d.Check(t)
				b = newBench(t, cudatest.Options{Seed: seed})
				test.run(b, false)
				b.reported(cudatest.Race, test.texts...)
			}
		})
	}
}

// imported maps memory again.
func (b *bench) imported(m cuda.Memory) cuda.Memory {
	b.t.Helper()
	fd, err := m.Descriptor()
	b.must(err)
	defer closeDescriptor(fd)
	other, err := b.c.Import(fd, m.Bytes())
	b.must(err)
	return other
}

// ends waits for streams.
func (b *bench) ends(streams ...cuda.Stream) {
	b.t.Helper()
	for _, s := range streams {
		b.must(s.Synchronize())
	}
}

// TestReportedOnce: a mistake in a loop is one report.
func TestReportedOnce(t *testing.T) {
	b := newBench(t, cudatest.Options{})
	data, stage, s := b.alloc(4096), b.register(4096), b.stream()
	for range 100 {
		b.must(s.Copy(stage.Ptr(), data.Ptr(), 100))
		b.reads(stage, 0, 100)
	}
	b.ends(s)
	if n := len(b.d.Reports()); n == 0 || n > 2 { // either access may come first
		t.Errorf("%d reports", n)
	}
	b.d.Forget()
	var fake failures
	b.d.Check(&fake)
	if fake != nil {
		t.Errorf("forgotten, but %v", fake)
	}
	b.must(s.Copy(stage.Ptr(), data.Ptr(), 100))
	b.reads(stage, 0, 100)
	b.ends(s)
	if b.d.Check(&fake); fake == nil {
		t.Error("a mistake is not reported again after Forget")
	}
}

// failures is a test that is expected to fail.
type failures []string

func (f *failures) Helper() {}

func (f *failures) Errorf(format string, args ...any) { *f = append(*f, fmt.Sprintf(format, args...)) }
