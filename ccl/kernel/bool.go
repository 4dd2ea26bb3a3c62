package kernel

import (
	"encoding/binary"
	"unsafe"

	"github.com/goccl/goccl/ccl/dtype"
)

// boolReduction returns the kernel of logical values: sum and max are or, prod and min are and. A
// byte other than 0 counts as true.
func boolReduction(op dtype.Op) Func {
	switch op {
	case dtype.Sum, dtype.Max, dtype.BOr:
		return orBools
	case dtype.Prod, dtype.Min, dtype.BAnd:
		return andBools
	case dtype.BXor:
		return xorBools
	}
	return nil
}

// truth maps each of eight bytes to 1, or to 0 if it is 0.
func truth(u uint64) uint64 {
	const low7 = 0x7f7f7f7f7f7f7f7f
	return (u&low7 + low7 | u) >> 7 & 0x0101010101010101
}

func bytesOf(dst, a, b unsafe.Pointer, n int) (d, x, y []byte) {
	return unsafe.Slice((*byte)(dst), n), unsafe.Slice((*byte)(a), n), unsafe.Slice((*byte)(b), n)
}

func orBools(dst, a, b unsafe.Pointer, n int) {
	d, x, y := bytesOf(dst, a, b, n)
	for len(d) >= 8 && len(x) >= 8 && len(y) >= 8 {
		binary.LittleEndian.PutUint64(d, truth(binary.LittleEndian.Uint64(x)|binary.LittleEndian.Uint64(y)))
		d, x, y = d[8:], x[8:], y[8:]
	}
	for i := range d {
		d[i] = byte(truth(uint64(x[i] | y[i])))
	}
}

func andBools(dst, a, b unsafe.Pointer, n int) {
	d, x, y := bytesOf(dst, a, b, n)
	for len(d) >= 8 && len(x) >= 8 && len(y) >= 8 {
		binary.LittleEndian.PutUint64(d, truth(binary.LittleEndian.Uint64(x))&truth(binary.LittleEndian.Uint64(y)))
		d, x, y = d[8:], x[8:], y[8:]
	}
	for i := range d {
		d[i] = byte(truth(uint64(x[i])) & truth(uint64(y[i])))
	}
}

func xorBools(dst, a, b unsafe.Pointer, n int) {
	d, x, y := bytesOf(dst, a, b, n)
	for len(d) >= 8 && len(x) >= 8 && len(y) >= 8 {
		binary.LittleEndian.PutUint64(d, truth(binary.LittleEndian.Uint64(x))^truth(binary.LittleEndian.Uint64(y)))
		d, x, y = d[8:], x[8:], y[8:]
	}
	for i := range d {
		d[i] = byte(truth(uint64(x[i])) ^ truth(uint64(y[i])))
	}
}
