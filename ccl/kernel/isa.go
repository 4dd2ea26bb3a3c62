package kernel

// isa is an instruction set that has kernels of its own beside the loops in Go.
type isa uint8

const (
	noISA isa = iota
	avx2
	avx512
	avx512fp16
	neon
	isaCount
)

func (i isa) String() string { return [...]string{"go", "avx2", "avx512", "avx512fp16", "neon"}[i] }

// whole is the instruction set that has the kernels which i has not: AVX512-FP16 adds some to those
// of AVX-512.
func (i isa) whole() isa {
	if i == avx512fp16 {
		return avx512
	}
	return i
}
