package group

import (
	"sync"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/exec"
	"github.com/goccl/goccl/cuda"
)

// road is the way of calls through the memory of the host, one after the other: streams, slots and
// words. Sends have only the stream down, and receives only that up.
type road struct {
	g           *Group
	there, done int // offsets of the words
	slots       []slot
	bytes       int // of a slot
	down, up    half
	issued      uint64 // number of the last piece in the streams; used by Enqueue

	handing sync.Mutex
	handed  *Op // not yet known to the device thread; the last one
	first   *Op

	// Used only by the device thread.
	posting  *Op // pieces of which are to be posted next; those behind it follow
	last     *Op
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

// half is one direction of a road.
type half struct {
	used   bool
	stream cuda.Stream
	words  [1]cuda.WordOp
}

// Urgency of the streams (Context.NewStream). Programs that have urgent streams of their own, like
// torch, give them the first one.
const (
	urgencyUp   = 2
	urgencyDown = 3
)

func (r *road) open() (err error) {
	if r.down.used {
		if r.down.stream, err = r.g.ctx.NewStream(urgencyDown); err != nil {
			return err
		}
	}
	if r.up.used {
		if r.up.stream, err = r.g.ctx.NewStream(urgencyUp); err != nil {
			return err
		}
	}
	for i := range r.slots {
		if r.slots[i].free, err = r.g.ctx.NewEvent(); err != nil {
			return err
		}
	}
	return nil
}

func (r *road) close() {
	for _, h := range [2]*half{&r.down, &r.up} {
		if h.stream != nil {
			h.stream.Destroy()
		}
	}
	for i := range r.slots {
		if r.slots[i].free != nil {
			r.slots[i].free.Destroy()
		}
	}
}

// slot returns that of a piece.
func (r *road) slot(piece uint64) *slot { return &r.slots[(piece-1)%uint64(len(r.slots))] }

// enqueue puts a call behind the caller's stream.
func (r *road) enqueue(o *Op, on cuda.Stream) error {
	if err := r.g.caller.Record(on); err != nil {
		return err
	}
	// The stream up waits by itself: when it is let go, it must not overtake the caller's stream.
	for _, h := range [2]*half{&r.down, &r.up} {
		if h.used {
			if err := h.stream.Wait(r.g.caller); err != nil {
				return err
			}
		}
	}
	for piece := range o.cut.pieces {
		r.issued++
		var err error
		switch o.call.Coll {
		case dtype.Send:
			err = r.enqueueSend(o, piece, r.issued)
		case dtype.Recv:
			err = r.enqueueRecv(o, piece, r.issued)
		default:
			err = r.enqueuePiece(o, piece, r.issued)
		}
		if err != nil {
			return err
		}
	}
	last := r.up.stream
	if last == nil {
		last = r.down.stream
	}
	return o.end.Record(last)
}

// abandon makes the caller's stream wait for what has been enqueued of a call before an error, as
// far as the driver still does anything. The memory of the call is safe from then on.
func (r *road) abandon(o *Op, on cuda.Stream) {
	for _, h := range [2]*half{&r.down, &r.up} {
		if h.used && o.end.Record(h.stream) == nil {
			on.Wait(o.end)
		}
	}
}

// enqueuePiece enqueues a piece of a collective, whose number on the road is n.
func (r *road) enqueuePiece(o *Op, piece int, n uint64) error {
	s := r.slot(n)
	data := o.cut.areas > 0
	if data && s.used {
		if err := r.down.stream.Wait(s.free); err != nil {
			return err
		}
	}
	for i := range o.in {
		if err := r.copy(o, piece, s, o.in[i], o.cut.in(&o.call, r.g.rank, i), true); err != nil {
			return err
		}
	}
	if err := r.down.write(r.word(r.there), n); err != nil {
		return err
	}
	if err := r.up.await(r.word(r.done), n); err != nil {
		return err
	}
	for i := range o.out {
		if err := r.copy(o, piece, s, o.out[i], o.cut.out(&o.call, r.g.rank, i), false); err != nil {
			return err
		}
	}
	if !data {
		return nil
	}
	s.used = true
	return s.free.Record(r.up.stream)
}

// enqueueSend enqueues a piece of a message. Its slot is free when the piece that had it before has
// been sent.
func (r *road) enqueueSend(o *Op, piece int, n uint64) error {
	if n > uint64(len(r.slots)) {
		if err := r.down.await(r.word(r.done), n-uint64(len(r.slots))); err != nil {
			return err
		}
	}
	if err := r.copy(o, piece, r.slot(n), o.in[0], 0, true); err != nil {
		return err
	}
	return r.down.write(r.word(r.there), n)
}

// enqueueRecv enqueues a piece of a message to be received. "there" says that it has left its slot.
func (r *road) enqueueRecv(o *Op, piece int, n uint64) error {
	if err := r.up.await(r.word(r.done), n); err != nil {
		return err
	}
	if err := r.copy(o, piece, r.slot(n), o.out[0], 0, false); err != nil {
		return err
	}
	return r.up.write(r.word(r.there), n)
}

// copy copies what belongs to a piece between a block of the caller and the area of the slot. Parts
// that follow each other in both are copied at once.
func (r *road) copy(o *Op, piece int, s *slot, b exec.Block, area int, down bool) error {
	size := o.cut.size
	staged := r.word(s.at + area)
	from, to, bytes := cuda.Ptr(0), cuda.Ptr(0), 0
	flush := func() error {
		switch {
		case bytes == 0:
			return nil
		case down:
			return r.down.stream.Copy(to, from, bytes)
		}
		return r.up.stream.Copy(to, from, bytes)
	}
	for j := range o.cut.split {
		at, n := o.cut.part(piece, b.Count, j)
		if n == 0 {
			continue
		}
		block := pointer(b) + cuda.Ptr(at*size)
		f, t := block, staged
		if !down {
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

// word returns the device's address of a place in the registered memory.
func (r *road) word(at int) cuda.Ptr { return r.g.memory.Ptr() + cuda.Ptr(at) }

func (h *half) write(at cuda.Ptr, value uint64) error {
	h.words[0] = cuda.WordOp{At: at, Value: value}
	return h.stream.Words(h.words[:])
}

func (h *half) await(at cuda.Ptr, value uint64) error {
	h.words[0] = cuda.WordOp{At: at, Value: value, Wait: true}
	return h.stream.Words(h.words[:])
}

// hand gives an Op to the device thread. Its pieces are about to be enqueued; the thread posts each
// when the device is ready for it.
func (r *road) hand(o *Op) {
	o.first = r.issued + 1
	r.handing.Lock()
	defer r.handing.Unlock()
	if r.handed == nil {
		r.first = o
	} else {
		r.handed.next = o
	}
	r.handed = o
}

// head returns the first Op that has not been posted whole, or nil.
func (r *road) head() *Op {
	r.handing.Lock()
	first, last := r.first, r.handed
	r.first, r.handed = nil, nil
	r.handing.Unlock()
	if first != nil {
		if r.posting == nil {
			r.posting = first
		} else {
			r.last.next = first
		}
		r.last = last
	}
	return r.posting
}
