package group

import (
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/goccl/goccl/ccl/exec"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/cuda"
	"github.com/goccl/goccl/cuda/group/page"
	"github.com/goccl/goccl/cuda/group/route"
	"github.com/goccl/goccl/cuda/group/share"
)

// shared is memory that the ranks of a host have in common: what this rank has made, and what it
// reaches of its peers. A group that stages everything has none.
type shared struct {
	g        *Group
	layout   page.Layout
	kind     route.Kind      // of the windows
	page     cuda.Registered // of this rank
	pages    []page.Page     // by rank
	peers    []int           // the other ranks on this host, whose windows this one uses
	compared []uint64        // by peer: the operations whose prints were compared; by the device thread
	goneAt   []atomic.Int64  // by peer: when it was first seen to have gone

	// Guarded by Thread.sharing.
	cleanups []func() error // give back, last first, what was opened
	owned    int            // the first of these: what is not of the peers
	chunks   []chunk        // for graphs, made after joining
	left     bool           // this rank uses nothing of the others any more
	setup    *setup         // nil when the ranks have agreed
}

// failed reports whether a peer has failed, and perhaps written words for something that it has not
// waited for. This rank is about to be told why.
func (s *shared) failed() bool {
	return slices.ContainsFunc(s.peers, func(peer int) bool { return s.failedOf(s.page.Host(), peer).Load() != 0 })
}

// failedOf returns the word in a page in which the host of a peer says that it has failed.
func (s *shared) failedOf(in []byte, peer int) *atomic.Uint64 {
	return (*atomic.Uint64)(unsafe.Pointer(page.Word(in, s.layout.Of(peer, page.Failed))))
}

// warn tells the hosts of the peers that this rank has failed, before its streams are let go.
func (s *shared) warn() {
	for _, peer := range s.peers {
		s.failedOf(s.pages[peer].Host, s.g.rank).Store(1)
	}
}

// publish writes the print of a call, over windows or not, into the page of this rank.
func (s *shared) publish(o *Op) {
	if o.call.Coll.Valid() {
		page.WritePrint(s.page.Host(), s.layout.Print(o.seq), o.seq, exec.Print(&o.call, o.seq))
	}
}

// compare compares the prints of calls with those of the peers, as far as these have come. The
// device does not: it reads no more than this rank's lengths, whatever the peers have called.
func (s *shared) compare() error {
	mine := s.page.Host()
	for _, peer := range s.peers {
		for seq := s.compared[peer] + 1; ; seq++ {
			offset := s.layout.Print(seq)
			own, there, forgotten := page.ReadPrint(mine, offset, seq)
			if !there && !forgotten {
				break
			}
			other, there, passed := page.ReadPrint(s.pages[peer].Host, offset, seq)
			if !there && !passed {
				break
			}
			s.compared[peer] = seq
			if there && !forgotten && own != other {
				return fault.Peer(fault.Mismatch, peer, "rank %d called %s, and rank %d called %s", s.g.rank,
					exec.DescribePrint(own), peer, exec.DescribePrint(other))
			}
		}
	}
	return nil
}

// gone returns why a peer has gone, or nil: what it has said before it went, if anything. Who
// drives the control group at this moment may be about to read that, so it has goneSpan. If the
// peer has died, the control group settles first who else has.
func (s *shared) gone(peer int) *fault.Error {
	gone := s.g.comm.Gone(peer)
	if gone == nil {
		return nil
	}
	if failure := s.g.comm.Check(); failure != nil {
		return failure
	}
	now := time.Now().UnixNano()
	if s.goneAt[peer].CompareAndSwap(0, now) || now-s.goneAt[peer].Load() < int64(goneSpan) {
		return nil
	}
	if gone.Code == fault.PeerLost {
		return s.g.comm.Mourn()
	}
	return gone
}

const goneSpan = 50 * time.Millisecond

// inProcess returns the memory of a peer if it is in this process.
func (s *shared) inProcess(rank int) *shared {
	t := s.g.opts.Thread
	t.sharing.Lock()
	defer t.sharing.Unlock()
	return t.present[member{s.g.opts.Peers.Group, rank}]
}

// windowRoom says what is where in the windows of all ranks.
func (s *shared) windowRoom() share.Room {
	return share.Room{Slot: share.SlotOf(s.g.opts.Staging), Graphs: s.layout.Graphs, Ranks: len(s.pages)}
}

func (s *shared) member() member { return member{s.g.opts.Peers.Group, s.g.rank} }
