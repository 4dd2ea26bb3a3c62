package group

import (
	"encoding/binary"
	"errors"
	"time"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/cuda"
	"github.com/goccl/goccl/cuda/group/page"
	"github.com/goccl/goccl/cuda/group/route"
)

// Before ranks rely on windows that nobody has chosen by name, each reads some of every peer's
// window through its device: what the peer has written there has to come, and the time that it
// takes is compared. Two sizes are read, so that what a copy costs and what its bytes cost are
// known apart. What a machine says about itself is not enough: memory of other devices may come
// slowly, or wrong, where bridges of the processor are in between.
const (
	mostProbed  = 8 << 20 // bytes of each window
	lessProbed  = 32      // the smaller size is so many times smaller
	probes      = 3       // the best counts
	wordsProbed = 32      // in a batch
)

// probed returns how many bytes are read of each window. They are in its first slot.
func (o *setup) probed() int {
	return min(mostProbed, o.Room.Slot, o.g.staged.pipelines[0].bytes)
}

// mark is the value of words during an attempt: before those of all operations, and after those of
// earlier attempts.
func (o *setup) mark() uint64 { return page.At(0, 0, o.attempt) }

// pattern fills bytes with what a window of a rank has.
func pattern(b []byte, rank int, k route.Kind) {
	seed := uint64(rank)<<32 | uint64(k)<<24 | 1
	for i := 0; i+8 <= len(b); i += 8 {
		binary.LittleEndian.PutUint64(b[i:], (seed+uint64(i))*0x9e3779b97f4a7c15)
	}
}

// same reports whether bytes are those of a pattern.
func same(b []byte, rank int, k route.Kind) bool {
	want := make([]byte, len(b))
	pattern(want, rank, k)
	return string(want) == string(b)
}

// scratch returns memory of the host that no call uses yet: a slot of the staged route.
func (o *setup) scratch(slot int) (at int, host []byte, device cuda.Ptr) {
	g := o.g
	at = g.staged.pipelines[0].slots[slot].at
	return at, g.staged.memory.Host()[at : at+o.probed()], g.staged.memory.Ptr() + cuda.Ptr(at)
}

// access tells the driver what the host does until it calls ended.
func (o *setup) access(at int, write bool) (ended func()) {
	if o.g.staged.watch == nil {
		return func() {}
	}
	return o.g.staged.watch.HostAccess(o.g.staged.memory.Ptr()+cuda.Ptr(at), o.probed(), write)
}

// fill writes the pattern of this rank into its window.
func (o *setup) fill(k route.Kind) error {
	at, host, from := o.scratch(0)
	ended := o.access(at, true)
	pattern(host, o.g.rank, k)
	ended()
	if err := o.Stream.Copy(o.places[k][o.g.rank], from, len(host)); err != nil {
		return err
	}
	return o.Stream.Synchronize()
}

// announce tells the peers by a word that the window is filled and its flags are clear, as the
// first operation would.
func (o *setup) announce() error {
	o.tell(page.Signal, o.mark())
	if err := o.Flush(); err != nil {
		return err
	}
	return o.Stream.Synchronize()
}

// announces reports whether the ranks tell each other that their windows are ready.
func (o *setup) announces() bool { return o.g.opts.Route == route.Auto || o.interprets }

// meet sees that what all peers have announced is there, and reads their windows if nobody has
// chosen them by name. Its error is of windows of all kinds.
func (o *setup) meet(open []route.Kind) error {
	for _, peer := range o.peers {
		// The host has seen its word, so what the peer has written comes before what is enqueued
		// from now on: no stream has to wait for it.
		if !o.page.Reached(o.layout.Of(peer, page.Signal), o.mark()) {
			return fault.Peer(fault.NotSupported, peer, "what its stream writes to rank %d does not come", o.g.rank)
		}
	}
	if o.g.opts.Route != route.Auto {
		return nil
	}
	return o.probe(open)
}

