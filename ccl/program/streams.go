package program

import (
	"slices"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/plan"
)

// Streams returns a plan that has windows and messages in the form in which the streams of a device
// execute it. Lane 0 has all steps but the messages, in one order. What a rank sends to a peer is a
// lane of its own, and so is what it receives from a peer. A recvreduce becomes a recv into Tmp and
// a reduce in lane 0, with the same operands in the same order. Each message has one chunk.
//
// The steps of a rank are put into one order first, in which those that may wait for other ranks
// come as late as possible. From that order follows which steps of other lanes a step comes after:
// those that wrote what it reads or writes, and those that read what it writes, as far as others
// that it comes after do not imply them. So a message holds up only what needs it.
//
// Messages do not touch windows: what a device of another host waits for says nothing about them.
func Streams(p *plan.Plan) (*plan.Plan, error) {
	if p.Chans > 1 {
		return nil, fault.New(fault.NotSupported, "plan %s has messages between two ranks in %d orders", p.Name, p.Chans)
	}
	made := *p
	programs := make([]plan.Program, p.Spec.Ranks)
	for rank := range programs {
		prog := p.Program(rank)
		flat := prog.Flat()
		s := streamer{plan: p, rank: rank, made: plan.Program{Tmp: slices.Clone(flat.Tmp), Win: flat.Win,
			Lanes: [][]plan.Step{nil}}, lanes: map[[2]int]int{}, chunks: map[plan.Ref]*use{}}
		for _, at := range serial(&flat) {
			if err := s.add(flat.Lanes[at.Lane][at.Step]); err != nil {
				return nil, err
			}
		}
		if len(s.made.Lanes) > plan.MaxLanes {
			return nil, fault.New(fault.NotSupported, "plan %s has rank %d send to and receive from too many others",
				p.Name, rank)
		}
		programs[rank] = s.made
	}
	if !overlaps(programs) {
		return nil, fault.New(fault.NotSupported, "plan %s has its first messages too late for calls of several pieces",
			p.Name)
	}
	made.Program = func(rank int) plan.Program { return programs[rank] }
	return &made, nil
}

// serial returns the steps of a program in one order: those that wait for nobody as early as they
// can, and the others in the order of the lanes.
func serial(prog *plan.Program) (order []plan.Point) {
	next := make([]int, len(prog.Lanes))
	ready := func(lane int) bool {
		return next[lane] < len(prog.Lanes[lane]) && !slices.ContainsFunc(prog.Lanes[lane][next[lane]].After,
			func(a plan.Point) bool { return next[a.Lane] <= a.Step })
	}
	for {
		at := -1
		for lane := range prog.Lanes {
			if !ready(lane) {
				continue
			}
			if !prog.Lanes[lane][next[lane]].Kind.Traits().Awaits() {
				at = lane
				break
			}
			if at < 0 {
				at = lane
			}
		}
		if at < 0 {
			return order
		}
		order = append(order, plan.Point{Lane: at, Step: next[at]})
		next[at]++
	}
}

// streamer makes the program of one rank.
type streamer struct {
	plan   *plan.Plan
	rank   int
	made   plan.Program
	lanes  map[[2]int]int // by peer, and 1 for sends: the lane
	clocks [][][]int      // by lane and step, and by lane: how many of its steps have ended after the step
	chunks map[plan.Ref]*use
}

// use says which steps have used a chunk.
type use struct {
	wrote plan.Point // Step -1: none
	reads []plan.Point
}

// add adds a step behind all those before it in the order.
func (s *streamer) add(step plan.Step) error {
	step.After = nil
	sends := step.Kind.Traits().Sends
	if !step.Kind.Traits().Message() {
		s.put(0, step)
		return nil
	}
	for _, r := range append([]plan.Ref{step.Dst}, step.Src...) {
		if r.N > 0 && r.Buf == plan.Win {
			return fault.New(fault.NotSupported, "plan %s has messages to or from windows", s.plan.Name)
		}
	}
	if sends && s.plan.Spec.Coll.Reduces() && step.Src[0].Buf == plan.In {
		return fault.New(fault.NotSupported, "plan %s sends operands that may have to be multiplied", s.plan.Name)
	}
	if sends {
		s.send(step)
	} else {
		s.receive(step)
	}
	return nil
}

// send adds a send, as a message for each chunk. One without chunks is a message, too.
func (s *streamer) send(step plan.Step) {
	lane := s.lane(step.Peer, 1)
	for i := range max(step.Src[0].N, 1) {
		message := step
		if step.Src[0].N > 0 {
			message.Src = []plan.Ref{chunk(step.Src[0], i)}
		}
		s.put(lane, message)
	}
}

// receive adds a recv or recvreduce.
func (s *streamer) receive(step plan.Step) {
	lane := s.lane(step.Peer, 0)
	for i := range max(step.Dst.N, 1) {
		message := plan.Step{Kind: plan.Recv, Peer: step.Peer, Dst: step.Dst}
		if step.Dst.N > 0 {
			message.Dst = chunk(step.Dst, i)
		}
		if !step.Kind.Traits().Reduces {
			s.put(lane, message)
			continue
		}
		came := plan.Ref{Buf: plan.Tmp, At: len(s.made.Tmp), N: 1}
		s.made.Tmp = append(s.made.Tmp, s.extent(message.Dst))
		operands := []plan.Ref{chunk(step.Src[0], i), came}
		if step.MsgFirst {
			slices.Reverse(operands)
		}
		sum := plan.Step{Kind: plan.Reduce, Dst: message.Dst, Src: operands, Final: step.Final}
		message.Dst = came
		s.put(lane, message)
		s.put(0, sum)
	}
}

