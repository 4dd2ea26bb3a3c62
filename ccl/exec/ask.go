package exec

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/goccl/goccl/ccl/exec/blame"
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
func (r *runner) ask() {
	a := &r.blame.Asking
	a.Again(now())
	once := func(peer, waits int) {
		if peer != r.links.Rank && !a.Asked[peer] {
			a.Asked[peer] = r.question(peer, windowChannel, waits)
		}
	}
	if late, _ := r.lateRank(); late >= 0 {
		if !r.frame.draining() {
			once(late, windowChannel)
		}
		return
	}
	for lane := range r.frame.lanes {
		switch b := r.frame.waitsAt(lane); {
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
func (r *runner) question(peer, channel, waits int) bool {
	ch := r.links.Channel(peer, channel)
	space := ch.Reserve(askBytes)
	if len(space) < askBytes {
		return false
	}
	binary.LittleEndian.PutUint64(space, uint64(waits))
	r.frame.out = r.frame.meta(askLength)
	ch.Commit(askBytes, &r.frame.out)
	return true
}

const askBytes = 8

// hearQuestion handles the question at the head of a channel. If the peer is in an operation that
// this rank has not reached yet, it reports ahead and leaves the question in the channel.
func (r *runner) hearQuestion(peer, channel int, data []byte, m transport.Meta) (ahead bool, err error) {
	f := &r.frame
	if f.contradicts(m) || len(data) != askBytes {
		return false, r.mismatch(peer, m, askLength)
	}
	if f.precedes(m) {
		return true, nil
	}
	waits := binary.LittleEndian.Uint64(data)
	if channel == windowChannel && uint32(m[0]) != uint32(f.fingerprint[0]) &&
		waits >= windowChannel && waits < uint64(r.links.Width) {
		r.question(peer, int(waits), windowChannel) // the peer waits for this rank, which has gone on
	}
	r.links.Channel(peer, channel).Release()
	return false, nil
}

// waitsForWord reports whether this rank waits for a word that a peer has not published yet.
func (r *runner) waitsForWord(peer int) bool {
	for lane := range r.frame.lanes {
		if b := r.frame.waitsAt(lane); b != nil && b.Op == program.OpWait &&
			b.Peer == peer && !r.windows.Heard(peer, b.Nth) {
			return true
		}
	}
	return false
}

// unexpected is called now and then during a wait. It handles input that this rank's program does
// not wait for: frames of any peer, and messages of another call with the same number, or of an
// earlier call. Otherwise such a mismatch would only be found at the timeout.
func (r *runner) unexpected() error {
	f := &r.frame
	for peer := range r.links.Size() {
		if peer == r.links.Rank {
			continue
		}
		for i := ownChannels; i < r.links.Width; i++ {
			for {
				data, m, ok := r.links.Channel(peer, i).Peek()
				if !ok {
					break
				}
				if isQuestion(m) {
					if ahead, err := r.hearQuestion(peer, i, data, m); err != nil {
						return err
					} else if !ahead {
						continue
					}
				} else if f.contradicts(m) || f.after(m) {
					return r.mismatch(peer, m, 0)
				}
				break
			}
		}
		if w := &r.windows; w.Has(peer) && !f.prog.Low.Words && w.Heard(peer, 0) && f.contradicts(w.Record(peer).Call) {
			return r.mismatch(peer, w.Record(peer).Call, 0)
		}
		if err := r.inboundFrom(peer); err != nil {
			return err
		}
		// A word is visible before a fragment that was committed after it. So if the fragment is of
		// a later operation, a word that is still missing will never come.
		if _, m, ok := r.links.Channel(peer, windowChannel).Peek(); ok &&
			(f.contradicts(m) || f.precedes(m) && r.waitsForWord(peer)) {
			return r.mismatch(peer, m, 0)
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

// mismatch returns the error for a fragment or record that belongs to a different call than this
// rank's.
func (r *runner) mismatch(peer int, m transport.Meta, want int) error {
	return r.blame.Mismatch(peer, m, r.frame.meta(want), want)
}

// awaited returns the ranks that the operation in flight waits for, and where in it.
func (r *runner) awaited() (ranks []int, where []string) {
	f := &r.frame
	if f.prog == nil {
		return nil, nil
	}
	if late, why := r.lateRank(); late >= 0 {
		ranks = r.windows.Behind(f.prog.Depth, blame.MostWaits)
		if f.draining() {
			ranks = r.windows.Behind(1, blame.MostWaits)
		}
		return ranks, slices.Repeat([]string{"which " + why}, len(ranks))
	}
	for lane := range f.lanes {
		b := f.waitsAt(lane)
		if b != nil && b.Step != nil && !slices.Contains(ranks, b.Peer) && len(ranks) < blame.MostWaits {
			ranks, where = append(ranks, b.Peer), append(where, f.soFar(lane, b))
		}
	}
	return ranks, where
}

// soFar says how far a lane has come where it waits; it is empty where nothing is counted.
func (f *frame) soFar(lane int, b *program.Instruction) string {
	if n := f.lanes[lane].moved; n > 0 && (b.Op == program.OpRecv || b.Op == program.OpSend) {
		return fmt.Sprintf("%d bytes so far", n)
	}
	return ""
}

// lostPeer returns a peer whose link has ended and that the operation in flight waits for; -1 if
// there is none. Data that arrived before the link broke can still be read.
func (r *runner) lostPeer() int {
	if late, _ := r.lateRank(); late >= 0 {
		if r.links.Lost[late] {
			return late
		}
		return -1
	}
	for lane := range r.frame.lanes {
		if b := r.frame.waitsAt(lane); b != nil && b.Step != nil && r.links.Lost[b.Peer] {
			return b.Peer
		}
	}
	return -1
}
