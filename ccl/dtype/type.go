package dtype

import "fmt"

// Type is the element type of a buffer.
type Type uint8

const (
	Invalid Type = iota
	F64
	F32
	F16
	BF16
	I8
	U8
	I16
	U16
	I32
	U32
	I64
	U64
	Bool   // one byte, 0 or 1
	C64    // two F32
	C128   // two F64
	F8E4M3 // no infinities (torch's float8_e4m3fn)
	F8E5M2
	numTypes
)

var types = [numTypes]struct {
	name string
	size int
}{
	Invalid: {"invalid", 0},
	F64:     {"f64", 8}, F32: {"f32", 4}, F16: {"f16", 2}, BF16: {"bf16", 2},
	I8: {"i8", 1}, U8: {"u8", 1}, I16: {"i16", 2}, U16: {"u16", 2},
	I32: {"i32", 4}, U32: {"u32", 4}, I64: {"i64", 8}, U64: {"u64", 8},
	Bool: {"bool", 1}, C64: {"c64", 8}, C128: {"c128", 16},
	F8E4M3: {"f8e4m3", 1}, F8E5M2: {"f8e5m2", 1},
}

// Types returns every valid type in the order of the constants.
func Types() []Type {
	all := make([]Type, 0, numTypes-1)
	for t := F64; t < numTypes; t++ {
		all = append(all, t)
	}
	return all
}

// Valid reports whether t is one of the constants other than Invalid.
func (t Type) Valid() bool { return t > Invalid && t < numTypes }

// Size returns the number of bytes of one element, or 0 for an invalid type.
func (t Type) Size() int {
	if t >= numTypes {
		return 0
	}
	return types[t].size
}

func (t Type) String() string {
	if t >= numTypes {
		return fmt.Sprintf("type(%d)", uint8(t))
	}
	return types[t].name
}

// aliases maps the names that users of torch, numpy and NCCL know.
var aliases = map[string]Type{
	"float64": F64, "double": F64, "float32": F32, "float": F32, "float16": F16, "half": F16, "bfloat16": BF16,
	"int8": I8, "uint8": U8, "int16": I16, "uint16": U16, "int32": I32, "uint32": U32, "int64": I64, "uint64": U64,
	"complex64": C64, "complex128": C128, "float8_e4m3fn": F8E4M3, "float8_e5m2": F8E5M2,
}

// ParseType finds a type by its name ("f32") or by torch's name for it ("float32").
func ParseType(name string) (Type, error) {
	for _, t := range Types() {
		if types[t].name == name {
			return t, nil
		}
	}
	if t, ok := aliases[name]; ok {
		return t, nil
	}
	return Invalid, fmt.Errorf("unknown element type %q; known: %v", name, Types())
}

// Float reports whether t is a real floating-point type of 16 bits or more.
func (t Type) Float() bool { return t >= F64 && t <= BF16 }

// Float8 reports whether t is a floating-point type of 8 bits.
func (t Type) Float8() bool { return t == F8E4M3 || t == F8E5M2 }

// Integer reports whether t is a signed or unsigned integer.
func (t Type) Integer() bool { return t >= I8 && t <= U64 }
