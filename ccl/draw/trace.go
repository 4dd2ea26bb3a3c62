package draw

import (
	"slices"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/plan"
)

// MaxSteps is the maximum number of steps, of all ranks and with loops unrolled, of a plan that can
// be followed.
const MaxSteps = 1 << 18

// Sum is the value of a chunk: the contribution of one rank, or two sums combined.
type Sum struct {
	Left, Right *Sum // nil for a contribution, which is Rank's
	Rank        int
}

// Terms returns the contributions from left to right; nil has none.
func (s *Sum) Terms() []int {
	var terms []int
	if s == nil {
		return nil
	}
	for todo := []*Sum{s}; len(todo) > 0; {
		s := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if s.Left == nil {
			terms = append(terms, s.Rank)
			continue
		}
		todo = append(todo, s.Right, s.Left)
	}
	return terms
}

// Value is the content of a chunk of memory: the chunk of the collective, and whose contributions
// it holds.
type Value struct {
	Chunk plan.Extent
	Sum   *Sum // nil if no step has written it
}

// Move is a step that changed something at a rank. A local step of a rank goes from the rank to
// itself.
type Move struct {
	Round    int // from 1; 0 for steps that precede all messages
	From, To int
	Kind     plan.Kind // send for messages, by whichever kind of step they are received
	Carried  []Value
	Dst      plan.Ref // at To
	Result   []Value  // the content of Dst afterwards
	Reduces  bool
	Final    bool
	Never    bool // it never happens: a lane of a wrong plan waits forever before it
	Blamed   bool // it belongs to a step at fault
}

// Trace is everything that a plan does.
type Trace struct {
	Plan    *plan.Plan
	Rounds  int
	Moves   []Move    // in an order in which they may happen
	Sent    []int     // chunks that each rank sent to others, or that others fetched from its window
	In, Out [][]Value // of each rank: In before, Out after

	Steps, Never int // of a wrong plan: the steps of all ranks, and those that never happen
}

// Run follows a plan. Wrong plans may be followed too, unless they get stuck or read memory that no
// step has written; package verify tells right plans from wrong ones.
func Run(p *plan.Plan) (*Trace, error) { return follow(p, nil) }

// follow is like Run, but given a verdict it follows a wrong plan as far as it gets.
func follow(p *plan.Plan, wrong *Verdict) (*Trace, error) {
	if err := p.Spec.Validate(); err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "plan %q cannot be drawn", p.Name)
	}
	if p.Program == nil {
		return nil, fault.New(fault.Invalid, "plan %q has no programs", p.Name)
	}
	f := &follower{plan: p, wrong: wrong, trace: &Trace{Plan: p, Sent: make([]int, p.Spec.Ranks)},
		messages: map[route][]message{}, signals: map[route][]int{}, unsignalled: map[[2]int]int{}}
	steps := 0
	for r := range p.Spec.Ranks {
		program := p.Program(r)
		if err := p.ValidateProgram(r, &program); err != nil {
			return nil, err
		}
		for _, l := range program.Lanes {
			steps += plan.Len(l)
		}
		if steps > MaxSteps {
			return nil, fault.New(fault.NotSupported,
				"plan %q (%v) is too large to draw: it has more than %d steps; draw it for fewer ranks",
				p.Name, p.Spec, MaxSteps)
		}
		f.add(r, program.Flat())
	}
	if wrong != nil {
		return f.trace, f.followWrong()
	}
	err := f.run()
	if err == nil {
		err = f.ended()
	}
	if err != nil {
		return nil, err
	}
	f.keepOut()
	return f.trace, nil
}

// Contributors returns the number of ranks that contribute to a fully reduced chunk.
func (t *Trace) Contributors() int {
	if t.Plan.Spec.Coll.Reduces() {
		return t.Plan.Spec.Ranks
	}
	return 1
}

// route is a stream of messages or of signals.
type route struct{ from, to, index int }

type message struct {
	by     Place
	round  int
	values []Value
}

type followedLane struct {
	steps []plan.Step
	pc    int
	round int   // of the last step
	ends  []int // the round of each step that has ended
	stuck bool  // the lane stops before step until
	until int
}

type followedRank struct {
	lanes  []followedLane
	memory [4][]Value // by plan.Buffer
}

type follower struct {
	plan        *plan.Plan
	wrong       *Verdict // nil for plans that should be right
	never       bool     // the moves being followed never happen
	trace       *Trace
	ranks       []followedRank
	messages    map[route][]message
	signals     map[route][]int // rounds
	unsignalled map[[2]int]int  // by (from, to): the last round of puts that no signal has followed yet
}

