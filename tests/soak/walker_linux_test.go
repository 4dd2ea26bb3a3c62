package soak_test

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/dtype"
)

// walker is one thread of a rank: it makes the calls of its groups.
type walker struct {
	s          *soaker
	thread     int
	turns      *drawing
	own        *rand.Rand // what this rank does in its own way: waits, delays, memory
	open       []*posted
	free       map[int][][]uint64 // buffers by size
	registered [][]byte           // the shortest first
	by         map[string]uint64
	operations uint64
	at         atomic.Pointer[doing]
}

type doing struct {
	what  string
	since time.Time
}

// posted is an operation that was started and is to be waited for.
type posted struct {
	work   *ccl.Work
	turn   *turn
	coll   dtype.Collective
	memory *memory
}

func newWalker(s *soaker, thread int) (*walker, error) {
	w := &walker{s: s, thread: thread, turns: newDrawing(s.Seed, thread),
		own:  rand.New(rand.NewPCG(s.Seed, uint64(1000+100*s.Rank+thread))),
		free: map[int][][]uint64{}, by: map[string]uint64{}}
	for _, bytes := range []int{32 << 10, 32 << 10, 128 << 10, 128 << 10, 1 << 20, 1 << 20, 4 << 20} {
		x, err := s.node.Alloc(bytes)
		if err != nil {
			return nil, err
		}
		for i := range x {
			x[i] = untouched // it takes its pages now
		}
		w.register(x)
	}
	return w, nil
}

// register gives the walker registered memory back.
func (w *walker) register(x []byte) {
	at, _ := slices.BinarySearchFunc(w.registered, len(x), func(x []byte, n int) int { return len(x) - n })
	w.registered = slices.Insert(w.registered, at, x)
}

// mostOpen is how many operations a thread has in flight.
const mostOpen = 8

// walk makes turns and ends all their operations.
func (w *walker) walk(turns int) error {
	for range turns {
		u := w.turns.next()
		place := slices.Index(members[u.group], w.s.Rank)
		if place < 0 {
			continue
		}
		w.at.Store(&doing{u.String(), time.Now()})
		if place == 0 {
			w.operations++
		}
		w.dawdle()
		err := w.call(&u, place)
		for err == nil && len(w.open) > 0 && (len(w.open) > mostOpen || w.own.IntN(3) > 0) {
			err = w.settle(w.own.IntN(len(w.open)))
		}
		if err != nil {
			return fmt.Errorf("thread %d, %v: %w", w.thread, &u, err)
		}
	}
	for len(w.open) > 0 {
		p := w.open[0]
		w.at.Store(&doing{"waiting for " + p.turn.String(), time.Now()})
		if err := w.settle(0); err != nil {
			return fmt.Errorf("thread %d, %v, waited for at the end: %w", w.thread, p.turn, err)
		}
	}
	w.at.Store(nil)
	return nil
}

// dawdle makes the rank late now and then: by a little, or so much that others ask for it.
func (w *walker) dawdle() {
	switch x := w.own.IntN(1000); {
	case x < 2:
		time.Sleep(time.Duration(50+w.own.IntN(100)) * time.Millisecond)
	case x < 40:
		time.Sleep(time.Duration(w.own.IntN(4000)) * time.Microsecond)
	}
}

// call makes the call of a turn, or sends a message to the next rank and receives one.
func (w *walker) call(u *turn, place int) error {
	if u.coll.Valid() {
		m := w.memory(u, u.coll, place)
		return w.begin(u, &ccl.Call{Coll: u.coll, Root: u.root, In: m.blocks(u, m.in), Out: m.blocks(u, m.out)}, m)
	}
	size, tag := u.size(), uint32(u.number%3)
	if u.anyone {
		tag = uint32(100 + u.number) // a message that only one rank sends
	}
	out, in := w.memory(u, dtype.Send, place), w.memory(u, dtype.Recv, place)
	send := &ccl.Call{Coll: dtype.Send, Root: (place + 1) % size, Tag: tag, In: out.blocks(u, out.in)}
	recv := &ccl.Call{Coll: dtype.Recv, Root: (place + size - 1) % size, Tag: tag, Out: in.blocks(u, in.out)}
	if u.anyone {
		recv.Root = ccl.AnySource
	}
	if w.own.IntN(2) == 0 {
		return errors.Join(w.start(u, send, out), w.start(u, recv, in))
	}
	return errors.Join(w.start(u, recv, in), w.start(u, send, out))
}

