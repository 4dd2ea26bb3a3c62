package group

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/exec"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/cuda"
)

// flight is a piece that has been posted and has not ended.
type flight struct {
	op     *exec.Op
	of     *Op
	piece  int      // of its Op
	agrees bool     // it is not a piece: the ranks agree on the number of pieces
	ends   []func() // of what was told
}

// advance works on the roads once. It reports whether anything has moved, and whether calls are
// pending. Only the device thread calls it.
func (g *Group) advance() (moved, pending bool) {
	if g.failure.Load() != nil {
		if g.cleaned {
			return false, false
		}
		g.cleanUp()
		g.cleaned = true
		return true, false
	}
	for _, r := range g.roads {
		for g.failure.Load() == nil && r.land() {
			moved = true
		}
		for g.failure.Load() == nil && r.post() {
			moved = true
		}
		pending = pending || r.posting != nil || r.inFlight > 0
	}
	return moved, pending
}

// expedite has the pieces in flight driven by the progress thread while the device thread naps.
func (g *Group) expedite() {
	for _, r := range g.roads {
		for i := range r.inFlight {
			r.flights[(r.tail+i)%len(r.flights)].op.Expedite()
		}
	}
}

// post posts the next piece, if it can be. It reports whether it has done anything.
func (r *road) post() bool {
	o := r.head()
	if o == nil || r.inFlight == len(r.flights) {
		return false
	}
	if o.posted == 1 && (o.pieces < 0 || o.call.Root < 0 && o.Source() < 0) {
		return false // until the ranks have agreed, or the sender is known
	}
	own := o.posted < o.cut.pieces
	if n := o.first + uint64(o.posted); own && !r.mayPost(o, n) {
		return false
	}
	r.piece(o, o.posted)
	f := flight{of: o, piece: o.posted}
	if own {
		r.tell(&f)
	}
	op, err := r.g.comm.Post(&r.call)
	if err != nil {
		r.g.fail(r.inPiece(o, o.posted, err))
		return true
	}
	f.op = op
	r.push(f)
	o.posted++
	if o.cut.agree && o.posted == 1 {
		return r.agree(o)
	}
	r.next(o)
	return true
}

// next goes on to the next Op when all pieces of o have been posted.
func (r *road) next(o *Op) {
	if o.pieces >= 0 && o.posted >= o.pieces {
		r.posting, o.next = o.next, nil
	}
}

// agree posts the choice of the largest number of pieces.
func (r *road) agree(o *Op) bool {
	r.agreed[0] = uint64(o.cut.pieces)
	b := exec.Block{Ptr: unsafe.Pointer(&r.agreed), Count: 1}
	r.in, r.out = append(r.in[:0], b), append(r.out[:0], b)
	r.call = exec.Call{Coll: dtype.AllReduce, Type: dtype.U64, Op: dtype.Max, In: r.in, Out: r.out,
		Timeout: o.call.Timeout}
	op, err := r.g.comm.Post(&r.call)
	if err != nil {
		r.g.fail(r.inPiece(o, o.posted, err))
		return true
	}
	r.push(flight{op: op, of: o, agrees: true})
	return true
}

// mayPost reports whether the device is ready for a piece, whose number on the road is n.
func (r *road) mayPost(o *Op, n uint64) bool {
	if o.call.Coll != dtype.Recv {
		return r.reached(n)
	}
	return n <= uint64(len(r.slots)) || r.reached(n-uint64(len(r.slots)))
}

