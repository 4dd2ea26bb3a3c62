package verify

import (
	"fmt"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/plan"
)

// refuseLevel returns the error for results that do not have the level that a setting of
// GOCCL_DETERMINISM requires.
func (x *execution) refuseLevel(level Level, determinism int) error {
	bad := x.disordered()
	if level == PerRank {
		bad = x.differing()
	}
	return fault.Wrap(fault.NotSupported, bad, "determinism is %v, GOCCL_DETERMINISM=%d asks for %v",
		level, determinism, Needed(determinism))
}

// differing returns a counterexample of two ranks that reduce the same chunk in different ways.
func (x *execution) differing() *Counterexample {
	v := x.values[0]
	type holder struct {
		rank   int
		result value
	}
	first := map[int32]holder{} // by chunk of In
	for r := range x.ranks {
		for i := range x.plans[0].OutChunks(r) {
			result := x.result(0, r, i)
			n := v.node(result)
			other, ok := first[n.chunk]
			if ok && other.result != result {
				t := v.trees()
				a, b := t.narrow(other.result, result)
				name, one, two := outName(i), t.text(a), t.text(b)
				text := fmt.Sprintf("%s is %s on rank %d and %s on rank %d", name, one, other.rank, two, r)
				if a != t.bare(other.result) {
					text = fmt.Sprintf("%s differs: the part %s on rank %d is %s on rank %d",
						name, one, other.rank, two, r)
				}
				bad := x.bits(text, n.chunk, a, b)
				bad.Remedy = "take the operands in the same order on all ranks"
				return bad
			}
			first[n.chunk] = holder{r, result}
		}
	}
	return nil
}

// disordered returns a counterexample of a chunk that is not reduced in the order of ranks.
func (x *execution) disordered() *Counterexample {
	v := x.values[0]
	want := v.rankOrder()
	for r := range x.ranks {
		for i := range x.plans[0].OutChunks(r) {
			if n := v.node(x.result(0, r, i)); n.shape != want {
				t := v.trees()
				a := t.bare(x.result(0, r, i))
				text := fmt.Sprintf("%s of rank %d is %s, which is not the order of the ranks",
					outName(i), r, t.text(a))
				return x.bits(text, n.chunk, a)
			}
		}
	}
	return nil
}

func outName(i int) string { return plan.Ref{Buf: plan.Out, At: i, N: 1}.String() }

// bits returns a counterexample for trees that are not as required.
func (x *execution) bits(text string, chunk int32, of ...value) *Counterexample {
	bad := x.counterexample(0, Bits, fmt.Sprintf("%s, where xR is in[%d] of rank R", text, chunk))
	for _, tree := range of {
		w := x.made(x.values[0].node(tree).at)
		bad.At = append(bad.At, w)
		if w.Lane >= 0 {
			s := x.codes[w.Rank].step(w.Lane, w.Step)
			bad.Steps = append(bad.Steps, Line{w, s.String()})
		}
	}
	return bad
}

// trees maps values back to their operands.
type trees struct {
	*values
	parts map[value][2]value // of a mark: the marked value, and nothing
}

func (v *values) trees() *trees {
	t := &trees{v, map[value][2]value{}}
	for _, e := range v.known.entries {
		if e.v != 0 {
			t.parts[value(e.v)] = [2]value{value(e.a), max(value(e.b), nothing)}
		}
	}
	for x, marked := range v.scaled {
		if marked != nothing {
			t.parts[marked] = [2]value{value(x), nothing}
		}
	}
	return t
}

// bare returns x without marks.
func (t *trees) bare(x value) value {
	for p, ok := t.parts[x]; ok && p[1] == nothing; p, ok = t.parts[x] {
		x = p[0]
	}
	return x
}

// operands returns the operands of x, if it is a sum.
func (t *trees) operands(x value) (a, b value, sum bool) {
	p, sum := t.parts[x]
	return t.bare(p[0]), t.bare(p[1]), sum
}

// wholeTree is the maximum number of ranks of a tree that is shown with all its parts.
const wholeTree = 8

// narrow returns parts of two different trees in which they differ.
func (t *trees) narrow(a, b value) (value, value) {
	a, b = t.bare(a), t.bare(b)
	for t.node(a).count > wholeTree {
		a1, a2, sum := t.operands(a)
		b1, b2, other := t.operands(b)
		switch {
		case !sum || !other:
			return a, b
		case a1 == b1 && t.node(a2).count == t.node(b2).count:
			a, b = a2, b2
		case a2 == b2 && t.node(a1).count == t.node(b1).count:
			a, b = a1, b1
		default:
			return a, b
		}
	}
	return a, b
}

// text returns a tree as text: the whole tree if it is small, else its first levels.
func (t *trees) text(x value) string {
	depth := 3
	if t.node(x).count <= wholeTree {
		depth = wholeTree
	}
	return t.show(x, depth)
}

func (t *trees) show(x value, depth int) string {
	n := t.node(x)
	a, b, sum := t.operands(x)
	if !sum {
		return fmt.Sprintf("x%d", n.rank)
	}
	if depth == 0 {
		return fmt.Sprintf("a sum of %d ranks", n.count)
	}
	sides := [2]string{}
	for i, side := range [2]value{a, b} {
		if sides[i] = t.show(side, depth-1); t.node(side).count > 1 {
			sides[i] = "(" + sides[i] + ")"
		}
	}
	return sides[0] + " + " + sides[1]
}
