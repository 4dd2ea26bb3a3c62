package cudatest_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goccl/goccl/cuda"
	"github.com/goccl/goccl/cuda/cudatest"
	"github.com/goccl/goccl/cuda/kernel"
)

// captured makes a graph of what record enqueues.
func (b *bench) captured(s cuda.Stream, record func()) *cudatest.Graph {
	b.t.Helper()
	b.d.BeginCapture(s)
	record()
	g, err := b.d.EndCapture(s)
	b.must(err)
	return g
}

// fork has a stream join what another one captures.
func (b *bench) fork(from, to cuda.Stream) {
	b.t.Helper()
	e := b.event()
	b.must(e.Record(from))
	b.must(to.Wait(e))
	b.must(e.Destroy())
}

// clear writes 0 to a flag.
func (b *bench) clear(s cuda.Stream, r cuda.Registered, at int) {
	b.t.Helper()
	b.write(s, r, at, 0)
}

// tick adds one to a word by a kernel.
func (b *bench) tick(s cuda.Stream, at cuda.Ptr) {
	b.t.Helper()
	a := kernel.Tick().Arguments(uint64(at), 1, 0)
	b.must(s.Launch(b.function(kernel.Tick().Name), 1, 1, a.Bytes()))
}

// twoStreams is a program of two streams, or of two graphs that are launched in them, which pass
// bytes on by flags: one brings them, and the other takes them and says that it has done so.
func twoStreams(b *bench, rounds int, graphs bool) (ended bool) {
	b.t.Helper()
	const n, full, empty = 1000, 0, 64
	host, data, back, words := b.register(n), b.alloc(n), b.register(n), b.register(128)
	give, take := b.stream(), b.stream()
	given := func() {
		b.wait(give, words, empty, 1)
		b.clear(give, words, empty)
		b.must(give.Copy(data.Ptr(), host.Ptr(), n))
		b.write(give, words, full, 1)
	}
	taken := func() {
		b.wait(take, words, full, 1)
		b.must(take.Copy(back.Ptr(), data.Ptr(), n))
		b.clear(take, words, full)
		b.write(take, words, empty, 1)
	}
	if graphs {
		first, second := b.captured(give, given), b.captured(take, taken)
		given = func() { b.must(first.Launch(give)) }
		taken = func() { b.must(second.Launch(take)) }
	}
	words.Store(empty, 1)
	for range rounds {
		given()
		taken()
	}
	return b.comes(func() bool {
		first, err := give.Done()
		b.must(err)
		second, err := take.Done()
		b.must(err)
		return first && second
	})
}

// TestFlags: neither the order of a seed nor a replay makes a mistake of flags that are right.
func TestFlags(t *testing.T) {
	seeds := uint64(200)
	if testing.Short() {
		seeds = 20
	}
	for _, graphs := range []bool{false, true} {
		for seed := range seeds {
			b := newBench(t, cudatest.Options{Seed: seed, Delay: -1})
			twoStreams(b, 20, graphs)
			b.d.Check(t)
			if t.Failed() {
				t.Fatalf("graphs: %v", graphs)
			}
		}
	}
}

// TestLeaveOutFlags leaves out each wait for a flag, each write and each write of 0, but for those
// that nobody needs: the first wait, and in the last round the writes of 0 and the last one.
func TestLeaveOutFlags(t *testing.T) {
	const rounds = 3
	for _, graphs := range []bool{false, true} {
		b := newBench(t, cudatest.Options{})
		twoStreams(b, rounds, graphs)
		count := b.d.Orderings()
		if count != 6*rounds+1 {
			t.Fatalf("the program has %d ordering calls, want %d", count, 6*rounds+1)
		}
		for n := range count {
			if n == 1 || n == count-5 || n == count-2 || n == count-1 {
				continue
			}
			for seed := range uint64(3) {
				leave, left := cudatest.Nth(n)
				b := newBench(t, cudatest.Options{Seed: seed, LeaveOut: leave, Stuck: 30 * time.Millisecond})
				twoStreams(b, rounds, graphs)
				b.d.Settle()
				if o, ok := left(); !ok || len(b.d.Reports()) == 0 {
					t.Errorf("graphs %v, seed %d: nobody misses %s", graphs, seed, o)
				}
			}
		}
	}
}

