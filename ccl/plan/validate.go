package plan

import (
	"fmt"
	"math"

	"github.com/goccl/goccl/ccl/fault"
)

// Validate checks the structure of the plan and of one rank's program: everything that can be
// checked without the programs of other ranks. Package verify checks what the programs do together.
// The error names rank, lane and step.
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
	budget := MaxChecks
	if wrong := p.check(rank, prog, &budget); wrong != nil {
		return p.invalid("%s", wrong)
	}
	return nil
}

// validateHead checks the fields that are the same for all ranks.
func (p *Plan) validateHead() error {
	if err := p.Spec.Validate(); err != nil {
		return fault.Wrap(fault.Invalid, err, "plan %q", p.Name)
	}
	if p.Program == nil {
		return p.invalid("it has no programs")
	}
	if wrong := p.checkHead(); wrong != "" {
		return p.invalid("%s", wrong)
	}
	return nil
}

// checkHead describes what is wrong with the fields of a plan beyond those of its Spec; "" if
// nothing is.
func (p *Plan) checkHead() string {
	const needs = Messages | Puts | Gets | Counts
	switch {
	case !validName(p.Name):
		return fmt.Sprintf("the name must be letters, digits, '_', '-' and '.', at most %d of them", maxName)
	case !p.Spec.Coll.Rooted() && p.Spec.Root != 0:
		return fmt.Sprintf("root %d of a collective without a root; leave it 0", p.Spec.Root)
	case p.Split < 1 || p.Split > MaxSplit:
		return fmt.Sprintf("split %d, want 1 to %d", p.Split, MaxSplit)
	case p.Chans < 0 || p.Chans > MaxChans:
		return fmt.Sprintf("%d channels, want 0 to %d", p.Chans, MaxChans)
	case p.Flags < 0 || p.Flags > MaxFlags:
		return fmt.Sprintf("%d flags, want 0 to %d", p.Flags, MaxFlags)
	case p.Win < 0 || p.Win > MaxWin:
		return fmt.Sprintf("windows of %d chunks, want 0 to %d", p.Win, MaxWin)
	case p.Needs&^needs != 0:
		return fmt.Sprintf("unknown need bits %#x", uint8(p.Needs&^needs))
	case p.Alias&^(InPlace|Lend) != 0:
		return fmt.Sprintf("unknown alias bits %#x", uint8(p.Alias&^(InPlace|Lend)))
	case p.MinBytes < 0 || p.MaxBytes < 0 || p.MaxBytes != 0 && p.MaxBytes < p.MinBytes:
		return fmt.Sprintf("it is meant for calls of %d to %d bytes, want 0 <= least <= most (most 0: no bound)",
			p.MinBytes, p.MaxBytes)
	}
	return ""
}

const maxName = 255

func validName(s string) bool {
	for _, c := range []byte(s) {
		ok := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-' || c == '.'
		if !ok {
			return false
		}
	}
	return s != "" && len(s) <= maxName
}

func (p *Plan) invalid(format string, args ...any) error {
	return fault.New(fault.Invalid, "plan %q (%v): %s", p.Name, p.Spec, fmt.Sprintf(format, args...))
}

// problem describes what is wrong with a program, and where: lane and item (index in the list of
// steps) are both -1 if no step is at fault; body is the index of the step in a loop's body, or -1.
// If no step is at fault, list may name a list of lengths.
type problem struct {
	lane, item, body int
	list             Buffer // Tmp or Win if that list of lengths is wrong; In otherwise
	text             string // includes rank, lane and step
	reason           string // without rank, lane and step
}

func (w *problem) String() string { return w.text }

// check returns what is wrong with a rank's program, or nil. The head must be valid. check deducts
// the cost of its work from budget.
func (p *Plan) check(rank int, prog *Program, budget *int) *problem {
	v := validator{p: p, rank: rank, prog: prog, budget: budget}
	v.chunks = [...]int{In: p.InChunks(rank), Out: p.OutChunks(rank), Tmp: len(prog.Tmp), Win: len(prog.Win)}
	return v.program()
}

// validator checks one program.
type validator struct {
	p      *Plan
	rank   int
	prog   *Program
	chunks [numBuffers]int // of each Buffer
	runs   [numBuffers][]int32
	lens   []int // of each lane, unrolled
	budget *int

	// Memory in which advanced makes an unrolled step.
	unrolled Step
	src      []Ref
	from     []int
	after    []Point
}

func (v *validator) wrong(format string, args ...any) *problem {
	reason := fmt.Sprintf(format, args...)
	return &problem{lane: -1, item: -1, body: -1, text: fmt.Sprintf("rank %d: %s", v.rank, reason), reason: reason}
}

