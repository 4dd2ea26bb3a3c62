package kernel

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/fault"
)

// Any number of chunks of any lengths, at any alignment, in any grid, come from where they are or
// where their place says. Nothing else is written, and Execute does the same.
func TestGather(t *testing.T) {
	l := hostLibrary(t)
	r := rand.New(rand.NewPCG(11, 11))
	times := 400
	if testing.Short() {
		times = 50
	}
	for range times {
		var g Gather
		var places [MostChunks]uint64
		var targets []guarded
		var want, known [][]byte
		for k := range 1 + r.IntN(MostChunks) {
			n := r.IntN(300)
			if r.IntN(8) == 0 {
				n = r.IntN(20_000)
			}
			from, to := newGuarded(r, dtype.U8, n+64, r.IntN(16)), newGuarded(r, dtype.U8, n, r.IntN(16))
			c := Chunk{Dst: address(to.data), Src: address(from.data), N: uint64(n)}
			at := 0
			switch r.IntN(4) {
			case 0:
				at, c.Lent = r.IntN(64), Lent{uint64(uintptr(unsafe.Pointer(&places[k]))), c.Src, uint64(n + 64)}
				places[k] = Place(3, true, uint64(at))
			case 1:
				c.Lent = Lent{uint64(uintptr(unsafe.Pointer(&places[k]))), c.Src, uint64(n + 64)}
				places[k] = Place(3, true, 65) // beyond what is lent
			}
			if !g.Add(c) {
				t.Fatalf("chunk %d of %+v", k, g)
			}
			targets, want = append(targets, to), append(want, from.data[at:at+n])
			known = append(known, from.data, to.data)
		}
		blocks, threads := 1+r.IntN(20), 1+r.IntN(40)
		before := make([][]byte, len(targets))
		for i, to := range targets {
			before[i] = bytes.Clone(to.all)
			copy(before[i][len(before[i])-guard-len(to.data):], want[i])
		}
		l.call(Gathering().Name, unsafe.Pointer(&g), blocks, threads)
		check := func(what string) {
			t.Helper()
			for i, to := range targets {
				if !bytes.Equal(to.all, before[i]) {
					t.Fatalf("%s: chunk %d of %+v, %d blocks of %d", what, i, g, blocks, threads)
				}
				clear(to.data)
			}
		}
		check("the kernel")
		direct, err := Resolve(Gathering().Name, g.Bytes(), func(place uint64) uint64 {
			return *(*uint64)(*(*unsafe.Pointer)(unsafe.Pointer(&place)))
		})
		if err == nil {
			err = Execute(Gathering().Name, direct, func(ptr uint64, n int) []byte {
				for _, b := range known {
					if from := ptr - address(b); from <= uint64(len(b)) && uint64(n) <= uint64(len(b))-from {
						return b[from:][:n]
					}
				}
				return nil
			})
		}
		if err != nil {
			t.Fatal(err)
		}
		check("Execute")
		runtime.KeepAlive(&places)
	}
}

// Chunks that cannot be copied at the same time are refused, and so are wrong arguments.
func TestGatherRefuses(t *testing.T) {
	var g Gather
	add := func(dst, src, n uint64, want bool) {
		t.Helper()
		if g.Add(Chunk{Dst: dst, Src: src, N: n}) != want {
			t.Errorf("from %d to %d, %d bytes: not %v", src, dst, n, want)
		}
	}
	add(100, 200, 10, true)
	add(109, 300, 10, false) // the destination
	add(201, 300, 5, false)  // what the first one reads
	add(300, 95, 6, false)   // reads what the first one writes
	add(300, 200, 10, true)  // both read it
	add(105, 105, 0, true)
	for at := range uint64(5) {
		add(1000+10*at, 2000, 10, true)
	}
	add(3000, 4000, 10, false) // no room
	for what, change := range map[string]func(g *Gather){
		"0 chunks":      func(g *Gather) { g.Count = 0 },
		"9 chunks":      func(g *Gather) { g.Count = 9 },
		"covers a part": func(g *Gather) { g.Chunks[0].Src = 105 },
		"chunk 1":       func(g *Gather) { g.Chunks[1].Dst = 95 },
		"bytes":         func(g *Gather) { g.Chunks[0].N = 1 << 60 },
	} {
		wrong := g
		change(&wrong)
		_, err := Operands(Gathering().Name, wrong.Bytes())
		if !errors.Is(err, fault.Invalid) || !strings.Contains(err.Error(), what) {
			t.Errorf("%v, want %q", err, what)
		}
	}
	if _, err := Operands(Gathering().Name, g.Bytes()[:8]); !errors.Is(err, fault.Invalid) {
		t.Errorf("8 bytes: %v", err)
	}
	got, err := Operands(Gathering().Name, g.Bytes())
	if want := []Operand{{100, 10, 1, true}, {200, 10, 1, false}}; err != nil || !slices.Equal(got[:2], want) {
		t.Errorf("%v, %v", got, err)
	}
}