// flagRaces are those of flags and ticks.
var flagRaces = []race{
	{"WriteBeforeZero", []string{"two writers", "writes the word"}, func(b *bench, right bool) {
		words, s, u, e := b.register(8), b.stream(), b.stream(), b.event()
		b.write(s, words, 0, 1)
		b.wait(u, words, 0, 1)
		b.clear(u, words, 0)
		b.must(e.Record(u))
		if right {
			b.must(s.Wait(e))
		}
		b.write(s, words, 0, 1)
		b.ends(s, u)
	}},
	{"ZeroBeforeWait", []string{"a wait for a flag", "stream 2 of context 0 waits for the word",
		"stream 1 of context 0 writes the word"}, func(b *bench, right bool) {
		words, s, u, e := b.register(8), b.stream(), b.stream(), b.event()
		words.Store(0, 1)
		b.wait(u, words, 0, 1)
		b.must(e.Record(u))
		b.d.Settle()
		if right {
			b.must(s.Wait(e))
		}
		b.wait(s, words, 0, 1)
		b.clear(s, words, 0)
		b.ends(s)
	}},
	{"WaitBeforeZero", []string{"a wait for a flag", "stream 2 of context 0 waits for the word"},
		func(b *bench, right bool) {
			words, s, u, e := b.register(8), b.stream(), b.stream(), b.event()
			b.d.Hold(u)
			words.Store(0, 1)
			b.wait(s, words, 0, 1)
			b.clear(s, words, 0)
			b.must(e.Record(s))
			if right {
				b.must(u.Wait(e))
			}
			b.wait(u, words, 0, 1)
			b.ends(s)
			words.Store(0, 1)
			b.d.Release(u)
			b.ends(u)
		}},
	{"EarlierWrite", []string{"stream 1 of context 0 writes", "stream 2 of context 0 reads"},
		func(b *bench, right bool) {
			words, data, s, u := b.register(8), b.alloc(200), b.stream(), b.stream()
			b.write(s, words, 0, 1)
			b.wait(u, words, 0, 1)
			if right {
				b.clear(u, words, 0)
				b.write(u, words, 8, 1)
			}
			b.wait(s, words, 8, 1) // of a wait that has ended before, if not
			b.must(s.Copy(data.Ptr(), data.Ptr()+100, 50))
			b.write(s, words, 0, 1)
			b.wait(u, words, 0, 1)
			if !right {
				b.write(u, words, 8, 1)
			}
			b.must(u.Copy(data.Ptr()+150, data.Ptr(), 50))
			b.ends(s, u)
		}},
	{"TwoTickers", []string{"two writers", "counts the word"}, func(b *bench, right bool) {
		words, s, u, e := b.register(8), b.stream(), b.stream(), b.event()
		b.tick(s, words.Ptr())
		b.must(e.Record(s))
		if right {
			b.must(u.Wait(e))
		}
		b.tick(u, words.Ptr())
		b.ends(s, u)
		if got := words.Load(0); got != 2 {
			b.t.Errorf("the word is %d", got)
		}
	}},
	{"TickTooEarly", []string{"the host of context 0 reads", "stream 1 of context 0 writes"},
		func(b *bench, right bool) {
			words, stage, data, s := b.register(8), b.register(100), b.alloc(100), b.stream()
			if !right {
				b.tick(s, words.Ptr())
			}
			b.must(s.Copy(stage.Ptr(), data.Ptr(), 100))
			if right {
				b.tick(s, words.Ptr())
			}
			b.until(words, 0, 1)
			b.reads(stage, 0, 100)
			b.ends(s)
		}},
}

