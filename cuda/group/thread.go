package group

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goccl/goccl/ccl/exec"
	"github.com/goccl/goccl/internal/park"
)

// Thread is the device thread of a process. It is started with the first group, and ends with
// Close. It never calls the driver (queries).
type Thread struct {
	mu     sync.Mutex // held while the thread works on the groups, and by nobody who calls the driver
	groups []*Group
	ended  chan struct{} // nil before the first group
	closed []way         // that outlive their groups

	releasing sync.Mutex // held while memory is given back
	sharing   sync.Mutex // guards what follows; held for short
	present   map[member]*shared
	left      []*shared // of groups that were closed; ranks of this process may still use them
	bell      *park.Doorbell
	over      atomic.Bool
}

// member is one rank of a group.
type member struct {
	group string
	rank  int
}

// NewThread makes the device thread of a process.
func NewThread() *Thread { return &Thread{bell: park.NewDoorbell(), present: map[member]*shared{}} }

// Close ends the thread, after all groups were closed.
func (t *Thread) Close() {
	t.over.Store(true)
	t.bell.Ring()
	t.mu.Lock()
	ended := t.ended
	t.mu.Unlock()
	if ended != nil {
		<-ended
	}
	t.release() // what graphs have used until now
}

func (t *Thread) add(g *Group) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.groups = append(t.groups, g)
	if t.ended == nil {
		t.ended = make(chan struct{})
		go t.run()
	}
}

// remove returns when the thread does not work on g any more, but for replays of its graphs.
func (t *Thread) remove(g *Group) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, w := range g.ways {
		if w.outlives() {
			t.closed = append(t.closed, w)
		}
	}
	t.groups = slices.DeleteFunc(t.groups, func(other *Group) bool { return other == g })
}

// spinning is how long the thread looks again and again after something has happened. After that it
// naps, for an eighth of the time that nothing has happened, within limits.
const (
	spinning    = 30 * time.Microsecond
	shortestNap = 5 * time.Microsecond
	longestNap  = 200 * time.Microsecond
	// looking is the time between two looks at deadlines, and for errors of the device.
	looking = 20 * time.Millisecond
)

func nap(waited time.Duration) time.Duration {
	return min(max(waited/8, shortestNap), longestNap)
}

func (t *Thread) run() {
	defer close(t.ended)
	last, looked := time.Now(), time.Now()
	for !t.over.Load() {
		ended, ticket := exec.Completions.Count(), t.bell.Prepare()
		moved, pending := t.advance()
		now := time.Now()
		waited := now.Sub(last)
		switch {
		case moved:
			t.bell.Cancel()
			last = now
		case !pending:
			if t.over.Load() {
				t.bell.Cancel()
				return
			}
			most := time.Duration(-1)
			if t.watches() {
				most = looking
			}
			t.bell.Sleep(ticket, most)
			last = time.Now()
			looked = t.look(last, looked)
		case waited < spinning:
			t.bell.Cancel()
			park.Pause(64)
		default:
			t.bell.Cancel()
			looked = t.look(now, looked)
			t.each(func(g *Group) { g.staged.expedite() }) // while this thread naps
			exec.Completions.Wait(ended, nap(waited))
		}
	}
}

// advance works on all groups once. It reports whether anything has moved, and whether any group
// has pending calls.
func (t *Thread) advance() (moved, pending bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, g := range t.groups {
		m, p := g.advance()
		moved, pending = moved || m, pending || p
	}
	t.closed = slices.DeleteFunc(t.closed, func(w way) bool {
		pending = w.resume() || pending
		return !w.outlives()
	})
	return moved, pending
}

// watches reports whether there are graphs, whose replays the thread is not told of.
func (t *Thread) watches() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.closed) > 0 || slices.ContainsFunc(t.groups, func(g *Group) bool {
		return slices.ContainsFunc(g.ways, way.outlives)
	})
}

// look checks deadlines, and has devices asked for errors, if that was long ago.
func (t *Thread) look(now, looked time.Time) time.Time {
	if now.Sub(looked) <= looking {
		return looked
	}
	t.each(func(g *Group) { g.look(now) })
	return now
}

// each calls do with all groups.
func (t *Thread) each(do func(*Group)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, g := range t.groups {
		do(g)
	}
}
