package ranks

import (
	"fmt"
	"math"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/kernel"
	_ "github.com/goccl/goccl/internal/scratch"
)

func TestElementsOfAPattern(t *testing.T) {
	for _, c := range []struct {
		of   dtype.Type
		v    float64
		want string
	}{
		{dtype.F64, 1.5, "000000000000f83f"}, {dtype.F32, 3, "00004040"},
		{dtype.F16, 2048, "0068"}, {dtype.BF16, 256, "8043"},
		{dtype.F8E4M3, 16, "58"}, {dtype.F8E4M3, 1, "38"},
		{dtype.F8E5M2, 7, "47"}, {dtype.F8E5M2, 8, "48"}, {dtype.F8E5M2, 1.0 / 3, "35"},
		{dtype.F8E4M3, 15.6, "58"}, {dtype.F8E4M3, 0, "00"}, {dtype.C64, 2, "0000004000000040"},
		{dtype.I8, 8, "08"}, {dtype.U16, 513, "0102"}, {dtype.I64, 5, "0500000000000000"}, {dtype.Bool, 1, "01"},
	} {
		require.Equal(t, c.want, fmt.Sprintf("%x", encode(nil, c.of, c.v)), "%v as %v", c.v, c.of)
	}
	for _, short := range []dtype.Type{dtype.F16, dtype.BF16, dtype.F8E4M3, dtype.F8E5M2} {
		for v := float32(1. / 32); v < 40; v += 1. / 64 {
			want := make([]byte, short.Size())
			kernel.Convert(short, dtype.F32)(unsafe.Pointer(&want[0]), unsafe.Pointer(&v), 1)
			require.Equal(t, want, encode(nil, short, float64(v)), "%v as %v", v, short)
		}
	}
}

// The result is exact whatever the order in which ranks are combined: no number is negative, and at
// every place the total of all numbers does not exceed what the type represents.
func TestWhatRanksGiveIsExact(t *testing.T) {
	for _, ty := range dtype.Types() {
		for _, op := range dtype.Ops() {
			if dtype.Reducible(ty, op) != nil {
				continue
			}
			for _, ranks := range []int{1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 40, 64, 100, 256} {
				s := Spec{Coll: dtype.AllReduce, Type: ty, Op: op, Ranks: ranks}
				seen := make([]bool, ranks)
				for place := range s.period() {
					sum, product := 0, 1
					for rank := range ranks {
						v := s.Given(rank, 0, place)
						if v < 0 || v > largestGiven || v != s.Given(rank, 0, place+s.period()) {
							t.Fatalf("rank %d of %d gives %d at place %d", rank, ranks, v, place)
						}
						seen[rank] = seen[rank] || v > 0
						sum, product = sum+v, min(product*v, math.MaxInt32)
					}
					adds := op == dtype.Sum || op == dtype.Avg || op == dtype.PremulSum
					if adds && sum > exactTo(ty) || op == dtype.Prod && product > 8 {
						t.Fatalf("%v of %v, %d ranks: %d or %d at place %d", op, ty, ranks, sum, product, place)
					}
				}
				require.NotContains(t, seen, false, "%v of %v, %d ranks: some rank does not matter", op, ty, ranks)
			}
		}
	}
}

func TestWrongElementsAreCounted(t *testing.T) {
	for _, ty := range []dtype.Type{dtype.F8E5M2, dtype.BF16, dtype.F32, dtype.C128} {
		s := Spec{Coll: dtype.AllReduce, Type: ty, Ranks: 3}
		pattern := s.Pattern(func(place int) int { return s.Expected(0, place) })
		for _, n := range []int{0, 1, 2, 11, 12, 13, 5000, 70001} {
			mem := make([]byte, n*ty.Size()+1)
			block := ccl.Block{Ptr: unsafe.Pointer(&mem[0]), Count: n}
			Fill(block, ty, pattern)
			require.Zero(t, mem[n*ty.Size()], "beyond the block")
			require.Zero(t, Count(block, ty, pattern))
			places := []int{0, n / 3, n - 1}
			wrong := map[int]bool{}
			for _, at := range places {
				if at >= 0 && at < n {
					mem[(at+1)*ty.Size()-1] ^= 1
					wrong[at] = !wrong[at]
				}
			}
			want := int64(0)
			for _, is := range wrong {
				if is {
					want++
				}
			}
			require.Equal(t, want, Count(block, ty, pattern), "%v, %d elements", ty, n)
		}
	}
}