// graphRaces are those of graphs.
var graphRaces = []race{
	{"Lanes", []string{"graph 1, lane 1 writes", "graph 1, lane 2 reads", "enqueued at cudatest/graph_test.go"},
		func(b *bench, right bool) {
			data, s, u := b.alloc(300), b.stream(), b.stream()
			g := b.captured(s, func() {
				if !right {
					b.fork(s, u)
				}
				b.must(s.Copy(data.Ptr(), data.Ptr()+100, 100))
				if right {
					b.fork(s, u)
				}
				b.must(u.Copy(data.Ptr()+200, data.Ptr(), 100))
				b.fork(u, s)
			})
			b.must(g.Launch(s))
			b.ends(s)
		}},
	{"TwoGraphs", []string{"graph 1, lane 1 writes", "graph 2, lane 1 writes"}, func(b *bench, right bool) {
		data, s, u := b.alloc(300), b.stream(), b.stream()
		record := func() { b.must(s.Copy(data.Ptr(), data.Ptr()+100, 100)) }
		first, second := b.captured(s, record), b.captured(s, record)
		b.must(first.Launch(s))
		if right {
			u = s
		}
		b.must(second.Launch(u))
		b.ends(s, u)
	}},
	{"BehindGraph", []string{"graph 1, lane 2 writes", "stream 2 of context 0 reads"}, func(b *bench, right bool) {
		data, s, u, e := b.alloc(300), b.stream(), b.stream(), b.event()
		g := b.captured(s, func() {
			b.fork(s, u)
			b.must(u.Copy(data.Ptr(), data.Ptr()+100, 100))
			b.fork(u, s)
		})
		for range 3 {
			b.must(g.Launch(s))
		}
		b.must(e.Record(s))
		b.d.Settle()
		if right {
			b.must(u.Wait(e))
		}
		b.must(u.Copy(data.Ptr()+200, data.Ptr(), 100))
		b.ends(s, u)
	}},
	{"BeforeGraph", []string{"stream 2 of context 0 writes", "graph 1, lane 1 reads"}, func(b *bench, right bool) {
		data, s, u, e := b.alloc(300), b.stream(), b.stream(), b.event()
		g := b.captured(s, func() { b.must(s.Copy(data.Ptr(), data.Ptr()+100, 100)) })
		b.must(u.Copy(data.Ptr()+100, data.Ptr()+200, 100))
		b.must(e.Record(u))
		if right {
			b.must(s.Wait(e))
		}
		b.must(g.Launch(s))
		b.ends(s, u)
	}},
	{"HostBehindLaunch", []string{"the host of context 0 writes", "graph 1, lane 1 reads"},
		func(b *bench, right bool) {
			stage, data, s := b.register(100), b.alloc(100), b.stream()
			g := b.captured(s, func() { b.must(s.Copy(data.Ptr(), stage.Ptr(), 100)) })
			b.writes(stage, 0, 100)
			b.must(g.Launch(s))
			if right {
				b.ends(s)
			}
			b.writes(stage, 0, 100)
			b.must(g.Launch(s))
			b.ends(s)
		}},
}

// TestLetGo: the host may let go what waits, whatever else happens to the word.
func TestLetGo(t *testing.T) {
	for seed := range uint64(30) {
		b := newBench(t, cudatest.Options{Seed: seed})
		words, s, u, e := b.register(8), b.stream(), b.stream(), b.event()
		for range 3 {
			b.write(s, words, 0, 1)
			b.wait(u, words, 0, 1)
			b.clear(u, words, 0)
			b.must(e.Record(u))
			b.must(s.Wait(e))
		}
		for deadline := time.Now().Add(20 * time.Second); ; {
			words.Store(0, words.Load(0)&7+1<<62)
			if done, err := u.Done(); done || err != nil || time.Now().After(deadline) {
				b.must(err)
				break
			}
		}
		b.ends(s, u)
		b.d.Check(t)
	}
}

