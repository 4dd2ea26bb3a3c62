package tcp

import (
	"fmt"
	"time"
)

// What a side decides when connections are made, break and come back, as functions of a few values.
// recovery_model_test.go explores all interleavings of two processes with these very functions.

// crossing settles which connection is taken where both sides make one at once: that of the smaller
// id. The pair's mu guards it.
type crossing struct {
	shaking int // handshakes that this side has begun
	taking  int // connections of the larger id that are taken, and not attached yet
}

// shakes begins a handshake of this side, unless the peer's connection has been taken instead. live
// is whether there is a connection, and broken whether it is the one to be replaced.
func (x *crossing) shakes(live, broken bool) bool {
	if x.taking > 0 || live && !broken {
		return false
	}
	x.shaking++
	return true
}

func (x *crossing) shaken() { x.shaking-- }

// takes reports whether this side takes a connection of the side with the larger id. It does not if
// one of its own is on its way, or is there and is not the one that broke. So both sides keep the
// same one.
func (x *crossing) takes(live, broken bool) bool {
	if x.shaking > 0 || live && !broken {
		return false
	}
	x.taking++
	return true
}

// taken follows a connection that takes has allowed, once it is attached or has failed.
func (x *crossing) taken() { x.taking-- }

// span is when a handshake began and ended, as one side counts such events: the hellos that it
// reads (then both are equal), the hellos that it sends and the last words that it gets.
type span struct{ began, ended uint64 }

// outdated reports whether a connection must not be attached any more, since one has been attached
// whose handshake ended after this one's began. The goroutine that was to attach this one has come
// late; the peer has given it up and made the other one.
func (s span) outdated(newest uint64) bool { return s.began < newest }

// refusal is what a side knows when the peer refuses its connections.
type refusal struct {
	all   bool // at all its addresses
	there bool // at the one where it was connected last
	open  bool // no firewall refuses: it is on this host, or this side has reached it before
	cut   bool // the connection broke since nobody answered, not since the peer's host ended it
	long  bool // for so long that the peer, if it lives, has dialled this side
}

// dead reports whether the peer's process is gone. A process listens before anybody knows its
// address. But firewalls refuse, too: behind one a peer is alive, and the only one who can dial.
func (r refusal) dead() bool { return (r.all || r.there) && (r.open || r.long && !r.cut) }

// standing is what a side knows of one of its sessions.
type standing struct {
	announced bool // the peer's open has arrived
	openSent  bool // this side's open has an index: the peer may know it
	onUse     bool
	closing   bool
	ended     bool // it has an error
	unsent    bool // fragments or control messages wait for the peer to open it
}

// misses reports whether the session would miss something without a connection.
func (s standing) misses() bool { return (s.announced || s.unsent) && !s.ended }

// owesGoodbye reports whether the peer may know the session and has not left it.
func (s standing) owesGoodbye() bool { return s.openSent && !s.ended }

// settled reports whether the session has nothing more to say.
func (s standing) settled() bool { return s.closing && !s.owesGoodbye() && !s.unsent }

// falls reports whether the session ends when the pair is lost. Connects of sessions that the peer
// has not announced yet go on.
func (s standing) falls() bool { return s.announced || s.onUse || s.closing }

// outlived reports whether the session ends where the peer remembers nothing of this side: it would
// not be what it was.
func (s standing) outlived() bool { return s.announced || s.closing && s.openSent && !s.unsent }

// What becomes of a session when the peer has said what has arrived there.
const (
	goesOn    = iota
	opensAnew // the peer does not know it yet
	isLeft    // the peer's answer to its goodbye is lost
	isMissing // the peer has forgotten it, which it must not
)

// after decides that. opens is the index that the peer expects next, listed whether it knows the
// session, and byeSent whether it was told goodbye.
func (s standing) after(index, opens uint32, listed, byeSent bool) int {
	switch {
	case s.openSent && index >= opens:
		return opensAnew
	case !s.openSent || listed:
		return goesOn
	case byeSent:
		return isLeft
	}
	return isMissing
}

