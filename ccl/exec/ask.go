package exec

import (
	"encoding/binary"
	"time"

	"github.com/goccl/goccl/transport"
)

// Ranks that call different things mostly find out at the first fragment or record. But two of them
// may wait for each other with nothing to compare: each is the root of its own gather, say. So a
// rank that has waited for long asks those it waits for: a fragment on the channel of puts tells
// them what it is in, and in which channel it waits. Whoever is in another call with that number
// has the mismatch. Who has gone on to a later one tells that in turn, in the channel in which the
// other one waits: all that it has sent before comes first, and if then something is missing it
// never comes.
const askAfter = 50 * time.Millisecond // the first time; then each time twice as long, and only those who were not asked yet

// askLength is the length in the fingerprint of such a fragment, which is that of no message.
const askLength = low48

// isQuestion reports whether a fragment only tells what its sender is in.
func isQuestion(m transport.Meta) bool { return m[1]&low48 == askLength }

// asking is whom a rank has told what it is in, during the operation under way.
type asking struct {
	asker uint64 // number of the operation that the rest is of
	askAt int64  // monotonic nanoseconds
	pause int64
	asked []bool // by peer
}

// askTime is when the operation under way will have waited for long. The first time that somebody
// wants to know it, it begins to wait.
func (c *Comm) askTime() int64 {
	a := &c.frame.asking
	if seq := c.frame.op.seq; a.asker != seq {
		a.asker, a.pause = seq, int64(askAfter)
		a.askAt = now() + a.pause
		if a.asked == nil {
			a.asked = make([]bool, c.size)
		}
		clear(a.asked)
	}
	return a.askAt
}

// ask tells the peers that this rank waits for what it is in, each once.
func (c *Comm) ask() {
	a := &c.frame.asking
	a.pause *= 2
	a.askAt = now() + a.pause
	once := func(peer, waits int) {
		if peer != c.rank && !a.asked[peer] {
			a.asked[peer] = c.question(peer, windowChannel, waits)
		}
	}
	if late, _ := c.lateRank(); late >= 0 {
		if !c.frame.draining() {
			once(late, windowChannel)
		}
		return
	}
	for lane := range c.frame.lanes {
		switch b := c.frame.waitsAt(lane); {
		case b == nil || b.step == nil:
		case b.op == opRecv:
			once(b.peer, ownChannels+b.step.channel)
		default:
			once(b.peer, windowChannel)
		}
	}
}

// question sends a peer the fingerprint of the operation under way, and the channel in which this
// rank waits. It reports whether there was room.
func (c *Comm) question(peer, channel, waits int) bool {
	ch := c.channel(peer, channel)
	space := ch.Reserve(askBytes)
	if len(space) < askBytes {
		return false
	}
	binary.LittleEndian.PutUint64(space, uint64(waits))
	c.frame.out = c.frame.meta(askLength)
	ch.Commit(askBytes, &c.frame.out)
	return true
}

const askBytes = 8

// hearQuestion takes the fragment at the head of a channel with which a peer tells what it is in.
// It reports an operation that this rank has not come to yet, which stays there.
func (c *Comm) hearQuestion(peer, channel int, data []byte, m transport.Meta) (ahead bool, err error) {
	f := &c.frame
	if f.contradicts(m) || len(data) != askBytes {
		return false, c.mismatch(peer, m, askLength)
	}
	if f.precedes(m) {
		return true, nil
	}
	waits := binary.LittleEndian.Uint64(data)
	if channel == windowChannel && uint32(m[0]) != uint32(f.fingerprint[0]) && waits >= windowChannel && waits < uint64(c.width) {
		c.question(peer, int(waits), windowChannel) // it waits for this rank, which has gone on
	}
	c.channel(peer, channel).Release()
	return false, nil
}

// waitsForWord reports whether this rank waits for a word of a peer.
func (c *Comm) waitsForWord(peer int) bool {
	for lane := range c.frame.lanes {
		if b := c.frame.waitsAt(lane); b != nil && b.op == opWait && b.peer == peer && !c.windows.Heard(peer, b.nth) {
			return true
		}
	}
	return false
}

// unexpected looks at what this rank's program does not ask for, now and then while it waits: puts
// of peers that it does not wait for, and messages of another call with the same number, or an
// earlier one, which would otherwise be seen at the timeout only.
func (c *Comm) unexpected() error {
	f := &c.frame
	for peer := range c.size {
		if peer == c.rank {
			continue
		}
		for i := ownChannels; i < c.width; i++ {
			for {
				data, m, ok := c.channel(peer, i).Peek()
				if !ok {
					break
				}
				if isQuestion(m) {
					if ahead, err := c.hearQuestion(peer, i, data, m); err != nil {
						return err
					} else if !ahead {
						continue
					}
				} else if f.contradicts(m) || f.after(m) {
					return c.mismatch(peer, m, 0)
				}
				break
			}
		}
		if w := &c.windows; w.Slot > 0 && !f.prog.low.words && w.Heard(peer, 0) && f.contradicts(w.Record(peer).Call) {
			return c.mismatch(peer, w.Record(peer).Call, 0)
		}
		if err := c.inboundFrom(peer); err != nil {
			return err
		}
		// A word is there before what was committed after it.
		if _, m, ok := c.channel(peer, windowChannel).Peek(); ok && (f.contradicts(m) || f.precedes(m) && c.waitsForWord(peer)) {
			return c.mismatch(peer, m, 0)
		}
	}
	return nil
}

// precedes reports whether m is of a later operation. Phases do not count: what only tells may lie
// unread while they come round.
func (f *frame) precedes(m transport.Meta) bool {
	return int32(uint32(m[0])-uint32(f.fingerprint[0])) > 0
}

// contradicts reports whether m is of another call with the same number.
func (f *frame) contradicts(m transport.Meta) bool {
	own := f.meta(0)
	return uint32(m[0]) == uint32(own[0]) && (differ(m, own) || m[0] == own[0] && m[2] != own[2])
}

// differ reports whether two fingerprints are of different calls, as far as ranks can compare them
// in any phase: number, collective, type, operator and root.
func differ(a, b transport.Meta) bool {
	const call = 1<<56 - 1 // of word 0, without the phase
	return (a[0]^b[0])&call != 0 || (a[1]^b[1])>>48 != 0
}