// TestReplay launches a graph in two streams: its launches are in order, and come behind what is in
// the stream and before what is enqueued later. There is more of it than a stream holds.
func TestReplay(t *testing.T) {
	const n, rounds = 100, 10
	for seed := range uint64(20) {
		b := newBench(t, cudatest.Options{Seed: seed, Depth: 4})
		host, data, back, words := b.register(n), b.alloc(2*n), b.register(n), b.register(8)
		s, u, v := b.stream(), b.stream(), b.stream()
		b.function(kernel.Tick().Name)
		first, second := data.Ptr(), data.Ptr()+n
		g := b.captured(s, func() {
			b.fork(s, v)
			b.must(v.Copy(second, first, n))
			b.fork(v, s)
			for range 8 {
				b.must(s.Copy(first, second, n))
			}
			b.tick(s, words.Ptr())
		})
		host.Host()[n-1] = byte(seed) + 1
		b.writes(host, 0, n)
		b.must(s.Copy(first, host.Ptr(), n))
		e := b.event()
		b.must(e.Record(s))
		b.must(u.Wait(e))
		for range rounds {
			b.must(g.Launch(s))
			b.must(g.Launch(u))
		}
		b.must(u.Copy(back.Ptr(), first, n))
		b.ends(s, u)
		b.reads(back, 0, n)
		if got := back.Host()[n-1]; got != byte(seed)+1 {
			t.Errorf("seed %d: byte %d", seed, got)
		}
		if got := words.Load(0); got != 2*rounds {
			t.Errorf("seed %d: %d ticks", seed, got)
		}
		b.d.Check(t)
	}
}

// TestUnjoined ends captures whose streams are joined, or not.
func TestUnjoined(t *testing.T) {
	for _, test := range []struct {
		name   string
		code   int
		record func(b *bench, work func(cuda.Stream), s, u, v cuda.Stream)
	}{
		{"Joined", 0, func(b *bench, work func(cuda.Stream), s, u, v cuda.Stream) {
			b.fork(s, u)
			work(u)
			b.fork(u, s)
		}},
		{"ByAnother", 0, func(b *bench, work func(cuda.Stream), s, u, v cuda.Stream) {
			b.fork(s, u)
			work(u)
			b.fork(u, v)
			b.fork(v, s)
		}},
		{"NoWork", 0, func(b *bench, work func(cuda.Stream), s, u, v cuda.Stream) {
			work(s)
			b.fork(s, u)
		}},
		{"Never", 904, func(b *bench, work func(cuda.Stream), s, u, v cuda.Stream) {
			b.fork(s, u)
			work(u)
		}},
		{"TooEarly", 904, func(b *bench, work func(cuda.Stream), s, u, v cuda.Stream) {
			b.fork(s, u)
			work(u)
			b.fork(u, s)
			work(u)
		}},
		{"NotTheOrigin", 904, func(b *bench, work func(cuda.Stream), s, u, v cuda.Stream) {
			b.fork(s, u)
			b.fork(s, v)
			work(u)
			b.fork(u, v)
		}},
	} {
		b := newBench(t, cudatest.Options{})
		data, s, u, v := b.alloc(100), b.stream(), b.stream(), b.stream()
		b.d.BeginCapture(s)
		test.record(b, func(s cuda.Stream) { b.must(s.Copy(data.Ptr(), data.Ptr()+50, 50)) }, s, u, v)
		g, err := b.d.EndCapture(s)
		switch {
		case test.code != 0:
			isCode(t, err, test.code)
		case err != nil:
			t.Errorf("%s: %v", test.name, err)
		default:
			b.must(g.Launch(s))
			b.ends(s)
		}
		b.ends(s, u, v) // none is in capture
		b.d.Check(t)
	}
}