// piece makes r.call a piece of a call.
func (r *road) piece(o *Op, piece int) {
	r.call = o.call
	if o.cut.pieces > 1 {
		r.call.Whole = o.call.Bytes()
	}
	if o.call.Root < 0 && piece > 0 {
		r.call.Root = o.Source() // all pieces of a message come from one rank
	}
	base := unsafe.Pointer(unsafe.SliceData(r.g.memory.Host()))
	at := r.slot(o.first + uint64(piece)).at
	r.in, r.out = r.in[:0], r.out[:0]
	for i, b := range o.in {
		r.in = append(r.in, exec.Block{Ptr: unsafe.Add(base, at+o.cut.in(&o.call, r.g.rank, i)),
			Count: o.cut.count(piece, b.Count)})
	}
	for i, b := range o.out {
		r.out = append(r.out, exec.Block{Ptr: unsafe.Add(base, at+o.cut.out(&o.call, r.g.rank, i)),
			Count: o.cut.count(piece, b.Count)})
	}
	r.call.In, r.call.Out = r.in, r.out
}

// tell tells a driver that wants to know that the host begins to use the slot of a piece: it reads
// In and writes Out. f remembers whom to tell that it has ended.
func (r *road) tell(f *flight) {
	if r.g.watch == nil {
		return
	}
	o := f.of
	at := r.slot(o.first + uint64(f.piece)).at
	for i, b := range o.in {
		f.ends = append(f.ends, r.g.watch.HostAccess(r.word(at+o.cut.in(&o.call, r.g.rank, i)),
			o.cut.count(f.piece, b.Count)*o.cut.size, false))
	}
	for i, b := range o.out {
		f.ends = append(f.ends, r.g.watch.HostAccess(r.word(at+o.cut.out(&o.call, r.g.rank, i)),
			o.cut.count(f.piece, b.Count)*o.cut.size, true))
	}
}

// land ends the oldest piece in flight, if it has ended.
func (r *road) land() bool {
	if r.inFlight == 0 {
		return false
	}
	f := r.flights[r.tail]
	ended, err := f.op.Poll()
	if !ended {
		return false
	}
	o := f.of
	if err == nil && o.call.Coll == dtype.Recv {
		o.source.Store(int32(f.op.Source()))
	}
	f.over()
	r.flights[r.tail] = flight{}
	r.tail = (r.tail + 1) % len(r.flights)
	r.inFlight--
	if err != nil {
		r.g.fail(r.inPiece(o, f.piece, err))
		return true
	}
	if f.agrees {
		o.pieces = int(min(r.agreed[0], 1<<40))
		r.next(o)
	} else {
		if f.piece < o.cut.pieces {
			r.finish(o.first + uint64(f.piece))
		}
		o.ended++
	}
	if o.pieces >= 0 && o.ended == o.pieces {
		o.finish(nil)
	}
	return true
}

func (r *road) push(f flight) {
	r.flights[(r.tail+r.inFlight)%len(r.flights)] = f
	r.inFlight++
}

// inPiece makes an error of a piece one of its call.
func (r *road) inPiece(o *Op, piece int, err error) error {
	var f *fault.Error
	if !errors.As(err, &f) {
		return o.explain(err)
	}
	in := *f
	in.Op = ""
	if o.cut.pieces > 1 {
		in.Text = fmt.Sprintf("piece %d of %d: %s", piece+1, o.cut.pieces, f.Text)
	}
	return o.explain(&in)
}

// over is called when a piece has ended.
func (f *flight) over() {
	f.op.Free()
	for _, end := range f.ends {
		end()
	}
}

// cleanUp ends all Ops after a failure.
func (g *Group) cleanUp() {
	failure := g.failure.Load()
	for _, r := range g.roads {
		for ; r.inFlight > 0; r.inFlight-- {
			f := r.flights[r.tail]
			r.flights[r.tail] = flight{}
			r.tail = (r.tail + 1) % len(r.flights)
			f.op.Wait(nil) // the Comm has failed, so this does not take long
			f.over()
			if !f.agrees {
				f.of.ended++
			}
			if f.of != r.posting && f.of.ended == f.of.posted {
				f.of.finish(failure)
			}
		}
		for o := r.head(); o != nil; o = r.head() {
			r.posting, o.next = o.next, nil
			o.finish(failure)
		}
	}
}

// pointer returns the address of a block in the device's view.
func pointer(b exec.Block) cuda.Ptr { return cuda.Ptr(uintptr(b.Ptr)) }
