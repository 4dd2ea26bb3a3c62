package plan

import (
	"hash/fnv"
	"strconv"
)

// TextFormat is the version of the format that Text writes and Parse reads; PLAN.md has the grammar
// and the history.
const TextFormat = 2

// Text returns the plan in readable form, for the given ranks or for all. The text of all ranks
// holds everything that the plan holds; Parse reads it back:
//
//	goccl plan format 2
//	plan NAME COLLECTIVE ranks=N [root=R] [shape=AxB] split=N chans=N flags=N win=N
//	  needs=A+B alias=A [bytes=MIN..MAX]
//	rank R
//	  tmp LENGTHS                  of its chunks, in order
//	  win LENGTHS
//	  lane L
//	    I STEP
//
// The keys of the plan are on one line. PLAN.md has the grammar. The number I of a step counts
// loops unrolled, as do the points behind "after". Validate must accept the programs.
func (p *Plan) Text(ranks ...int) string {
	b := p.appendHead(nil)
	if len(ranks) > 0 {
		for _, r := range ranks {
			b = p.appendRank(b, r)
		}
		return string(b)
	}
	for r := range p.Spec.Ranks {
		b = p.appendRank(b, r)
	}
	return string(b)
}

// Hash returns the FNV-1a hash of the Text of all ranks. Plans with the same hash have the same
// text, barring collisions.
func (p *Plan) Hash() uint64 {
	h := fnv.New64a()
	b := p.appendHead(nil)
	h.Write(b)
	for r := range p.Spec.Ranks {
		b = p.appendRank(b[:0], r)
		h.Write(b)
	}
	return h.Sum64()
}

func (p *Plan) appendHead(b []byte) []byte {
	key := func(name string, n int) {
		b = append(b, name...)
		b = strconv.AppendInt(b, int64(n), 10)
	}
	key("goccl plan format ", TextFormat)
	b = append(b, "\nplan "+p.Name+" "+p.Spec.Coll.String()...)
	key(" ranks=", p.Spec.Ranks)
	if p.Spec.Coll.Rooted() {
		key(" root=", p.Spec.Root)
	}
	if p.Spec.Shape != (Shape{}) {
		b = append(b, " shape="+p.Spec.Shape.String()...)
	}
	key(" split=", p.Split)
	key(" chans=", p.Chans)
	key(" flags=", p.Flags)
	key(" win=", p.Win)
	b = append(b, " needs="+p.Needs.String()+" alias="+p.Alias.String()...)
	if p.MinBytes != 0 || p.MaxBytes != 0 {
		b = append(b, " bytes="...)
		b = append(strconv.AppendInt(b, p.MinBytes, 10), ".."...)
		if p.MaxBytes != 0 {
			b = strconv.AppendInt(b, p.MaxBytes, 10)
		}
	}
	return append(b, '\n')
}

func (p *Plan) appendRank(b []byte, rank int) []byte {
	prog := p.Program(rank)
	b = append(strconv.AppendInt(append(b, "rank "...), int64(rank), 10), '\n')
	b = appendLengths(b, "  tmp", prog.Tmp)
	b = appendLengths(b, "  win", prog.Win)
	for l, lane := range prog.Lanes {
		b = append(strconv.AppendInt(append(b, "  lane "...), int64(l), 10), '\n')
		n := 0
		for i := range lane {
			s := &lane[i]
			b = appendLine(b, "    ", n, s)
			if s.Kind != Loop {
				n++
				continue
			}
			for j := range s.Body {
				b = appendLine(b, "      ", n+j, &s.Body[j])
			}
			n += s.Times * len(s.Body)
		}
	}
	return b
}

func appendLine(b []byte, indent string, n int, s *Step) []byte {
	b = strconv.AppendInt(append(b, indent...), int64(n), 10)
	return append(s.append(append(b, ' ')), '\n')
}

func appendLengths(b []byte, name string, list []Extent) []byte {
	if len(list) == 0 {
		return b
	}
	b = append(b, name...)
	for _, r := range compress(list) {
		b = r.append(append(b, ' '))
	}
	return append(b, '\n')
}

