package main

import (
	"fmt"
	"strings"
)

// foldSources lists the numbers of sources that one kernel combines. Numbers in between take two
// passes.
var foldSources = []int{3, 4, 8}

// entry is a row of a dispatch table: a kernel, and what completes it.
type entry struct {
	kernel  kernel
	more    []kernel // the same kernel for other numbers of sources
	types   []string // of package dtype; none for a kernel in no table
	ops     []string // of package dtype; none where the table has no operators
	rest    string   // the loop in Go for the elements that do not fill a vector
	perElem int      // the kernel's elements in one element of the type, where that is not one
}

// family is a file of assembly.
type family struct {
	name    string
	about   string
	entries []entry
}

// families returns all families of kernels for a vector.
func families(v vector) []family {
	if v.addition {
		return []family{{"half", "Sums and products of F16.", halfPrecision(v)}}
	}
	return []family{
		{"float", "dst = a ⊕ b for F32 and F64.", floats(v, f32, f64)},
		{"half", "dst = a ⊕ b for 16-bit floats.", floats(v, f16, bf16)},
		{"quarter", "dst = a ⊕ b for 8-bit floats.", floats(v, f8e4, f8e5)},
		{"integer", "dst = a ⊕ b for integers, and for what are bytes to an operator: bits and Bool.",
			append(integers(v), bytewise(v)...)},
		{"scale", "dst = src × factor for floats, and dst = (a + b) × factor.", scalings(v)},
		{"fold", "dst = src[0] ⊕ src[1] ⊕ …, rounded after every operator.", folds(v)},
		{"fastbf16", "dst = a + b, and src[0] + src[1] + …, by the conversions of AVX512_BF16.", fastSums(v)},
		{"stream", "dst = src past the caches: dst starts a cache line, n makes whole ones.", copies(v)},
	}
}

var goFloat = map[float]string{f32: "[float32]", f64: "[float64]"}

// restOf returns the loop in Go of an operator ("sum", "prod", "min", "max", "scale").
func restOf(op string, f float) string {
	if f.size <= 2 || op == "min" || op == "max" {
		return op + f.name
	}
	return op + "Floats" + goFloat[f]
}

func floats(v vector, formats ...float) []entry {
	var all []entry
	for _, f := range formats {
		for _, o := range []struct {
			op   string
			name string
			body body
		}{
			{"Sum", "sum", arithmetic(v, f, "ADD")},
			{"Prod", "prod", arithmetic(v, f, "MUL")},
			{"Min", "min", floatOrder(v, f, false)},
			{"Max", "max", floatOrder(v, f, true)},
		} {
			all = append(all, entry{
				kernel: kernel{o.name + f.name + v.isa + "Block", pair, v, o.body, f.size, 2},
				types:  []string{f.name},
				ops:    []string{o.op},
				rest:   restOf(o.name, f),
			})
		}
	}
	return all
}

func integers(v vector) []entry {
	var all []entry
	add := func(op, name, goOp string, size int, letter string, b body, types ...string) {
		element := fmt.Sprintf("%s%d", letter, 8*size)
		goType := fmt.Sprintf("int%d", 8*size)
		if letter == "U" {
			goType = "u" + goType
		}
		all = append(all, entry{
			kernel: kernel{name + element + v.isa + "Block", pair, v, b, size, 2},
			types:  types,
			ops:    []string{op},
			rest:   fmt.Sprintf("%sIntegers[%s]", goOp, goType),
		})
	}
	for _, size := range []int{1, 2, 4, 8} {
		signed, unsigned := fmt.Sprintf("I%d", 8*size), fmt.Sprintf("U%d", 8*size)
		add("Sum", "sum", "sum", size, "I", integerSum(v, size), signed, unsigned)
		add("Prod", "prod", "prod", size, "I", integerProd(v, size), signed, unsigned)
		add("Min", "min", "min", size, "I", integerOrder(v, size, true, false), signed)
		add("Max", "max", "max", size, "I", integerOrder(v, size, true, true), signed)
		add("Min", "min", "min", size, "U", integerOrder(v, size, false, false), unsigned)
		add("Max", "max", "max", size, "U", integerOrder(v, size, false, true), unsigned)
	}
	return all
}