func (f *follower) add(rank int, program plan.Program) {
	var r followedRank
	for _, steps := range program.Lanes {
		r.lanes = append(r.lanes, followedLane{steps: steps})
	}
	in := make([]Value, f.plan.InChunks(rank))
	for i := range in {
		in[i] = Value{f.plan.Extent(rank, &program, plan.In, i), &Sum{Rank: rank}}
	}
	r.memory = [4][]Value{plan.In: in, plan.Out: make([]Value, f.plan.OutChunks(rank)),
		plan.Tmp: make([]Value, len(program.Tmp)), plan.Win: make([]Value, len(program.Win))}
	f.ranks = append(f.ranks, r)
	f.trace.In = append(f.trace.In, in)
}

func (f *follower) run() error {
	for moved := true; moved; {
		moved = false
		for rank := range f.ranks {
			for l := range f.ranks[rank].lanes {
				for lane := &f.ranks[rank].lanes[l]; ; {
					done, err := f.step(Place{rank, l, lane.pc}, lane)
					if err != nil && f.wrong == nil {
						return err
					}
					if err != nil {
						lane.stuck, lane.until = true, lane.pc
					}
					if !done {
						break
					}
					moved = true
				}
			}
		}
	}
	return nil
}

// ended returns an error if some lane has not ended.
func (f *follower) ended() error {
	for rank := range f.ranks {
		for l, lane := range f.ranks[rank].lanes {
			if lane.pc < len(lane.steps) {
				return fault.New(fault.Invalid,
					"plan %q (%v) stops: rank %d waits for ever at step %d of lane %d (%v); goccl verify says why",
					f.plan.Name, f.plan.Spec, rank, lane.pc, l, lane.steps[lane.pc].Kind)
			}
		}
	}
	return nil
}

// keepOut records the current contents of Out.
func (f *follower) keepOut() {
	for r := range f.ranks {
		f.trace.Out = append(f.trace.Out, slices.Clone(f.ranks[r].memory[plan.Out]))
	}
}

// step executes the next step of a lane, which is the one at the given place, if it can run now.
func (f *follower) step(at Place, l *followedLane) (done bool, err error) {
	if l.pc == len(l.steps) || l.stuck && l.pc >= l.until {
		return false, nil
	}
	rank := at.Rank
	s := &l.steps[l.pc]
	start := l.round
	for _, a := range s.After {
		ends := f.ranks[rank].lanes[a.Lane].ends
		if a.Step >= len(ends) {
			return false, nil
		}
		start = max(start, ends[a.Step])
	}
	end := start + 1
	switch s.Kind {
	case plan.Copy, plan.Reduce:
		end = start
		err = f.local(at, s, start)
	case plan.Send:
		var values []Value
		if values, err = f.read(rank, s.Src[0]); err == nil {
			to := route{rank, s.Peer, s.Chan}
			f.messages[to] = append(f.messages[to], message{at, end, values})
			f.trace.Sent[rank] += len(values)
		}
	case plan.Recv, plan.RecvReduce:
		from := route{s.Peer, rank, s.Chan}
		queue := f.messages[from]
		if len(queue) == 0 {
			return false, nil
		}
		f.messages[from] = queue[1:]
		end = max(end, queue[0].round)
		err = f.receive(at, s, queue[0], end)
	case plan.Put, plan.Packet:
		err = f.put(at, s, end)
		if pair := [2]int{rank, s.Peer}; !s.Kind.Traits().Signals {
			f.unsignalled[pair] = max(f.unsignalled[pair], end)
		} else {
			f.signal(rank, s, end)
		}
	case plan.Signal:
		pair := [2]int{rank, s.Peer}
		if put := f.unsignalled[pair]; put > 0 { // the picture shows the put instead of the signal
			end = max(start, put)
			delete(f.unsignalled, pair)
		} else {
			f.record(Move{Round: end, From: rank, To: s.Peer, Kind: plan.Signal}, at)
		}
		f.signal(rank, s, end)
		f.trace.Rounds = max(f.trace.Rounds, end)
		end = start // a signal takes its sender no time: signals to several peers are one round
	case plan.Wait:
		from := route{s.Peer, rank, s.Chan}
		queue := f.signals[from]
		if len(queue) == 0 {
			return false, nil
		}
		f.signals[from] = queue[1:]
		end = max(start, queue[0])
	case plan.Get, plan.GetReduce:
		if end, err = f.get(at, s, start); err != nil {
			return false, err
		}
	}
	if err != nil {
		return false, err
	}
	l.round = end
	l.ends = append(l.ends, end)
	l.pc++
	f.trace.Rounds = max(f.trace.Rounds, end)
	return true, nil
}

func (f *follower) signal(rank int, s *plan.Step, round int) {
	to := route{rank, s.Peer, s.Chan}
	f.signals[to] = append(f.signals[to], round)
}

