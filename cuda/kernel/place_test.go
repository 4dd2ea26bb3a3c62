package kernel

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/goccl/goccl/ccl/dtype"
)

// An indirect source is where its place says, and at its own address if it is not lent, or if the
// place is beyond the memory that is lent, or not aligned.
func TestIndirectSources(t *testing.T) {
	l := hostLibrary(t)
	r := rand.New(rand.NewPCG(8, 8))
	times := 40
	if testing.Short() {
		times = 6
	}
	for _, c := range calls() {
		if c.kind == converts {
			continue
		}
		for range times {
			n, sources := 1+r.IntN(200), 1+r.IntN(c.mostSources())
			j, all, way := operands(r, c, n, sources)
			want, err := j.launched(all, func() error { return j.execute() })
			if err != nil {
				t.Fatal(err)
			}
			a, words, said := j.indirect(r)
			got, err := j.launched(all, func() error {
				l.launch(c.Name, &a, 1+r.IntN(3), 1+r.IntN(40))
				runtime.KeepAlive(words)
				return nil
			})
			if err == nil {
				err = j.differs(got, want)
			}
			if err != nil {
				t.Fatalf("%v: %s, %v", err, way, said)
			}
			resolved(t, c, &a, j)
		}
	}
}

// indirect makes sources of a launch indirect, and says how. The words must be kept.
func (j job) indirect(r *rand.Rand) (a Arguments, words []uint64, said []string) {
	words = make([]uint64, len(j.src))
	var at []uint64
	for _, s := range j.src {
		at = append(at, address(s))
	}
	a = j.call.Arguments(address(j.dst), j.n, j.factor, at...)
	for k, s := range j.src {
		bytes, part := uint64(len(s)), uint64(operand(0, j.call.from, 1).Align)
		before := part * r.Uint64N(100)
		lent := Lent{Place: uint64(uintptr(unsafe.Pointer(&words[k]))), Base: at[k] - before, Bytes: before + bytes}
		number := r.Uint64()
		const nowhere = 1 << 20 // nothing there can be read
		how := []string{"direct", "not lent", "lent", "beyond", "far beyond", "not aligned", "too short"}[r.IntN(7)]
		switch how {
		case "lent":
			words[k], a.Src[k] = Place(number, true, before), nowhere
		case "not lent":
			words[k], lent.Base = Place(number, false, 0), nowhere
		case "beyond":
			words[k] = Place(number, true, before+part)
		case "far beyond":
			words[k] = Place(number, true, 1<<PlaceBits-part)
		case "not aligned":
			words[k], lent.Base = Place(number, true, 1), nowhere
			if part == 1 {
				continue
			}
		case "too short":
			words[k], lent.Bytes = Place(number, true, 0), bytes-1
		}
		if how != "direct" {
			a.Lend(k, lent)
		}
		said = append(said, how)
	}
	return a, words, said
}

