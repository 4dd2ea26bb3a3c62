package main

import (
	"fmt"
	"strings"
)

// General registers of a loop.
const (
	dstPointer = "DI"
	offset     = "R8"  // bytes done
	left       = "R12" // bytes to do, less the bytes that the next loop takes at once
	spare      = "R13"
	spare2     = "CX" // free where there are at most four sources
)

var srcPointers = []string{"SI", "DX", "AX", "BX", "CX", "R9", "R10", "R11"}

// kind is the signature of a kernel in assembly.
type kind int

const (
	pair      kind = iota // dst = a ⊕ b
	pairScale             // dst = (a + b) × factor
	scale                 // dst = src × factor
	fold                  // dst = src[0] ⊕ src[1] ⊕ … from a byte offset on
	move                  // a copy past the caches
)

var signatures = map[kind]struct {
	parameters string
	arguments  int // bytes
}{
	pair:      {"dst, a, b unsafe.Pointer, n int", 32},
	pairScale: {"dst, a, b unsafe.Pointer, n int, factor float64", 40},
	scale:     {"dst, src unsafe.Pointer, n int, factor float64", 32},
	fold:      {"dst unsafe.Pointer, src *unsafe.Pointer, offset, n int", 32},
	move:      {"dst, src unsafe.Pointer, n int", 24},
}

// kernel is one function in assembly.
type kernel struct {
	name    string
	kind    kind
	vector  vector
	body    body
	size    int // bytes of one unit of n
	sources int
}

// uncached reports whether the stores go past the caches. Such kernels take whole cache lines, of
// an aligned dst.
func (k kernel) uncached() bool { return k.kind == move }

func (k kernel) scales() bool { return k.kind == scale || k.kind == pairScale }

// anyLength reports whether n may be any number, not only a multiple of the elements in a vector.
func (k kernel) anyLength() bool { return k.vector.masks() && !k.uncached() }

func (k kernel) multiple() int { return k.body.step / k.size }

// factor returns the register of the factor.
func (k kernel) factor() string { return k.vector.constant(len(k.body.constants)) }

// scratch returns the register by which a cut vector is loaded and stored, and by which stores go
// past the caches.
func (k kernel) scratch() string {
	i := len(k.body.constants)
	if k.scales() {
		i++
	}
	if k.body.step < k.vector.bytes {
		return k.vector.lower(k.vector.constant(i))
	}
	return k.vector.constant(i)
}

// unrolled returns the number of vectors in flight. Rounding between additions makes a long chain
// of instructions of each vector, for which a CPU finds enough other instructions only if they are
// close by.
func (k kernel) unrolled() int {
	free := k.vector.registers - len(k.body.constants) - k.body.shared
	if k.scales() {
		free--
	}
	if k.anyLength() || k.uncached() {
		free--
	}
	most := 4
	if k.kind == fold && k.body.round != nil {
		most = 8
	}
	for n := most; n > 1; n /= 2 {
		if n*k.body.own <= free {
			return n
		}
	}
	return 1
}

// registersOf returns the registers of the u-th vector in flight.
func (k kernel) registersOf(u int) regs {
	return func(i int) string {
		if i < k.body.own {
			return k.vector.reg(u*k.body.own + i)
		}
		return k.vector.reg((k.unrolled()-1)*k.body.own + i)
	}
}

// shift returns the logarithm of the size.
func shift(size int) int { return strings.Index("1248", fmt.Sprint(size)) }

// write emits the whole function.
func (k kernel) write(e *emitter) {
	s := signatures[k.kind]
	fmt.Fprintf(e, "\n// func %s(%s)\nTEXT ·%s(SB), NOSPLIT, $0-%d\n", k.name, s.parameters, k.name, s.arguments)
	k.writeOperands(e)
	k.writeConstants(e)
	if k.sources == 2 && k.anyLength() && k.body.step == k.vector.bytes {
		k.writeHead(e)
	}
	step, several := k.body.step, k.unrolled()
	if several > 1 {
		e.op("SUBQ", imm(several*step), left)
		e.op("JL", "fewer")
		e.label("several")
		k.writeVectors(e, several)
		e.op("ADDQ", imm(several*step), offset)
		e.op("SUBQ", imm(several*step), left)
		e.op("JGE", "several")
		e.label("fewer")
		e.op("ADDQ", imm((several-1)*step), left)
	} else {
		e.op("SUBQ", imm(step), left)
	}
	e.op("JL", "rest")
	e.label("one")
	k.writeVectors(e, 1)
	e.op("ADDQ", imm(step), offset)
	e.op("SUBQ", imm(step), left)
	e.op("JGE", "one")
	e.label("rest")
	if k.anyLength() {
		e.op("ADDQ", imm(step), left)
		e.op("JZ", "done")
		k.writeCut(e, left)
		e.label("done")
	}
	e.op("VZEROUPPER")
	if k.uncached() {
		e.op("SFENCE") // these stores are not ordered with later ones that announce them to others
	}
	e.op("RET")
}

