package verbstest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goccl/goccl/transport/rdma/verbs"
)

// The traffic of a test: messages into slots of the peer, which gives each slot back.
const (
	trafficPairs = 2
	slots        = 4 // of a pair, in each direction
	slotBytes    = benchBytes / trafficPairs / slots
	messages     = 150 // of a pair, in each direction
	signals      = 3   // one write in this number makes a completion
	creditBit    = 1 << 31
)

// flow is one pair at one end: what it sends and what it receives.
type flow struct {
	e, peer  *end
	pair     verbs.Pair
	base     int            // of the slots, in the memory of both ends
	source   []byte         // of messages, as many slots
	region   verbs.Region   // of the source
	random   *rand.Rand     // of sizes
	batch    []verbs.Write  // to be posted
	places   uint64         // writes so far
	covered  map[int]uint64 // by message, how many writes there were with it
	complete uint64         // writes that have completed
	sent     int
	credits  int
	received int
}

// message is what a flow sends as number i.
func message(seed uint64, i int) []byte {
	random := rand.New(rand.NewPCG(seed, uint64(i)))
	n := []int{0, 1, 8, 64, 500, slotBytes}[random.IntN(6)]
	m := make([]byte, n)
	for k := range m {
		m[k] = byte(random.Uint32())
	}
	return m
}

// seed is that of what an end sends with a pair; both ends know it.
func (f *flow) seed(sender *end) uint64 { return uint64(sender.region.Local())<<32 + uint64(f.base) }

// testTraffic has two pairs carry messages both ways, as the transport does: a slot is written
// again once the peer has given it back and the write before has completed. Both ends sleep when
// they have nothing to do.
func testTraffic(t *testing.T, b *bench) {
	flows := map[*end][]*flow{}
	for i := range trafficPairs {
		pa, pb := b.connected()
		for _, f := range []*flow{{e: b.a, peer: b.b, pair: pa}, {e: b.b, peer: b.a, pair: pb}} {
			f.base, f.credits, f.covered = i*slots*slotBytes, slots, map[int]uint64{}
			f.source = make([]byte, slots*slotBytes)
			f.region = f.e.register(f.source, false)
			f.random = rand.New(rand.NewPCG(uint64(i), 3))
			flows[f.e] = append(flows[f.e], f)
		}
	}
	results := make(chan error, 2)
	for _, e := range []*end{b.a, b.b} {
		e.receive(trafficPairs * slots * 2)
		go func() { results <- carry(e, flows[e]) }()
	}
	for range 2 {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
}

// carry sends and receives all of the messages of one end.
func carry(e *end, flows []*flow) error {
	var into [5]verbs.Completion
	deadline := time.Now().Add(patience)
	for {
		done := true
		for _, f := range flows {
			if err := f.advance(); err != nil {
				return err
			}
			done = done && f.ended()
		}
		if done {
			return nil
		}
		k, err := e.q.Poll(into[:])
		if k == 0 && err == nil && flows[0].random.IntN(2) == 0 {
			if err = e.q.Arm(); err == nil {
				if k, err = e.q.Poll(into[:]); k == 0 && err == nil {
					unix.Poll([]unix.PollFd{{Fd: int32(e.q.Descriptor()), Events: unix.POLLIN}}, 1000)
					err = e.q.Take()
				}
			}
		}
		if err != nil {
			return err
		}
		for _, c := range into[:k] {
			for _, f := range flows {
				if f.pair.Number() == c.Pair {
					err = f.take(c)
				}
			}
			if err != nil {
				return err
			}
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("hangs: %d and %d sent, %d and %d received", flows[0].sent, flows[1].sent,
				flows[0].received, flows[1].received)
		}
		runtime.Gosched()
	}
}

func (f *flow) ended() bool {
	return f.sent == messages && f.received == messages && f.credits == slots && f.complete == f.places
}

// add adds a write to the batch. The last one of all completes, so that nothing is left.
func (f *flow) add(w verbs.Write) {
	f.places++
	w.Cookie = f.places
	last := f.sent == messages && f.received == messages
	w.Complete = f.places%signals == 0 || last
	f.batch = append(f.batch, w)
}

// advance sends as much as there are slots for.
func (f *flow) advance() error {
	for f.sent < messages && f.credits > 0 && f.covered[f.sent-slots] <= f.complete {
		slot := f.sent % slots
		m := message(f.seed(f.e), f.sent)
		source := f.source[slot*slotBytes:][:len(m)]
		copy(source, m)
		first := f.random.IntN(len(m) + 1)
		piece := func(lo, hi int) verbs.Piece {
			return verbs.Piece{At: addressOf(source) + uint64(lo), Bytes: uint32(hi - lo), Key: f.region.Local()}
		}
		to := addressOf(f.peer.memory) + uint64(f.base+slot*slotBytes)
		w := verbs.Write{To: to, Key: f.peer.region.Remote(), Tell: true, Immediate: uint32(f.sent)}
		w.Inline = len(m) <= f.e.inline
		if f.sent++; f.random.IntN(2) == 0 {
			w.From = [2]verbs.Piece{piece(0, first), piece(first, len(m))}
		} else {
			w.From[0] = piece(first, len(m))
			w.To += uint64(first)
			f.add(verbs.Write{To: to, Key: w.Key, From: [2]verbs.Piece{piece(0, first)}, Inline: w.Inline})
		}
		f.add(w)
		f.covered[f.sent-1] = f.places
		f.credits--
	}
	k, err := f.pair.Post(f.batch)
	if err != nil {
		return fmt.Errorf("posted %d of %d: %w", k, len(f.batch), err)
	}
	f.batch = f.batch[:0]
	return nil
}

// take handles one completion.
func (f *flow) take(c verbs.Completion) error {
	switch {
	case c.Status != verbs.Success:
		return fmt.Errorf("%+v: %s", c, c.Status)
	case !c.Arrival:
		if c.Cookie <= f.complete {
			return fmt.Errorf("the completion of write %d comes after that of %d", c.Cookie, f.complete)
		}
		f.complete = c.Cookie
		return nil
	case c.Immediate == creditBit:
		f.credits++
		return f.e.r.Post(1)
	case c.Immediate != uint32(f.received):
		return fmt.Errorf("message %d arrives as number %d", c.Immediate, f.received)
	}
	want := message(f.seed(f.peer), f.received)
	if got := f.e.memory[f.base+f.received%slots*slotBytes:][:len(want)]; !bytes.Equal(got, want) {
		return fmt.Errorf("message %d of %d bytes is another one", f.received, len(want))
	}
	f.received++
	f.add(verbs.Write{Tell: true, Immediate: creditBit})
	return f.e.r.Post(1)
}