// The numbers of fragments count from the start and wrap around: released ≤ arrived ≤ started ≤
// committed, and committed - released ≤ room.

// credits adopts what the peer reports as released, if that is possible. With several sockets a
// larger number may have come before.
func credits(total, freed, started uint32, several bool) (now uint32, possible bool) {
	if total-freed > started-freed {
		return freed, several && int32(total-freed) < 0
	}
	return total, true
}

// rewinds returns how many fragments are sent again after arrived of them, if that is possible.
func rewinds(arrived, freed, started uint32) (again uint32, possible bool) {
	if arrived-freed > started-freed {
		return 0, false
	}
	return started - arrived, true
}

// stays reports whether a fragment that the peer lacked when a connection was made is still the
// next one that it lacks, when the next connection is made: nothing of it came over the former, or
// not all.
func stays(lacked bool, before, arrived, again uint32) bool {
	return lacked && again > 0 && arrived == before
}

// segments has the limits of the segments of connections to a host, in bytes; 0 is none. A path may
// lose large packets, and keep it to itself, as that of a tunnel where messages about it are
// filtered. The first one below fits into the smallest packet of IPv6, the last one into that of
// IPv4.
var segments = [...]int{0, 1200, 536}

// fits reports whether a connection that was dialled with one limit does for an acceptor that has
// another one. If not, the dialer takes that of the acceptor.
func fits(dialled, acceptor uint8) bool { return dialled >= acceptor }

// The places of fragments that arrive.
const (
	placed    = iota // in the ring
	duplicate        // it has arrived before
	refused          // the peer had no credit for it
)

// placeOf decides where a fragment belongs. full is whether its place in the ring has it already.
func placeOf(number, arrived, released, room uint32, full bool) int {
	switch {
	case int32(number-arrived) < 0:
		return duplicate
	case number-released >= room:
		return refused
	case full:
		return duplicate
	}
	return placed
}

// changes counts the fragments that have arrived with a wrong checksum. Now and then a cable or an
// adapter changes a bit, which healing mends. A path that does so often is given up.
type changes struct {
	total   int
	first   time.Time
	last    [mostCorrupt]time.Time // of the last ones, the newest first
	arrived uint32                 // pair.arrivals at the last one
	stuck   int                    // how many in a row without a fragment that arrived between
}

const (
	mostCorrupt = 3 // within corruptSpan, or without a fragment that arrives between
	corruptSpan = time.Minute
)

// add notes a wrong checksum, and reports whether the path is to be given up.
func (x *changes) add(at time.Time, arrived uint32) bool {
	if x.total == 0 {
		x.first = at
	}
	if x.total == 0 || arrived != x.arrived {
		x.stuck = 0
	}
	x.total, x.stuck, x.arrived = x.total+1, x.stuck+1, arrived
	copy(x.last[1:], x.last[:])
	x.last[0] = at
	return x.stuck >= mostCorrupt || x.often()
}

func (x *changes) often() bool {
	return x.total >= mostCorrupt && x.last[0].Sub(x.last[mostCorrupt-1]) <= corruptSpan
}

// why says why the path is given up.
func (x *changes) why() string {
	if x.often() {
		span := x.last[0].Sub(x.last[mostCorrupt-1])
		return fmt.Sprintf("%d of them within %v", mostCorrupt, span.Round(time.Millisecond))
	}
	return fmt.Sprintf("the last %d without a right one between", mostCorrupt)
}

// rate says how many there were in which time: "number 4 in 72h0m0s, 1.0 a day".
func (x *changes) rate() string {
	span := x.last[0].Sub(x.first)
	if x.total == 1 {
		return "the first of this peer"
	}
	text := fmt.Sprintf("number %d in %v", x.total, span.Round(time.Second))
	if span < time.Hour { // too short for a rate
		return text
	}
	return fmt.Sprintf("%s, %.1f a day", text, float64(x.total-1)/span.Hours()*24)
}
