package sim

import (
	"math"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/plan"
)

// op is a step, reduced to what affects its time.
type op struct {
	bytes    int64 // of one operand
	peer     int32 // -1 for none
	after    int32 // step of the lane named by lane that must end first
	more     int32 // index in program.more, or -1
	port     int32 // index in program.ports, or -1
	operands uint16
	lane     int8 // of after, or -1
	kind     plan.Kind
	slot     uint8 // channel, or plan.MaxChans + flag
	// pipelined means that it sends what the step in after receives, as that comes in.
	pipelined bool
	window    bool // it writes this rank's window
	nothing   bool // it copies chunks onto themselves
}

// more holds the fields that only few steps have.
type more struct {
	after   []plan.Point // the after points that are not in op
	afterBy []int        // first that of op.after, then those of after
	peer    plan.Stride
	moves   bool // peer advances
	ref     plan.Ref
	refBy   plan.Stride
	varies  bool // the length of ref may change
	from    []int
	fromBy  []plan.Stride
}

// port is one way to communicate with one peer.
type port struct {
	peer int32
	way  way
	slot uint8 // as in op
}

type way uint8

const (
	pushes   way = iota // send, signal, packet
	writes              // put: no step waits for it
	fetches             // get
	receives            // recv, recvreduce, wait
)

// wayOf returns the way in which a step of a kind communicates with its peer.
func wayOf(k plan.Kind) way {
	switch does := k.Traits(); {
	case does.Puts && !does.Signals:
		return writes
	case does.Gets:
		return fetches
	case does.Awaits():
		return receives
	}
	return pushes
}

// segment is a part of a lane: n ops, executed the given number of times.
type segment struct{ first, n, times int32 }

type lane struct {
	ops      []op
	segments []segment
	total    int32
}

// program is the compiled program of one rank.
type program struct {
	lanes []lane
	more  []more
	ports []port  // used by the steps whose peer is constant
	tmp   []int64 // bytes of the chunks before each chunk; nil if all chunks are equal
	win   []int64
	loops bool
}

// sizes computes the lengths of chunks.
type sizes struct {
	p     *plan.Plan
	o     *Options
	chunk int64 // bytes of every chunk, or -1 if they differ
}

func newSizes(p *plan.Plan, o *Options) sizes {
	s := sizes{p: p, o: o, chunk: -1}
	if o.Counts == nil && o.Elements%p.Split == 0 {
		s.chunk = int64(o.Elements/p.Split) * int64(o.ElementBytes)
	}
	return s
}

func (s *sizes) extent(e plan.Extent) int64 {
	if s.chunk >= 0 {
		return s.chunk
	}
	n := s.o.Elements
	if s.o.Counts != nil {
		n = s.o.Counts(e.From, e.To)
	}
	lo, hi := plan.Part(n, s.p.Split, e.Part)
	return int64(hi-lo) * int64(s.o.ElementBytes)
}

// ref returns the bytes of a Ref of a rank.
func (s *sizes) ref(rank int, prog *program, r plan.Ref) int64 {
	if s.chunk >= 0 {
		return int64(r.N) * s.chunk
	}
	switch r.Buf {
	case plan.Tmp:
		return prog.tmp[r.At+r.N] - prog.tmp[r.At]
	case plan.Win:
		return prog.win[r.At+r.N] - prog.win[r.At]
	}
	if s.o.Counts == nil { // all blocks are equal
		return (s.before(r.At+r.N) - s.before(r.At)) * int64(s.o.ElementBytes)
	}
	total := int64(0)
	for i := range r.N {
		total += s.extent(s.p.Spec.Extent(s.p.Split, rank, r.Buf, r.At+i))
	}
	return total
}

// before returns the number of elements of In or Out before a chunk.
func (s *sizes) before(chunk int) int64 {
	lo, _ := plan.Part(s.o.Elements, s.p.Split, chunk%s.p.Split)
	return int64(chunk/s.p.Split)*int64(s.o.Elements) + int64(lo)
}