// begin makes a collective call: blocking, for a while, or not.
func (w *walker) begin(u *turn, call *ccl.Call, m *memory) error {
	switch w.own.IntN(6) {
	case 0, 1:
		w.complete(u, call)
		return w.ended(w.s.comms[u.group].Do(context.Background(), call), u, call.Coll, m)
	case 2:
		w.complete(u, call)
		work, err := w.s.comms[u.group].DoSlice(call, time.Duration(w.own.IntN(300))*time.Microsecond)
		if work == nil {
			return w.ended(err, u, call.Coll, m)
		}
		w.open = append(w.open, &posted{work, u, call.Coll, m})
		return err
	}
	return w.start(u, call, m)
}

func (w *walker) start(u *turn, call *ccl.Call, m *memory) error {
	w.complete(u, call)
	work, err := w.s.comms[u.group].Start(call)
	if err == nil {
		w.open = append(w.open, &posted{work, u, call.Coll, m})
	}
	return err
}

// complete sets what all calls of a turn have.
func (w *walker) complete(u *turn, call *ccl.Call) {
	call.Type, call.Op, call.Factor = u.typ, u.op, premultiplied
	w.by[call.Coll.String()]++
}

// settle waits for an operation in one of the possible ways. A wait may be given up, and the
// operation goes on.
func (w *walker) settle(at int) error {
	p := w.open[at]
	var err error
	done := false
	switch w.own.IntN(7) {
	case 0:
		for !done {
			if done, err = p.work.Poll(); !done {
				runtime.Gosched()
			}
		}
	case 1:
		p.work.Expedite() // the progress thread drives it
		for !done {
			seen := ccl.CompletionCount()
			if done, err = p.work.Done(); !done {
				ccl.WaitCompletions(seen, time.Second)
			}
		}
	case 2:
		for !done {
			done, err = p.work.WaitSlice(200 * time.Microsecond)
		}
	case 3:
		for !done { // nobody drives it but the progress thread
			if done, err = p.work.Done(); !done {
				time.Sleep(100 * time.Microsecond)
			}
		}
	case 4, 5:
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(w.own.IntN(2000))*time.Microsecond)
		err = p.work.Wait(ctx)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) {
			w.s.cancelled.Add(1)
			return nil
		}
	default:
		err = p.work.Wait(context.Background())
	}
	p.work.Free()
	w.open = slices.Delete(w.open, at, at+1)
	return w.ended(err, p.turn, p.coll, p.memory)
}

// ended checks the result of an operation, and takes its memory back.
func (w *walker) ended(err error, u *turn, coll dtype.Collective, m *memory) error {
	if err == nil {
		err = w.check(u, coll, m)
	}
	if err != nil {
		return err
	}
	for _, x := range m.own {
		if len(x) <= mostKept {
			w.free[len(x)] = append(w.free[len(x)], x)
		}
	}
	for _, x := range m.kept {
		w.register(x)
	}
	for _, x := range m.lent {
		if err := w.s.node.Free(x); err != nil {
			return err
		}
	}
	return nil
}

// memory holds the buffers of one call.
type memory struct {
	place   int // this rank's in the group
	in, out [][]byte
	edges   [][]byte // behind each buffer: nobody's
	own     [][]uint64
	kept    [][]byte // registered, of the walker
	lent    [][]byte // registered, for this call
	sums    *sums    // of a reduction
}

// Behind a buffer some bytes must stay as they are.
const (
	mostKept  = 1 << 10  // words of a buffer that is used again; longer ones are collected
	mostLent  = 64 << 10 // bytes of registered memory for one call
	edge      = 8
	untouched = 0x5a
)

// memory makes the buffers of a call, and fills those of In.
func (w *walker) memory(u *turn, coll dtype.Collective, place int) *memory {
	m := &memory{place: place}
	if coll.Reduces() {
		m.sums = newSums(u)
	}
	size := u.size()
	for b := range coll.InBlocks(size, place, u.root) {
		x := w.buffer(m, u.block(place, b)*u.typ.Size())
		if m.sums != nil {
			m.sums.fill(x, u.source(w.s.Seed, place, b))
		} else {
			fill(x, u.source(w.s.Seed, place, b))
		}
		m.in = append(m.in, x)
	}
	if u.inPlace && coll == dtype.AllReduce {
		m.out = m.in
		return m
	}
	for b := range coll.OutBlocks(size, place, u.root) {
		from, to := b, place
		if coll == dtype.Scatter {
			from = u.root
		}
		m.out = append(m.out, w.buffer(m, u.block(from, to)*u.typ.Size()))
	}
	return m
}

