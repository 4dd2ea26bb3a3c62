package draw

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/plan"
)

// naming defines how the chunks of a plan are told apart: by their labels and colours.
type naming struct {
	plan    *plan.Plan
	by      string // heading of the legend
	keys    int    // number of different keys
	byTerms bool   // there is only one chunk: chunks are told apart by the contributions in them
	all     int    // number of contributions of a complete chunk
}

func newNaming(t *Trace) naming {
	p := t.Plan
	n := naming{plan: p, all: t.Contributors(), keys: p.Spec.Ranks}
	switch p.Spec.Coll {
	case dtype.AllGather, dtype.Gather:
		n.by = "block of rank"
	case dtype.Scatter, dtype.ReduceScatter:
		n.by = "block for rank"
	case dtype.AllToAll:
		n.by = "block for rank"
	default:
		n.by, n.keys = "chunk", p.Split
		if p.Split == 1 && p.Spec.Coll.Reduces() {
			n.by, n.keys, n.byTerms = "contribution of rank", p.Spec.Ranks, true
		}
	}
	return n
}

// key returns the number by which a chunk is coloured.
func (n naming) key(v Value) int {
	if perBlock(n.plan.Spec.Coll) {
		return v.Chunk.To
	}
	return v.Chunk.Part
}

// shown returns the keys whose colours a value has: those of its contributions in the order in
// which they were added, or its own key.
func (n naming) shown(v Value) []int {
	if n.byTerms {
		return v.Sum.Terms()
	}
	return []int{n.key(v)}
}

func (n naming) complete(v Value) bool {
	terms := v.Sum.Terms()
	return n.all > 1 && len(terms) == n.all && !repeats(terms)
}

// unknown is the label of memory that no step has written, which only wrong plans read or leave in
// Out.
const unknown = "?"

// label returns the text of a chip that holds these values.
func (n naming) label(values []Value) string {
	switch {
	case len(values) == 0:
		return ""
	case slices.ContainsFunc(values, Value.unwritten):
		return unknown
	case n.byTerms && len(values) > 1:
		return fmt.Sprintf("%d sums", len(values))
	case n.byTerms:
		if n.complete(values[0]) {
			return "all"
		}
		if terms := values[0].Sum.Terms(); !repeats(terms) {
			return ranges(terms)
		}
		return "twice"
	case n.plan.Spec.Coll == dtype.AllToAll:
		return n.pairs(values)
	}
	if len(values) == 1 && perBlock(n.plan.Spec.Coll) {
		return strconv.Itoa(values[0].Chunk.To) + n.part(values[0])
	}
	var keys []int
	for _, v := range values {
		keys = append(keys, n.key(v))
	}
	return ranges(keys)
}

// unwritten reports whether no step has written the value.
func (v Value) unwritten() bool { return v.Sum == nil }

// repeats reports whether a contribution occurs more than once.
func repeats(terms []int) bool {
	sorted := slices.Sorted(slices.Values(terms))
	return len(slices.Compact(sorted)) < len(terms)
}

// pairs describes from which ranks and for which ranks the blocks of an all-to-all are: "0→1,3",
// "0,4→2", or the number of blocks.
func (n naming) pairs(values []Value) string {
	var from, to []int
	for _, v := range values {
		from, to = append(from, v.Chunk.From), append(to, v.Chunk.To)
	}
	if len(values) == 1 {
		return fmt.Sprintf("%d→%d", from[0], to[0]) + n.part(values[0])
	}
	if slices.Min(from) == slices.Max(from) || slices.Min(to) == slices.Max(to) {
		if text := ranges(from) + "→" + ranges(to); len([]rune(text)) <= longest {
			return text
		}
	}
	return fmt.Sprintf("%d blocks", len(values))
}

// part returns a suffix that tells the chunks of one block apart.
func (n naming) part(v Value) string {
	if n.plan.Split == 1 {
		return ""
	}
	return "." + strconv.Itoa(v.Chunk.Part)
}

// longest is the maximum number of characters of a label of ranges.
const longest = 9

// ranges writes a set of numbers as "0–2,5".
func ranges(numbers []int) string {
	sorted := slices.Clone(numbers)
	slices.Sort(sorted)
	sorted = slices.Compact(sorted)
	var words []string
	for i := 0; i < len(sorted); {
		j := i
		for j+1 < len(sorted) && sorted[j+1] == sorted[j]+1 {
			j++
		}
		switch {
		case j == i:
			words = append(words, strconv.Itoa(sorted[i]))
		case j == i+1:
			words = append(words, strconv.Itoa(sorted[i]), strconv.Itoa(sorted[j]))
		default:
			words = append(words, fmt.Sprintf("%d–%d", sorted[i], sorted[j]))
		}
		i = j + 1
	}
	text := strings.Join(words, ",")
	if len([]rune(text)) > longest {
		text = fmt.Sprintf("%d of %d", len(sorted), sorted[len(sorted)-1]-sorted[0]+1)
		if len(text) > longest {
			text = fmt.Sprintf("%d", len(sorted)) + "…"
		}
	}
	return text
}

// light and dark are the colours of chunks on light and on dark paper; text in the colour of the
// paper is legible on all of them.
var light = [...]string{"#2563c9", "#b45309", "#15803d", "#7c3aed", "#c81e3a", "#0e7490", "#be2f8f", "#5f6b00",
	"#475569", "#4338ca", "#7c2d12", "#065f46", "#9d174d", "#0369a1", "#6b21a8", "#854d0e"}

var dark = [len(light)]string{"#6ea8fe", "#f0a35e", "#5fd18a", "#b79bff", "#ff8593", "#4cc9dc", "#f38ad0", "#c3cc4a",
	"#a3b1c6", "#9aa2ff", "#e29578", "#4fd1b0", "#f48fb1", "#67b7f7", "#d0a2f7", "#e0b04c"}

// colour returns the colour of a key; if there are more keys than colours, neighbours share one.
func (n naming) colour(key int) int {
	if n.keys <= len(light) {
		return key % len(light)
	}
	return key * len(light) / n.keys % len(light)
}