func (v *validator) program() *problem {
	prog := v.prog
	if len(prog.Lanes) > MaxLanes {
		return v.wrong("%d lanes, at most %d", len(prog.Lanes), MaxLanes)
	}
	if w := v.lengths(Tmp, prog.Tmp, MaxTmp); w != nil {
		return w
	}
	if w := v.lengths(Win, prog.Win, MaxWin); w != nil {
		return w
	}
	if len(prog.Win) > v.p.Win {
		w := v.wrong("%d chunks of win, the plan says that windows have at most %d", len(prog.Win), v.p.Win)
		w.list = Win
		return w
	}
	if w := v.shapes(); w != nil {
		return w
	}
	for l, lane := range prog.Lanes {
		if w := v.lane(l, lane); w != nil {
			return w
		}
	}
	return nil
}

// lengths checks the list of the lengths of Tmp or Win.
func (v *validator) lengths(buf Buffer, list []Extent, most int) *problem {
	wrong := func(format string, args ...any) *problem {
		w := v.wrong(format, args...)
		w.list = buf
		return w
	}
	if len(list) > most {
		return wrong("%d chunks of %v, at most %d", len(list), buf, most)
	}
	if *v.budget -= len(list); *v.budget < 0 {
		return wrong("%s", tooMuch)
	}
	counts := v.p.Needs&Counts != 0
	for i, e := range list {
		if !v.p.Spec.Has(v.p.Split, e) {
			return wrong("%v[%d] is as long as %s, which no rank has", buf, i, e.text())
		}
		if !counts && !v.p.Spec.Knows(v.rank, e) {
			return wrong("%v[%d] is as long as %s, which this rank cannot know; the plan must declare the need counts",
				buf, i, e.text())
		}
	}
	return nil
}

// operandChecks is the cost of a source or an after point of a step in a loop: each copy of the
// step may have its own.
const operandChecks = 3

// tooMuch is the reason given for refusing a plan whose check would take too long.
var tooMuch = fmt.Sprintf(
	"too large to check: more than %d steps, operands of loops and chunk lengths, loops unrolled", MaxChecks)

// shapes checks what must be valid before a loop is unrolled, and counts the steps.
func (v *validator) shapes() *problem {
	total, operands := 0, 0
	v.lens = make([]int, len(v.prog.Lanes))
	for l, lane := range v.prog.Lanes {
		for i := range lane {
			s := &lane[i]
			n := 1
			if s.Kind == Loop {
				if wrong := v.loop(s); wrong != "" {
					return v.at(l, i, -1, v.lens[l], s, wrong)
				}
				for j := range s.Body {
					b := &s.Body[j]
					if wrong := v.advance(b); wrong != "" {
						return v.at(l, i, j, v.lens[l]+j, b, wrong)
					}
					n := operandChecks * (len(b.Src) + len(b.After))
					if b.By != nil {
						n *= s.Times
					}
					if operands += n; operands > *v.budget {
						return v.at(l, i, j, v.lens[l]+j, b, tooMuch)
					}
				}
				if s.Times > MaxSteps/len(s.Body) {
					return v.at(l, i, -1, v.lens[l], s,
						fmt.Sprintf("%d times %d steps, a rank has at most %d", s.Times, len(s.Body), MaxSteps))
				}
				n = s.Times * len(s.Body)
			} else if s.By != nil {
				return v.at(l, i, -1, v.lens[l], s, "only steps of a loop advance")
			}
			v.lens[l] += n
			if total += n; total > MaxSteps {
				return v.at(l, i, -1, v.lens[l]-n, s,
					fmt.Sprintf("more than %d steps in all lanes, loops unrolled", MaxSteps))
			}
		}
	}
	if *v.budget -= total + operands; *v.budget < 0 {
		return v.wrong("%s", tooMuch)
	}
	return nil
}

// loop describes what is wrong with a loop apart from the steps of its Body; "" if nothing is.
func (v *validator) loop(s *Step) string {
	switch {
	case s.Times < 1 || s.Times > MaxSteps:
		return fmt.Sprintf("%d times, want 1 to %d", s.Times, MaxSteps)
	case len(s.Body) == 0:
		return "it has no steps"
	case len(s.Body) > MaxSteps:
		return fmt.Sprintf("%d steps, at most %d", len(s.Body), MaxSteps)
	case s.Dst != Ref{} || len(s.Src) > 0 || len(s.From) > 0 || s.Peer != 0 || s.Chan != 0 ||
		s.MsgFirst || s.Final || s.By != nil:
		return "a loop has only Times and Body"
	case len(s.After) > 0:
		return "a loop comes after nothing itself; say so at a step of its body"
	}
	return ""
}

