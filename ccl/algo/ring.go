package algo

import "github.com/goccl/goccl/ccl/plan"

// ring is the scheme in which each member sends to the next member and receives from the one
// before, and the last member sends to the first. The partial sums are in Out.
var ring = scheme{2, ringReduceScatter, ringAllGather, nil}

func ringReduceScatter(b *lanes, g group, p piece, from plan.Buffer, final bool) {
	left, right := g.rank(g.pos-1), g.rank(g.pos+1)
	b.add(sending, send(p.part(g.pos-1, g.size).of(from), right))
	for k := 2; k <= g.size; k++ {
		part := p.part(g.pos-k, g.size)
		step := passOn(g.pos, part.of(plan.Out), part.of(from), left)
		step.Final = final && k == g.size
		b.add(receiving, step)
		if k < g.size {
			b.add(sending, send(part.of(plan.Out), right))
		}
	}
}

func ringAllGather(b *lanes, g group, p piece) {
	for k := range g.size - 1 {
		b.add(sending, send(p.part(g.pos-k, g.size).of(plan.Out), g.rank(g.pos+1)))
		b.add(receiving, recv(p.part(g.pos-k-1, g.size).of(plan.Out), g.rank(g.pos-1)))
	}
}

// circle is a ring all-reduce of all ranks, as loops. Its programs have the same number of steps
// for any number of ranks.
type circle struct {
	ranks    int
	way      int // 1: to the next higher rank, -1: to the next lower one
	first    int // first chunk of the ring; its other chunks follow
	segments int // chunks of the plan in a chunk of the ring
	lane     int // lane that sends; the next lane receives
	channel  int
}

// steps returns the sending and the receiving lane of a rank. The rank sends chunk rank first, and
// then the chunks that it receives. It receives and reduces the chunks from rank-way down to
// rank+way, and then receives results from chunk rank down.
func (c circle) steps(rank int) (sends, recvs []plan.Step) {
	n, s := c.ranks, c.segments
	left, right := wrap(rank-c.way, n), wrap(rank+c.way, n)
	chunk := func(buf plan.Buffer, ring, segment int) plan.Ref {
		return plan.Ref{Buf: buf, At: c.first + wrap(ring, n)*s + segment, N: 1}
	}
	var pass, sums, results, arrive []plan.Step
	for i := range s {
		next := plan.Stride{By: -c.way * s, Low: c.first + i, Mod: n * s}
		start := send(chunk(plan.In, rank, i), right)
		sends = append(sends, start)

		step := send(chunk(plan.Out, rank-c.way, i), right, plan.Point{Lane: c.lane + 1, Step: i})
		step.By = &plan.Advance{Src: []plan.Stride{next}, After: []int{s}}
		pass = append(pass, step)

		step = passOn(rank, chunk(plan.Out, rank-c.way, i), chunk(plan.In, rank-c.way, i), left)
		step.By = &plan.Advance{Dst: next, Src: []plan.Stride{next}}
		sums = append(sums, step)

		step = passOn(rank, chunk(plan.Out, rank+c.way, i), chunk(plan.In, rank+c.way, i), left)
		step.Final = true
		results = append(results, step)

		step = recv(chunk(plan.Out, rank, i), left, plan.Point{Lane: c.lane, Step: i})
		step.By = &plan.Advance{Dst: next, After: []int{s}}
		arrive = append(arrive, step)
	}
	sends = append(sends, loop(2*n-3, pass)...)
	recvs = append(recvs, loop(n-2, sums)...)
	recvs = append(recvs, results...)
	recvs = append(recvs, loop(n-1, arrive)...)
	for _, lane := range [][]plan.Step{sends, recvs} {
		for i := range lane {
			onChannel(&lane[i], c.channel)
		}
	}
	return sends, recvs
}

func onChannel(s *plan.Step, channel int) {
	s.Chan = channel
	if s.Kind == plan.Loop {
		s.Chan = 0
	}
	for i := range s.Body {
		onChannel(&s.Body[i], channel)
	}
}
