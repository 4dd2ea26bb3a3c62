package ccl

import (
	"reflect"
	"strconv"
	"unsafe"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/fault"
)

// Element lists the element types of the generic functions, and all types that are defined as one
// of them. int and uint have 64 bits, or 32 where the processor has. For floats of 16 and 8 bits
// use Communicator.Do.
type Element interface {
	~float64 | ~float32 | ~int8 | ~uint8 | ~int16 | ~uint16 | ~int32 | ~uint32 | ~int64 | ~uint64 | ~int | ~uint |
		~complex64 | ~complex128 | ~bool
}

// typeOfKind has the dtypes of the kinds of Element.
var typeOfKind = [...]Type{
	reflect.Float64: dtype.F64, reflect.Float32: dtype.F32,
	reflect.Int8: dtype.I8, reflect.Uint8: dtype.U8, reflect.Int16: dtype.I16, reflect.Uint16: dtype.U16,
	reflect.Int32: dtype.I32, reflect.Uint32: dtype.U32, reflect.Int64: dtype.I64, reflect.Uint64: dtype.U64,
	reflect.Int: wordType(dtype.I32, dtype.I64), reflect.Uint: wordType(dtype.U32, dtype.U64),
	reflect.Complex64: dtype.C64, reflect.Complex128: dtype.C128, reflect.Bool: dtype.Bool,
}

func wordType(short, long Type) Type {
	if strconv.IntSize == 32 {
		return short
	}
	return long
}

// TypeOf returns the dtype of T.
func TypeOf[T Element]() Type { return typeOfKind[reflect.TypeFor[T]().Kind()] }

// The calls of the generic functions, which run them (collectives.go) or start them (start.go).

func block[T Element](s []T) Block {
	return Block{Ptr: unsafe.Pointer(unsafe.SliceData(s)), Count: len(s)}
}

func one[T Element](s []T) []Block { return []Block{block(s)} }

// even splits a slice into one block for each rank.
func even[T Element](c *Communicator, coll dtype.Collective, s []T) ([]Block, error) {
	n := c.Size()
	if len(s)%n != 0 {
		return nil, fault.New(fault.Invalid, "%v: %d elements cannot be cut into %d equal blocks", coll, len(s), n)
	}
	blocks := make([]Block, n)
	for i := range blocks {
		blocks[i] = block(s[i*len(s)/n : (i+1)*len(s)/n])
	}
	return blocks, nil
}

func broadcastCall[T Element](c *Communicator, buf []T, root int) Call {
	call := Call{Coll: dtype.Broadcast, Type: TypeOf[T](), Root: root, Out: one(buf)}
	if c.Rank() == root {
		call.In = one(buf)
	}
	return call
}

func allReduceCall[T Element](in, out []T, op Op) Call {
	return Call{Coll: dtype.AllReduce, Type: TypeOf[T](), Op: op, In: one(in), Out: one(out)}
}

func reduceCall[T Element](c *Communicator, in, out []T, op Op, root int) Call {
	call := Call{Coll: dtype.Reduce, Type: TypeOf[T](), Op: op, Root: root, In: one(in)}
	if c.Rank() == root {
		call.Out = one(out)
	}
	return call
}

func reduceScatterCall[T Element](c *Communicator, in, out []T, op Op) (Call, error) {
	blocks, err := even(c, dtype.ReduceScatter, in)
	return Call{Coll: dtype.ReduceScatter, Type: TypeOf[T](), Op: op, In: blocks, Out: one(out)}, err
}

func allGatherCall[T Element](c *Communicator, in, out []T) (Call, error) {
	blocks, err := even(c, dtype.AllGather, out)
	return Call{Coll: dtype.AllGather, Type: TypeOf[T](), In: one(in), Out: blocks}, err
}

func gatherCall[T Element](c *Communicator, in, out []T, root int) (call Call, err error) {
	call = Call{Coll: dtype.Gather, Type: TypeOf[T](), Root: root, In: one(in)}
	if c.Rank() == root {
		call.Out, err = even(c, dtype.Gather, out)
	}
	return call, err
}

func scatterCall[T Element](c *Communicator, in, out []T, root int) (call Call, err error) {
	call = Call{Coll: dtype.Scatter, Type: TypeOf[T](), Root: root, Out: one(out)}
	if c.Rank() == root {
		call.In, err = even(c, dtype.Scatter, in)
	}
	return call, err
}

func allToAllCall[T Element](c *Communicator, in, out []T) (call Call, err error) {
	call = Call{Coll: dtype.AllToAll, Type: TypeOf[T]()}
	if call.In, err = even(c, dtype.AllToAll, in); err == nil {
		call.Out, err = even(c, dtype.AllToAll, out)
	}
	return call, err
}

func sendCall[T Element](buf []T, peer int, tag uint32) Call {
	return Call{Coll: dtype.Send, Type: TypeOf[T](), Root: peer, Tag: tag, In: one(buf)}
}

func recvCall[T Element](buf []T, peer int, tag uint32) Call {
	return Call{Coll: dtype.Recv, Type: TypeOf[T](), Root: peer, Tag: tag, Out: one(buf)}
}
