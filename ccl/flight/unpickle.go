package flight

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
)

// dict and list are those of Python. They are pointers, since a pickle may name one of them twice.
type (
	dict map[string]any
	list struct{ items []any }
)

// mark is what a pickle puts below the items of a container.
type mark struct{}

// mostValues bounds the memory that a pickle takes: it is enough for 300,000 operations.
const mostValues = 1 << 24

// malformed is the error of a file that is no record.
type malformed struct {
	at   int // the offset of the byte
	what string
}

func (e *malformed) Error() string { return fmt.Sprintf("byte %d: %s", e.at, e.what) }

// reader is a machine with a stack that makes values of pickles. Python's own, which can be told to
// call any function, is not wanted here: this one knows the opcodes of plain values only.
type reader struct {
	text  string
	at    int // of the byte that is read next
	from  int // of the opcode
	stack []any
	memo  map[uint32]any
	count int
}

// unpickle reads a pickle of nil, bool, int64, float64, string, lists, tuples (as lists) and dicts,
// as pickle writes it, torch's recorders, or Python.
// https://docs.python.org/3/library/pickletools.html lists the opcodes.
func unpickle(text string) (value any, err error) {
	r := &reader{text: text, memo: map[uint32]any{}}
	defer func() {
		if p := recover(); p != nil {
			wrong, ok := p.(*malformed)
			if !ok {
				panic(p)
			}
			value, err = nil, wrong
		}
	}()
	for r.step() {
	}
	value = r.pop()
	if len(r.stack) > 0 {
		r.fail("values are left over")
	}
	return value, nil
}

// fail ends the reading; unpickle returns the error.
func (r *reader) fail(format string, args ...any) {
	panic(&malformed{r.from, fmt.Sprintf(format, args...)})
}

// step executes an opcode, and reports whether more follow.
func (r *reader) step() bool {
	r.from = r.at
	switch op := r.bytes(1)[0]; op {
	case '.': // STOP
		return false
	case 0x80: // PROTO
		if version := r.bytes(1)[0]; version < 2 || version > 5 {
			r.fail("a pickle of protocol %d; want 2 to 5", version)
		}
	case 0x95: // FRAME
		r.bytes(8)
	case '(':
		r.push(mark{})
	case 'N':
		r.push(nil)
	case 0x88, 0x89: // NEWTRUE, NEWFALSE
		r.push(op == 0x88)
	case 'J': // BININT
		r.push(int64(int32(r.number(4))))
	case 'K': // BININT1
		r.push(int64(r.number(1)))
	case 'M': // BININT2
		r.push(int64(r.number(2)))
	case 0x8a: // LONG1
		r.push(r.long())
	case 'G': // BINFLOAT
		r.push(math.Float64frombits(binary.BigEndian.Uint64([]byte(r.bytes(8)))))
	case 0x8c: // SHORT_BINUNICODE
		r.push(r.bytes(r.number(1)))
	case 'X': // BINUNICODE
		r.push(r.bytes(r.number(4)))
	case 0x8d: // BINUNICODE8
		r.push(r.bytes(r.number(8)))
	case ']':
		r.push(&list{})
	case ')':
		r.push(&list{})
	case '}':
		r.push(dict{})
	case 0x85, 0x86, 0x87: // TUPLE1, TUPLE2, TUPLE3
		r.tuple(r.take(int(op) - 0x84))
	case 't': // TUPLE
		r.tuple(r.toMark())
	case 'a': // APPEND
		r.extend(r.take(1))
	case 'e': // APPENDS
		r.extend(r.toMark())
	case 's': // SETITEM
		r.set(r.take(2))
	case 'u': // SETITEMS
		r.set(r.toMark())
	case 'q': // BINPUT
		r.remember(uint32(r.number(1)))
	case 'r': // LONG_BINPUT
		r.remember(uint32(r.number(4)))
	case 0x94: // MEMOIZE
		r.remember(uint32(len(r.memo)))
	case 'h': // BINGET
		r.recall(uint32(r.number(1)))
	case 'j': // LONG_BINGET
		r.recall(uint32(r.number(4)))
	default:
		r.fail("opcode %#x is none of those that a record consists of", op)
	}
	return true
}

// bytes returns the next n bytes.
func (r *reader) bytes(n uint64) string {
	if n > uint64(len(r.text)-r.at) {
		r.fail("the file ends within the value")
	}
	r.at += int(n)
	return r.text[r.at-int(n) : r.at]
}

// number returns the next size bytes as a little-endian number.
func (r *reader) number(size int) (n uint64) {
	for i, b := range []byte(r.bytes(uint64(size))) {
		n |= uint64(b) << (8 * i)
	}
	return n
}

func (r *reader) long() int64 {
	size := int(r.number(1))
	if size > 8 {
		r.fail("a number of %d bytes; want 8 at most", size)
	}
	if size == 0 {
		return 0
	}
	shift := 64 - 8*size // of the sign, into its place
	return int64(r.number(size)<<shift) >> shift
}

func (r *reader) push(value any) {
	if r.count++; r.count > mostValues {
		r.fail("there are more than %d values", mostValues)
	}
	r.stack = append(r.stack, value)
}

func (r *reader) pop() any { return r.take(1)[0] }

// take pops n values, which are valid until the next push.
func (r *reader) take(n int) []any {
	if n > len(r.stack) {
		r.fail("a value is missing")
	}
	from := len(r.stack) - n
	taken := r.stack[from:]
	for _, value := range taken {
		if _, is := value.(mark); is {
			r.fail("a mark where a value is due")
		}
	}
	r.stack = r.stack[:from]
	return taken
}

// toMark pops the values above the last mark, and the mark.
func (r *reader) toMark() []any {
	for i := len(r.stack) - 1; i >= 0; i-- {
		if _, is := r.stack[i].(mark); is {
			taken := r.stack[i+1:]
			r.stack = r.stack[:i]
			return taken
		}
	}
	r.fail("there is no mark")
	return nil
}

// top returns the value that the next pop returns.
func (r *reader) top() any {
	value := r.pop()
	r.stack = r.stack[:len(r.stack)+1]
	return value
}

func (r *reader) tuple(items []any) { r.push(&list{slices.Clone(items)}) }

func (r *reader) extend(items []any) {
	to, ok := r.top().(*list)
	if !ok {
		r.fail("an item for what is no list")
	}
	to.items = append(to.items, items...)
}

func (r *reader) set(items []any) {
	if len(items)%2 != 0 {
		r.fail("a key without a value")
	}
	to, ok := r.top().(dict)
	if !ok {
		r.fail("an entry for what is no dict")
	}
	for i := 0; i < len(items); i += 2 {
		switch key := items[i].(type) {
		case string:
			to[key] = items[i+1]
		case int64:
			to[fmt.Sprint(key)] = items[i+1]
		default:
			r.fail("a key that is neither text nor number")
		}
	}
}

func (r *reader) remember(place uint32) {
	if r.count++; r.count > mostValues {
		r.fail("there are more than %d values", mostValues)
	}
	r.memo[place] = r.top()
}

func (r *reader) recall(place uint32) {
	value, ok := r.memo[place]
	if !ok {
		r.fail("value %d, which is not there", place)
	}
	r.push(value)
}