func chunk(r plan.Ref, i int) plan.Ref { return plan.Ref{Buf: r.Buf, At: r.At + i, N: 1} }

// extent returns the length of a chunk of this rank.
func (s *streamer) extent(r plan.Ref) plan.Extent {
	if r.Buf == plan.Tmp {
		return s.made.Tmp[r.At]
	}
	return s.plan.Spec.Extent(s.plan.Split, s.rank, r.Buf, r.At)
}

// lane returns the lane of the messages to a peer, or from it.
func (s *streamer) lane(peer, sends int) int {
	key := [2]int{peer, sends}
	lane, known := s.lanes[key]
	if !known {
		lane = len(s.made.Lanes)
		s.lanes[key], s.made.Lanes = lane, append(s.made.Lanes, nil)
	}
	return lane
}

// put appends a step to a lane, behind all steps whose order with it matters.
func (s *streamer) put(lane int, step plan.Step) {
	for len(s.clocks) < len(s.made.Lanes) {
		s.clocks = append(s.clocks, nil)
	}
	at := plan.Point{Lane: lane, Step: len(s.made.Lanes[lane])}
	clock := make([]int, len(s.made.Lanes))
	if at.Step > 0 {
		copy(clock, s.clocks[lane][at.Step-1])
	}
	var need []plan.Point
	own := func(k int) bool {
		does := step.Kind.Traits()
		return !does.Gets || does.From && step.From[k] == s.rank
	}
	for k, r := range step.Src {
		for i := range r.N {
			if own(k) {
				need = append(need, s.use(chunk(r, i)).wrote)
			}
		}
	}
	for i := range step.Dst.N {
		u := s.use(chunk(step.Dst, i))
		if need = append(need, u.wrote); !s.ontoItself(&step) {
			need = append(need, u.reads...)
		}
	}
	// The later ones first: they may imply others.
	slices.SortFunc(need, func(a, b plan.Point) int { return s.length(b) - s.length(a) })
	for _, n := range need {
		if n.Step < clock[n.Lane] || n.Step < 0 {
			continue
		}
		step.After = append(step.After, n)
		for l, ended := range s.clocks[n.Lane][n.Step] {
			clock[l] = max(clock[l], ended)
		}
	}
	clock[lane] = at.Step + 1
	for k, r := range step.Src {
		for i := range r.N {
			if own(k) {
				u := s.use(chunk(r, i))
				u.reads = append(u.reads, at)
			}
		}
	}
	for i := range step.Dst.N {
		u := s.use(chunk(step.Dst, i))
		if u.wrote = at; !s.ontoItself(&step) {
			u.reads = nil
		}
	}
	s.made.Lanes[lane] = append(s.made.Lanes[lane], step)
	s.clocks[lane] = append(s.clocks[lane], clock)
}

// ontoItself reports whether a step is a copy that does nothing in place, and otherwise writes what
// nobody has read.
func (s *streamer) ontoItself(step *plan.Step) bool {
	return step.Kind == plan.Copy && step.Dst.N > 0 && s.use(chunk(step.Dst, 0)) == s.use(chunk(step.Src[0], 0))
}

// length returns how many steps have ended when a step has.
func (s *streamer) length(p plan.Point) (n int) {
	if p.Step < 0 {
		return 0
	}
	for _, ended := range s.clocks[p.Lane][p.Step] {
		n += ended
	}
	return n
}

// use returns what is known of a chunk. Chunks of In and Out that may be the same memory are one.
func (s *streamer) use(r plan.Ref) *use {
	if r.Buf == plan.In || r.Buf == plan.Out {
		spec := s.plan.Spec
		in := spec.Coll.InBlocks(spec.Ranks, s.rank, spec.Root)
		out := spec.Coll.OutBlocks(spec.Ranks, s.rank, spec.Root)
		switch {
		case s.plan.Alias&plan.InPlace == 0:
		case in == out || in > 1 && r.Buf == plan.In || out > 1 && r.Buf == plan.Out:
			r.Buf = plan.Out
		default: // the only block on its side
			r = plan.Ref{Buf: plan.Out, At: r.At + s.rank*s.plan.Split, N: 1}
		}
	}
	u := s.chunks[r]
	if u == nil {
		u = &use{wrote: plan.Point{Step: -1}}
		s.chunks[r] = u
	}
	return u
}

// overlaps reports whether a rank may begin the next piece of a call by such a plan before it has
// ended this one: with the steps of lane 0 before the first that comes after a step of another
// lane. All ranks do so alike. They wait there only for what others signal there before they wait.
func overlaps(programs []plan.Program) bool {
	given, awaited := map[[2]int]int{}, map[[2]int]int{} // by giver and taker
	for rank := range programs {
		waits := false
		for _, step := range programs[rank].Lanes[0] {
			if len(step.After) > 0 {
				break
			}
			does := step.Kind.Traits()
			if does.Signals && waits {
				return false
			}
			if does.Signals {
				given[[2]int{rank, step.Peer}]++
			}
			if does.Waits {
				waits = true
				awaited[[2]int{step.Peer, rank}]++
			}
		}
	}
	for pair, times := range awaited {
		if given[pair] < times {
			return false
		}
	}
	return true
}