func bytewise(v vector) []entry {
	var all []entry
	for _, o := range []struct{ op, name, instruction string }{
		{"BAnd", "and", v.and}, {"BOr", "or", v.or}, {"BXor", "xor", v.xor},
	} {
		block := kernel{o.name + "Bytes" + v.isa + "Block", pair, v, simple(v, v.move, o.instruction), 1, 2}
		for _, size := range []int{1, 2, 4, 8} {
			all = append(all, entry{
				kernel:  block,
				types:   []string{fmt.Sprintf("I%d", 8*size), fmt.Sprintf("U%d", 8*size)},
				ops:     []string{o.op},
				rest:    o.name + "Bytes",
				perElem: size,
			})
		}
	}
	for _, o := range []struct {
		name string
		ops  []string
	}{{"or", []string{"Sum", "Max", "BOr"}}, {"and", []string{"Prod", "Min", "BAnd"}}, {"xor", []string{"BXor"}}} {
		all = append(all, entry{
			kernel: kernel{o.name + "Bool" + v.isa + "Block", pair, v, logical(v, o.name), 1, 2},
			types:  []string{"Bool"},
			ops:    o.ops,
			rest:   o.name + "Bools",
		})
	}
	return all
}

func scalings(v vector) []entry {
	var all []entry
	for _, f := range formats {
		all = append(all, entry{
			kernel: kernel{"scale" + f.name + v.isa + "Block", scale, v, scaling(v, f), f.size, 1},
			types:  []string{f.name},
			rest:   restOf("scale", f),
		})
	}
	for _, f := range []float{f32, f64} {
		all = append(all, entry{
			kernel: kernel{"sumScale" + f.name + v.isa + "Block", pairScale, v, sumScaling(v, f), f.size, 2},
			types:  []string{f.name},
			rest:   "sumScale" + f.name,
		})
	}
	return all
}

// folds omits kernels that are hardly faster in one pass than in several, or slower: sums and
// products of F16 and of 8-bit floats, where widening after every rounding makes the chain of
// instructions too long, and Min and Max of 16-bit floats, for the same reason.
func folds(v vector) []entry {
	var all []entry
	add := func(op, name string, size int, b body, types ...string) {
		x := entry{types: types, ops: []string{op}}
		for _, sources := range foldSources {
			k := kernel{fmt.Sprintf("%s%d%s%sBlock", strings.ToLower(op), sources, name, v.isa),
				fold, v, b, size, sources}
			x.more = append(x.more, k)
		}
		x.kernel, x.more = x.more[0], x.more[1:]
		all = append(all, x)
	}
	for _, f := range formats {
		if f != f16 {
			add("Sum", f.name, f.size, arithmetic(v, f, "ADD"), f.name)
		}
	}
	add("Prod", f32.name, f32.size, arithmetic(v, f32, "MUL"), f32.name)
	add("Min", f32.name, f32.size, floatOrder(v, f32, false), f32.name)
	add("Max", f32.name, f32.size, floatOrder(v, f32, true), f32.name)
	add("Prod", bf16.name, bf16.size, arithmetic(v, bf16, "MUL"), bf16.name)
	for _, size := range []int{1, 2, 4, 8} {
		signed, unsigned := fmt.Sprintf("I%d", 8*size), fmt.Sprintf("U%d", 8*size)
		add("Sum", signed, size, integerSum(v, size), signed, unsigned)
	}
	return all
}

func copies(v vector) []entry {
	return []entry{{kernel: kernel{"copy" + v.isa + "Lines", move, v, copyBody(v), 1, 1}}}
}