// String returns the line of Text for a step that Validate accepts; for a loop, the line of the
// loop itself.
func (s *Step) String() string { return string(s.append(nil)) }

func (s *Step) append(b []byte) []byte {
	b = append(b, s.Kind.String()...)
	b = append(b, ' ')
	by := s.By
	if by == nil {
		by = &Advance{}
	}
	switch s.Kind {
	case Copy, Reduce:
		b = s.appendSum(s.appendDst(b, by), by)
	case Send:
		b = s.appendPeer(append(s.appendSource(b, 0, by), " to "...), by)
	case Recv:
		b = s.appendPeer(append(s.Dst.append(b, by.Dst), " from "...), by)
	case RecvReduce:
		b = s.appendDst(b, by)
		if s.MsgFirst {
			b = s.appendSource(append(b, "msg + "...), 0, by)
		} else {
			b = append(s.appendSource(b, 0, by), " + msg"...)
		}
		b = s.appendPeer(append(b, " from "...), by)
	case Put, Packet:
		b = s.appendPeer(append(s.Dst.append(b, by.Dst), '@'), by)
		b = s.appendSource(append(b, " = "...), 0, by)
	case Get:
		b = s.appendSource(s.appendDst(b, by), 0, by)
		b = s.appendPeer(append(b, '@'), by)
	case GetReduce:
		b = s.appendSum(s.appendDst(b, by), by)
	case Signal, Wait:
		b = s.appendPeer(b, by)
	case Loop:
		b = strconv.AppendInt(b, int64(s.Times), 10)
	}
	if s.Chan != 0 {
		word := " flag "
		if s.Kind.Traits().Message() {
			word = " chan "
		}
		b = strconv.AppendInt(append(b, word...), int64(s.Chan), 10)
	}
	if s.Final {
		b = append(b, " final"...)
	}
	for i, a := range s.After {
		if i == 0 {
			b = append(b, " after"...)
		}
		b = strconv.AppendInt(append(b, ' '), int64(a.Lane), 10)
		b = strconv.AppendInt(append(b, '.'), int64(a.Step), 10)
		if by.After != nil && by.After[i] != 0 {
			b = strconv.AppendInt(append(b, " by "...), int64(by.After[i]), 10)
		}
	}
	return b
}

func (s *Step) appendDst(b []byte, by *Advance) []byte {
	return append(s.Dst.append(b, by.Dst), " = "...)
}

func (s *Step) appendPeer(b []byte, by *Advance) []byte {
	return by.Peer.append(strconv.AppendInt(b, int64(s.Peer), 10))
}

func (s *Step) appendSource(b []byte, i int, by *Advance) []byte {
	var stride Stride
	if by.Src != nil {
		stride = by.Src[i]
	}
	return s.Src[i].append(b, stride)
}

func (s *Step) appendSum(b []byte, by *Advance) []byte {
	for i := range s.Src {
		if i > 0 {
			b = append(b, " + "...)
		}
		b = s.appendSource(b, i, by)
		if s.Kind.Traits().From && s.Src[i].Buf == Win {
			b = strconv.AppendInt(append(b, '@'), int64(s.From[i]), 10)
			if by.From != nil {
				b = by.From[i].append(b)
			}
		}
	}
	return b
}

func (r Ref) append(b []byte, by Stride) []byte {
	b = append(append(b, r.Buf.String()...), '[')
	b = strconv.AppendInt(b, int64(r.At), 10)
	if r.N != 1 {
		b = strconv.AppendInt(append(b, ':'), int64(r.At+r.N), 10)
	}
	return append(by.append(b), ']')
}

// append writes " by BY in LOW:HIGH", without the range if s has none, and nothing if s is zero.
func (s Stride) append(b []byte) []byte {
	if s == (Stride{}) {
		return b
	}
	b = strconv.AppendInt(append(b, " by "...), int64(s.By), 10)
	if s.Mod > 0 {
		b = strconv.AppendInt(append(b, " in "...), int64(s.Low), 10)
		b = strconv.AppendInt(append(b, ':'), int64(s.Low+s.Mod), 10)
	}
	return b
}
