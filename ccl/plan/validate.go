package plan

import (
	"fmt"

	"github.com/goccl/goccl/ccl/fault"
)

// MaxTmp is the most chunks that a program's Tmp may have.
const MaxTmp = 1 << 20

// Validate checks the structure of the plan and of one rank's program: everything that can be seen without looking at
// another rank. Package verify checks what the programs do together. The error names rank, lane and step.
func (p *Plan) Validate(rank int) error {
	if err := p.validateHead(); err != nil {
		return err
	}
	if rank < 0 || rank >= p.Spec.Ranks {
		return p.invalid("there is no rank %d", rank)
	}
	prog := p.Program(rank)
	return p.ValidateProgram(rank, &prog)
}

// ValidateProgram is Validate for a program that the caller already has from p.Program(rank).
func (p *Plan) ValidateProgram(rank int, prog *Program) error {
	if err := p.validateHead(); err != nil {
		return err
	}
	v := validator{p: p, rank: rank, prog: prog}
	v.chunks = [...]int{In: p.InChunks(rank), Out: p.OutChunks(rank), Tmp: len(prog.Tmp)}
	return v.program()
}

// validateHead checks what is the same for all ranks.
func (p *Plan) validateHead() error {
	if err := p.Spec.Validate(); err != nil {
		return fault.Wrap(fault.Invalid, err, "plan %q", p.Name)
	}
	switch {
	case !validName(p.Name):
		return p.invalid("the name must be letters, digits, '_', '-' and '.'")
	case !p.Spec.Coll.Rooted() && p.Spec.Root != 0:
		return p.invalid("root %d of a collective without a root; leave it 0", p.Spec.Root)
	case p.Split < 1 || p.Split > MaxSplit:
		return p.invalid("split %d, want 1 to %d", p.Split, MaxSplit)
	case p.Chans < 0 || p.Chans > MaxChans:
		return p.invalid("%d channels, want 0 to %d", p.Chans, MaxChans)
	case p.Alias&^InPlace != 0:
		return p.invalid("unknown alias bits %#x", uint8(p.Alias&^InPlace))
	case p.Program == nil:
		return p.invalid("it has no programs")
	}
	return nil
}

func validName(s string) bool {
	for _, c := range []byte(s) {
		ok := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-' || c == '.'
		if !ok {
			return false
		}
	}
	return s != ""
}

func (p *Plan) invalid(format string, args ...any) error {
	return fault.New(fault.Invalid, "plan %q (%v): %s", p.Name, p.Spec, fmt.Sprintf(format, args...))
}

// validator checks one program.
type validator struct {
	p      *Plan
	rank   int
	prog   *Program
	chunks [3]int // of each Buffer
}

func (v *validator) program() error {
	prog := v.prog
	if len(prog.Lanes) > MaxLanes {
		return v.p.invalid("rank %d: %d lanes, at most %d", v.rank, len(prog.Lanes), MaxLanes)
	}
	if len(prog.Tmp) > MaxTmp {
		return v.p.invalid("rank %d: %d chunks of tmp, at most %d", v.rank, len(prog.Tmp), MaxTmp)
	}
	for i, r := range prog.Tmp {
		if r.Buf != In && r.Buf != Out || r.N != 1 || !v.inside(r) {
			return v.p.invalid("rank %d: tmp[%d] must be as long as one chunk of in (%d chunks) or out (%d chunks)",
				v.rank, i, v.chunks[In], v.chunks[Out])
		}
	}
	total := 0
	for _, lane := range prog.Lanes {
		total += len(lane)
	}
	if total > MaxSteps {
		return v.p.invalid("rank %d: %d steps, at most %d", v.rank, total, MaxSteps)
	}
	for l, lane := range prog.Lanes {
		for i := range lane {
			s := &lane[i]
			wrong := v.step(s)
			if wrong == "" {
				wrong = v.after(l, s)
			}
			if wrong != "" {
				return v.p.invalid("rank %d, lane %d, step %d (%s): %s", v.rank, l, i, v.describe(s), wrong)
			}
		}
	}
	return nil
}

// describe prints a step, or only its kind when it is too broken to be printed.
func (v *validator) describe(s *Step) string {
	ok := s.Kind < numKinds && s.Dst.Buf <= Tmp && (len(s.Src) > 0 || s.Kind == Recv)
	for _, r := range s.Src {
		ok = ok && r.Buf <= Tmp
	}
	if !ok {
		return s.Kind.String()
	}
	return s.String()
}

// inside reports whether r exists. It is written so that no sum of foreign numbers overflows.
func (v *validator) inside(r Ref) bool {
	return r.Buf <= Tmp && r.N >= 0 && r.N <= v.chunks[r.Buf] && r.At >= 0 && r.At <= v.chunks[r.Buf]-r.N
}