// buffer returns memory for a block, sometimes registered, at any offset of whole words.
func (w *walker) buffer(m *memory, bytes int) []byte {
	var whole []byte
	shift := 8 * w.own.IntN(4)
	need := bytes + shift + edge
	switch w.own.IntN(12) {
	case 0, 1, 2, 3:
		at := slices.IndexFunc(w.registered, func(x []byte) bool { return len(x) >= need })
		if at >= 0 {
			whole = w.registered[at]
			w.registered = slices.Delete(w.registered, at, at+1)
			m.kept = append(m.kept, whole)
		}
	case 4:
		// Few sizes: the arena keeps what is freed, for allocations of the same size.
		if x, err := w.s.node.Alloc(1 << bits.Len(uint(need-1))); err == nil && need <= mostLent {
			m.lent = append(m.lent, x)
			whole = x
		} else if err == nil {
			w.s.node.Free(x)
		}
	}
	if whole == nil {
		words := max(4, 1<<bits.Len(uint(need-1))/8)
		var x []uint64
		if free := w.free[words]; len(free) > 0 {
			x = free[len(free)-1]
			w.free[words] = free[:len(free)-1]
		} else {
			x = make([]uint64, words)
		}
		m.own = append(m.own, x)
		whole = unsafe.Slice((*byte)(unsafe.Pointer(&x[0])), 8*words)
	}
	behind := whole[shift+bytes:][:edge]
	for i := range behind {
		behind[i] = untouched
	}
	m.edges = append(m.edges, behind)
	return whole[shift:][:bytes:bytes]
}

func (m *memory) blocks(u *turn, of [][]byte) (all []ccl.Block) {
	for _, x := range of {
		all = append(all, ccl.Block{Ptr: unsafe.Pointer(unsafe.SliceData(x)), Count: len(x) / u.typ.Size()})
	}
	return all
}

// check compares buffers with what they must hold.
func (w *walker) check(u *turn, coll dtype.Collective, m *memory) error {
	for i, x := range m.edges {
		for _, b := range x {
			if b != untouched {
				return fmt.Errorf("WRONG: something was written behind buffer %d", i)
			}
		}
	}
	seed, size := w.s.Seed, u.size()
	if !(u.inPlace && coll == dtype.AllReduce) {
		for b, x := range m.in {
			at := -1
			if m.sums != nil {
				at = m.sums.differs(x, []uint64{u.source(seed, m.place, b)}, false)
			} else {
				at = differs(x, u.source(seed, m.place, b))
			}
			if at >= 0 {
				return fmt.Errorf("WRONG: input block %d was changed at byte %d of %d", b, at, len(x))
			}
		}
	}
	for b, x := range m.out {
		var at int
		if m.sums != nil {
			to := 0
			if coll == dtype.ReduceScatter {
				to = m.place
			}
			var sources []uint64
			for from := range size {
				sources = append(sources, u.source(seed, from, to))
			}
			at = m.sums.differs(x, sources, true)
		} else {
			at = differs(x, u.source(seed, sender(u, coll, m.place, b), receiver(coll, m.place)))
		}
		if at >= 0 {
			end := min(at+16, len(x))
			return fmt.Errorf("WRONG: block %d of %v differs from byte %d of %d on: % x", b, coll, at, len(x), x[at:end])
		}
	}
	return nil
}

// sender returns whose block an output block is.
func sender(u *turn, coll dtype.Collective, place, block int) int {
	switch coll {
	case dtype.Broadcast, dtype.Scatter:
		return u.root
	case dtype.Recv:
		return (place + u.size() - 1) % u.size()
	}
	return block
}

// receiver returns for whom such a block is, among those of its sender.
func receiver(coll dtype.Collective, place int) int {
	if coll == dtype.Scatter || coll == dtype.AllToAll {
		return place
	}
	return 0
}
