package kernel

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"flag"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/dtype"
)

var torch = flag.String("torch", "", "a Python with torch, to write testdata/float8.txt again")

const quarterOperands = 1 << 16 // every pair

var quarterOps = []dtype.Op{dtype.Sum, dtype.Prod, dtype.Min, dtype.Max}

// everyPairOfQuarters returns operands a and b with every pair: element i is i/256 in a and i%256
// in b.
func everyPairOfQuarters() (a, b guarded) {
	a, b = newGuarded(quarterOperands, 5), newGuarded(quarterOperands, 9)
	for i := range quarterOperands {
		a.data[i], b.data[i] = byte(i>>8), byte(i)
	}
	return a, b
}

func TestEveryPairOfQuartersByEveryPath(t *testing.T) {
	a, b := everyPairOfQuarters()
	for _, ty := range []dtype.Type{dtype.F8E4M3, dtype.F8E5M2} {
		for _, op := range quarterOps {
			paths := map[string]Func{"chosen": For(ty, op)}
			for _, i := range isas() {
				if f := pairWith(ty, op, i); f != nil {
					paths[i.String()] = f
				}
			}
			want := make([]byte, quarterOperands)
			for i := range want {
				want[i] = byte(reference(ty, op, uint64(i>>8), uint64(i&255)))
			}
			for name, f := range paths {
				dst := newGuarded(quarterOperands, 0)
				f(dst.pointer(), a.pointer(), b.pointer(), quarterOperands)
				if i := mismatch(want, dst.data); i >= 0 {
					t.Fatalf("%v of %v by %s: %#x and %#x gave %#x, want %#x",
						op, ty, name, i>>8, i&255, dst.data[i], want[i])
				}
				require.NoError(t, dst.broken())
			}
		}
	}
}

// The lengths make the kernels scale with the table and without it.
func TestEveryQuarterIsScaledInOneRounding(t *testing.T) {
	src := newGuarded(2*tableLeast+3, 1)
	for i := range src.data {
		src.data[i] = byte(i)
	}
	r := rand.New(rand.NewPCG(21, 22))
	for _, ty := range []dtype.Type{dtype.F8E4M3, dtype.F8E5M2} {
		for round := range 200 {
			factor := math.Ldexp(r.NormFloat64(), r.IntN(40)-20)
			if round < len(factors) {
				factor = factors[round]
			}
			for _, n := range []int{256, tableLeast - 1, tableLeast, 2*tableLeast + 3} {
				dst := newGuarded(n, 3)
				Scale(ty)(dst.pointer(), src.pointer(), n, factor)
				for i, got := range dst.data {
					if want := referenceScale(ty, uint64(src.data[i]), factor); uint64(got) != want {
						t.Fatalf("%v × %v, n %d: %#x gave %#x, want %#x", ty, factor, n, src.data[i], got, want)
					}
				}
				require.NoError(t, dst.broken())
			}
		}
	}
}

// The conversions, and with them sums and products, must be torch's.
func TestQuartersAreThoseOfTorch(t *testing.T) {
	const file = "testdata/float8.txt"
	if *torch != "" {
		out, err := exec.Command(*torch, "testdata/float8.py").Output()
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(file, out, 0o644))
	}
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	golden := map[string][]byte{}
	for line := range strings.Lines(string(text)) {
		if words := strings.Fields(line); len(words) == 3 {
			golden[words[0]+" "+words[1]], err = hex.DecodeString(words[2])
			require.NoError(t, err)
		}
	}
	a, b := everyPairOfQuarters()
	for ty, of := range map[dtype.Type]struct {
		wide   *[256]float32
		narrow func(float32) uint8
	}{dtype.F8E4M3: {widenedF8E4M3, narrowF8E4M3}, dtype.F8E5M2: {widenedF8E5M2, narrowF8E5M2}} {
		widened := golden[ty.String()+" widen"]
		require.Len(t, widened, 4*256)
		for u, got := range of.wide {
			want := math.Float32frombits(binary.LittleEndian.Uint32(widened[4*u:]))
			require.Equal(t, math.Float32bits(want), math.Float32bits(got), "%v %#x", ty, u)
		}
		from, to := golden[ty.String()+" from"], golden[ty.String()+" narrow"]
		require.Greater(t, len(to), 1500)
		require.Len(t, from, 4*len(to))
		for i, want := range to {
			u := binary.LittleEndian.Uint32(from[4*i:])
			require.Equal(t, want, of.narrow(math.Float32frombits(u)), "%v of the F32 %#08x", ty, u)
		}
		for _, op := range quarterOps {
			dst := newGuarded(quarterOperands, 0)
			For(ty, op)(dst.pointer(), a.pointer(), b.pointer(), quarterOperands)
			for i, u := range dst.data { // signs that torch leaves open
				if formats[ty].nan(uint64(u)) || u == 0x80 && (op == dtype.Min || op == dtype.Max) {
					dst.data[i] = u & 0x7f
				}
			}
			sum := sha256.Sum256(dst.data)
			require.Equal(t, golden[ty.String()+" "+op.String()], sum[:], "%v of %v", op, ty)
		}
	}
}