func (k kernel) writeOperands(e *emitter) {
	count := "n+24(FP)"
	e.op("MOVQ", "dst+0(FP)", dstPointer)
	switch k.kind {
	case pair, pairScale:
		e.op("MOVQ", "a+8(FP)", srcPointers[0])
		e.op("MOVQ", "b+16(FP)", srcPointers[1])
	case scale, move:
		e.op("MOVQ", "src+8(FP)", srcPointers[0])
		count = "n+16(FP)"
	case fold:
		e.op("MOVQ", "src+8(FP)", spare)
		for i := range k.sources {
			e.op("MOVQ", fmt.Sprintf("%d(%s)", 8*i, spare), srcPointers[i])
		}
	}
	e.op("MOVQ", count, left)
	if k.size > 1 {
		e.op("SHLQ", imm(shift(k.size)), left)
	}
	if k.kind == fold {
		e.op("MOVQ", "offset+16(FP)", offset)
	} else {
		e.op("XORQ", offset, offset)
	}
}

func (k kernel) writeConstants(e *emitter) {
	v := k.vector
	for i, c := range k.body.constants {
		if table := k.body.tables[i]; table != "" {
			e.op(v.move, table, v.constant(i))
			continue
		}
		e.op("MOVQ", fmt.Sprintf("$%#016x", c), spare)
		if v.masks() {
			e.op("VPBROADCASTQ", spare, v.constant(i))
			continue
		}
		e.op("MOVQ", spare, v.lower(v.constant(i)))
		e.op("VPBROADCASTQ", v.lower(v.constant(i)), v.constant(i))
	}
	if k.body.oddWords {
		e.op("MOVL", "$0xaaaaaaaa", spare)
		e.op("KMOVD", spare, "K7")
	}
	switch k.kind {
	case scale:
		e.op("VBROADCASTSD", "factor+24(FP)", k.factor())
	case pairScale:
		e.op("VBROADCASTSD", "factor+32(FP)", k.factor())
	}
}

// writeHead advances dst to a multiple of a cache line by a cut vector, if that aligns a or b too,
// as it does in place: an access across lines costs two.
func (k kernel) writeHead(e *emitter) {
	e.op("CMPQ", left, imm(1024))
	e.op("JB", "lines")
	e.op("MOVQ", dstPointer, spare)
	e.op("MOVQ", dstPointer, spare2)
	e.op("XORQ", srcPointers[0], spare)
	e.op("XORQ", srcPointers[1], spare2)
	e.op("TESTQ", imm(63), spare)
	e.op("JZ", "head")
	e.op("TESTQ", imm(63), spare2)
	e.op("JNZ", "lines")
	e.label("head")
	e.op("MOVQ", dstPointer, spare2)
	e.op("NEGQ", spare2)
	e.op("ANDQ", imm(63), spare2)
	e.op("JZ", "lines")
	k.writeCut(e, spare2)
	e.op("ADDQ", spare2, offset)
	e.op("SUBQ", spare2, left)
	e.label("lines")
}

// writeVectors processes count vectors from the offset on.
func (k kernel) writeVectors(e *emitter, count int) {
	for s := range k.sources {
		for u := range count {
			src := at(u*k.body.step, srcPointers[s])
			switch {
			case s == 0:
				k.body.load(e, k.registersOf(u), src)
			default:
				k.body.combine(e, k.registersOf(u), src)
			}
			k.writeBetween(e, k.registersOf(u), s)
		}
	}
	for u := range count {
		dst := at(u*k.body.step, dstPointer)
		if !k.uncached() {
			k.body.store(e, k.registersOf(u), dst)
			continue
		}
		k.body.store(e, k.registersOf(u), k.scratch())
		e.op("VMOVNTDQ", k.scratch(), dst)
	}
}

// writeBetween rounds and scales after source s, where that is needed.
func (k kernel) writeBetween(e *emitter, r regs, s int) {
	last := s == k.sources-1
	if k.body.round != nil && s > 0 && (!last || k.scales()) {
		k.body.round(e, r)
	}
	if last && k.scales() {
		k.body.scale(e, r)
	}
}

// writeCut processes the first bytes of a vector. The register count holds their number.
func (k kernel) writeCut(e *emitter, count string) {
	scratch, r := k.scratch(), k.registersOf(0)
	e.op("MOVQ", "$-1", spare)
	e.op("BZHIQ", count, spare, spare)
	e.op("KMOVQ", spare, "K1")
	for s := range k.sources {
		e.op("VMOVDQU8.Z", at(0, srcPointers[s]), "K1", scratch)
		if s == 0 {
			k.body.load(e, r, scratch)
		} else {
			k.body.combine(e, r, scratch)
		}
		k.writeBetween(e, r, s)
	}
	k.body.store(e, r, scratch)
	e.op("VMOVDQU8", scratch, "K1", at(0, dstPointer))
}