// resolved checks that Resolve finds the same sources.
func resolved(t *testing.T, c Call, a *Arguments, j job) {
	places, err := Places(c.Name, a.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	var asked []uint64
	direct, err := Resolve(c.Name, a.Bytes(), func(place uint64) uint64 {
		asked = append(asked, place)
		return *(*uint64)(*(*unsafe.Pointer)(unsafe.Pointer(&place)))
	})
	if err != nil || !slices.Equal(asked, places) {
		t.Fatalf("%s: %v; the words at %#x are read, and not those at %#x", c.Name, err, asked, places)
	}
	found, err := Operands(c.Name, direct)
	if err != nil {
		t.Fatal(err)
	}
	for k, s := range j.src {
		if found[1+k].Ptr != address(s) {
			t.Fatalf("%s: source %d is at %#x, want %#x", c.Name, k, found[1+k].Ptr, address(s))
		}
	}
}

// Each mistake in how places are followed is found.
func TestMistakesWithPlacesAreCaught(t *testing.T) {
	compiler := hostCompiler(t)
	if wrong := wrongPlaces(hostLibrary(t)); wrong != nil {
		t.Fatalf("without a mistake: %v", wrong)
	}
	for _, m := range []struct{ old, new, caught string }{
		{"!(a.indirect >> k & 1)", "!a.indirect", "direct"},
		{"!(place & PLACE_LENT) || ", "", "not lent"},
		{"at % align != 0 || ", "", "not aligned"},
		{"bytes > lent.bytes || ", "", "too short"},
		{" || at > lent.bytes - bytes", "", "beyond"},
		{"at > lent.bytes - bytes", "at >= lent.bytes - bytes", "lent"},
		{"at = place % PLACE_LENT", "at = place", "lent"},
		{"found[k] = source(a, k, a.n * size, align)", "found[k] = source(a, k, a.n, align)", "beyond"},
		{"found[k] = source(a, k, a.n * size, align)", "found[k] = source(a, 0, a.n * size, align)", "direct"},
	} {
		dir := t.TempDir()
		for _, name := range []string{"arguments.h", "table.h", "host.h", "element.h", "sources.h", "fold.h",
			"reduce.cu", "kernels.cu"} {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			switch name {
			case "sources.h":
				if strings.Count(string(text), m.old) != 1 {
					t.Fatalf("%q is not once in %s", m.old, name)
				}
				text = []byte(strings.Replace(string(text), m.old, m.new, 1))
			case "reduce.cu": // what the test launches
				before, _, _ := strings.Cut(string(text), "#define REDUCTION")
				text = []byte(before + "KERNEL(reduce_sum_f32, reduce<Sum<F32>>)\n")
			case "kernels.cu":
				text = []byte("#include \"host.h\"\n#include \"reduce.cu\"\n")
			}
			if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		l, err := compileKernels(compiler, "-O0", dir, dir)
		if err != nil {
			t.Fatal(err)
		}
		if wrong := wrongPlaces(l); !slices.Contains(wrong, m.caught) {
			t.Errorf("%q instead of %q: wrong is %v, want %q", m.new, m.old, wrong, m.caught)
		}
	}
}

// wrongPlaces returns in which cases a sum of two sources, of which the second may be indirect, is
// not that of the source that counts.
func wrongPlaces(l *library) (wrong []string) {
	const n, bytes = 5, 20
	sum, _ := Reduce(dtype.F32, dtype.Sum)
	dst, own, lent := memory(bytes, 0), memory(2*bytes, 0), memory(4*bytes, 0)
	fill(rand.New(rand.NewPCG(9, 9)), dtype.U8, own)
	fill(rand.New(rand.NewPCG(9, 10)), dtype.U8, lent)
	for _, c := range []struct {
		what   string
		place  uint64
		bytes  uint64 // that are lent
		follow int    // the offset that counts; -1 for none
	}{
		{"lent", Place(3, true, 8), 8 + bytes, 8},
		{"not lent", Place(3, false, 8), 4 * bytes, -1},
		{"beyond", Place(3, true, 12), 8 + bytes, -1},
		{"not aligned", Place(3, true, 10), 4 * bytes, -1},
		{"too short", Place(3, true, 0), bytes - 4, -1},
		{"direct", Place(3, true, 0), 4 * bytes, -1},
	} {
		word := c.place
		a := sum.Arguments(address(dst), n, 1, address(own), address(own)+bytes)
		at := uint64(uintptr(unsafe.Pointer(&word)))
		a.Lent = [MostSources]Lent{{at, address(own), c.bytes}, {at, address(lent), c.bytes}}
		a.Indirect = 2
		if c.what == "direct" { // the other one is indirect
			a.Indirect = 1
		}
		second := own[bytes:]
		if c.follow >= 0 {
			second = lent[c.follow:][:bytes]
		}
		l.launch(sum.Name, &a, 1, 1)
		runtime.KeepAlive(&word)
		if (job{call: sum, dst: memory(bytes, 0), src: [][]byte{own[:bytes], second}, n: n}).wrong(dst) {
			wrong = append(wrong, c.what)
		}
	}
	return wrong
}

// wrong reports whether a result is another than that of the job.
func (j job) wrong(got []byte) bool { return j.execute() != nil || j.differs(got, j.dst) != nil }
