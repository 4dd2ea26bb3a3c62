package exec

import (
	"github.com/goccl/goccl/ccl/kernel"
	"github.com/goccl/goccl/ccl/plan"
)

// mostClaimed is the most bytes of a window that are claimed for the next operation. Up to 16 KiB
// that saved up to a quarter of the time of operations on two ranks, with 64 KiB it cost as much
// (Intel Emerald Rapids, 2026-11).
const mostClaimed = 16 << 10

// claimNext claims the memory of this rank's window in which the chunks of the next operation lie,
// if it is like this one. All ranks have left the last operation that used it. It is called after
// the first signal: the peers copy now, and most ranks wait for one of them.
//
//go:noinline
func (r *runner) claimNext(p *compiled) {
	chunks := p.Chunks[plan.Win]
	if p.Step*len(chunks) > mostClaimed {
		return
	}
	shift := p.ShiftIn(r.windows.Begun + 1)
	for i := range chunks {
		kernel.Claim(bytesAt(plus(chunks[i].At, chunks[i].Off+shift), chunks[i].Bytes))
	}
}
