package group

import (
	"slices"

	"github.com/goccl/goccl/ccl/exec"
	"github.com/goccl/goccl/cuda"
	"github.com/goccl/goccl/cuda/group/emit"
)

// pipeline is what staged calls pass one after the other: streams, slots and words. Sends have only
// the stream to the host, and receives only that to the device.
type pipeline struct {
	g           *Group
	st          *staged
	there, done int // offsets of the words
	slots       []slot
	bytes       int // of a slot
	toHost      direction
	toDevice    direction
	opened      bool
	failed      func() bool // of messages of programs: a rank of this host has
	issued      uint64      // number of the last piece of calls so far; used by Enqueue
	held        []*Op       // see batch
	heldFrom    int         // the first of them
	heldPiece   int         // of that, the piece that is next

	queue queue // of calls that are not posted whole; those behind the first one follow

	// Used only by the device thread.
	flights  []flight // a ring
	tail     int
	inFlight int
	call     exec.Call // of a piece
	in, out  []exec.Block
	agreed   [1]uint64
}

// slot is memory for one piece.
type slot struct {
	at   int
	free cuda.Event // after the copy out of it
	used bool       // free was recorded
}

// direction is one direction of a pipeline.
type direction struct {
	used   bool
	stream cuda.Stream
	words  [1]cuda.WordOp
}

// Each pipeline has two words in registered memory, each in a cache line of its own: "there" and
// "done", which hold the number of the last piece that has reached that state.
//
// out is added to a word to let go whatever waits for it: no pipeline ever has so many pieces.
const out = 1 << 62

// Urgency of the streams (Context.NewStream), so that their copies and kernels go before others.
// Programs that have urgent streams of their own, like torch, give them the first one.
const (
	urgencyToDevice = 2
	urgencyToHost   = 3
)

// open makes the streams, before the first call. Both ranks of a message do that when they come to
// it, so it need not be agreed. From then on the device thread looks at the pipeline. The caller
// has g.mu.
func (p *pipeline) open() (err error) {
	if p.opened {
		return nil
	}
	if p.toHost.used && p.toHost.stream == nil {
		if p.toHost.stream, err = p.g.ctx.NewStream(urgencyToHost); err != nil {
			return err
		}
	}
	if p.toDevice.used && p.toDevice.stream == nil {
		newStream := p.g.ctx.NewStream
		if p == p.st.pipelines[0] {
			newStream = p.g.queues.newWaiter
		}
		if p.toDevice.stream, err = newStream(urgencyToDevice); err != nil {
			return err
		}
	}
	for i := range p.slots {
		if p.toHost.used && p.toDevice.used && p.slots[i].free == nil {
			if p.slots[i].free, err = p.g.ctx.NewEvent(); err != nil {
				return err
			}
		}
	}
	p.opened = true
	opened := append(slices.Clone(p.st.used()), p)
	p.st.inUse.Store(&opened)
	return nil
}

func (p *pipeline) close() {
	for _, h := range [2]*direction{&p.toHost, &p.toDevice} {
		if h.stream != nil {
			h.stream.Destroy()
		}
	}
	for i := range p.slots {
		if p.slots[i].free != nil {
			p.slots[i].free.Destroy()
		}
	}
}

// slot returns that of a piece.
func (p *pipeline) slot(piece uint64) *slot { return &p.slots[(piece-1)%uint64(len(p.slots))] }

// enqueue puts a call behind the caller's stream.
func (p *pipeline) enqueue(o *Op, on cuda.Stream) error {
	if err := p.g.callers.at.Record(on); err != nil {
		return err
	}
	// The stream to the device waits by itself: when it is let go, it must not overtake the
	// caller's.
	for _, h := range [2]*direction{&p.toHost, &p.toDevice} {
		if h.used {
			if err := h.stream.Wait(p.g.callers.at); err != nil {
				return err
			}
		}
	}
	if holds(&o.call) {
		p.st.batch.hold(o, p)
		return nil
	}
	enqueue := (*pipeline).enqueueMessage
	if o.call.Coll.Valid() {
		enqueue = (*pipeline).enqueuePiece
		for piece := range min(len(p.slots), o.cut.pieces) {
			if err := p.enqueueIn(o, piece); err != nil {
				return err
			}
		}
	}
	for piece := range o.cut.pieces {
		if err := enqueue(p, o, piece); err != nil {
			return err
		}
	}
	return o.end.Record(p.last())
}

// last returns the stream in which calls end.
func (p *pipeline) last() cuda.Stream {
	if p.toDevice.used {
		return p.toDevice.stream
	}
	return p.toHost.stream
}

func (p *pipeline) abandon(o *Op, on cuda.Stream) {
	for _, h := range [2]*direction{&p.toHost, &p.toDevice} {
		if h.used && o.end.Record(h.stream) == nil {
			on.Wait(o.end)
		}
	}
}

