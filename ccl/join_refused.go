package ccl

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/goccl/goccl/ccl/exec"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/topo"
	"github.com/goccl/goccl/transport"
)

// Only an attempt shows whether the system lets two processes share memory. Where it does not, both
// know it, and no rank may go on as if it did: plans and windows depend on which ranks share
// memory. So no rank leaves Join before all have all their links. Those that are refused give up
// and say why, as in any failure; all ranks then join a second time, in another session, in which
// no processes share memory.

// tree is the ranks of a group as a tree, whose nodes on one host are together. Along it the ranks
// tell each other that they are linked.
type tree struct {
	parent   int // -1 for the root
	children []int
	reports  chan struct{} // one from each child: all ranks below it are linked
	all      chan struct{} // all ranks are linked
}

// The control messages of a tree. Those of the executor begin with other letters.
const (
	controlBelow = 'j'
	controlAll   = 'J'
)

// treeOf returns the part of a tree that one rank knows. On each host the first rank is at the top,
// and the first ranks of the hosts are a tree themselves.
func treeOf(group *topo.Group, rank int) tree {
	hosts := group.Hosts()
	host := group.HostOf(rank)
	place := slices.Index(hosts[host], rank)
	t := tree{parent: -1}
	switch {
	case place > 0:
		t.parent = hosts[host][(place-1)/2]
	case host > 0:
		t.parent = hosts[(host-1)/2][0]
	}
	for below := 2*place + 1; below <= 2*place+2 && below < len(hosts[host]); below++ {
		t.children = append(t.children, hosts[host][below])
	}
	for below := 2*host + 1; place == 0 && below <= 2*host+2 && below < len(hosts); below++ {
		t.children = append(t.children, hosts[below][0])
	}
	t.reports, t.all = make(chan struct{}, len(t.children)), make(chan struct{}, 1)
	return t
}

// hear takes a message of a peer, and reports whether it was one of the tree. Those of peers that
// say something twice do not count.
func (t *tree) hear(message []byte) bool {
	if len(message) != 1 {
		return false
	}
	var told chan struct{}
	switch message[0] {
	case controlBelow:
		told = t.reports
	case controlAll:
		told = t.all
	default:
		return false
	}
	select {
	case told <- struct{}{}:
	default:
	}
	return true
}

// sharesMemory reports whether processes of the group share memory, and ranks may not know of each
// other's links: two ranks do.
func (j *joining) sharesMemory() bool {
	return j.size > 2 && slices.ContainsFunc(j.group.Hosts(), func(ranks []int) bool {
		first := j.group.Rank(ranks[0]).Process
		return slices.ContainsFunc(ranks, func(rank int) bool { return j.group.Rank(rank).Process != first })
	})
}

// together returns when all ranks of the group have all their links.
func (j *joining) together(ctx context.Context) error {
	for range j.tree.children {
		if err := j.await(ctx, j.tree.reports); err != nil {
			return err
		}
	}
	if j.tree.parent >= 0 {
		j.links[j.tree.parent].Tell([]byte{controlBelow})
		if err := j.await(ctx, j.tree.all); err != nil {
			return err
		}
	}
	for _, child := range j.tree.children {
		j.links[child].Tell([]byte{controlAll})
	}
	return nil
}

// await waits for a word of another rank, as long as all links work. When the time is up, another
// rank may know whom all wait for, and say so.
func (j *joining) await(ctx context.Context, word <-chan struct{}) error {
	tick := time.NewTicker(listenEach)
	defer tick.Stop()
	var over time.Time
	for begun := time.Now(); ; { // of an error
		select {
		case <-word:
			return nil
		case <-tick.C:
		}
		j.hear()
		for peer, link := range j.links {
			if link != nil && link.Err() != nil {
				j.ended(peer, link.Err())
			}
		}
		if err := j.err(); hasLeft(err) && time.Since(begun) < lastLinks {
			continue // it may have left when all had joined: the word is under way then
		} else if err != nil {
			j.survey()
			return j.err()
		}
		begun = time.Now()
		switch {
		case ctx.Err() == nil:
		case over.IsZero():
			over = time.Now().Add(lastLinks)
		case time.Now().After(over):
			e := fault.New(fault.Timeout, "the other ranks have not all joined in time")
			if errors.Is(ctx.Err(), context.Canceled) {
				e.Code = fault.Aborted
			}
			e.Cause = ctx.Err()
			return e
		}
	}
}

// hasLeft reports whether an error is that of a rank that has given up, or left in order.
func hasLeft(err error) bool { return errors.Is(err, fault.Aborted) || errors.Is(err, fault.PeerLeft) }

// refusal returns why the ranks of a group join without shared memory, if err says so, and their
// options leave another transport.
func (e *Endpoint) refusal(err error) *fault.Error {
	f := &fault.Error{}
	if errors.As(err, &f) && f.Refused && !e.apart && e.cfg.Options.allows("tcp") {
		return f
	}
	return nil
}

// unshared returns e for the attempt without shared memory. Later groups of this process do without
// it as well, if it was refused to this rank: all their ranks then know it before they join.
func (e *Endpoint) unshared(refused *fault.Error) *Endpoint {
	why := refused.Text // that of another rank, which says who it is
	if own := len(refused.Ranks) == 0; own {
		why = fmt.Sprintf("it is refused between ranks %d and %d: %s", e.cfg.Rank, refused.Peer,
			strings.TrimPrefix(refused.Text, "shm: "))
		e.node.mu.Lock()
		e.node.noMemory = errors.New(why)
		e.node.mu.Unlock()
	}
	second := e.inSecond()
	second.lacking += "; without shm: " + why
	return second
}

// inSecond returns e in the attempt without shared memory.
func (e *Endpoint) inSecond() *Endpoint {
	second := *e
	second.apart = true
	return &second
}

// sessionFor returns the sessions of a rank with its peers.
func sessionFor(addresses [][]byte, channels, self int, apart bool) func(peer int) transport.Session {
	id, key := sessionOf(addresses)
	if apart {
		sum := sha256.Sum256(fmt.Appendf(id[:], "without shared memory"))
		copy(id[:], sum[:])
	}
	return func(peer int) transport.Session {
		return transport.Session{ID: id, Rank: self, Peer: peer, Channels: exec.LinkChannels(channels), Key: key}
	}
}

// leaveSecond tells the ranks that wait for this one in the second attempt why it does not come: it
// has failed in the first one, for another reason than they.
func (e *Endpoint) leaveSecond(addresses [][]byte, err error) {
	f := &fault.Error{}
	if e.apart || e.refusal(err) != nil || !errors.As(err, &f) || !e.cfg.Options.allows("tcp") {
		return
	}
	second := e.inSecond()
	peers, group, wrong := second.agree(addresses)
	if wrong != nil {
		return
	}
	_, channels := second.planner(group)
	why := f.Report(e.cfg.Rank)
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(&transport.GivenUp{Why: why})
	session := sessionFor(addresses, channels, e.cfg.Rank, true)
	for peer, fabric := range second.routed(peers, group).fabrics {
		if fabric == nil || !neighbours(e.cfg.Rank, peer, group.Size()) {
			continue
		}
		s := session(peer)
		s.OnUse = true // nothing is sent before they ask
		if link, err := fabric.Connect(ctx, peers[peer].Fabrics[fabric.Name()], s); err == nil {
			link.Leave(why)
		}
	}
}