func (s *sizes) sums(chunks []plan.Extent) []int64 {
	if s.chunk >= 0 {
		return nil
	}
	sums := make([]int64, len(chunks)+1)
	for i, e := range chunks {
		sums[i+1] = sums[i] + s.extent(e)
	}
	return sums
}

// compile turns the program of a rank into ops.
func (s *sizes) compile(rank int) (*program, error) {
	source := s.p.Program(rank)
	prog := &program{tmp: s.sums(source.Tmp), win: s.sums(source.Win), lanes: make([]lane, len(source.Lanes))}
	if len(source.Lanes) > plan.MaxLanes {
		return nil, wrong(s.p, "rank %d has %d lanes, at most %d", rank, len(source.Lanes), plan.MaxLanes)
	}
	for l, steps := range source.Lanes {
		dst := &prog.lanes[l]
		dst.ops = make([]op, 0, len(steps))
		for i := range steps {
			step := &steps[i]
			body, times := steps[i:i+1], 1
			if step.Kind == plan.Loop {
				body, times, prog.loops = step.Body, step.Times, true
			}
			first := len(dst.ops)
			for j := range body {
				compiled, err := s.op(rank, prog, &body[j])
				if s.o.Costs != nil && err == nil {
					compiled.pipelined = pipelined(&source, &body[j], times)
				}
				if err != nil {
					return nil, fault.Wrap(fault.Invalid, err, "simulating plan %q (%v): rank %d, lane %d, step %d",
						s.p.Name, s.p.Spec, rank, l, i)
				}
				dst.ops = append(dst.ops, compiled)
			}
			if int64(dst.total)+int64(times)*int64(len(body)) > plan.MaxSteps {
				return nil, wrong(s.p, "rank %d, lane %d has more than %d steps", rank, l, plan.MaxSteps)
			}
			dst.total += int32(times * len(body))
			if last := len(dst.segments) - 1; step.Kind != plan.Loop && last >= 0 && dst.segments[last].times == 1 {
				dst.segments[last].n++
			} else if times > 0 && len(body) > 0 {
				dst.segments = append(dst.segments, segment{int32(first), int32(len(body)), int32(times)})
			}
		}
	}
	if !prog.loops {
		prog.tmp, prog.win = nil, nil // no length will be needed again
	}
	return prog, nil
}

// pipelined reports whether a step sends what it waits for another step to receive, in the first
// two iterations and therefore in all.
func pipelined(p *plan.Program, step *plan.Step, times int) bool {
	if !step.Kind.Traits().Sends || len(step.After) != 1 || len(step.Src) != 1 {
		return false
	}
	for iter := range min(times, 2) {
		now := step.Advanced(iter)
		after := now.After[0]
		writer := plan.StepAt(p.Lanes[after.Lane], after.Step)
		if !writer.Kind.Traits().Receives || writer.Dst != now.Src[0] {
			return false
		}
	}
	return true
}

// connect assigns ports to the steps.
func (p *program) connect() {
	known := map[port]int32{}
	for l := range p.lanes {
		last := int32(-1) // most steps use the port of the step before
		for i := range p.lanes[l].ops {
			o := &p.lanes[l].ops[i]
			if o.peer < 0 || o.more >= 0 && p.more[o.more].moves {
				continue
			}
			key := port{o.peer, wayOf(o.kind), o.slot}
			if last < 0 || p.ports[last] != key {
				at, ok := known[key]
				if !ok {
					at = int32(len(p.ports))
					p.ports = append(p.ports, key)
					known[key] = at
				}
				last = at
			}
			o.port = last
		}
	}
}

