package verbstest

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goccl/goccl/transport/rdma/verbs"
)

// patience is the time after which a test says that something hangs.
const patience = 20 * time.Second

// The sizes of the queues that tests have unless they make others.
const (
	benchEntries = 512
	benchPosted  = 64
	benchInline  = 64
	benchBytes   = 64 << 10
)

// bench is two ends for tests. What tests make is closed at their end, in the right order.
type bench struct {
	t    *testing.T
	a, b *end
}

// end is an open adapter with what most tests need.
type end struct {
	t      *testing.T
	c      verbs.Context
	port   verbs.Port
	gid    verbs.GID
	q      verbs.Completions
	r      verbs.Receives
	memory []byte // that peers may write to
	region verbs.Region
	inline int // bytes that pairs are asked for: benchInline, unless the adapter refuses that
}

func newBench(t *testing.T, a, b verbs.Library) *bench {
	t.Helper()
	return &bench{t, newEnd(t, a), newEnd(t, b)}
}

func newEnd(t *testing.T, l verbs.Library) *end {
	t.Helper()
	e := &end{t: t, inline: benchInline}
	devices, err := l.Devices()
	e.must(err)
	for _, d := range devices {
		for _, p := range d.Ports {
			if p.Active && len(p.GIDs) > 0 && e.c == nil {
				e.port, e.gid = p, bestGID(p)
				e.c, err = l.Open(d.Name)
				e.must(err)
			}
		}
	}
	if e.c == nil {
		t.Fatalf("no adapter has an active port with a GID: %+v", devices)
	}
	t.Cleanup(func() { e.closes(e.c.Close) })
	e.q = e.completions(benchEntries)
	e.r, err = e.c.NewReceives(benchEntries / 2)
	e.must(err)
	t.Cleanup(func() { e.closes(e.r.Close) })
	e.memory = make([]byte, benchBytes)
	e.region = e.register(e.memory, true)
	return e
}

// bestGID prefers RoCE v2 with an address of IPv4.
func bestGID(p verbs.Port) verbs.GID {
	best := p.GIDs[0]
	for _, g := range p.GIDs {
		if g.Kind > best.Kind || g.Kind == best.Kind && g.Addr().Is4() && !best.Addr().Is4() {
			best = g
		}
	}
	return best
}

func (e *end) must(err error) {
	e.t.Helper()
	if err != nil {
		e.t.Fatal(err)
	}
}

// closes is Close at the end of a test.
func (e *end) closes(end func() error) {
	if err := end(); err != nil {
		e.t.Errorf("at the end of the test: %v", err)
	}
}

func (e *end) completions(entries int) verbs.Completions {
	e.t.Helper()
	q, err := e.c.NewCompletions(entries)
	e.must(err)
	if q.Entries() < entries {
		e.t.Fatalf("asked for %d entries, got %d", entries, q.Entries())
	}
	e.t.Cleanup(func() { e.closes(q.Close) })
	return q
}

func (e *end) register(memory []byte, remote bool) verbs.Region {
	e.t.Helper()
	r, err := e.c.Register(memory, remote)
	e.must(err)
	e.t.Cleanup(func() { e.closes(r.Close) })
	return r
}

// pair makes one that is not connected.
func (e *end) pair() verbs.Pair {
	e.t.Helper()
	p, err := e.c.NewPair(verbs.PairOptions{Completions: e.q, Receives: e.r, Posted: benchPosted, Inline: e.inline})
	if errors.Is(err, unix.EINVAL) && e.inline > 0 {
		e.inline = 0
		return e.pair()
	}
	e.must(err)
	if p.Inline() < e.inline {
		e.t.Fatalf("asked for %d bytes inline, got %d", e.inline, p.Inline())
	}
	e.t.Cleanup(func() { e.closes(p.Close) })
	return p
}

// sequence is the first number of an end's packets: both ends have their own.
func (e *end) sequence(p verbs.Pair) uint32 { return p.Number() * 77 % (1 << 24) }

// connection is what an end must know about another one.
func (e *end) connection(own verbs.Pair, peer *end, theirs verbs.Pair) verbs.Connection {
	return verbs.Connection{
		Port: e.port.Number, GID: e.gid.Index, MTU: min(e.port.MTU, peer.port.MTU), Sequence: e.sequence(own),
		Remote: verbs.Remote{
			Pair: theirs.Number(), Sequence: peer.sequence(theirs), LID: peer.port.LID, GID: peer.gid.Value,
		},
		Timing: verbs.Timing{Timeout: 17, Retries: 6, NotReady: 7},
	}
}

