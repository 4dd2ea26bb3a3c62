package verify_test

import (
	"fmt"
	"math/rand/v2"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/plan"
)

// Factors that stand for the scaling of PremulSum and Avg.
const (
	preScale  = 3
	postScale = 5
)

// interpreter executes a plan on integers, element by element, in a random interleaving, with
// random lengths of blocks and bounded room for messages, or none: then a send ends when its
// message was taken. One lane may be starved: it moves only when no other lane can. Like the
// executor, the interpreter starts a send while the recv that writes its source is running, and
// moves it along behind the recv; all other dependences are on whole steps.
type interpreter struct {
	plan    *plan.Plan
	rng     *rand.Rand
	inPlace bool
	room    int
	strict  bool // a send ends only when its whole message was taken
	ranks   []*machine
	streams map[[3]int]*stream // by from, to, channel: the length of each message, then its elements
	flags   map[[3]int]*[]int  // by from, to, flag: for each signal, the number of puts that it makes visible
	puts    map[[2]int][]late  // by from, to: puts that are not visible yet
	now     int
	along   int // actions of sends while the recv that writes their source was still running
}

// late is an element of a put.
type late struct {
	at *int64
	v  int64
}

// stream holds the numbers in flight, and counts all that were ever put in and taken out.
type stream struct {
	queue         []int64
	pushed, taken int
}

func (s *stream) push(v int64) {
	s.queue = append(s.queue, v)
	s.pushed++
}

func (s *stream) pop() int64 {
	v := s.queue[0]
	s.queue = s.queue[1:]
	s.taken++
	return v
}

type machine struct {
	rank          int
	prog          plan.Program
	buffers       [4][][]int64 // chunks
	lanes         []cursor
	first, lastly int // moments of the first and the last action
}

// cursor is the state of a lane: its step, whether the step has begun (for messages: the length has
// passed), and the number of elements done.
type cursor struct {
	pc, done int
	begun    bool
	sent     int // of a send that has sent everything: the value of pushed of its stream at that time
}

func newInterpreter(p *plan.Plan, rng *rand.Rand, inPlace bool) *interpreter {
	x := &interpreter{plan: p, rng: rng, inPlace: inPlace, room: 1 + rng.IntN(4)*rng.IntN(8),
		streams: map[[3]int]*stream{}, flags: map[[3]int]*[]int{}, puts: map[[2]int][]late{}}
	if rng.IntN(4) == 0 {
		x.room, x.strict = 1, true
	}
	lengths := map[plan.Extent]int{}
	chunk := func(rank int, prog *plan.Program, b plan.Buffer, i int) []int64 {
		e := p.Extent(rank, prog, b, i)
		if inPlace && e.From > e.To { // the received and the sent block have the same memory, and so one length
			e.From, e.To = e.To, e.From
		}
		n, ok := lengths[e]
		if !ok {
			n = 1 + rng.IntN(3)
			if rng.IntN(8) == 0 {
				n = 0
			}
			lengths[e] = n
		}
		c := make([]int64, n)
		for i := range c {
			c[i] = rng.Int64()
		}
		return c
	}
	for rank := range p.Spec.Ranks {
		m := &machine{rank: rank, prog: unrolled(p.Program(rank)), first: -1}
		for i := range p.InChunks(rank) {
			m.buffers[plan.In] = append(m.buffers[plan.In], chunk(rank, &m.prog, plan.In, i))
		}
		for i := range p.OutChunks(rank) {
			m.buffers[plan.Out] = append(m.buffers[plan.Out], chunk(rank, &m.prog, plan.Out, i))
		}
		for i := range m.prog.Tmp {
			m.buffers[plan.Tmp] = append(m.buffers[plan.Tmp], chunk(rank, &m.prog, plan.Tmp, i))
		}
		for i := range m.prog.Win {
			m.buffers[plan.Win] = append(m.buffers[plan.Win], chunk(rank, &m.prog, plan.Win, i))
		}
		if ins, outs := m.buffers[plan.In], m.buffers[plan.Out]; inPlace && len(ins) > 0 && len(outs) > 0 {
			long, short := ins, outs
			if len(outs) > len(ins) {
				long, short = outs, ins
			}
			own := 0
			if len(long) > len(short) {
				own = rank * p.Split
			}
			for i := range short {
				copy(long[own+i], ins[min(i, len(ins)-1)])
				short[i] = long[own+i]
			}
		}
		m.lanes = make([]cursor, len(m.prog.Lanes))
		x.ranks = append(x.ranks, m)
	}
	return x
}