// peers returns the number of ranks with which the rank of the program communicates.
func (p *program) peers(rank int) int {
	known := map[int]bool{rank: true}
	for l := range p.lanes {
		lane := &p.lanes[l]
		for _, s := range lane.segments {
			for i := range lane.ops[s.first : s.first+s.n] {
				o := &lane.ops[s.first:][i]
				m, times := &more{}, 1
				if o.more >= 0 {
					m = &p.more[o.more]
				}
				if m.moves || m.fromBy != nil {
					times = int(s.times)
				}
				for iter := range times {
					if o.peer >= 0 {
						known[m.peer.At(int(o.peer), iter)] = true
					}
					for k, from := range m.from {
						if m.fromBy != nil {
							from = m.fromBy[k].At(from, iter)
						}
						known[from] = true
					}
				}
			}
		}
	}
	return len(known) - 1
}

func (s *sizes) op(rank int, prog *program, step *plan.Step) (op, error) {
	o := op{kind: step.Kind, peer: -1, more: -1, port: -1, lane: -1, operands: 1}
	m := more{}
	var by plan.Advance
	if step.By != nil {
		by = *step.By
	}
	if step.Kind >= plan.Loop {
		return o, fault.New(fault.Invalid, "a step %v here", step.Kind)
	}
	does := step.Kind.Traits()
	switch {
	case does.Message():
		o.slot = uint8(step.Chan)
	case does.Flagged():
		o.slot = uint8(plan.MaxChans + step.Chan)
	}
	switch {
	case does.From:
		m.from, m.fromBy = step.From, by.From
		for _, r := range step.From {
			if r < 0 || r >= s.p.Spec.Ranks {
				return o, fault.New(fault.Invalid, "source rank %d of %d ranks", r, s.p.Spec.Ranks)
			}
		}
	case does.Peer:
		if step.Peer < 0 || step.Peer >= s.p.Spec.Ranks || step.Peer == rank {
			return o, fault.New(fault.Invalid, "peer %d of %d ranks", step.Peer, s.p.Spec.Ranks)
		}
		o.peer, m.peer, m.moves = int32(step.Peer), by.Peer, by.Peer.By != 0
	}
	m.ref = step.Dst
	if len(step.Src) > 0 && !does.Gets {
		m.ref = step.Src[0]
		if by.Src != nil {
			m.refBy = by.Src[0]
		}
	} else {
		m.refBy = by.Dst
	}
	o.nothing = s.o.InPlace && s.ontoItself(rank, step)
	o.window = does.Writes && !does.Peer && step.Dst.Buf == plan.Win
	m.varies = s.chunk < 0 && m.refBy.By != 0
	o.bytes = s.ref(rank, prog, m.ref)
	if n := len(step.Src); n > 1 {
		o.operands = uint16(min(n, math.MaxUint16))
	} else if does.Receives && does.Reduces {
		o.operands = 2
	}
	if len(step.After) > 0 {
		o.lane, o.after = int8(step.After[0].Lane), int32(step.After[0].Step)
		m.after, m.afterBy = step.After[1:], by.After
	}
	if len(m.after) > 0 || m.afterBy != nil || m.moves || m.varies || m.from != nil {
		o.more = int32(len(prog.more))
		prog.more = append(prog.more, m)
	}
	return o, nil
}

// ontoItself reports whether a step copies chunks onto themselves in a call that is in place.
func (s *sizes) ontoItself(rank int, step *plan.Step) bool {
	if step.Kind != plan.Copy || s.p.Alias&plan.InPlace == 0 {
		return false
	}
	spec := s.p.Spec
	in, out := spec.Coll.InBlocks(spec.Ranks, rank, spec.Root), spec.Coll.OutBlocks(spec.Ranks, rank, spec.Root)
	at := func(r plan.Ref) int {
		switch {
		case r.Buf != plan.In && r.Buf != plan.Out:
			return -1
		case in == out || in > 1 && r.Buf == plan.In || out > 1 && r.Buf == plan.Out:
			return r.At
		}
		return r.At + rank*s.p.Split // the only block on its side
	}
	return at(step.Src[0]) == at(step.Dst) && at(step.Dst) >= 0
}

func wrong(p *plan.Plan, format string, args ...any) error {
	all := append([]any{p.Name, p.Spec}, args...)
	return fault.New(fault.Invalid, "simulating plan %q (%v): "+format, all...)
}
