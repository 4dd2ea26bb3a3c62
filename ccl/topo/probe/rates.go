package probe

import (
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goccl/goccl/ccl/topo"
	"github.com/goccl/goccl/internal/mem"
)

// What is measured, and for how long.
const (
	copied      = 4 << 20 // bytes of a copy: with its target more than a core's own cache holds
	mostThreads = 32      // the memory is busy by then; they have 256 MiB
	spared      = 16      // they have this part of the memory that the process may have, at most
	copySpan    = 3 * time.Millisecond
	copySpans   = 3
	turnSpan    = 8 * time.Millisecond // until the system has the two threads on two cores
	turnRounds  = 32
	mostSpan    = 40 * time.Millisecond
	turns       = 100 // of a cache line between two cores, in one measurement
)

// Rates measures what a number of cores do, on threads of its own, in about 30 ms: none of its
// parts begins when more than mostSpan has gone by. Of several measurements the best counts: other
// processes only make them worse. Where the process may not have memory or threads for it, the
// rates stay unknown.
func Rates(cores int) (r topo.Rates) {
	end := time.Now().Add(mostSpan)
	blocks := memoryOf(min(max(cores, 1), mostThreads, runtime.GOMAXPROCS(0), spareThreads("/")))
	defer func() {
		for _, b := range blocks {
			b.Free()
		}
	}()
	threads := len(blocks)
	together(threads, func(i int) { // the system gives memory at the first write
		for at := 0; at < 2*copied; at += 4096 {
			blocks[i].Bytes()[at] = 1
		}
	})
	rate := func(threads int) (best float64) {
		rates := make([]float64, threads)
		for n := 0; n < copySpans && (n == 0 || time.Now().Before(end)); n++ {
			var begin sync.WaitGroup
			begin.Add(threads)
			together(threads, func(i int) {
				begin.Done()
				begin.Wait()
				both := blocks[i].Bytes()
				rates[i] = copyRate(both[:copied], both[copied:])
			})
			sum := 0.0
			for _, r := range rates {
				sum += r
			}
			best = max(best, sum)
		}
		return best
	}
	if threads == 0 {
		return r
	}
	r.One = rate(1)
	r.All = r.One
	if threads > 1 {
		r.All = max(r.One, rate(threads))
		r.Handover = handover()
	}
	return topo.Rates{One: rounded(r.One), All: rounded(r.All), Handover: rounded(r.Handover)}
}

// rounded returns a rate to three digits, which is more than it is known to: all ranks read it.
func rounded(rate float64) float64 {
	x, _ := strconv.ParseFloat(strconv.FormatFloat(rate, 'g', 3, 64), 64)
	return x
}

// memoryOf returns memory for a number of threads, or for fewer: a small part of what the process
// may still have.
func memoryOf(threads int) (blocks []*mem.Block) {
	room := mem.Available()
	if left, limited := mem.AddressesLeft(); limited {
		room = min(room, int64(left))
	}
	for n := int64(1); n <= int64(threads) && n*2*copied <= room/spared; n++ {
		b, err := mem.Alloc(2 * copied)
		if err != nil {
			break
		}
		blocks = append(blocks, b)
	}
	return blocks
}

// together runs f on a number of threads, which end with it.
func together(threads int, f func(i int)) {
	var group sync.WaitGroup
	for i := range threads {
		group.Go(func() {
			runtime.LockOSThread() // and never unlocks it
			f(i)
		})
	}
	group.Wait()
}

// copyRate copies for a while, and returns bytes a second.
func copyRate(from, to []byte) float64 {
	begun, bytes := time.Now(), 0
	for time.Since(begun) < copySpan {
		bytes += copy(to, from)
	}
	return float64(bytes) / time.Since(begun).Seconds()
}

// handover returns how long it takes, in seconds, until a core sees what another one has written; 0
// if the two threads have not run at the same time.
func handover() float64 {
	var line struct {
		_    [64]byte
		word atomic.Int64
		_    [64]byte
	}
	best, end := time.Duration(0), time.Now().Add(turnSpan)
	together(2, func(i int) {
		for n := range int64(turnRounds) {
			begun := time.Now()
			for turn := range int64(turns) {
				for spins := 1; line.word.Load() != 2*(n*turns+turn)+int64(i); spins++ {
					if spins%1024 == 0 && time.Now().After(end) {
						return
					}
				}
				line.word.Add(1)
			}
			if took := time.Since(begun) / (2 * turns); i == 0 && n > 0 && (best == 0 || took < best) {
				best = took
			}
		}
	})
	return best.Seconds()
}