// has says which fields the steps of a kind use.
var has = [numKinds]struct{ dst, peer, reduces bool }{
	Copy:       {dst: true},
	Reduce:     {dst: true, reduces: true},
	Send:       {peer: true},
	Recv:       {dst: true, peer: true},
	RecvReduce: {dst: true, peer: true, reduces: true},
}

// step returns what is wrong with s, "" for nothing.
func (v *validator) step(s *Step) string {
	if s.Kind >= numKinds {
		return "unknown kind"
	}
	uses := has[s.Kind]
	switch n := len(s.Src); {
	case s.Kind == Reduce && n < 2:
		return fmt.Sprintf("%d sources, want two or more", n)
	case s.Kind == Recv && n != 0:
		return fmt.Sprintf("%d sources, want none", n)
	case s.Kind != Reduce && s.Kind != Recv && n != 1:
		return fmt.Sprintf("%d sources, want one", n)
	case !uses.dst && s.Dst != Ref{}:
		return "it writes nothing, but has a Dst"
	case !uses.peer && (s.Peer != 0 || s.Chan != 0):
		return "it is no message, but has a peer or a channel"
	case uses.peer && (s.Peer < 0 || s.Peer >= v.p.Spec.Ranks):
		return fmt.Sprintf("peer %d of %d ranks", s.Peer, v.p.Spec.Ranks)
	case uses.peer && s.Peer == v.rank:
		return "a rank sends no messages to itself; use copy"
	case uses.peer && (s.Chan < 0 || s.Chan >= v.p.Chans):
		return fmt.Sprintf("channel %d, the plan has %d", s.Chan, v.p.Chans)
	case uses.reduces && !v.p.Spec.Coll.Reduces():
		return fmt.Sprintf("%v has no operator to reduce with", v.p.Spec.Coll)
	case s.MsgFirst && s.Kind != RecvReduce:
		return "only recvreduce has MsgFirst"
	case s.Final && (s.Kind == Send || s.Kind == Recv):
		return "only copy, reduce and recvreduce can be Final"
	case s.Final && !v.p.Spec.Coll.Reduces():
		return fmt.Sprintf("%v reduces nothing, so nothing is Final", v.p.Spec.Coll)
	}
	if uses.dst {
		if wrong := v.ref("dst", s.Dst, s.Kind == Recv); wrong != "" {
			return wrong
		}
		if s.Dst.Buf == In {
			return "it writes in, which belongs to the caller"
		}
	}
	for _, src := range s.Src {
		if wrong := v.ref("source", src, s.Kind == Send); wrong != "" {
			return wrong
		}
		if uses.dst {
			if wrong := v.pair(s, src); wrong != "" {
				return wrong
			}
		}
	}
	return ""
}

// ref checks that r exists. Only messages may be empty.
func (v *validator) ref(what string, r Ref, mayBeEmpty bool) string {
	switch {
	case r.Buf > Tmp:
		return fmt.Sprintf("%s is in no buffer", what)
	case !v.inside(r):
		return fmt.Sprintf("%s is chunks %d to %d+%d of %v, which has %d", what, r.At, r.At, r.N, r.Buf, v.chunks[r.Buf])
	case r.N == 0 && !mayBeEmpty:
		return fmt.Sprintf("%s is empty", what)
	}
	return ""
}

// pair checks a source against the Dst of its step.
func (v *validator) pair(s *Step, src Ref) string {
	if src.N != s.Dst.N {
		return fmt.Sprintf("%v and %v have different numbers of chunks", s.Dst, src)
	}
	if src == s.Dst && s.Kind != Copy {
		return ""
	}
	if src.Overlaps(s.Dst) {
		return fmt.Sprintf("%v overlaps %v", s.Dst, src)
	}
	for i := range src.N {
		if v.extent(src, i) != v.extent(s.Dst, i) {
			return fmt.Sprintf("%v and %v may have different lengths (chunk %d of them)", s.Dst, src, i)
		}
	}
	return ""
}

func (v *validator) extent(r Ref, i int) Extent {
	return v.p.Extent(v.rank, v.prog.Tmp, r.Buf, r.At+i)
}

// after returns what is wrong with the dependences of a step of lane l.
func (v *validator) after(l int, s *Step) string {
	for _, a := range s.After {
		switch {
		case a.Lane < 0 || a.Lane >= len(v.prog.Lanes):
			return fmt.Sprintf("it comes after lane %d, the program has %d", a.Lane, len(v.prog.Lanes))
		case a.Lane == l:
			return "it comes after a step of its own lane; lanes run in order anyway"
		case a.Step < 0 || a.Step >= len(v.prog.Lanes[a.Lane]):
			return fmt.Sprintf("it comes after step %d of lane %d, which has %d", a.Step, a.Lane, len(v.prog.Lanes[a.Lane]))
		}
	}
	return ""
}
