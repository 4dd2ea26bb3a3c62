package plan

import (
	"fmt"
	"strconv"
	"strings"
)

// TextFormat is the version of what Text writes.
const TextFormat = 1

// Text is the plan in readable form, for the ranks given or for all. It holds everything that the plan holds, so that
// it can be parsed back:
//
//	goccl plan format 1
//	plan NAME COLLECTIVE ranks=N [root=R] split=N chans=N alias=none|in_place
//	rank R
//	  tmp REF…                     the lengths of its chunks, in order
//	  lane L
//	    I STEP [final] [after L.I…]
//
// where STEP is one of
//
//	copy REF = REF
//	reduce REF = REF + REF…
//	send REF to RANK [chan N]
//	recv REF from RANK [chan N]
//	recvreduce REF = REF + msg from RANK [chan N]
//	recvreduce REF = msg + REF from RANK [chan N]
//
// and REF is in[I], or in[I:J] for chunks I up to J without J, or the same of out or tmp.
func (p *Plan) Text(ranks ...int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "goccl plan format %d\n", TextFormat)
	fmt.Fprintf(&b, "plan %s %v ranks=%d", p.Name, p.Spec.Coll, p.Spec.Ranks)
	if p.Spec.Coll.Rooted() {
		fmt.Fprintf(&b, " root=%d", p.Spec.Root)
	}
	fmt.Fprintf(&b, " split=%d chans=%d alias=%v\n", p.Split, p.Chans, p.Alias)
	if len(ranks) > 0 {
		for _, r := range ranks {
			p.writeRank(&b, r)
		}
		return b.String()
	}
	for r := range p.Spec.Ranks {
		p.writeRank(&b, r)
	}
	return b.String()
}

func (a Alias) String() string {
	switch a {
	case 0:
		return "none"
	case InPlace:
		return "in_place"
	}
	return fmt.Sprintf("alias(%d)", uint8(a))
}

func (p *Plan) writeRank(b *strings.Builder, rank int) {
	prog := p.Program(rank)
	fmt.Fprintf(b, "rank %d\n", rank)
	if len(prog.Tmp) > 0 {
		b.WriteString("  tmp")
		for _, r := range runs(prog.Tmp) {
			b.WriteString(" " + r.String())
		}
		b.WriteString("\n")
	}
	for l, lane := range prog.Lanes {
		fmt.Fprintf(b, "  lane %d\n", l)
		for i := range lane {
			fmt.Fprintf(b, "    %d %v\n", i, &lane[i])
		}
	}
}

// runs joins neighbouring chunks that follow each other.
func runs(refs []Ref) []Ref {
	var out []Ref
	for _, r := range refs {
		if n := len(out); n > 0 && out[n-1].Buf == r.Buf && out[n-1].At+out[n-1].N == r.At {
			out[n-1].N += r.N
			continue
		}
		out = append(out, r)
	}
	return out
}

// String is the line of Text for a step that Validate accepts.
func (s *Step) String() string {
	var b strings.Builder
	b.WriteString(s.Kind.String() + " ")
	switch s.Kind {
	case Copy, Reduce:
		b.WriteString(s.Dst.String() + " = " + sum(s.Src))
	case Send:
		b.WriteString(s.Src[0].String() + " to ")
	case Recv:
		b.WriteString(s.Dst.String() + " from ")
	case RecvReduce:
		if s.MsgFirst {
			b.WriteString(s.Dst.String() + " = msg + " + s.Src[0].String() + " from ")
		} else {
			b.WriteString(s.Dst.String() + " = " + s.Src[0].String() + " + msg from ")
		}
	}
	if s.Kind != Copy && s.Kind != Reduce {
		b.WriteString(strconv.Itoa(s.Peer))
		if s.Chan != 0 {
			b.WriteString(" chan " + strconv.Itoa(s.Chan))
		}
	}
	if s.Final {
		b.WriteString(" final")
	}
	for i, a := range s.After {
		if i == 0 {
			b.WriteString(" after")
		}
		fmt.Fprintf(&b, " %d.%d", a.Lane, a.Step)
	}
	return b.String()
}

func sum(refs []Ref) string {
	words := make([]string, len(refs))
	for i, r := range refs {
		words[i] = r.String()
	}
	return strings.Join(words, " + ")
}
