package group

import (
	"time"

	"github.com/goccl/goccl/cuda"
)

// A stream that waits for peers holds up what is enqueued in its hardware queue behind the wait, by
// any stream. So what the program computes stands still behind a late peer if it is in that queue.
// Which queue a stream has, nothing tells but a try: one stream is held, and what is written in the
// other one comes or does not. A program computes in the default stream, as far as anybody knows
// when a group is made. The streams of a group that wait for peers are kept apart from that one.

// Limits of a try.
const (
	// comesAlone is how long a word takes at most that nothing holds up, if the device is not busy
	// with something else.
	comesAlone = 5 * time.Millisecond
	// comesBeside is how long the group waits for one beside a stream that is held.
	comesBeside = 20 * time.Millisecond
	// mostStreams is how many streams are made until one is apart. Two that follow each other are
	// in two queues if there are two.
	mostStreams = 4
)

// newWaiter makes a stream that may wait for peers.
func (g *Group) newWaiter(urgency int) (s cuda.Stream, err error) {
	var close []cuda.Stream // which keep their queues until there is another one
	defer func() {
		for _, c := range close {
			c.Destroy()
		}
	}()
	for made := 1; ; made++ {
		if s, err = g.ctx.NewStream(urgency); err != nil || g.crowded || g.isApart(s) {
			return s, err
		}
		if made == mostStreams {
			g.crowded = true
			return s, nil
		}
		close = append(close, s)
	}
}

// Crowded reports whether streams of the group wait in the hardware queue of the default stream, so
// that what is there stands still while the group waits for other ranks.
func (g *Group) Crowded() bool { return g.crowded }

// isApart reports whether a stream that waits does not hold up the default stream, as far as that
// can be found out: there must be nothing in it yet.
func (g *Group) isApart(s cuda.Stream) bool {
	apart := true
	err := in(g.ctx, func() error { // other threads may capture
		computes := g.ctx.Adopt(0)
		if id, err := computes.Capture(); err != nil || id != 0 {
			return err
		}
		if done, err := computes.Done(); err != nil || !done {
			return err
		}
		if err := s.Words([]cuda.WordOp{{At: g.word(g.hold), Value: g.tries + 1, Wait: true}}); err != nil {
			return err
		}
		// Whatever the driver does: another thread may free memory, which waits for the stream that
		// is held, and keeps this one waiting.
		held, released := g.tries+1, make(chan struct{})
		release := func() {
			g.memory.Store(g.hold, held)
			close(released)
		}
		late := time.AfterFunc(2*comesBeside, release)
		came, err := g.comes(computes, comesBeside)
		if !late.Stop() {
			<-released
			return err
		}
		if release(); came || err != nil {
			return err
		}
		alone, err := g.comes(computes, comesAlone) // or the device is slow
		apart = !alone
		return err
	})
	return apart || err != nil // what is wrong with the device will be told by others
}

// comes reports whether a word that a stream writes now comes in some time.
func (g *Group) comes(s cuda.Stream, limit time.Duration) (bool, error) {
	g.tries++
	if err := s.Words([]cuda.WordOp{{At: g.word(g.come), Value: g.tries}}); err != nil {
		return false, err
	}
	for begin := time.Now(); !g.memory.Reached(g.come, g.tries); time.Sleep(shortestNap) {
		if time.Since(begin) > limit {
			return false, nil
		}
	}
	return true, nil
}

// word returns the address of a word for devices.
func (g *Group) word(at int) cuda.Ptr { return g.memory.Ptr() + cuda.Ptr(at) }
