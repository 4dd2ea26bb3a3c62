// Package trace writes what a process remembers of its last operations, in the format of torch's
// flight recorder.
package trace

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
)

// pair is one entry of a Python dict; entries are written in order.
type pair struct {
	key   string
	value any
}

type (
	dict  []pair
	list  []any
	tuple [2]any
)

// pickle writes a value as a Python pickle, protocol 2: nil, bool, int, int64, float64, string,
// dict, list and tuple. https://docs.python.org/3/library/pickletools.html lists the opcodes.
func pickle(value any) []byte {
	var b bytes.Buffer
	b.Write([]byte{0x80, 2})
	pickleValue(&b, value)
	b.WriteByte('.')
	return b.Bytes()
}

func pickleValue(b *bytes.Buffer, value any) {
	number := func(opcode byte, n any) {
		b.WriteByte(opcode)
		binary.Write(b, binary.LittleEndian, n)
	}
	switch v := value.(type) {
	case nil:
		b.WriteByte('N')
	case bool:
		if v {
			b.WriteByte(0x88)
		} else {
			b.WriteByte(0x89)
		}
	case int:
		pickleValue(b, int64(v))
	case int64:
		if v >= math.MinInt32 && v <= math.MaxInt32 {
			number('J', int32(v))
		} else {
			b.Write([]byte{0x8a, 8}) // LONG1 with eight bytes
			binary.Write(b, binary.LittleEndian, v)
		}
	case float64:
		b.WriteByte('G')
		binary.Write(b, binary.BigEndian, v)
	case string:
		number('X', uint32(len(v)))
		b.WriteString(v)
	case tuple:
		pickleValue(b, v[0])
		pickleValue(b, v[1])
		b.WriteByte(0x86)
	case list:
		b.WriteString("](")
		for _, each := range v {
			pickleValue(b, each)
		}
		b.WriteByte('e')
	case dict:
		b.WriteString("}(")
		for _, each := range v {
			pickleValue(b, each.key)
			pickleValue(b, each.value)
		}
		b.WriteByte('u')
	default:
		panic(fmt.Sprintf("pickle of a %T", value))
	}
}
