package kernel

import (
	"encoding/binary"
	"unsafe"
)

// Bitwise operators do not depend on where an element ends, so all integers share the loops on
// bytes.

func andIntegers[E integer](dst, a, b unsafe.Pointer, n int) {
	andBytes(dst, a, b, n*int(unsafe.Sizeof(E(0))))
}

func orIntegers[E integer](dst, a, b unsafe.Pointer, n int) {
	orBytes(dst, a, b, n*int(unsafe.Sizeof(E(0))))
}

func xorIntegers[E integer](dst, a, b unsafe.Pointer, n int) {
	xorBytes(dst, a, b, n*int(unsafe.Sizeof(E(0))))
}

func andBytes(dst, a, b unsafe.Pointer, n int) {
	d, x, y := bytesOf(dst, a, b, n)
	for len(d) >= 32 && len(x) >= 32 && len(y) >= 32 {
		little := binary.LittleEndian
		little.PutUint64(d, little.Uint64(x)&little.Uint64(y))
		little.PutUint64(d[8:], little.Uint64(x[8:])&little.Uint64(y[8:]))
		little.PutUint64(d[16:], little.Uint64(x[16:])&little.Uint64(y[16:]))
		little.PutUint64(d[24:], little.Uint64(x[24:])&little.Uint64(y[24:]))
		d, x, y = d[32:], x[32:], y[32:]
	}
	x, y = x[:len(d)], y[:len(d)]
	for i := range d {
		d[i] = x[i] & y[i]
	}
}

func orBytes(dst, a, b unsafe.Pointer, n int) {
	d, x, y := bytesOf(dst, a, b, n)
	for len(d) >= 32 && len(x) >= 32 && len(y) >= 32 {
		little := binary.LittleEndian
		little.PutUint64(d, little.Uint64(x)|little.Uint64(y))
		little.PutUint64(d[8:], little.Uint64(x[8:])|little.Uint64(y[8:]))
		little.PutUint64(d[16:], little.Uint64(x[16:])|little.Uint64(y[16:]))
		little.PutUint64(d[24:], little.Uint64(x[24:])|little.Uint64(y[24:]))
		d, x, y = d[32:], x[32:], y[32:]
	}
	x, y = x[:len(d)], y[:len(d)]
	for i := range d {
		d[i] = x[i] | y[i]
	}
}

func xorBytes(dst, a, b unsafe.Pointer, n int) {
	d, x, y := bytesOf(dst, a, b, n)
	for len(d) >= 32 && len(x) >= 32 && len(y) >= 32 {
		little := binary.LittleEndian
		little.PutUint64(d, little.Uint64(x)^little.Uint64(y))
		little.PutUint64(d[8:], little.Uint64(x[8:])^little.Uint64(y[8:]))
		little.PutUint64(d[16:], little.Uint64(x[16:])^little.Uint64(y[16:]))
		little.PutUint64(d[24:], little.Uint64(x[24:])^little.Uint64(y[24:]))
		d, x, y = d[32:], x[32:], y[32:]
	}
	x, y = x[:len(d)], y[:len(d)]
	for i := range d {
		d[i] = x[i] ^ y[i]
	}
}
