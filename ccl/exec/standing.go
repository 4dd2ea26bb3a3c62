package exec

import "time"

// Standing is what a rank is doing.
type Standing struct {
	Seq   uint64        // the collective in flight, or else the last one that it has called
	Op    string        // what it is in; empty: in no call, or unknown
	Waits []int         // the ranks that it waits for
	Busy  bool          // it is in a call of which nothing is known in time: its driver is at work
	Idle  time.Duration // since its last call, if it is in none; 0 if that is unknown
}

// asker is a call of Standing. The driver tells it once.
type asker struct {
	told chan standing // has room for one
}

// Standing tells what this rank is doing, within about d. Any thread may ask. Operations are not
// held up: what only the driver knows, the driver tells when nothing moves.
func (c *Comm) Standing(d time.Duration) Standing {
	s := c.outside()
	k := c.opts.Control
	a := &asker{told: make(chan standing, 1)}
	if !s.Busy || d <= 0 || k == nil || !k.asker.CompareAndSwap(nil, a) {
		return s.public()
	}
	defer k.asker.CompareAndSwap(a, nil)
	if s, told := attended(c, a.told, d); told {
		return s.public()
	}
	s = c.outside()
	return s.public()
}

func (s *standing) public() Standing {
	return Standing{Seq: s.Seq, Op: s.Op, Waits: s.Waits, Busy: s.Busy, Idle: time.Duration(s.Idle) * time.Millisecond}
}

// Messages returns the number of sends and receives posted so far.
func (c *Comm) Messages() uint64 { return c.messages.Load() }
