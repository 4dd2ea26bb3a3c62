package main

import "fmt"

// instruction is an instruction on three 512-bit registers that Go's assembler does not know. It is
// written as bytes.
type instruction struct {
	mnemonic  string
	opcodeMap int // 1 is 0F, 2 is 0F38, 5 is the map of half precision
	prefix    int // 0 for none, 1 for 66, 2 for F3, 3 for F2
	opcode    int
	nearest   bool // rounds to nearest whatever the control word says, and raises no exceptions
}

// bytes returns the encoding: EVEX (the marker, R X B R' and the map, W vvvv 1 pp, z L'L b V' aaa),
// opcode, ModRM. The bits that extend the number of a register are inverted. With b set, a register
// form has its rounding mode in L'L, and its width is 512 bits.
func (i instruction) bytes(second, first, to int) [6]byte {
	not := func(n, bit int) int { return ^n >> bit & 1 }
	width := 0x40
	if i.nearest {
		width = 0x10
	}
	return [6]byte{
		0x62,
		byte(not(to, 3)<<7 | not(second, 4)<<6 | not(second, 3)<<5 | not(to, 4)<<4 | i.opcodeMap),
		byte((^first&15)<<3 | 0x04 | i.prefix),
		byte(width | not(first, 4)<<3),
		byte(i.opcode),
		byte(0xc0 | to&7<<3 | second&7),
	}
}

// write emits the instruction with its operands in the order of Go's assembly. Of two NaN the one
// in first wins.
func (i instruction) write(e *emitter, second, first, to string) {
	number := func(reg string) (n int) {
		fmt.Sscanf(reg[1:], "%d", &n)
		return n
	}
	fmt.Fprintf(e, "\t// %s %s, %s, %s\n", i.mnemonic, second, first, to)
	for at, c := range i.bytes(number(second), number(first), number(to)) {
		if at > 0 {
			e.WriteString("; ")
		} else {
			e.WriteString("\t")
		}
		fmt.Fprintf(e, "BYTE $%#02x", c)
	}
	e.WriteString("\n")
}