// connected makes a pair at each end.
func (b *bench) connected() (pa, pb verbs.Pair) {
	b.t.Helper()
	pa, pb = b.a.pair(), b.b.pair()
	b.a.must(pa.Connect(b.a.connection(pa, b.b, pb)))
	b.b.must(pb.Connect(b.b.connection(pb, b.a, pa)))
	return pa, pb
}

// receive adds entries to the shared receive queue.
func (e *end) receive(entries int) {
	e.t.Helper()
	e.must(e.r.Post(entries))
}

// piece is a part of the registered memory.
func (e *end) piece(at, bytes int) verbs.Piece {
	return verbs.Piece{At: addressOf(e.memory) + uint64(at), Bytes: uint32(bytes), Key: e.region.Local()}
}

// write is one of a part of the memory to the same place at the peer. It completes.
func (e *end) write(peer *end, at, bytes int) verbs.Write {
	return verbs.Write{
		Cookie: uint64(at), From: [2]verbs.Piece{e.piece(at, bytes)},
		To: addressOf(peer.memory) + uint64(at), Key: peer.region.Remote(), Complete: true,
	}
}

// tell is a write with an immediate.
func (e *end) tell(peer *end, at, bytes int, immediate uint32) verbs.Write {
	w := e.write(peer, at, bytes)
	w.Tell, w.Immediate = true, immediate
	return w
}

func (e *end) post(p verbs.Pair, writes ...verbs.Write) {
	e.t.Helper()
	if k, err := p.Post(writes); err != nil || k != len(writes) {
		e.t.Fatalf("posted %d of %d: %v", k, len(writes), err)
	}
}

// fill writes random bytes, and returns a copy.
func (e *end) fill(seed uint64, at, bytes int) []byte {
	part := e.memory[at:][:bytes]
	rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), 1}).Read(part)
	return append([]byte(nil), part...)
}

// holds checks what is in memory.
func (e *end) holds(at int, want []byte) {
	e.t.Helper()
	if got := e.memory[at:][:len(want)]; !bytes.Equal(got, want) {
		for i := range got {
			if got[i] != want[i] {
				e.t.Fatalf("byte %d of %d is %x, want %x", i, len(want), got[i], want[i])
			}
		}
	}
}

// poll waits for the given number of completions.
func (e *end) poll(completions int) []verbs.Completion {
	e.t.Helper()
	return e.pollOf(e.q, completions)
}

func (e *end) pollOf(q verbs.Completions, completions int) []verbs.Completion {
	e.t.Helper()
	into := make([]verbs.Completion, completions)
	got := 0
	for deadline := time.Now().Add(patience); got < completions; runtime.Gosched() {
		k, err := q.Poll(into[got:])
		e.must(err)
		if got += k; k == 0 && time.Now().After(deadline) {
			e.t.Fatalf("hangs: %d of %d completions came: %+v", got, completions, into[:got])
		}
	}
	return into
}

// quiet checks that there is no completion, after some time in which one could come.
func (e *end) quiet() {
	e.t.Helper()
	var into [4]verbs.Completion
	for range 20 {
		k, err := e.q.Poll(into[:])
		e.must(err)
		if k > 0 {
			e.t.Fatalf("%d completions that nobody has asked for: %+v", k, into[:k])
		}
		time.Sleep(100 * time.Microsecond)
	}
}

// ended checks the completion of a write.
func (e *end) ended(c verbs.Completion, p verbs.Pair, cookie uint64, status verbs.Status) {
	e.t.Helper()
	if c.Cookie != cookie || c.Pair != p.Number() || c.Status != status || c.Status == verbs.Success && c.Arrival {
		e.t.Fatalf("got %+v (%s), want cookie %d of pair %d with %s", c, c.Status, cookie, p.Number(), status)
	}
}

// arrived checks the completion of an arrival.
func (e *end) arrived(c verbs.Completion, p verbs.Pair, immediate uint32, bytes int) {
	e.t.Helper()
	c.Cookie = 0
	want := verbs.Completion{Pair: p.Number(), Arrival: true, Immediate: immediate, Bytes: uint32(bytes)}
	if c != want {
		e.t.Fatalf("got %+v (%s), want %+v", c, c.Status, want)
	}
}

// readable reports whether a descriptor is, or becomes so in that time.
func (e *end) readable(descriptor int, within time.Duration) bool {
	e.t.Helper()
	for deadline := time.Now().Add(within); ; {
		left := max(time.Until(deadline), 0)
		fds := []unix.PollFd{{Fd: int32(descriptor), Events: unix.POLLIN}}
		k, err := unix.Poll(fds, int(left.Milliseconds()))
		if err != unix.EINTR {
			e.must(err)
			return k == 1
		}
	}
}