// enqueuePiece enqueues the result of a piece of a collective, and then what another piece takes to
// the host. This is ahead by as many pieces as there are slots: where both streams share a hardware
// queue, what peers wait for is not behind a wait for them.
func (p *pipeline) enqueuePiece(o *Op, piece int) error {
	if err := p.enqueueOut(o, piece); err != nil {
		return err
	}
	if piece += len(p.slots); piece < o.cut.pieces {
		return p.enqueueIn(o, piece)
	}
	return nil
}

// enqueueIn enqueues what a piece of a collective takes to the host.
func (p *pipeline) enqueueIn(o *Op, piece int) error {
	n := o.first + uint64(piece)
	s := p.slot(n)
	if s.used && o.cut.areas > 0 {
		if err := p.toHost.stream.Wait(s.free); err != nil {
			return err
		}
	}
	for i := range o.in {
		if err := p.copy(o, piece, s, o.in[i], o.cut.in(&o.call, p.g.rank, i), true); err != nil {
			return err
		}
	}
	return p.toHost.write(p.address(p.there), n)
}

// enqueueOut enqueues what a piece of a collective takes to the device.
func (p *pipeline) enqueueOut(o *Op, piece int) error {
	n := o.first + uint64(piece)
	s := p.slot(n)
	if err := p.toDevice.await(p.address(p.done), n); err != nil {
		return err
	}
	for i := range o.out {
		if err := p.copy(o, piece, s, o.out[i], o.cut.out(&o.call, p.g.rank, i), false); err != nil {
			return err
		}
	}
	if o.cut.areas == 0 { // no data, and no slot
		return nil
	}
	s.used = true
	return s.free.Record(p.toDevice.stream)
}

// enqueueMessage enqueues a piece of a message. One that is sent has its slot when the piece that
// had it before has been sent. Of one that is received, "there" says that it has left its slot.
func (p *pipeline) enqueueMessage(o *Op, piece int) error {
	n, sends := o.first+uint64(piece), p.toHost.used
	h, blocks, done := &p.toDevice, o.out, n
	if sends {
		h, blocks, done = &p.toHost, o.in, n-min(n, uint64(len(p.slots)))
	}
	if done > 0 {
		if err := h.await(p.address(p.done), done); err != nil {
			return err
		}
	}
	if err := p.copy(o, piece, p.slot(n), blocks[0], o.head(), sends); err != nil {
		return err
	}
	return h.write(p.address(p.there), n)
}

// copy copies what belongs to a piece between a block of the caller and the area of the slot. Parts
// that follow each other in both are copied at once.
func (p *pipeline) copy(o *Op, piece int, s *slot, b exec.Block, area int, toHost bool) error {
	size := o.cut.size
	staged := p.address(s.at + area)
	from, to, bytes := cuda.Ptr(0), cuda.Ptr(0), 0
	flush := func() error {
		switch {
		case bytes == 0:
			return nil
		case toHost:
			return p.toHost.stream.Copy(to, from, bytes)
		}
		return p.toDevice.stream.Copy(to, from, bytes)
	}
	for j := range o.cut.split {
		at, n := o.cut.part(piece, b.Count, j)
		if n == 0 {
			continue
		}
		block := emit.Pointer(b) + cuda.Ptr(at*size)
		f, t := block, staged
		if !toHost {
			f, t = staged, block
		}
		if f != from+cuda.Ptr(bytes) || t != to+cuda.Ptr(bytes) {
			if err := flush(); err != nil {
				return err
			}
			from, to, bytes = f, t, 0
		}
		bytes += n * size
		staged += cuda.Ptr(n * size)
	}
	return flush()
}

// address returns the device's address of a place in the registered memory.
func (p *pipeline) address(at int) cuda.Ptr { return p.st.memory.Ptr() + cuda.Ptr(at) }

func (h *direction) write(at cuda.Ptr, value uint64) error {
	h.words[0] = cuda.WordOp{At: at, Value: value}
	return h.stream.Words(h.words[:])
}

func (h *direction) await(at cuda.Ptr, value uint64) error {
	h.words[0] = cuda.WordOp{At: at, Value: value, Wait: true}
	return h.stream.Words(h.words[:])
}

// hand gives an Op to the device thread, and its pieces their numbers. They are about to be
// enqueued; the thread posts each when the device is ready for it.
func (p *pipeline) hand(o *Op) {
	o.first = p.issued + 1
	p.issued += uint64(o.cut.pieces)
	p.queue.push(o)
}

// finish stores into "done" that a piece has ended. After the group has failed it does nothing: the
// values of a word must not go back.
func (p *pipeline) finish(piece uint64) {
	p.g.ending.storing.Lock()
	defer p.g.ending.storing.Unlock()
	if !p.g.ending.unblocked {
		p.st.memory.Store(p.done, piece)
	}
}

// reached reports whether "there" has come to a piece.
func (p *pipeline) reached(piece uint64) bool { return p.st.memory.Reached(p.there, piece) }
