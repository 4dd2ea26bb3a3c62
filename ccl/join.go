package ccl

import (
	"context"
	"crypto/rand"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/goccl/goccl/ccl/exec"
	"github.com/goccl/goccl/ccl/exec/window"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/topo"
	"github.com/goccl/goccl/internal/mem"
	"github.com/goccl/goccl/transport"
)

// joining makes the links of one rank of a group. A rank that cannot join gives up, leaves the
// ranks that it is linked with by then, and tells them why. They give up for the same reason, and
// pass it on: nobody waits for a rank that will not come until the time is up.
type joining struct {
	self, size int
	peers      []address
	group      *topo.Group
	fabrics    []transport.Fabric // by peer; nil for none
	share      []int              // what the peers get, as Config.Share and Config.Note
	note       []byte
	window     *mem.Window      // of this rank, lent to the peers; nil for none
	control    *exec.Control    // takes the control messages of the peers
	apart      bool             // as Endpoint's
	tree       tree             // over which the ranks tell each other that they are linked
	links      []transport.Link // by peer

	mu   sync.Mutex
	errs []error // by peer
	made []transport.Link
	told *fault.Error         // why another rank has given up
	why  []byte               // that rank's report
	lost map[int]*fault.Error // the ranks that reports call lost
	dead map[int]*fault.Error // those that this rank has found dead when it looked for more
	soon *time.Timer          // ends the attempts
}

const (
	lastLinks  = 150 * time.Millisecond // for links to ranks that are to be told, before a rank gives up
	listenEach = 20 * time.Millisecond

	surveySpan = 10 * time.Millisecond // for the deaths of ranks with which this one is linked
	surveyEach = 2 * time.Millisecond
	mostOpened = 64 // ranks of a group in which all paths are made after a death
)

// routed returns the joining of a rank, with a fabric chosen for each peer that one reaches.
func (e *Endpoint) routed(peers []address, group *topo.Group) *joining {
	n := group.Size()
	j := &joining{self: e.cfg.Rank, size: n, peers: peers, group: group, fabrics: make([]transport.Fabric, n),
		share: e.cfg.Share, note: e.cfg.Note, control: new(exec.Control), apart: e.apart,
		tree: treeOf(group, e.cfg.Rank), links: make([]transport.Link, n), errs: make([]error, n),
		lost: map[int]*fault.Error{}, dead: map[int]*fault.Error{}}
	for peer := range peers {
		if peer != j.self {
			j.fabrics[peer], j.errs[peer] = e.route(&peers[peer], group)
		}
	}
	return j
}

// routes returns the names of the fabrics, by peer.
func (j *joining) routes() []string {
	names := make([]string, j.size)
	for peer, fabric := range j.fabrics {
		if fabric != nil {
			names[peer] = fabric.Name()
		}
	}
	return names
}

// link makes the window and the links. If it fails, there are none left.
func (j *joining) link(ctx context.Context, addresses [][]byte, channels int) error {
	if slot := j.group.Slot(); slot > 0 {
		between := func(route string) bool { return route != "" && route != "inproc" }
		var err error
		if j.window, err = mem.NewWindow(window.Bytes(slot), slices.ContainsFunc(j.routes(), between)); err != nil {
			return err
		}
	}
	session := sessionFor(addresses, channels, j.self, j.apart)
	j.connect(ctx, func(peer int) transport.Session {
		s := session(peer)
		s.Window, s.Share, s.Note, s.OnUse = j.window, j.share, j.note, !neighbours(j.self, peer, j.size)
		s.Control = func(message []byte) {
			if !j.tree.hear(message) {
				j.control.Hear(peer, message)
			}
		}
		return s
	})
	j.window.Joined()
	for peer, link := range j.links {
		lender, ok := link.(transport.Lender)
		if j.window != nil && link != nil && j.fabrics[peer].SharesMemory() && (!ok || lender.Window() == nil) {
			j.ended(peer, fault.Peer(fault.Internal, peer,
				"it shares memory with rank %d, but lends no window", j.self))
		}
	}
	err := j.err()
	if err == nil && j.sharesMemory() {
		err = j.together(ctx)
	}
	if err != nil {
		j.leave()
		j.window.Release()
	}
	return err
}

