package exec

// If the memory that an operation touches does not fit the last-level cache, results that no step
// reads again are stored past the cache: in the cache, they would displace the slots of the
// windows. Each rank decides for itself.

// cacheShare returns how many bytes of the last-level cache a rank can count on; 0 if this is
// unknown. Ranks that share windows are on one host, spread over its processors.
func cacheShare(opts *Options) int {
	ranks := 1
	if opts.Window != nil {
		ranks = min(len(opts.Links), len(opts.Cache.Processors))
	}
	return int(opts.Cache.Bytes) / max(1, ranks)
}

// longCopies is how much memory operations that only copy touch when their results are stored past
// the caches on processors where claiming pays. There the last-level cache is large, but slow to
// write: an all_gather of 16 MiB on two ranks took 1.85 instead of 2.30 ms, one of 64 MiB 9.0
// instead of 12.1, one of 4 MiB as long; an all_reduce took up to a quarter longer (Intel Emerald
// Rapids with 2 MiB of cache for each core, 2026-11).
const longCopies = 6 << 20

// streams reports whether the results of an operation that touches so many bytes are stored past
// the caches, given the bytes of the last-level cache, 0 if unknown.
func streams(touched, lastLevel int, reduces, claims bool) bool {
	return lastLevel > 0 && touched >= lastLevel || claims && !reduces && touched >= longCopies
}

// touched returns the number of bytes in a call's blocks. A block that is both in In and in Out
// counts once.
func touched(c *Call, rank int) int {
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