// TestCaptureNumbers: streams of one capture have one number, which no other one has.
func TestCaptureNumbers(t *testing.T) {
	b, other := newBench(t, cudatest.Options{}), newBench(t, cudatest.Options{})
	number := func(s cuda.Stream) uint64 {
		id, err := s.Capture()
		b.must(err)
		return id
	}
	s, u, x := b.stream(), b.stream(), other.stream()
	b.d.BeginCapture(s)
	other.d.BeginCapture(x)
	b.fork(s, u)
	if id := number(s); id == 0 || id != number(u) || id == number(x) {
		t.Errorf("numbers %d, %d and %d", id, number(u), number(x))
	}
	isCode(t, s.Synchronize(), 900)
	if number(s) == 0 {
		t.Error("a capture that has failed has no number")
	}
	_, err := b.d.EndCapture(u)
	isCode(t, err, 903)
	_, err = b.d.EndCapture(s)
	isCode(t, err, 901)
	if number(s)|number(u) != 0 {
		t.Error("a stream stays in capture")
	}
}

// TestRetain: functions are called once, when a graph is gone and has ended.
func TestRetain(t *testing.T) {
	b := newBench(t, cudatest.Options{})
	stage, data, s := b.register(100), b.alloc(100), b.stream()
	var called atomic.Int32
	g := b.captured(s, func() {
		b.must(s.Retain(func() { called.Add(1) }))
		b.must(s.Copy(stage.Ptr(), data.Ptr(), 50))
	})
	b.must(g.Launch(s))
	b.ends(s)
	b.d.Hold(s)
	b.must(g.Launch(s))
	b.must(g.Destroy())
	b.d.Settle()
	if n := called.Load(); n != 0 {
		t.Errorf("called %d times before the last launch has ended", n)
	}
	b.d.Release(s)
	b.d.Settle()
	if n := called.Load(); n != 1 {
		t.Errorf("called %d times, want once", n)
	}
	b.writes(stage, 0, 100) // which the graph does not use any more
	b.must(stage.Free())
	b.must(g.Destroy())
	b.d.Settle()
	b.d.Close()
	if n := called.Load(); n != 1 {
		t.Errorf("called %d times, want once", n)
	}
	b.d.Check(t)
}

// TestRetainFails: after a failed capture functions are called, but not those that were refused.
func TestRetainFails(t *testing.T) {
	for _, unjoined := range []bool{false, true} {
		b := newBench(t, cudatest.Options{})
		data, s, u := b.alloc(100), b.stream(), b.stream()
		var called, refused atomic.Int32
		b.d.BeginCapture(s)
		b.must(s.Retain(func() { called.Add(1) }))
		for _, call := range []string{"cuUserObjectCreate", "cuGraphRetainUserObject"} {
			b.d.SetFaults(cudatest.Faults{Fail: []cudatest.Failure{{Call: call, Nth: 1, Code: 2}}})
			isCode(t, s.Retain(func() { refused.Add(1) }), 2)
		}
		code, want := 901, int32(1)
		if !unjoined {
			isCode(t, s.Synchronize(), 900)
			isCode(t, s.Retain(func() { refused.Add(1) }), 901)
		} else {
			code, want = 904, 2
			b.fork(s, u)
			b.must(u.Copy(data.Ptr(), data.Ptr()+50, 50))
			b.must(u.Retain(func() { called.Add(1) }))
		}
		_, err := b.d.EndCapture(s)
		isCode(t, err, code)
		b.d.Settle()
		if n := called.Load(); n != want || refused.Load() != 0 {
			t.Errorf("unjoined %v: %d and %d functions were called", unjoined, n, refused.Load())
		}
		b.d.Check(t)
	}
}

// TestLaunchInCapture: a graph does not become a part of another one.
func TestLaunchInCapture(t *testing.T) {
	b := newBench(t, cudatest.Options{})
	s := b.stream()
	g := b.captured(s, func() {})
	b.must(g.Launch(s))
	b.captured(s, func() { isCode(t, g.Launch(s), 801) })
	b.ends(s)
	b.d.Check(t)
}

