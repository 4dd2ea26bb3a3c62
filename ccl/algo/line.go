package algo

import "github.com/goccl/goccl/ccl/plan"

// line is the scheme in which members exchange messages with their neighbours only, and the first
// and the last member are not neighbours. Each part goes from both ends to the member that it
// belongs to, or from that member to both ends. Messages up (to higher members) and messages down
// have lanes of their own.
var line = scheme{4, lineReduceScatter, lineAllGather, nil}

// The lanes of line.
const (
	sendingUp = iota
	receivingUp
	sendingDown
	receivingDown
)

// lineReduceScatter sends the part with the longest way first, so that all parts have arrived after
// size-1 steps. A part passes a member either up or down, not both, so its partial sum can be in
// Out.
func lineReduceScatter(b *lanes, g group, p piece, from plan.Buffer, final bool) {
	have := func(i int) plan.Ref { return p.part(i, g.size).of(from) }
	to := func(i int) plan.Ref { return p.part(i, g.size).of(plan.Out) }
	first, last := g.pos == 0, g.pos == g.size-1
	for i := g.size - 1; i > g.pos; i-- {
		up := have(i)
		if !first {
			up = to(i)
			b.add(receivingUp, msgReduce(up, have(i), g.rank(g.pos-1)))
		}
		b.add(sendingUp, send(up, g.rank(g.pos+1)))
	}
	for i := range g.pos {
		down := have(i)
		if !last {
			down = to(i)
			b.add(receivingDown, recvReduce(down, have(i), g.rank(g.pos+1)))
		}
		b.add(sendingDown, send(down, g.rank(g.pos-1)))
	}
	own := have(g.pos)
	if !first {
		step := msgReduce(to(g.pos), own, g.rank(g.pos-1))
		step.Final = final && last
		b.add(receivingUp, step)
		own = to(g.pos)
	}
	if !last {
		step := recvReduce(to(g.pos), own, g.rank(g.pos+1))
		step.Final = final
		b.add(receivingDown, step)
	}
}

func lineAllGather(b *lanes, g group, p piece) {
	to := func(i int) plan.Ref { return p.part(i, g.size).of(plan.Out) }
	for i := g.pos; i >= 0; i-- {
		if i < g.pos {
			b.add(receivingUp, recv(to(i), g.rank(g.pos-1)))
		}
		if g.pos < g.size-1 {
			b.add(sendingUp, send(to(i), g.rank(g.pos+1)))
		}
	}
	for i := g.pos; i < g.size; i++ {
		if i > g.pos {
			b.add(receivingDown, recv(to(i), g.rank(g.pos+1)))
		}
		if g.pos > 0 {
			b.add(sendingDown, send(to(i), g.rank(g.pos-1)))
		}
	}
}
