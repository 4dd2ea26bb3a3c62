package kernel

// isa is an instruction set that has kernels of its own beside the loops in Go.
type isa uint8

const (
	noISA isa = iota
	avx2
	avx512
	neon
	isaCount
)

func (i isa) String() string { return [...]string{"go", "avx2", "avx512", "neon"}[i] }