// run executes the plan and returns the first failure.
func (x *interpreter) run() error {
	want := x.expected()
	var before [][][]int64 // In, to check that it does not change
	for _, m := range x.ranks {
		before = append(before, clone(m.buffers[plan.In]))
	}
	type position struct {
		m    *machine
		lane int
	}
	var all []position
	for _, m := range x.ranks {
		for l := range m.lanes {
			all = append(all, position{m, l})
		}
	}
	starved := -1
	if len(all) > 0 && x.rng.IntN(2) == 0 {
		starved = x.rng.IntN(len(all))
	}
	for moved := len(all) > 0; moved; {
		moved = false
		first := x.rng.IntN(len(all))
		for i := 0; i < len(all) && !moved; i++ {
			at := (first + i) % len(all)
			for p := all[at]; at != starved && x.move(p.m, p.lane); {
				moved = true
				if x.rng.IntN(4) == 0 {
					break
				}
			}
		}
		moved = moved || starved >= 0 && x.move(all[starved].m, all[starved].lane)
	}
	for _, m := range x.ranks {
		for l, c := range m.lanes {
			if c.pc < len(m.prog.Lanes[l]) {
				return fmt.Errorf("stuck at rank %d lane %d step %d", m.rank, l, c.pc)
			}
		}
	}
	for key, s := range x.streams {
		if len(s.queue) > 0 {
			return fmt.Errorf("a message is left from %d to %d", key[0], key[1])
		}
	}
	for key, s := range x.flags {
		if len(*s) > 0 {
			return fmt.Errorf("a signal is left from %d to %d", key[0], key[1])
		}
	}
	for key, puts := range x.puts {
		if len(puts) > 0 {
			return fmt.Errorf("what rank %d put arrives when rank %d has ended", key[0], key[1])
		}
	}
	return x.compare(want, before)
}

func (x *interpreter) compare(want, before [][][]int64) error {
	for r, m := range x.ranks {
		for i, c := range m.buffers[plan.Out] {
			if fmt.Sprint(c) != fmt.Sprint(want[r][i]) {
				return fmt.Errorf("rank %d: out[%d] is %v, want %v", r, i, c, want[r][i])
			}
		}
		if !x.inPlace && fmt.Sprint(m.buffers[plan.In]) != fmt.Sprint(before[r]) {
			return fmt.Errorf("rank %d: in has changed", r)
		}
		for _, other := range x.ranks {
			if x.plan.Spec.Coll == dtype.Barrier && len(m.lanes) > 0 && m.lastly < other.first {
				return fmt.Errorf("rank %d left before rank %d came", r, other.rank)
			}
		}
	}
	return nil
}

// expected returns Out of all ranks as the collective defines it.
func (x *interpreter) expected() [][][]int64 {
	var all [][][]int64
	p, split := x.plan, x.plan.Split
	in := func(rank, chunk int) []int64 { return x.ranks[rank].buffers[plan.In][chunk] }
	sum := func(chunk int) []int64 {
		s := make([]int64, len(in(0, chunk)))
		for r := range x.ranks {
			for i, e := range in(r, chunk) {
				s[i] += e * preScale * postScale
			}
		}
		return s
	}
	for r := range x.ranks {
		var out [][]int64
		for i := range p.OutChunks(r) {
			block, part := i/split, i%split
			var c []int64
			switch p.Spec.Coll {
			case dtype.Broadcast:
				c = in(p.Spec.Root, i)
			case dtype.Scatter:
				c = in(p.Spec.Root, r*split+part)
			case dtype.Gather, dtype.AllGather:
				c = in(block, part)
			case dtype.AllToAll:
				c = in(block, r*split+part)
			case dtype.ReduceScatter:
				c = sum(r*split + part)
			default:
				c = sum(i)
			}
			out = append(out, c)
		}
		all = append(all, clone(out))
	}
	return all
}

func clone(chunks [][]int64) [][]int64 {
	var all [][]int64
	for _, c := range chunks {
		all = append(all, append([]int64(nil), c...))
	}
	return all
}

// move executes one elementary action of a lane, if it can.
func (x *interpreter) move(m *machine, l int) bool {
	c := &m.lanes[l]
	if c.pc == len(m.prog.Lanes[l]) {
		return false
	}
	s := &m.prog.Lanes[l][c.pc]
	behind := 0
	for _, a := range s.After {
		writer, w := &m.prog.Lanes[a.Lane][a.Step], m.lanes[a.Lane]
		receives := writer.Kind == plan.Recv || writer.Kind == plan.RecvReduce
		along := s.Kind == plan.Send && receives && s.Src[0] == writer.Dst && w.pc == a.Step && w.begun &&
			(!c.begun || w.done > c.done)
		if w.pc <= a.Step && !along {
			return false
		}
		if w.pc <= a.Step {
			behind++
		}
	}
	if !x.act(m, c, s) {
		return false
	}
	x.along += min(behind, 1)
	x.now++
	if m.first < 0 {
		m.first = x.now
	}
	m.lastly = x.now
	return true
}

