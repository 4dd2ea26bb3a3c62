package main

import (
	"fmt"
	"strings"
)

// emitter writes Plan 9 assembly, a line at a time.
type emitter struct {
	strings.Builder
}

// op writes an instruction. The destination comes last, as everywhere in Go's assembly.
func (e *emitter) op(mnemonic string, operands ...string) {
	if len(operands) == 0 {
		fmt.Fprintf(e, "\t%s\n", mnemonic)
		return
	}
	fmt.Fprintf(e, "\t%s %s\n", mnemonic, strings.Join(operands, ", "))
}

func (e *emitter) label(name string) { fmt.Fprintf(e, "\n%s:\n", name) }

func imm(n int) string { return fmt.Sprintf("$%d", n) }

// at returns the operand that lies displacement bytes after the running offset from pointer.
func at(displacement int, pointer string) string {
	if displacement == 0 {
		return fmt.Sprintf("(%s)(%s*1)", pointer, offset)
	}
	return fmt.Sprintf("%d(%s)(%s*1)", displacement, pointer, offset)
}

func inMemory(operand string) bool { return strings.HasSuffix(operand, ")") }
