package exec

import (
	"github.com/goccl/goccl/ccl/kernel"
	"github.com/goccl/goccl/ccl/plan"
)

// arithmetic is what an operation does to elements: its kernels and factors.
type arithmetic struct {
	kern    kernel.Func
	fold    kernel.ReduceFunc
	scale   kernel.ScaleFunc
	mean    kernel.SumScaleFunc // of AVG
	elem    int                 // bytes of what kern works on
	pre     float64             // factor on reading In; 1 for none
	post    float64             // factor on Final; 1 for none
	streams bool                // results are stored past the caches
}

// copy is one chunk of a copy or get.
func (a *arithmetic) copy(s *step, dst, src address, bytes int) {
	factor := 1.0
	if s.src[0].Buf == plan.In {
		factor = a.pre
	}
	if s.final {
		factor *= a.post
	}
	switch {
	case factor != 1:
		a.scale(dst, src, bytes/a.elem, factor)
	case dst != src:
		a.move(s, dst, src, bytes)
	}
}

// move copies what a step writes to where it stays.
func (a *arithmetic) move(s *step, dst, src address, bytes int) {
	if a.streams && s.result {
		kernel.CopyStream(dst, src, bytes)
		return
	}
	kernel.Copy(bytesAt(dst, bytes), bytesAt(src, bytes))
}

// fuseTile is how much of a source is copied to one place and then, while it is in the first-level
// cache, to another. With 4 to 16 KiB the string copy, which begins anew each time, was slower than
// two whole copies.
const fuseTile = 32 << 10

// fuses reports whether a copy and the one behind it are done in one.
func fuses(bytes int) bool { return bytes > fuseTile }

// copyTwice copies one chunk to a window and to where it stays, by a step and its fusedCopy.
func (a *arithmetic) copyTwice(s *step, window, dst, src address, bytes int) {
	for at := 0; at < bytes; at += fuseTile {
		n := min(fuseTile, bytes-at)
		from := plus(src, at)
		a.move(s, plus(window, at), from, n)
		if dst != src {
			a.move(s.fusedCopy, plus(dst, at), from, n)
		}
	}
}

// pair combines n elements of two sources.
func (a *arithmetic) pair(s *step, dst, left, right address, n int) {
	if s.final && a.post != 1 {
		a.mean(dst, left, right, n, a.post)
	} else {
		a.kern(dst, left, right, n)
	}
}

// operands is the memory of many, kept from one operation to the next.
type operands struct {
	sources []address
	from    []address // a tile of each
	scaled  []byte    // a tile for each source in In, where these are multiplied
}

// many combines one chunk of all o.sources, tile by tile; dst may be one of them. A pointer must
// not stand behind its memory, not even unused: the garbage collector would find what lies there.
func (a *arithmetic) many(s *step, dst address, o *operands, bytes int) {
	if a.pre != 1 && len(o.scaled) < len(s.src)*tile {
		o.scaled = make([]byte, len(s.src)*tile)
	}
	for off := 0; off < bytes; off += tile {
		n := min(tile, bytes-off) / a.elem
		o.from = o.from[:0]
		for k, source := range o.sources {
			from := plus(source, off)
			if a.pre != 1 && s.src[k].Buf == plan.In {
				scaled := address(&o.scaled[k*tile])
				a.scale(scaled, from, n, a.pre)
				from = scaled
			}
			o.from = append(o.from, from)
		}
		to := plus(dst, off)
		a.fold(to, o.from, n)
		if s.final && a.post != 1 {
			a.scale(to, to, n, a.post)
		}
	}
	clear(o.sources) // the caller's memory
	clear(o.from)
}