// act executes the action of move once its dependences are met.
func (x *interpreter) act(m *machine, c *cursor, s *plan.Step) bool {
	var stream *stream
	dst := s.Dst
	switch s.Kind {
	case plan.Send:
		dst = s.Src[0]
		stream = x.stream(m.rank, s.Peer, s.Chan)
		if len(stream.queue) >= x.room && !(x.strict && c.sent > 0) {
			return false
		}
	case plan.Recv, plan.RecvReduce:
		stream = x.stream(s.Peer, m.rank, s.Chan)
		if len(stream.queue) == 0 {
			return false
		}
	}
	switch s.Kind {
	case plan.Wait:
		if !x.wait(m.rank, s) {
			return false
		}
	case plan.Put, plan.Packet:
		dst = s.Src[0]
	}
	total := 0
	for i := range dst.N {
		total += len(m.buffers[dst.Buf][dst.At+i])
	}
	acted := true
	switch {
	case !c.begun:
		c.begun = true
		if s.Kind == plan.Send {
			stream.push(int64(total))
		} else if stream != nil {
			if stream.queue[0] != int64(total) {
				c.begun = false
				return false // another length: stuck forever
			}
			stream.pop()
		}
	case c.done < total:
		x.element(m, s, c.done, stream)
		c.done++
	default:
		acted = false
	}
	if c.done == total {
		if acted && s.Kind == plan.Send {
			c.sent = stream.pushed
		}
		if x.strict && s.Kind == plan.Send && stream.taken < c.sent {
			return acted
		}
		if s.Kind == plan.Signal || s.Kind == plan.Packet {
			f := x.flag(m.rank, s.Peer, s.Chan)
			*f = append(*f, len(x.puts[[2]int{m.rank, s.Peer}]))
		}
		*c = cursor{pc: c.pc + 1}
	}
	return true
}

// element executes a step for one element.
func (x *interpreter) element(m *machine, s *plan.Step, i int, stream *stream) {
	switch s.Kind {
	case plan.Send:
		stream.push(x.read(m, s.Src[0], i))
		return
	case plan.Copy:
		if !x.plan.Spec.Coll.Reduces() && m.address(s.Dst, i) == m.address(s.Src[0], i) {
			return
		}
	}
	var v int64
	if stream != nil {
		v = stream.pop()
	}
	for k, src := range s.Src {
		from := m
		switch s.Kind {
		case plan.Get:
			from = x.ranks[s.Peer]
		case plan.GetReduce:
			from = x.ranks[s.From[k]]
		}
		v += x.read(from, src, i)
	}
	if s.Kind == plan.Put || s.Kind == plan.Packet {
		x.put(m.rank, s.Peer, late{x.ranks[s.Peer].address(s.Dst, i), v})
		return
	}
	if s.Final {
		v *= postScale
	}
	*m.address(s.Dst, i) = v
}

func (x *interpreter) read(m *machine, r plan.Ref, i int) int64 {
	v := *m.address(r, i)
	if r.Buf == plan.In && x.plan.Spec.Coll.Reduces() {
		v *= preScale
	}
	return v
}

// address returns the address of element i of a Ref.
func (m *machine) address(r plan.Ref, i int) *int64 {
	for _, c := range m.buffers[r.Buf][r.At : r.At+r.N] {
		if i < len(c) {
			return &c[i]
		}
		i -= len(c)
	}
	panic("beyond the end of " + r.String())
}

func (x *interpreter) stream(from, to, channel int) *stream {
	key := [3]int{from, to, channel}
	if x.streams[key] == nil {
		x.streams[key] = &stream{}
	}
	return x.streams[key]
}

// put lets an element arrive at once, or only when the target waits for it.
func (x *interpreter) put(from, to int, e late) {
	key := [2]int{from, to}
	if len(x.puts[key]) == 0 && x.rng.IntN(2) == 0 {
		*e.at = e.v
		return
	}
	x.puts[key] = append(x.puts[key], e)
}

// wait takes a signal, if there is one, and lets the puts before it arrive.
func (x *interpreter) wait(rank int, s *plan.Step) bool {
	f := x.flag(s.Peer, rank, s.Chan)
	if len(*f) == 0 {
		return false
	}
	key := [2]int{s.Peer, rank}
	n := (*f)[0]
	*f = (*f)[1:]
	for _, e := range x.puts[key][:n] {
		*e.at = e.v
	}
	x.puts[key] = x.puts[key][n:]
	for other, f := range x.flags {
		if other[0] == s.Peer && other[1] == rank {
			for i := range *f {
				(*f)[i] = max((*f)[i]-n, 0)
			}
		}
	}
	return true
}

func (x *interpreter) flag(from, to, flag int) *[]int {
	key := [3]int{from, to, flag}
	if x.flags[key] == nil {
		x.flags[key] = new([]int)
	}
	return x.flags[key]
}