// advance describes what is wrong with the Advance of a step of a Body; "" if nothing is. Its
// checks keep the numbers of unrolled steps from overflowing.
func (v *validator) advance(s *Step) string {
	if s.Kind >= numKinds {
		return "unknown kind"
	}
	if s.Kind == Loop {
		return "loops are not nested"
	}
	by, uses := s.By, s.Kind.Traits()
	if by == nil {
		return ""
	}
	switch {
	case by.Src != nil && len(by.Src) != len(s.Src), by.From != nil && len(by.From) != len(s.From),
		by.After != nil && len(by.After) != len(s.After):
		return "By has not as many sources, ranks or dependences as the step"
	case by.Dst != Stride{} && !uses.Writes:
		return "its Dst advances, but it writes nothing"
	case by.Peer != Stride{} && !uses.Peer:
		return "its peer advances, but it has none"
	}
	ok := numberFits(s.Dst.At) && numberFits(s.Peer) && by.Dst.fits() && by.Peer.fits()
	for i, b := range by.Src {
		ok = ok && b.fits() && numberFits(s.Src[i].At)
	}
	for i, b := range by.From {
		ok = ok && b.fits() && numberFits(s.From[i])
		if b != (Stride{}) && i < len(s.Src) && s.Src[i].Buf != Win {
			return fmt.Sprintf("the rank of source %v advances, but only windows have ranks", s.Src[i])
		}
	}
	for i, b := range by.After {
		ok = ok && numberFits(b) && numberFits(s.After[i].Step)
	}
	if !ok {
		return fmt.Sprintf("it advances by what cannot be: numbers must be %d to %d, and in LOW:HIGH not be empty",
			-maxNumber, maxNumber)
	}
	return ""
}

// maxNumber bounds the numbers that advance, so that i*By does not overflow.
const maxNumber = math.MaxInt32

func numberFits(n int) bool { return n >= -maxNumber && n <= maxNumber }

func (s Stride) fits() bool {
	return numberFits(s.By) && numberFits(s.Low) && s.Mod >= 0 && numberFits(s.Mod) && numberFits(s.Low+s.Mod) &&
		(s.Mod > 0 || s.Low == 0)
}

func (v *validator) lane(l int, lane []Step) *problem {
	n := 0 // steps before item i, unrolled
	for i := range lane {
		s := &lane[i]
		if s.Kind != Loop {
			if wrong := v.step(l, s); wrong != "" {
				return v.at(l, i, -1, n, s, wrong)
			}
			n++
			continue
		}
		for j := range s.Body {
			b := &s.Body[j]
			times := s.Times
			if b.By == nil {
				times = 1 // all copies are the same
			}
			for k := range times {
				t := b
				if b.By != nil {
					t = v.advanced(b, k)
				}
				if wrong := v.step(l, t); wrong != "" {
					return v.at(l, i, j, n+k*len(s.Body)+j, t, wrong)
				}
			}
		}
		n += s.Times * len(s.Body)
	}
	return nil
}

// advanced is like b.Advanced(i), but returns memory that the next call reuses.
func (v *validator) advanced(b *Step, i int) *Step {
	t, by := &v.unrolled, b.By
	*t = *b
	t.By = nil
	t.Dst.At = by.Dst.At(t.Dst.At, i)
	t.Peer = by.Peer.At(t.Peer, i)
	if by.Src != nil {
		v.src = append(v.src[:0], b.Src...)
		for k := range v.src {
			v.src[k].At = by.Src[k].At(v.src[k].At, i)
		}
		t.Src = v.src
	}
	if by.From != nil {
		v.from = append(v.from[:0], b.From...)
		for k := range v.from {
			v.from[k] = by.From[k].At(v.from[k], i)
		}
		t.From = v.from
	}
	if by.After != nil {
		v.after = append(v.after[:0], b.After...)
		for k := range v.after {
			v.after[k].Step += i * by.After[k]
		}
		t.After = v.after
	}
	return t
}

// at returns a problem of a step: item i of lane l, step j of its body or -1, step number n of the
// lane, unrolled.
func (v *validator) at(l, i, j, n int, s *Step, reason string) *problem {
	reason = fmt.Sprintf("(%s): %s", describe(s), reason)
	return &problem{lane: l, item: i, body: j,
		text: fmt.Sprintf("rank %d, lane %d, step %d %s", v.rank, l, n, reason), reason: reason}
}

// describe returns a step as text, or only its kind if the step is too broken to be printed.
func describe(s *Step) string {
	if s.Kind >= numKinds {
		return s.Kind.String()
	}
	uses := s.Kind.Traits()
	ok := s.Dst.Buf < numBuffers && (len(s.Src) > 0 || !uses.Reads) && len(s.Src) < 100 && len(s.After) < 100 &&
		(!uses.From || len(s.From) == len(s.Src))
	if by := s.By; by != nil {
		ok = ok && (by.Src == nil || len(by.Src) == len(s.Src)) && (by.From == nil || len(by.From) == len(s.From)) &&
			(by.After == nil || len(by.After) == len(s.After))
	}
	for _, r := range s.Src {
		ok = ok && r.Buf < numBuffers
	}
	if !ok {
		return s.Kind.String()
	}
	return s.String()
}
