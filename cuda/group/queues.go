package group

import (
	"time"

	"github.com/goccl/goccl/cuda"
)

// A stream that waits for peers holds up what is enqueued in its hardware queue behind the wait, by
// any stream. So what the program computes is held up by a late peer if it is in that queue.
// Which queue a stream has, nothing tells but a try: one stream is held, and what is written in the
// other one comes or does not. A program computes in the default stream, as far as anybody knows
// when a group is made. The streams of a group that wait for peers are kept apart from that one.

// Limits of a try.
const (
	// comesBeside is how long the group waits for a word beside a stream that is held. One that
	// nothing holds up comes in less than half of it, or the device is busy with something else.
	comesBeside = 20 * time.Millisecond
	// comesLate is how long it waits for one that is slower.
	comesLate = 200 * time.Millisecond
	// mostTries is how often a busy device is tried.
	mostTries = 3
	// mostStreams is how many streams are made until one is apart. Two that follow each other are
	// in two queues if there are two.
	mostStreams = 4
)

// queues is what a group knows of the hardware queues.
type queues struct {
	g       *Group
	hold    int    // offset of a word for tries, and
	come    int    // of another
	tries   uint64 // so far
	crowded bool   // streams that wait hold up the default stream
	busy    bool   // the device has too much to do for tries
}

// newWaiter makes a stream that may wait for peers.
func (q *queues) newWaiter(urgency int) (s cuda.Stream, err error) {
	var close []cuda.Stream // which keep their queues until there is another one
	defer func() {
		for _, c := range close {
			c.Destroy()
		}
	}()
	for made := 1; ; made++ {
		if s, err = q.g.ctx.NewStream(urgency); err != nil || q.crowded || q.busy || q.isApart(s) {
			return s, err
		}
		if made == mostStreams {
			q.crowded = true
			return s, nil
		}
		close = append(close, s)
	}
}

// Crowded reports whether streams of the group wait in the hardware queue of the default stream, so
// that what is there is held up while the group waits for other ranks.
func (g *Group) Crowded() bool { return g.queues.crowded }

// isApart reports whether a stream that waits does not hold up the default stream, as far as that
// can be found out: there must be nothing in it yet.
func (q *queues) isApart(s cuda.Stream) (apart bool) {
	known := false
	for try := 0; try < mostTries && !known; try++ {
		if cuda.WithContext(q.g.ctx, func() (err error) { // other threads may capture
			apart, known, err = q.try(s)
			return err
		}) != nil {
			return true // what is wrong with the device will be told by others
		}
	}
	q.busy = !known // then another stream would take as long, to no avail
	return apart || q.busy
}

// try holds a stream, and finds out whether the default stream goes on.
func (q *queues) try(s cuda.Stream) (apart, known bool, err error) {
	computes := q.g.ctx.Adopt(0)
	if id, err := computes.Capture(); err != nil || id != 0 {
		return true, true, err
	}
	if done, err := computes.Done(); err != nil || !done {
		return true, true, err
	}
	held := q.tries + 1
	if err := s.Words([]cuda.WordOp{{At: q.word(q.hold), Value: held, Wait: true}}); err != nil {
		return true, true, err
	}
	// Whatever the driver does: another thread may free memory, which waits for the stream that is
	// held, and keeps this one waiting.
	released := make(chan struct{})
	release := func() {
		q.g.staged.memory.Store(q.hold, held)
		close(released)
	}
	late := time.AfterFunc(2*comesBeside, release)
	_, apart, err = q.comes(computes, comesBeside)
	if known = late.Stop(); known {
		release()
	}
	<-released
	if e := s.Synchronize(); err == nil {
		err = e
	}
	if apart || err != nil || !known {
		return apart, known, err
	}
	took, came, err := q.comes(computes, comesLate)
	return false, came && took < comesBeside/2, err
}

// comes reports whether a word that a stream writes now comes in some time, and how long it takes.
func (q *queues) comes(s cuda.Stream, limit time.Duration) (took time.Duration, came bool, err error) {
	begin := time.Now()
	q.tries++
	if err := s.Words([]cuda.WordOp{{At: q.word(q.come), Value: q.tries}}); err != nil {
		q.tries--
		return 0, false, err
	}
	return q.waitFor(begin, limit)
}

// waitFor waits until the last word has come, for some time at most.
func (q *queues) waitFor(begin time.Time, limit time.Duration) (took time.Duration, came bool, err error) {
	for came = q.g.staged.memory.Reached(q.come, q.tries); !came && time.Since(begin) < limit; {
		time.Sleep(shortestNap)
		came = q.g.staged.memory.Reached(q.come, q.tries)
	}
	return time.Since(begin), came, nil
}

// tried reports whether all tries have ended: else the default stream may still write a word.
func (q *queues) tried() bool {
	if q.tries == 0 {
		return true
	}
	_, came, _ := q.waitFor(time.Now(), closeLimit)
	return came
}

// word returns the address of a word for devices.
func (q *queues) word(at int) cuda.Ptr { return q.g.staged.memory.Ptr() + cuda.Ptr(at) }
