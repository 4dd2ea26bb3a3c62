package exec

import (
	"encoding/binary"

	"github.com/goccl/goccl/ccl/exec/fingerprint"
	"github.com/goccl/goccl/ccl/program"
	"github.com/goccl/goccl/transport"
)

// Ranks that call different operations usually find out at the first fragment or record. But two
// ranks may wait for each other with nothing to compare: for example, each may be the root of its
// own gather. So a rank that has waited for a long time asks the peers that it waits for: it sends
// a question, a fragment on the channel of puts that carries its fingerprint and names the channel
// in which it waits.
//
// A peer that is in another call with the same number finds the mismatch. A peer that has gone on
// to a later operation sends a question back, in the channel in which the asking rank waits.
// Everything that the peer sent before arrives first; if something is still missing then, it will
// never come.

// askLength is the length in the fingerprint of a question. No message has this length.
const askLength = fingerprint.NoLength

// isQuestion reports whether a fragment is a question, which only reports the operation that its
// sender is in.
func isQuestion(m transport.Meta) bool { return m[1]&fingerprint.Low48 == askLength }

// ask asks the peers that this rank waits for, each peer once.
func (c *Comm) ask() {
	a := &c.blame.Asking
	a.Again(now())
	once := func(peer, waits int) {
		if peer != c.rank && !a.Asked[peer] {
			a.Asked[peer] = c.question(peer, windowChannel, waits)
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
		case b == nil || b.Step == nil:
		case b.Op == program.OpRecv:
			once(b.Peer, ownChannels+b.Step.Channel)
		default:
			once(b.Peer, windowChannel)
		}
	}
}

// question sends a peer the fingerprint of the operation in flight, and the channel in which this
// rank waits. It reports whether the channel had space.
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

// hearQuestion handles the question at the head of a channel. If the peer is in an operation that
// this rank has not reached yet, it reports ahead and leaves the question in the channel.
func (c *Comm) hearQuestion(peer, channel int, data []byte, m transport.Meta) (ahead bool, err error) {
	f := &c.frame
	if f.contradicts(m) || len(data) != askBytes {
		return false, c.mismatch(peer, m, askLength)
	}
	if f.precedes(m) {
		return true, nil
	}
	waits := binary.LittleEndian.Uint64(data)
	if channel == windowChannel && uint32(m[0]) != uint32(f.fingerprint[0]) &&
		waits >= windowChannel && waits < uint64(c.links.Width()) {
		c.question(peer, int(waits), windowChannel) // the peer waits for this rank, which has gone on
	}
	c.channel(peer, channel).Release()
	return false, nil
}

// waitsForWord reports whether this rank waits for a word that a peer has not published yet.
func (c *Comm) waitsForWord(peer int) bool {
	for lane := range c.frame.lanes {
		if b := c.frame.waitsAt(lane); b != nil && b.Op == program.OpWait &&
			b.Peer == peer && !c.windows.Heard(peer, b.Nth) {
			return true
		}
	}
	return false
}

// unexpected is called now and then during a wait. It handles input that this rank's program does
// not wait for: frames of any peer, and messages of another call with the same number, or of an
// earlier call. Otherwise such a mismatch would only be found at the timeout.
func (c *Comm) unexpected() error {
	f := &c.frame
	for peer := range c.size {
		if peer == c.rank {
			continue
		}
		for i := ownChannels; i < c.links.Width(); i++ {
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
		if w := &c.windows; w.Has(peer) && !f.prog.Low.Words && w.Heard(peer, 0) && f.contradicts(w.Record(peer).Call) {
			return c.mismatch(peer, w.Record(peer).Call, 0)
		}
		if err := c.inboundFrom(peer); err != nil {
			return err
		}
		// A word is visible before a fragment that was committed after it. So if the fragment is of
		// a later operation, a word that is still missing will never come.
		if _, m, ok := c.channel(peer, windowChannel).Peek(); ok &&
			(f.contradicts(m) || f.precedes(m) && c.waitsForWord(peer)) {
			return c.mismatch(peer, m, 0)
		}
	}
	return nil
}

// precedes reports whether m is of a later operation than f. Phases are not compared: their numbers
// may come round while a question lies unread.
func (f *frame) precedes(m transport.Meta) bool {
	return int32(uint32(m[0])-uint32(f.fingerprint[0])) > 0
}

// contradicts reports whether m is of a different call with the same number.
func (f *frame) contradicts(m transport.Meta) bool {
	own := f.meta(0)
	return uint32(m[0]) == uint32(own[0]) && (fingerprint.Differ(m, own) || m[0] == own[0] && m[2] != own[2])
}
