package group

import (
	"fmt"
	"unsafe"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/exec"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/transport"
)

// flight is a piece that has been posted and has not ended.
type flight struct {
	op     *exec.Op
	of     *Op
	piece  int      // of its Op
	agrees bool     // it is not a piece: the ranks agree on the number of pieces
	ends   []func() // of what was told
}

// post posts the next piece, if it can be. It reports whether it has done anything.
func (p *pipeline) post() bool {
	o := p.queue.head()
	if o == nil || p.inFlight == len(p.flights) {
		return false
	}
	if o.posted == 1 && (o.pieces < 0 || o.call.Root < 0 && o.Source() < 0) {
		return false // until the ranks have agreed, or the sender is known
	}
	own := o.posted < o.cut.pieces
	if n := o.first + uint64(o.posted); own && !p.mayPost(o, n) || p.withholds(o) {
		return false
	}
	p.piece(o, o.posted)
	f := flight{of: o, piece: o.posted}
	if own {
		p.tell(&f)
	}
	op, err := p.g.comm.Post(&p.call)
	if err != nil {
		p.g.fail(p.inPiece(o, o.posted, err))
		return true
	}
	f.op = op
	p.push(f)
	o.posted++
	if o.cut.agree && o.posted == 1 {
		return p.agree(o)
	}
	p.next(o)
	return true
}

// next goes on to the next Op when all pieces of o have been posted.
func (p *pipeline) next(o *Op) {
	if o.pieces >= 0 && o.posted >= o.pieces {
		p.queue.pop()
	}
}

// agree posts the choice of the largest number of pieces.
func (p *pipeline) agree(o *Op) bool {
	p.agreed[0] = uint64(o.cut.pieces)
	b := exec.Block{Ptr: unsafe.Pointer(&p.agreed), Count: 1}
	p.in, p.out = append(p.in[:0], b), append(p.out[:0], b)
	p.call = exec.Call{Coll: dtype.AllReduce, Type: dtype.U64, Op: dtype.Max, In: p.in, Out: p.out,
		Timeout: o.call.Timeout}
	op, err := p.g.comm.Post(&p.call)
	if err != nil {
		p.g.fail(p.inPiece(o, o.posted, err))
		return true
	}
	p.push(flight{op: op, of: o, agrees: true})
	return true
}

// mayPost reports whether the device is ready for a piece, whose number on the pipeline is n.
func (p *pipeline) mayPost(o *Op, n uint64) bool {
	if o.call.Coll != dtype.Recv {
		return p.reached(n)
	}
	return n <= uint64(len(p.slots)) || p.reached(n-uint64(len(p.slots)))
}

// piece makes p.call a piece of a call.
func (p *pipeline) piece(o *Op, piece int) {
	p.call = o.call
	if o.cut.pieces > 1 {
		p.call.Whole = o.call.Bytes()
	}
	if o.call.Root < 0 && piece > 0 {
		p.call.Root = o.Source() // all pieces of a message come from one rank
	}
	base := unsafe.Pointer(unsafe.SliceData(p.st.memory.Host()))
	at := p.slot(o.first + uint64(piece)).at
	p.in, p.out = p.in[:0], p.out[:0]
	for i, b := range o.in {
		p.in = append(p.in, exec.Block{Ptr: unsafe.Add(base, at+o.cut.in(&o.call, p.g.rank, i)),
			Count: o.cut.count(piece, b.Count)})
	}
	for i, b := range o.out {
		p.out = append(p.out, exec.Block{Ptr: unsafe.Add(base, at+o.cut.out(&o.call, p.g.rank, i)),
			Count: o.cut.count(piece, b.Count)})
	}
	p.call.In, p.call.Out = p.in, p.out
	p.addHead(o, at)
}

// tell tells a driver that wants to know that the host begins to use the blocks of p.call: it reads
// In and writes Out. f remembers whom to tell that it has ended.
func (p *pipeline) tell(f *flight) {
	if p.st.watch == nil {
		return
	}
	base := uintptr(unsafe.Pointer(unsafe.SliceData(p.st.memory.Host())))
	for out, blocks := range [2][]exec.Block{p.in, p.out} {
		for _, b := range blocks {
			at := p.address(int(uintptr(b.Ptr) - base))
			f.ends = append(f.ends, p.st.watch.HostAccess(at, b.Count*f.of.cut.size, out == 1))
		}
	}
}