// probe reads the windows of all peers.
func (o *setup) probe(open []route.Kind) error {
	memory, err := o.g.ctx.Alloc(o.probed())
	if err != nil {
		return err
	}
	if len(o.peers) > 0 {
		err = o.probeWords()
	}
	for _, peer := range o.peers {
		o.probePeer(peer, open, memory.Ptr())
	}
	o.tell(page.Left, o.mark()) // the peers may write into their windows
	return errors.Join(err, o.Flush(), o.Stream.Synchronize(), memory.Free())
}

// probePeer reads the windows of a peer into memory of the device.
func (o *setup) probePeer(peer int, open []route.Kind, into cuda.Ptr) {
	for _, k := range open {
		if o.lacks[k] != nil {
			continue
		}
		reads, err := o.read(peer, k, into)
		if err != nil {
			o.lacks[k] = err
			continue
		}
		if o.reads[k].Rate == 0 || reads.Rate < o.reads[k].Rate {
			o.reads[k].Rate = reads.Rate
		}
		o.reads[k].Latency = max(o.reads[k].Latency, reads.Latency)
	}
}

// read reads the window of a peer, checks what has come, and returns how long it takes.
func (o *setup) read(peer int, k route.Kind, into cuda.Ptr) (route.Reads, error) {
	n := o.probed()
	var took [2]time.Duration
	sizes := [2]int{max(1, n/lessProbed), n}
	for i, bytes := range sizes {
		var err error
		if took[i], err = o.best(func() error { return o.Stream.Copy(into, o.places[k][peer], bytes) }); err != nil {
			return route.Reads{}, err
		}
	}
	at, host, back := o.scratch(1)
	if err := o.Stream.Copy(back, into, n); err != nil {
		return route.Reads{}, err
	}
	if err := o.Stream.Synchronize(); err != nil {
		return route.Reads{}, err
	}
	defer o.access(at, false)()
	if !same(host, peer, k) {
		return route.Reads{}, fault.Peer(fault.NotSupported, peer, "device %d reads other bytes than rank %d has written (%s)",
			o.g.ctx.Info().Index, peer, k.Route())
	}
	return apart(sizes, took), nil
}

// apart returns the cost of a copy and of its bytes, from the times that two sizes take. Where the
// longer one does not take longer, nothing but its rate is known.
func apart(bytes [2]int, took [2]time.Duration) route.Reads {
	if took[1] <= took[0] {
		return route.Reads{Rate: float64(bytes[1]) / took[1].Seconds()}
	}
	rate := float64(bytes[1]-bytes[0]) / (took[1] - took[0]).Seconds()
	return route.Reads{Rate: rate, Latency: max(0, took[0].Seconds()-float64(bytes[0])/rate)}
}

// best returns the least time, of some tries, from when something is enqueued until it has ended.
func (o *setup) best(enqueue func() error) (time.Duration, error) {
	best := time.Duration(1 << 62)
	for range probes {
		begun := o.now()
		if err := enqueue(); err != nil {
			return 0, err
		}
		if err := o.Stream.Synchronize(); err != nil {
			return 0, err
		}
		best = min(best, max(1, o.now()-begun))
	}
	return best, nil
}

// now is a time: that of the device, if it has one of its own.
func (o *setup) now() time.Duration {
	if clock, ok := o.g.ctx.(cuda.Clock); ok {
		return clock.Elapsed()
	}
	return time.Since(start)
}

// start is where times are counted from.
var start = time.Now()

// probeWords measures what a stream takes for a word, of which some are in a batch.
func (o *setup) probeWords() error {
	var took [2]time.Duration
	for i, count := range [2]int{1, 1 + wordsProbed} {
		var err error
		if took[i], err = o.best(func() error {
			for range count {
				o.own(o.layout.Offered(), o.mark(), false)
			}
			return o.Flush()
		}); err != nil {
			return err
		}
	}
	o.word = max(0, (took[1]-took[0]).Seconds()/wordsProbed)
	return nil
}
