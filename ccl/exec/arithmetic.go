package exec

import (
	"github.com/goccl/goccl/ccl/kernel"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/program"
)

// arithmetic is the set of kernels by which an operation computes.
type arithmetic struct {
	kern    kernel.Func
	fold    kernel.ReduceFunc
	scale   kernel.ScaleFunc
	mean    kernel.SumScaleFunc // for AVG
	streams bool                // results are stored past the caches
}

// copy performs one chunk of a copy or get.
func (p *compiled) copy(s *program.Step, dst, src address, bytes int) {
	factor := p.Factor(s)
	switch {
	case factor != 1:
		p.scale(dst, src, bytes/p.Elem, factor)
	case dst != src:
		p.move(s, dst, src, bytes)
	}
}

// move copies bytes that a step writes to their destination.
func (p *compiled) move(s *program.Step, dst, src address, bytes int) {
	if p.streams && s.Result {
		kernel.CopyStream(dst, src, bytes)
		return
	}
	to, from := bytesAt(dst, bytes), bytesAt(src, bytes)
	if s.Dst.Buf == plan.Win {
		kernel.CopyAcross(to, from)
	} else {
		kernel.Copy(to, from)
	}
}

// copyTwice copies one chunk to a window and to its other destination, for a step and its
// FusedCopy.
func (p *compiled) copyTwice(s *program.Step, window, dst, src address, bytes int) {
	for at := 0; at < bytes; at += program.FuseTile {
		n := min(program.FuseTile, bytes-at)
		from := plus(src, at)
		p.move(s, plus(window, at), from, n)
		if dst != src {
			p.move(s.FusedCopy, plus(dst, at), from, n)
		}
	}
}

// pair combines n elements of two sources.
func (p *compiled) pair(s *program.Step, dst, left, right address, n int) {
	if s.Final && p.Post != 1 {
		p.mean(dst, left, right, n, p.Post)
	} else {
		p.kern(dst, left, right, n)
	}
}

// operands is the working memory of many, kept from one operation to the next.
type operands struct {
	sources []address
	from    []address // the current tile of each source
	scaled  []byte    // a tile for each source; those of sources in In hold the multiplied elements
}

// many combines one chunk of all o.sources, tile by tile; dst may be one of them. A pointer must
// never point past the end of its memory, even if it is not used: the garbage collector would take
// it for a pointer to whatever lies there.
func (p *compiled) many(s *program.Step, dst address, o *operands, bytes int) {
	if p.Pre != 1 && len(o.scaled) < len(s.Src)*tile {
		o.scaled = make([]byte, len(s.Src)*tile)
	}
	for off := 0; off < bytes; off += tile {
		n := min(tile, bytes-off) / p.Elem
		o.from = o.from[:0]
		for k, source := range o.sources {
			from := plus(source, off)
			if p.Pre != 1 && s.Src[k].Buf == plan.In {
				scaled := address(&o.scaled[k*tile])
				p.scale(scaled, from, n, p.Pre)
				from = scaled
			}
			o.from = append(o.from, from)
		}
		to := plus(dst, off)
		p.fold(to, o.from, n)
		if s.Final && p.Post != 1 {
			p.scale(to, to, n, p.Post)
		}
	}
	clear(o.sources) // they point to the caller's memory
	clear(o.from)
}
