package kernel

// isa is an instruction set that has its own kernels beside the loops in Go.
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

// whole returns the instruction set that has the kernels which i lacks: AVX512-FP16 adds a few to
// those of AVX-512.
func (i isa) whole() isa {
	if i == avx512fp16 {
		return avx512
	}
	return i
}