// read returns the values of a range of a rank's memory.
func (f *follower) read(rank int, r plan.Ref) ([]Value, error) {
	memory := f.ranks[rank].memory[r.Buf]
	if r.At < 0 || r.At+r.N > len(memory) {
		return nil, fault.New(fault.Invalid, "plan %q: rank %d has no %v", f.plan.Name, rank, r)
	}
	values := append([]Value(nil), memory[r.At:r.At+r.N]...)
	for i, v := range values {
		if v.Sum == nil && f.wrong == nil {
			return nil, fault.New(fault.Invalid, "plan %q: %v[%d] of rank %d is read, but nobody wrote it",
				f.plan.Name, r.Buf, r.At+i, rank)
		}
	}
	return values, nil
}

// write stores the result of a move at its target and records the move, which the given steps have
// made.
func (f *follower) write(m Move, by ...Place) error {
	memory := f.ranks[m.To].memory[m.Dst.Buf]
	if m.Dst.At < 0 || m.Dst.At+m.Dst.N > len(memory) || m.Dst.N != len(m.Result) {
		return fault.New(fault.Invalid, "plan %q: %d chunks do not fit into %v of rank %d",
			f.plan.Name, len(m.Result), m.Dst, m.To)
	}
	copy(memory[m.Dst.At:], m.Result)
	f.record(m, by...)
	return nil
}

func (f *follower) record(m Move, by ...Place) {
	m.Never = f.never
	m.Blamed = f.wrong != nil && !f.never && slices.ContainsFunc(by, f.wrong.blames)
	f.trace.Rounds = max(f.trace.Rounds, m.Round)
	f.trace.Moves = append(f.trace.Moves, m)
}

func combine(left, right []Value) []Value {
	sums := make([]Value, len(left))
	for i := range left {
		if left[i].Sum == nil || right[i].Sum == nil {
			continue // only in a wrong plan
		}
		sums[i] = Value{left[i].Chunk, &Sum{Left: left[i].Sum, Right: right[i].Sum}}
	}
	return sums
}

func (f *follower) local(at Place, s *plan.Step, round int) error {
	rank := at.Rank
	values, err := f.read(rank, s.Src[0])
	for _, src := range s.Src[1:] {
		more, failed := f.read(rank, src)
		if err == nil {
			err = failed
		}
		if err == nil {
			values = combine(values, more)
		}
	}
	if err != nil {
		return err
	}
	return f.write(Move{Round: round, From: rank, To: rank, Kind: s.Kind, Carried: values, Dst: s.Dst, Result: values,
		Reduces: s.Kind.Traits().Reduces, Final: s.Final}, at)
}

func (f *follower) receive(at Place, s *plan.Step, msg message, round int) error {
	rank, values := at.Rank, msg.values
	m := Move{Round: round, From: s.Peer, To: rank, Kind: plan.Send, Carried: values, Dst: s.Dst, Result: values,
		Final: s.Final}
	if s.Kind.Traits().Reduces {
		own, err := f.read(rank, s.Src[0])
		if err != nil {
			return err
		}
		if len(own) != len(values) {
			return fault.New(fault.Invalid, "plan %q: rank %d adds %d chunks to %d",
				f.plan.Name, rank, len(values), len(own))
		}
		m.Reduces = true
		if m.Result = combine(own, values); s.MsgFirst {
			m.Result = combine(values, own)
		}
	}
	return f.write(m, at, msg.by)
}

func (f *follower) put(at Place, s *plan.Step, round int) error {
	rank := at.Rank
	values, err := f.read(rank, s.Src[0])
	if err != nil {
		return err
	}
	f.trace.Sent[rank] += len(values)
	return f.write(Move{Round: round, From: rank, To: s.Peer, Kind: s.Kind, Carried: values, Dst: s.Dst,
		Result: values, Final: s.Final}, at)
}

// get reads from windows. If all of them are this rank's own, there is no message.
func (f *follower) get(at Place, s *plan.Step, start int) (end int, err error) {
	rank := at.Rank
	type source struct {
		from   int
		values []Value
	}
	var sources []source
	var result []Value
	end = start
	for i, src := range s.Src {
		from := s.Peer
		if s.Kind.Traits().From {
			from = s.From[i]
		}
		values, err := f.read(from, src)
		if err != nil {
			return 0, err
		}
		if from != rank {
			end = start + 1
			f.trace.Sent[from] += len(values)
			sources = append(sources, source{from, values})
		}
		if i == 0 {
			result = values
		} else {
			result = combine(result, values)
		}
	}
	if len(sources) == 0 {
		sources = []source{{rank, result}}
	}
	for _, src := range sources {
		if err := f.write(Move{Round: end, From: src.from, To: rank, Kind: s.Kind, Carried: src.values,
			Dst: s.Dst, Result: result, Reduces: s.Kind.Traits().Reduces, Final: s.Final}, at); err != nil {
			return 0, err
		}
	}
	return end, nil
}

// perBlock reports whether the chunks of a collective are told apart by their blocks.
func perBlock(c dtype.Collective) bool {
	switch c {
	case dtype.Scatter, dtype.Gather, dtype.AllGather, dtype.ReduceScatter, dtype.AllToAll:
		return true
	}
	return false
}
