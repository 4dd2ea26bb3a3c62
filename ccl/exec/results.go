package exec

import (
	"slices"

	"github.com/goccl/goccl/ccl/plan"
)

// Where the memory that an operation touches does not fit the last-level cache, results that no
// step reads again are stored past it: there they would take the place of the slots of the windows.
// Each rank decides for itself.

// cacheShare is how much of the last-level cache a rank can count on; 0 where it is not known.
// Ranks that share windows are on one host, spread over its processors.
func cacheShare(opts *Options) int {
	ranks := 1
	if opts.Window != nil {
		ranks = min(len(opts.Links), len(opts.Cache.Processors))
	}
	return int(opts.Cache.Bytes) / max(1, ranks)
}

// touched is the bytes of the blocks of a call; those that are In and Out count once.
func (c *Call) touched(rank int) int {
	n := 0
	for _, b := range c.Out {
		n += b.Count
	}
	for i, b := range c.In {
		own := i
		if len(c.In) != len(c.Out) && len(c.In) == 1 {
			own = rank
		}
		if len(c.Out) == 1 && i == rank {
			own = 0
		}
		if own >= len(c.Out) || c.Out[own].Ptr != b.Ptr {
			n += b.Count
		}
	}
	return n * c.Type.Size()
}

// markResults marks the steps whose results no step of the rank reads.
func (low *lowered) markResults() {
	var read []bool // chunks of Out
	for _, lane := range low.lanes {
		for i := range lane {
			for _, r := range lane[i].src {
				if r.Buf != plan.Out {
					continue
				}
				for len(read) < r.At+r.N {
					read = append(read, false)
				}
				for k := range r.N {
					read[r.At+k] = true
				}
			}
		}
	}
	for _, lane := range low.lanes {
		for i := range lane {
			dst := lane[i].dst
			again := dst.At < len(read) && slices.Contains(read[dst.At:min(dst.At+dst.N, len(read))], true)
			lane[i].result = dst.Buf == plan.Out && !again
		}
	}
}

// pairTwins finds the copies of In into the window behind which, after signals only, the same goes
// to Out. Each pair reads its source once from the cache if it is done together; the signals are a
// little later then, so it pays for long chunks only.
func (low *lowered) pairTwins() {
	for _, lane := range low.lanes {
		for i := range lane {
			s := &lane[i]
			if s.kind != plan.Copy || s.dst.Buf != plan.Win || s.src[0].Buf != plan.In {
				continue
			}
			k := i + 1
			for k < len(lane) && lane[k].kind == plan.Signal {
				k++
			}
			if k < len(lane) && lane[k].kind == plan.Copy && lane[k].dst.Buf == plan.Out && lane[k].src[0] == s.src[0] &&
				len(s.gates) == 0 && len(lane[k].gates) == 0 {
				s.fusedCopy, lane[k].fusedInto = &lane[k], s
			}
		}
	}
}
