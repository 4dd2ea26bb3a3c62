package exports

// #include "goccl.h"
import "C"

import (
	"time"
	"unsafe"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/pgbackend"
)

// maxDims is far more than pgbackend accepts; the limits keep sums and products in bounds here.
const maxDims, maxElements = 1 << 10, 1 << 46

// sparseOf converts a goccl_sparse; the result refers to the caller's memory.
func sparseOf(c *C.goccl_sparse) (t pgbackend.SparseTensor, err error) {
	if outside(c.dtype) || outside(c.redop) || c.dims > maxDims || c.sparse_dims > c.dims || c.count > maxElements {
		return t, fault.New(fault.Invalid, "type %d, operator %d, %d dimensions, %d of them sparse, %d elements",
			int32(c.dtype), int32(c.redop), uint32(c.dims), uint32(c.sparse_dims), uint64(c.count))
	}
	t = pgbackend.SparseTensor{
		Type: dtype.Type(c.dtype), Op: dtype.Op(c.redop), SparseDims: int(c.sparse_dims), Count: int(c.count),
	}
	t.Sizes = append(t.Sizes, unsafe.Slice((*int64)(unsafe.Pointer(c.sizes)), int(c.dims))...)
	bytes := float64(t.Count) * float64(t.Type.Size())
	for _, size := range t.Sizes[t.SparseDims:] {
		bytes *= float64(size)
	}
	if bytes < 0 || bytes > maxElements {
		return t, fault.New(fault.Invalid, "%d elements with dense blocks of sizes %v", t.Count, t.Sizes[t.SparseDims:])
	}
	t.Indices = unsafe.Slice((*int64)(unsafe.Pointer(c.indices)), t.Count*t.SparseDims)
	t.Values = unsafe.Slice((*byte)(c.values), int(bytes))
	if c.timeout_ns > 0 {
		t.Timeout = time.Duration(c.timeout_ns)
	}
	return t, nil
}

//export goccl_go_group_sparse_all_reduce
func goccl_go_group_sparse_all_reduce(group C.goccl_group, c *C.goccl_sparse,
	work *C.goccl_work, seq *C.uint64_t, record *C.goccl_error) C.int {
	switch {
	case c == nil:
		return answer(null("call"), record)
	case work == nil:
		return answer(null("work"), record)
	case seq == nil:
		return answer(null("seq"), record)
	}
	return onGroup(group, record, func(g *pgbackend.Group) error {
		tensor, err := sparseOf(c)
		if err != nil {
			return err
		}
		s, err := g.StartSparse(tensor)
		if err == nil {
			*work, *seq = putTask(s), C.uint64_t(s.Seq())
		}
		return err
	})
}

//export goccl_go_work_sparse
func goccl_go_work_sparse(work C.goccl_work, count *C.uint64_t, indices *C.int64_t,
	values unsafe.Pointer, record *C.goccl_error) (code C.int) {
	defer caught(&code, record)
	s, ok := findTask(work).(*pgbackend.Sparse)
	if !ok {
		return answer(stale("work of a sparse all_reduce", uint64(work)), record)
	}
	n, all, bytes := s.Result()
	*count = C.uint64_t(n)
	if indices != nil {
		copy(unsafe.Slice((*int64)(unsafe.Pointer(indices)), len(all)), all)
	}
	if values != nil {
		copy(unsafe.Slice((*byte)(values), len(bytes)), bytes)
	}
	return C.GOCCL_OK
}
