package ccl

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/member"
	"github.com/goccl/goccl/ccl/topo/probe"
	"github.com/goccl/goccl/transport"
)

// Quorum says which part of a group may go on without the ranks that it has lost.
type Quorum = member.Quorum

const (
	// Majority lets one part go on at most: more than half of the ranks that may live, or half of
	// them with the lowest.
	Majority = member.Majority
	// AnyQuorum lets every part go on. A group whose network is cut may become several.
	AnyQuorum = member.Any
)

const (
	lateSpan = time.Second // after which the ranks that do not take part are named

	// A death may be known later than the loss. Where a part may not go on, it looks again.
	moreLooks = 5
	lookSpan  = 60 * time.Millisecond

	mostEarlier = 4 // calls of a rank that is left out, of which something may be left
)

// tooFew returns the error of a part that may not go on.
func (r *regroup) tooFew() error {
	lost, dead := r.change.Lost()
	if r.grows() {
		return r.lostFormer()
	}
	all, silent := len(r.links), member.Silent(lost, dead)
	r.silent = silent
	left := all - len(lost)
	text := fmt.Sprintf("%d of the %d ranks that may live are left here, which is no majority", left, all-len(dead))
	if 2*left == all-len(dead) {
		text = fmt.Sprintf("half of the %d ranks that may live are left here, and the lowest one is not", 2*left)
	}
	if r.quorum == Majority && Majority.Allows(all, lost, dead) {
		text = fmt.Sprintf("no majority of the first %d ranks is left here, and the others of them may not know that the "+
			"group has grown", r.grown)
	}
	if r.quorum != Majority {
		text = fmt.Sprintf("%d of %d ranks are left here, and the quorum is %d", left, all, r.quorum)
	}
	if len(silent) == 0 {
		return fault.New(fault.PeerLost, "%s", text)
	}
	return &fault.Error{Code: fault.PeerLost, Peer: silent[0], Ranks: silent, Silent: true,
		Text: fmt.Sprintf("%s; not known to be dead, so that they may have gone on: %s. If it is certain that they have "+
			"not, shrink with another quorum", text, listed(silent))}
}

// farewellSession returns the session in which those that go on tell a rank that it is left out. It
// may ask in any later call of Shrink: it has one for each call of its own.
func (r *regroup) farewellSession(peer int) transport.Session {
	return transport.Session{ID: r.farewells, Rank: r.self(), Peer: peer, Channels: 1, Key: r.key, OnUse: true}
}

// listenTo hears whether ranks that may have gone on have, after this part of the group might not.
func (r *regroup) listenTo(ctx context.Context, ranks []int) {
	for _, peer := range ranks {
		fabric := r.fabrics[peer]
		if fabric == nil {
			continue
		}
		r.making.Go(func() {
			link, err := fabric.Connect(ctx, r.peers[peer].Fabrics[fabric.Name()], r.farewellSession(peer))
			r.mu.Lock()
			defer r.mu.Unlock()
			switch {
			case err != nil:
				r.take(err)
			case r.over:
				link.Close()
			default:
				r.echoes = append(r.echoes, link)
			}
			r.notify()
		})
	}
}

// sendFarewells tells the lost ranks that may live that the others have gone on, whenever they ask.
func (r *regroup) sendFarewells(why []byte) {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(&transport.GivenUp{Why: why})
	for _, peer := range member.Silent(r.change.Lost()) {
		fabric := r.fabrics[peer]
		if fabric == nil {
			continue
		}
		// What it meets may be what is left of an earlier call of the peer, which hears nothing any
		// more. So it leaves word once more, until that waits for a call to come.
		for range mostEarlier {
			link, err := fabric.Connect(ctx, r.peers[peer].Fabrics[fabric.Name()], r.farewellSession(peer))
			if err != nil {
				break
			}
			link.Leave(why)
		}
	}
}

// leftOut returns the error that says that others went on without this rank, or nil.
func (r *regroup) leftOut() *fault.Error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.broken != nil && r.broken.Code == fault.PeerLeft {
		return r.broken
	}
	return nil
}

// isDead reports whether there is proof that a peer is dead: by its links, by the process itself
// where its number means something here, or by what was settled.
func (r *regroup) isDead(peer int) bool {
	if slices.Contains(r.silent, peer) {
		return false
	}
	r.mu.Lock()
	proven := r.proven[peer]
	r.mu.Unlock()
	return proven || r.near(peer) && probe.HasEnded(r.peers[peer].Pid)
}

// near reports whether the process of a peer has the same number here as there.
func (r *regroup) near(peer int) bool {
	return r.peers[r.self()].Place.SeesProcessesOf(r.peers[peer].Place)
}

// missing describes ranks that this one waits for.
func (r *regroup) missing(ranks []int) string {
	text := fmt.Sprintf("ranks %v neither take part in %s nor have died", ranks, r.what)
	for _, rank := range ranks {
		if r.near(rank) && probe.IsStopped(r.peers[rank].Pid) {
			text += fmt.Sprintf("; rank %d (pid %d) is stopped, by a signal or a debugger", rank, r.peers[rank].Pid)
		}
	}
	return text
}

// goodbye is what the ranks that go on tell those that they have left out.
type goodbye struct {
	By    []int `json:"by"` // the first ones
	Count int   `json:"count"`
}

const mostListed = 32

// farewell returns it as a text.
func farewell(size int, lost []int) []byte {
	p := goodbye{Count: size - len(lost)}
	for rank := 0; rank < size && len(p.By) < mostListed; rank++ {
		if !slices.Contains(lost, rank) {
			p.By = append(p.By, rank)
		}
	}
	text, _ := json.Marshal(p) // of integers: it cannot fail
	return text
}

// leftOutBy returns the error of a rank that reads a goodbye, which is not trusted; nil if it is
// none.
func leftOutBy(text []byte, size int) *fault.Error {
	var p goodbye
	outside := func(rank int) bool { return rank < 0 || rank >= size }
	if json.Unmarshal(text, &p) != nil || len(p.By) == 0 || len(p.By) > mostListed || p.Count < len(p.By) ||
		p.Count > size || slices.ContainsFunc(p.By, outside) {
		return nil
	}
	by := listed(p.By)
	if more := p.Count - len(p.By); more > 0 {
		by += fmt.Sprintf(" and %d more", more)
	}
	return &fault.Error{Code: fault.PeerLeft, Peer: p.By[0], Ranks: p.By, Text: "left out by " + by +
		", which have gone on as a group without this rank: it took no part in their shrink, or could not be reached; " +
		"it cannot go on with this group"}
}

// listed names ranks in a text.
func listed(ranks []int) string {
	text := fault.Ranks(ranks[:min(len(ranks), mostListed)])
	if more := len(ranks) - mostListed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
