package algo

import "github.com/goccl/goccl/ccl/plan"

// scheme is a way in which a group reduces a piece such that member i has part i of the sum, and in
// which it puts the parts together again.
type scheme struct {
	lanes         int
	reduceScatter func(b *lanes, g group, p piece, from plan.Buffer, final bool)
	allGather     func(b *lanes, g group, p piece)
	tmp           func(groups []group, p piece) []plan.Extent
}

// allReduce returns the program that reduces a block of the given number of chunks over groups.
func (f scheme) allReduce(groups []group, chunks int) plan.Program {
	block := piece{0, chunks}
	var tmp []plan.Extent
	if f.tmp != nil {
		tmp = f.tmp(groups, block)
	}
	b := newLanes(f.lanes, chunks, tmp...)
	f.over(b, groups, block, plan.In)
	return b.program()
}

// over reduces a piece, whose contributions are in buffer from, over the groups one by one. Each
// group reduces the part that this rank has from the group before. Then it goes back through the
// groups to put the parts together.
func (f scheme) over(b *lanes, groups []group, p piece, from plan.Buffer) {
	pieces := make([]piece, len(groups))
	for i, g := range groups {
		pieces[i] = p
		f.reduceScatter(b, g, p, from, i == len(groups)-1)
		p, from = p.part(g.pos, g.size), plan.Out
	}
	for i := len(groups) - 1; i >= 0; i-- {
		f.allGather(b, groups[i], pieces[i])
	}
}

// exchange is the scheme in which every member sends to every other member, and reduces in the
// order of the members.
var exchange = scheme{2, exchangeReduceScatter, exchangeAllGather, exchangeTmp}

// exchangeTmp returns the Tmp that exchange needs over groups: the largest part whose reduction
// begins with two messages.
func exchangeTmp(groups []group, p piece) []plan.Extent {
	for _, g := range groups {
		if p = p.part(g.pos, g.size); g.pos > 1 {
			return p.lengths()
		}
	}
	return nil
}

func exchangeReduceScatter(b *lanes, g group, p piece, from plan.Buffer, final bool) {
	for k := 1; k < g.size; k++ {
		b.add(sending, send(p.part(g.pos+k, g.size).of(from), g.rank(g.pos+k)))
	}
	own := p.part(g.pos, g.size)
	start := piece{0, own.n}
	if len(b.tmp) > 0 {
		start.at = own.at - b.tmp[0].Part // Tmp is a part that contains this one
	}
	b.reduceInOrder(g, start.of(plan.Tmp), own.of(plan.Out), own.of(from), final)
}

// reduceInOrder receives a message from each other member of a group and reduces the messages and
// own, from left to right in the order of the members. The partial sum is in start until own is
// added, then in dst.
func (b *lanes) reduceInOrder(g group, start, dst, own plan.Ref, final bool) {
	for i := range g.size {
		var step plan.Step
		switch {
		case i == g.pos && i > 1:
			step = reduce(dst, start, own)
		case i == 0 && g.pos < 2:
			continue // the next step takes this operand too
		case i == 1 && g.pos == 1:
			step = msgReduce(dst, own, g.rank(0))
		case i == 0:
			step = recv(start, g.rank(i))
		case i == 1 && g.pos == 0:
			step = recvReduce(dst, own, g.rank(i))
		case i < g.pos:
			step = recvReduce(start, start, g.rank(i))
		default:
			step = recvReduce(dst, dst, g.rank(i))
		}
		step.Final = final && i == g.size-1
		b.add(receiving, step)
	}
}

func exchangeAllGather(b *lanes, g group, p piece) {
	for k := 1; k < g.size; k++ {
		b.add(sending, send(p.part(g.pos, g.size).of(plan.Out), g.rank(g.pos+k)))
		b.add(receiving, recv(p.part(g.pos-k, g.size).of(plan.Out), g.rank(g.pos-k)))
	}
}
