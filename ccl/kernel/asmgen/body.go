package main

// body is what a loop does with one vector of elements. Several vectors are in flight at once.
// r(0), r(1) … are the registers of one vector: the first own of them belong to that vector, and
// r(0), or the first few, hold the result so far; the others are shared by all vectors, because
// they are needed for a few instructions only. A source or a destination is memory or, where the
// end of the operands cuts a vector, a register.
type body struct {
	step        int            // bytes of an operand in one vector
	own, shared int            // number of registers
	constants   []uint64       // constants[i] fills every 64 bits of vector.constant(i)
	tables      map[int]string // variables of the size of a vector, in place of constants
	oddWords    bool           // K7 must select the odd 16-bit lanes

	load    func(e *emitter, r regs, src string)
	combine func(e *emitter, r regs, src string)
	// round rounds to the element type between two operators. It is nil where that takes no step of
	// its own.
	round func(e *emitter, r regs)
	scale func(e *emitter, r regs)
	store func(e *emitter, r regs, dst string)
}

type regs func(i int) string

// registerOf returns a register that holds src. It loads src into spare if src is in memory.
func registerOf(e *emitter, v vector, src, spare string) string {
	if !inMemory(src) {
		return src
	}
	e.op(v.move, src, spare)
	return spare
}

// copyBody returns a body that moves elements.
func copyBody(v vector) body {
	return body{
		step: v.bytes, own: 1,
		load:  func(e *emitter, r regs, src string) { e.op(v.move, src, r(0)) },
		store: func(e *emitter, r regs, dst string) { e.op(v.move, r(0), dst) },
	}
}

// simple returns an operator of one instruction, whose first source is a: of two NaN the first
// wins.
func simple(v vector, move, instruction string) body {
	b := copyBody(v)
	b.load = func(e *emitter, r regs, src string) { e.op(move, src, r(0)) }
	b.combine = func(e *emitter, r regs, src string) { e.op(instruction, src, r(0), r(0)) }
	b.store = func(e *emitter, r regs, dst string) { e.op(move, r(0), dst) }
	return b
}

// composed returns an operator of several instructions: f sets a, and may use the registers from
// t(0) on and overwrite b.
func composed(v vector, temporaries int, constants []uint64, f func(e *emitter, a, b string, t regs)) body {
	b := copyBody(v)
	b.shared = 1 + temporaries
	b.constants = constants
	b.combine = func(e *emitter, r regs, src string) {
		f(e, r(0), registerOf(e, v, src, r(1)), func(i int) string { return r(2 + i) })
	}
	return b
}

// every repeats a value of the given number of bits across 64 bits.
func every(bits int, value uint64) uint64 {
	for ; bits < 64; bits *= 2 {
		value |= value << bits
	}
	return value
}
