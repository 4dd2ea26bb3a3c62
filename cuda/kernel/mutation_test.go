package kernel

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goccl/goccl/ccl/dtype"
)

// mistakes are changes of the sources, each with the kernels that then have other bits. All are
// made at once: the tests must find exactly these kernels, and no others.
var mistakes = []struct {
	what, file, old, new string
	caught               []string // without the prefix, as patterns
}{
	{"the second NaN wins", "element.h", "return s != s ? nan_of(x, y) : bits(s);\n    }\n\n    INLINE u32 product",
		"return s != s ? nan_of(y, x) : bits(s);\n    }\n\n    INLINE u32 product",
		[]string{"reduce_sum_f32", "reduce_prod_c64", "scale_f32"}},
	{"BF16 is rounded away from zero where it is half-way", "element.h", "u + 0x7fff + (u >> 16 & 1)", "u + 0x8000",
		[]string{"reduce_sum_bf16", "reduce_prod_bf16", "scale_bf16", "convert_bf16_from_f32"}},
	{"E4M3 has no limit", "element.h", "if (m >= 0x43e00000) // 448\n            return sign | 0x7e;",
		"if (m >= 0x43e00000) // 448\n            return sign | 0x7f;",
		[]string{"reduce_sum_f8e4m3", "reduce_prod_f8e4m3", "scale_f8e4m3", "convert_f8e4m3_from_f32"}},
	{"E5M2 loses subnormals", "element.h", "if (m < 0x38800000) // 2^-14: the last place of 2^7 is that of a subnormal",
		"if (m < 0x38800000)\n            return sign;\n        if (0)",
		[]string{"reduce_sum_f8e5m2", "reduce_prod_f8e5m2", "scale_f8e5m2", "convert_f8e5m2_from_f32"}},
	{"-0 and +0 are equal to Max of F64", "reductions.h", "FLOATS(f64, F64)",
		"FLOATS(f64, Zeros)", []string{"reduce_max_f64"}},
	{"signed bytes are compared without a sign", "reductions.h", "SIGNED(i8, s8, u8)", "SIGNED(i8, u8, u8)",
		[]string{"reduce_min_i8", "reduce_max_i8"}},
	{"true is not 1", "reduce.cu", "truth(x) ^ truth(y)", "x ^ y", []string{"reduce_bxor_bool"}},
	{"a product is fused", "reduce.cu", "r.imaginary = P::sum(P::product(x.real, y.imaginary), ",
		"r.imaginary = P::fused(x.real, y.imaginary, ", []string{"reduce_prod_c64", "reduce_prod_c128"}},
	{"F16 is rounded twice when it is scaled", "element.h",
		"struct F16 : Format<u16, s16, 0x7fff, 0x7c00, 0x0200>, Short<F16, u16> {",
		"struct F16 : Format<u16, s16, 0x7fff, 0x7c00, 0x0200>, Short<F16, u16> {\n" +
			"INLINE u16 scaled(u16 x, double f) { double p = widen(x) * f; return p != p ? nan_of(x, 0) : narrow((float)p); }",
		[]string{"scale_f16"}},
	{"the second element of a pair is not NaN", "element.h", "& 0x80008000; }", "& 0x8000; }",
		[]string{"reduce_sum_f16", "reduce_prod_f16", "scale_f16", "reduce_sum_bf16", "reduce_prod_bf16",
			"scale_bf16"}},
	{"the sign of a NaN is lost", "convert.cu", "return sign << 31 | 0x7fc00000", "return 0x7fc00000",
		[]string{"convert_f32_from_f16", "convert_f32_from_f8e4m3", "convert_f32_from_f8e5m2"}},
	{"short copies end early", "copy.cu", "i < share.n - whole; i += threads", "i + 1 < share.n - whole; i += threads",
		[]string{"copy"}},
}

// wrong has what the changed sources name.
const wrong = `
struct Zeros : F64 {
    INLINE u64 max(u64 x, u64 y)
    {
        if (is_nan(x) || is_nan(y))
            return nan_of(x, y);
        return value(y) > value(x) ? y : x;
    }
};
`

const fused = `
    INLINE u%[1]s fused(u%[1]s x, u%[1]s y, u%[1]s z)
    {
        if (is_nan(z) || is_nan(product(x, y)))
            return sum(product(x, y), z);
        u%[1]s r = bits(__builtin_fma%[2]s(value(x), value(y), value(z)));
        return is_nan(r) ? nan_of(0, 0) : r;
    }

    INLINE u%[1]s sum(`

func TestMistakesAreCaught(t *testing.T) {
	compiler := hostCompiler(t)
	dir := t.TempDir()
	texts := map[string]string{}
	for _, name := range []string{"arguments.h", "table.h", "host.h", "element.h", "sources.h", "fold.h", "reduce.cu",
		"reductions.h", "scale.cu", "convert.cu", "copy.cu", "gather.cu", "tick.cu", "run.cu", "kernels.cu"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		texts[name] = string(text)
	}
	var want []string
	for _, m := range mistakes {
		if strings.Count(texts[m.file], m.old) != 1 {
			t.Fatalf("%s: the text stands %d times in %s", m.what, strings.Count(texts[m.file], m.old), m.file)
		}
		texts[m.file] = strings.Replace(texts[m.file], m.old, m.new, 1)
		want = append(want, m.caught...)
	}
	element := texts["element.h"]
	for _, w := range [][2]string{{"64", ""}, {"32", "f"}} {
		with := strings.NewReplacer("%[1]s", w[0], "%[2]s", w[1]).Replace(fused)
		element = strings.Replace(element, "\n    INLINE u"+w[0]+" sum(", with, 1)
	}
	texts["element.h"] = element + wrong
	for name, text := range texts {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	l, err := compileKernels(compiler, "-O0", dir, dir)
	if err != nil {
		t.Fatal(err)
	}
	got := wrongKernels(l)
	slices.Sort(want)
	if want = slices.Compact(want); !slices.Equal(got, want) {
		t.Errorf("kernels with other bits: %q, want %q", got, want)
	}
}

// wrongKernels compares every kernel on random operands, and bytes on all.
func wrongKernels(l *library) []string {
	r := rand.New(rand.NewPCG(7, 7))
	var found []string
	for _, c := range calls() {
		a, b := everyPair()
		n := len(a)
		if c.from.Size() > 1 {
			n = 1 << 15
			a, b = memory(n*c.from.Size(), 0), memory(n*c.from.Size(), 0)
			fill(r, c.from, a)
			fill(r, c.from, b)
		}
		if c.kind == converts && c.from == dtype.F32 {
			for i := range n {
				put(a[4*i:], 4, shortNeighbour(r, c.to))
			}
		}
		if c.kind == copies {
			n -= 5
		}
		src := [][]byte{a, b}[:min(2, c.mostSources())]
		j := job{c, memory(n*c.to.Size(), 0), src, n, aboveHalf}
		want := job{c, memory(n*c.to.Size(), 0), src, n, aboveHalf}
		j.run(l, 1, 1)
		if err := want.execute(); err != nil || j.differs(j.dst, want.dst) != nil {
			found = append(found, strings.TrimPrefix(c.Name, prefix))
		}
	}
	slices.Sort(found)
	return found
}