// TestLoseGraph: with the device goes what graphs have still to do.
func TestLoseGraph(t *testing.T) {
	b := newBench(t, cudatest.Options{})
	words, s, u := b.register(8), b.stream(), b.stream()
	var called atomic.Int32
	g := b.captured(s, func() {
		b.must(s.Retain(func() { called.Add(1) }))
		b.fork(s, u)
		b.wait(u, words, 0, 1)
		b.fork(u, s)
	})
	b.must(g.Launch(s))
	b.d.Settle()
	left := func() bool {
		return strings.Contains(strings.Join(b.d.Leaks(), "\n"), "graph 1, captured at cudatest/")
	}
	if !left() {
		t.Errorf("left behind: %q", b.d.Leaks())
	}
	b.d.Lose(0)
	isCode(t, s.Synchronize(), 719)
	isCode(t, g.Launch(s), 719)
	isCode(t, g.Destroy(), 719)
	b.d.Settle()
	if n := called.Load(); n != 1 || left() || b.d.Blocked() != "" {
		t.Errorf("called %d times; left behind: %q; %s", n, b.d.Leaks(), b.d.Blocked())
	}
	b.d.Check(t)
}

// TestLeaveOutGraph leaves out what orders lanes, and the tick, in one launch of several.
func TestLeaveOutGraph(t *testing.T) {
	program := func(b *bench) bool {
		const n, rounds = 100, 3
		stage, data, words := b.register(n), b.alloc(2*n), b.register(8)
		s, u := b.stream(), b.stream()
		b.function(kernel.Tick().Name)
		g := b.captured(s, func() {
			b.must(s.Copy(data.Ptr(), data.Ptr()+n, n))
			b.fork(s, u)
			b.must(u.Copy(stage.Ptr(), data.Ptr(), n))
			b.fork(u, s)
			b.tick(s, words.Ptr())
		})
		for i := range uint64(rounds) {
			b.must(g.Launch(s))
			for deadline := time.Now().Add(300 * time.Millisecond); !words.Reached(0, i+1); {
				if time.Now().After(deadline) {
					return false
				}
				time.Sleep(20 * time.Microsecond)
			}
			b.writes(stage, 0, n)
		}
		return true
	}
	b := newBench(t, cudatest.Options{})
	if !program(b) {
		t.Error("hangs")
	}
	b.d.Check(t)
	kinds := map[cudatest.OrderingKind]int{}
	for n := range b.d.Orderings() {
		leave, left := cudatest.Nth(n)
		b := newBench(t, cudatest.Options{LeaveOut: leave, Stuck: -1})
		ended := program(b)
		b.d.Settle()
		o, _ := left()
		if ended && len(b.d.Reports()) == 0 {
			t.Errorf("nobody misses %s", o)
		}
		kinds[o.Kind]++
	}
	if len(kinds) != 4 {
		t.Errorf("kinds of ordering calls: %v", kinds)
	}
}

// TestDeadlockInGraph names the lanes.
func TestDeadlockInGraph(t *testing.T) {
	b := newBench(t, cudatest.Options{Stuck: soon})
	words, s, u := b.register(8), b.stream(), b.stream()
	g := b.captured(s, func() {
		b.fork(s, u)
		b.wait(u, words, 0, 1)
		b.fork(u, s)
	})
	b.must(g.Launch(s))
	b.stuck()
	b.reported(cudatest.Deadlock,
		"graph 1, lane 2, operation 2 (words: wait for 1 in allocation 1 bytes 0..8), enqueued at cudatest/",
		"graph 1, lane 1, operation 3 (wait for event 2", "waits for event 2, recorded in graph 1, lane 2, operation 3",
		"waits for the end of graph 1, recorded in graph 1, lane 1, operation 4")
	if !strings.Contains(b.d.Blocked(), "lane 2") {
		t.Error(b.d.Blocked())
	}
	words.Store(0, 1)
	b.ends(s)
}