// connect links this rank with its peers.
func (j *joining) connect(ctx context.Context, session func(peer int) transport.Session) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var group, listener sync.WaitGroup
	j.soon = time.AfterFunc(time.Hour, func() {
		j.survey()
		cancel(&transport.GivenUp{Why: j.reason()})
	})
	defer j.soon.Stop()
	if slices.ContainsFunc(j.errs, final) {
		j.soon.Reset(lastLinks)
	}
	over := make(chan struct{})
	listener.Go(func() { j.listen(over) })
	limit := make(chan struct{}, 64) // connections being made at the same time
	for peer, fabric := range j.fabrics {
		if fabric == nil {
			continue
		}
		group.Go(func() {
			limit <- struct{}{}
			defer func() { <-limit }()
			link, err := fabric.Connect(ctx, j.peers[peer].Fabrics[fabric.Name()], session(peer))
			j.mu.Lock()
			defer j.mu.Unlock()
			if j.errs[peer] = err; err == nil {
				j.links[peer], j.made = link, append(j.made, link)
			} else if j.learn(err); final(err) {
				j.soon.Reset(lastLinks)
			}
		})
	}
	group.Wait()
	close(over)
	listener.Wait()
	j.survey()
}

// survey follows the death of a rank: others may have died with it, which this rank has not
// noticed, and all are to name the same. So all paths are made now, and those asked for that have
// not answered. A rank that has been told of the death knows whom the others call lost.
func (j *joining) survey() {
	j.mu.Lock()
	if j.told != nil || !slices.ContainsFunc(j.errs, isDeath) {
		j.mu.Unlock()
		return
	}
	var pending []int
	for peer, fabric := range j.fabrics {
		link := j.links[peer]
		if fabric != nil && j.errs[peer] == nil && (link == nil || j.size <= mostOpened && !link.Open()) {
			pending = append(pending, peer)
		}
	}
	j.mu.Unlock()
	least, most := time.Now().Add(surveySpan), time.Now().Add(lastLinks)
	var asking sync.WaitGroup
	for _, peer := range pending {
		asking.Go(func() { j.bury(peer, j.ask(peer)) })
	}
	asking.Wait()
	for ; time.Now().Before(most) && !j.hear(); time.Sleep(surveyEach) {
		if j.opened() && time.Now().After(least) {
			break
		}
	}
	j.mu.Lock()
	links := slices.Clone(j.links)
	j.mu.Unlock()
	for peer, link := range links {
		if link != nil {
			j.bury(peer, link.Err())
		}
	}
}

// opened has the paths of all links made, and reports whether all have been.
func (j *joining) opened() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	all := true
	for _, link := range j.made {
		all = (j.size > mostOpened || link.Open()) && all
	}
	return all
}

// ask attempts to connect with a peer, without patience: the error says whether it is gone.
func (j *joining) ask(peer int) error {
	ctx, cancel := context.WithDeadline(context.Background(), time.Now())
	defer cancel()
	s := transport.Session{Rank: j.self, Peer: peer, Channels: 1}
	rand.Read(s.ID[:])
	fabric := j.fabrics[peer]
	link, err := fabric.Connect(ctx, j.peers[peer].Fabrics[fabric.Name()], s)
	if err == nil {
		link.Close()
	}
	return err
}

// bury notes the death of a peer, if an error says that it has died.
func (j *joining) bury(peer int, err error) {
	f := &fault.Error{}
	if isDeath(err) && errors.As(err, &f) {
		named := *f
		named.Peer = peer
		j.mu.Lock()
		j.dead[peer] = &named
		j.mu.Unlock()
	}
}