// land ends the oldest piece in flight, if it has ended.
func (p *pipeline) land() bool {
	if p.inFlight == 0 {
		return false
	}
	f := p.flights[p.tail]
	ended, err := f.op.Poll()
	if !ended {
		return false
	}
	o := f.of
	if err == nil && o.call.Coll == dtype.Recv {
		o.source.Store(int32(f.op.Source()))
	}
	if err == nil {
		err = p.compare(o, f.piece)
	}
	p.pop()
	f.over()
	if err != nil {
		p.g.fail(p.inPiece(o, f.piece, err))
		return true
	}
	if f.agrees {
		o.pieces = int(min(p.agreed[0], 1<<40))
		p.next(o)
	} else {
		if f.piece < o.cut.pieces {
			p.finish(o.first + uint64(f.piece))
		}
		o.ended++
	}
	if o.pieces >= 0 && o.ended == o.pieces {
		o.finish(nil)
	}
	return true
}

func (p *pipeline) push(f flight) {
	p.flights[(p.tail+p.inFlight)%len(p.flights)] = f
	p.inFlight++
}

// pop takes the oldest piece in flight out of the ring.
func (p *pipeline) pop() flight {
	f := p.flights[p.tail]
	p.flights[p.tail] = flight{}
	p.tail = (p.tail + 1) % len(p.flights)
	p.inFlight--
	return f
}

// inPiece makes an error of a piece one of its call.
func (p *pipeline) inPiece(o *Op, piece int, err error) error {
	in := *faultOf(err)
	in.Op = ""
	if o.of != nil && in.Code == fault.Mismatch {
		in.Text = o.ofMessage(in.Text)
	} else if o.of == nil && o.cut.pieces > 1 {
		in.Text = fmt.Sprintf("piece %d of %d: %s", piece+1, o.cut.pieces, in.Text)
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

// head returns how many bytes of a slot come before the data of a message.
func (o *Op) head() int {
	if o.of == nil {
		return 0
	}
	return headBytes
}

// addHead puts the head in front of the data of p.call, a piece of a message of a program.
func (p *pipeline) addHead(o *Op, at int) {
	if o.of == nil {
		return
	}
	if len(p.in) == 0 {
		p.out[0].Count += headBytes
		return
	}
	p.in[0].Count += headBytes
	*p.print(at) = exec.Print(&o.of.call, o.of.seq)
}

// withholds reports whether a message must not leave: a rank of this host has failed, and may have
// let the device go on before what it sends was there. This rank is about to be told why.
func (p *pipeline) withholds(o *Op) bool {
	return o.of != nil && o.call.Coll == dtype.Send && p.failed()
}

// print returns the print at the begin of a slot.
func (p *pipeline) print(at int) *transport.Meta {
	return (*transport.Meta)(unsafe.Pointer(unsafe.SliceData(p.st.memory.Host()[at : at+headBytes])))
}

// compare compares the call of a message that has come with this rank's. The engine of the messages
// has compared their lengths.
func (p *pipeline) compare(o *Op, piece int) error {
	if o.of == nil || o.call.Coll != dtype.Recv {
		return nil
	}
	own, other := exec.Print(&o.of.call, o.of.seq), *p.print(p.slot(o.first + uint64(piece)).at)
	if own == other {
		return nil
	}
	return fault.Peer(fault.Mismatch, o.call.Root, "rank %d called %s, and rank %d called %s", p.g.rank,
		exec.DescribePrint(own), o.call.Root, exec.DescribePrint(other))
}

// ofMessage says in what is told of a message of a program which one it is.
func (o *Op) ofMessage(text string) string {
	way := "to"
	if o.call.Coll == dtype.Recv {
		way = "from"
	}
	return fmt.Sprintf("a message %s rank %d: %s", way, o.call.Root, text)
}
