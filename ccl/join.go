package ccl

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/transport"
)

// joining makes the links of one rank of a group. A rank that cannot join gives up, leaves the
// ranks that it is linked with by then, and tells them why. They give up for the same reason, and
// pass it on: nobody waits for a rank that will not come until the time is up.
type joining struct {
	self, size int
	links      []transport.Link // by peer

	mu   sync.Mutex
	errs []error // by peer
	made []transport.Link
	told *fault.Error // why another rank has given up
	why  []byte       // that rank's report
	soon *time.Timer  // ends the attempts
}

const (
	lastLinks  = 150 * time.Millisecond // for links to ranks that are to be told, before a rank gives up
	listenEach = 20 * time.Millisecond
)

// connect links this rank with its peers. fabrics has the fabric for each, nil for none.
func (j *joining) connect(
	ctx context.Context, fabrics []transport.Fabric, addresses []address, session func(peer int) transport.Session,
) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var group, listener sync.WaitGroup
	j.soon = time.AfterFunc(time.Hour, func() { cancel(&transport.GivenUp{Why: j.reason(addresses)}) })
	defer j.soon.Stop()
	if slices.ContainsFunc(j.errs, final) {
		j.soon.Reset(lastLinks)
	}
	over := make(chan struct{})
	listener.Go(func() { j.listen(over) })
	limit := make(chan struct{}, 64) // connections being made at the same time
	for peer, fabric := range fabrics {
		if fabric == nil {
			continue
		}
		group.Go(func() {
			limit <- struct{}{}
			defer func() { <-limit }()
			link, err := fabric.Connect(ctx, addresses[peer].Fabrics[fabric.Name()], session(peer))
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
	for {
		select {
		case <-over:
			j.hear()
			return
		case <-tick.C:
			if j.hear() {
				j.soon.Reset(lastLinks)
				return
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

// learn takes the report from the error of a link, if it has one. The first one counts. The lock is
// held.
func (j *joining) learn(err error) {
	f := &fault.Error{}
	if j.told != nil || !errors.As(err, &f) || len(f.Left) == 0 {
		return
	}
	if told, wrong := fault.ParseReport(f.Left, j.self, j.size); wrong == nil {
		j.told, j.why = told, f.Left
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
func (j *joining) reason(peers []address) []byte {
	j.mu.Lock()
	defer j.mu.Unlock()
	f := &fault.Error{}
	if errors.As(j.err(peers), &f) && f != j.told {
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
func (j *joining) leave(peers []address) {
	why := j.reason(peers)
	for _, link := range j.made {
		link.Leave(why)
	}
}

// err combines all errors into one. What this rank lacks itself comes first, then what it was told.
func (j *joining) err(peers []address) error {
	err := joinErrors(j.errs, peers)
	if err == nil || j.told == nil || lacks(err) {
		return err
	}
	return j.told
}