func isDeath(err error) bool {
	f := &fault.Error{}
	return errors.As(err, &f) && f.Code == fault.PeerLost
}

// ended notes how an attempt has ended, after all. The timer may just be looking at the others.
func (j *joining) ended(peer int, err error) {
	j.mu.Lock()
	j.errs[peer] = err
	j.mu.Unlock()
}

// listen hears reports of ranks that have given up, until all attempts are over.
func (j *joining) listen(over chan struct{}) {
	tick := time.NewTicker(listenEach)
	defer tick.Stop()
	for heard := false; ; {
		select {
		case <-over:
			j.hear()
			return
		case <-tick.C:
			if j.hear() && !heard {
				heard = true
				j.soon.Reset(lastLinks)
			}
		}
	}
}

// hear looks for a report, and reports whether there is one.
func (j *joining) hear() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, link := range j.made {
		j.learn(link.Err())
	}
	return j.told != nil
}

// learn takes the report from the error of a link, if it has one. The first one counts, but for
// ranks that are lost: all are named. The lock is held.
func (j *joining) learn(err error) {
	f := &fault.Error{}
	if !errors.As(err, &f) || len(f.Left) == 0 {
		return
	}
	told, wrong := fault.ParseReport(f.Left, j.self, j.size)
	if wrong != nil {
		return
	}
	if j.told == nil {
		j.told, j.why = told, f.Left
	}
	if told.Code != fault.PeerLost {
		return
	}
	for _, rank := range told.Culprits() {
		if j.lost[rank] == nil {
			one := *told
			one.Peer, one.Ranks = rank, nil
			j.lost[rank] = &one
		}
	}
}

// final reports whether an error stays, however long a rank tries.
func final(err error) bool {
	return err != nil && !errors.Is(err, fault.Timeout) && !errors.Is(err, context.DeadlineExceeded) && !given(err)
}

// given reports whether an error only means that the attempt was given up.
func given(err error) bool { return errors.Is(err, fault.Aborted) || errors.Is(err, context.Canceled) }

// reason returns what the peers are told where this rank gives up: what it was told itself, or what
// it has found.
func (j *joining) reason() []byte {
	j.mu.Lock()
	defer j.mu.Unlock()
	f := &fault.Error{}
	if errors.As(j.combined(), &f) && f != j.told {
		return f.Report(j.self)
	}
	return j.why
}

// lacks reports whether an error says that this rank lacks something.
func lacks(err error) bool {
	f := &fault.Error{}
	return errors.As(err, &f) && f.Code == fault.System && f.Peer == fault.NoPeer
}

// leave ends the links, and tells the peers why.
func (j *joining) leave() {
	why := j.reason()
	for _, link := range j.made {
		link.Leave(why)
	}
}

// err combines all errors into one. What this rank lacks itself comes first, then what it was told,
// and then what it has found. All ranks that are lost are named.
func (j *joining) err() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.combined()
}

// combined is err with the lock held.
func (j *joining) combined() error {
	err := joinErrors(j.errs, j.group)
	if err == nil || lacks(err) {
		return err
	}
	if j.told != nil {
		err = j.told
	}
	first := &fault.Error{}
	if !isDeath(err) || !errors.As(err, &first) {
		return err
	}
	lost := map[int]*fault.Error{}
	for rank, own := range j.errs {
		if f := (&fault.Error{}); isDeath(own) && errors.As(own, &f) {
			named := *f
			named.Peer = rank
			lost[rank] = &named
		}
	}
	maps.Copy(lost, j.dead)
	own := slices.Sorted(maps.Keys(lost))
	var all []*fault.Error
	for _, rank := range own {
		all = append(all, lost[rank])
	}
	for _, rank := range slices.Sorted(maps.Keys(j.lost)) {
		if lost[rank] == nil {
			all = append(all, j.lost[rank])
		}
	}
	if len(first.Culprits()) == len(all) {
		return err
	}
	return fault.Lost(all)
}
