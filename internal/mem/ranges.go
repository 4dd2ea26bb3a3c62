package mem

import "slices"

// Ranges are the free parts of a range of bytes.
type Ranges struct {
	free []extent // sorted by offset; no two are adjacent
}

type extent struct{ at, bytes int }

// NewRanges returns the ranges of a number of bytes, all of them free.
func NewRanges(bytes int) Ranges { return Ranges{[]extent{{0, bytes}}} }

// Take takes bytes from the first free range in which they have room at a multiple of align.
func (r *Ranges) Take(bytes, align int) (at int, ok bool) {
	for i, e := range r.free {
		at := (e.at + align - 1) &^ (align - 1)
		if at+bytes > e.at+e.bytes {
			continue
		}
		before, after := extent{e.at, at - e.at}, extent{at + bytes, e.at + e.bytes - at - bytes}
		rest := slices.DeleteFunc([]extent{before, after}, func(e extent) bool { return e.bytes == 0 })
		r.free = slices.Replace(r.free, i, i+1, rest...)
		return at, true
	}
	return 0, false
}

// Free makes a range free again.
func (r *Ranges) Free(at, bytes int) {
	i, _ := slices.BinarySearchFunc(r.free, at, func(e extent, at int) int { return e.at - at })
	r.free = slices.Insert(r.free, i, extent{at, bytes})
	if i+1 < len(r.free) && at+bytes == r.free[i+1].at {
		r.free[i].bytes += r.free[i+1].bytes
		r.free = slices.Delete(r.free, i+1, i+2)
	}
	if i > 0 && r.free[i-1].at+r.free[i-1].bytes == at {
		r.free[i-1].bytes += r.free[i].bytes
		r.free = slices.Delete(r.free, i, i+1)
	}
}
