package group

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/goccl/goccl/ccl/exec"
	"github.com/goccl/goccl/cuda"
)

// queries are what a group asks the driver about what it has enqueued: whether calls that are
// watched have ended, whether the streams of a failed group have, and whether the device has lost
// its context. A driver may keep whoever asks waiting, while another thread of the process frees
// memory, until all streams have ended; and these may wait for words that the device thread stores.
// So the device thread asks nothing: a goroutine of each group does, which it does not wait for.
type queries struct {
	g     *Group
	begin sync.Once
	wake  chan struct{} // of one
	ended chan struct{}
	over  atomic.Bool

	health     atomic.Bool // to be asked: for errors of the device
	streams    atomic.Bool // to be asked: whether the streams of the windows have ended
	askStreams func()      // asks that
	watching   sync.Mutex
	watched    []watched // that the goroutine does not know of yet
	looking    []watched // used by the goroutine, and when it has ended
}

func (q *queries) init(g *Group) {
	q.g, q.wake, q.ended = g, make(chan struct{}, 1), make(chan struct{})
}

// ask has a question asked soon. It does not wait.
func (q *queries) ask(question *atomic.Bool) {
	if !question.Swap(true) {
		q.rouse()
	}
}

// rouse has the goroutine look what there is to ask.
func (q *queries) rouse() {
	q.begin.Do(func() { go q.run() })
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *queries) run() {
	defer close(q.ended)
	for range q.wake {
		for last := time.Now(); ; {
			if q.over.Load() {
				return
			}
			seen := exec.Completions.Count()
			if q.health.Swap(false) {
				q.askHealth()
			}
			if q.streams.Swap(false) {
				q.askStreams()
			}
			ended, watching := q.lookAfter()
			if !watching {
				break
			}
			if ended {
				last = time.Now()
			}
			exec.Completions.Wait(seen, nap(time.Since(last)))
		}
	}
}

// askHealth asks for errors of what has been enqueued. An error of the context shows in all of its
// streams.
func (q *queries) askHealth() {
	if err := cuda.WithContext(q.g.ctx, func() error {
		_, err := q.g.staged.pipelines[0].toHost.stream.Done()
		return err
	}); err != nil {
		q.g.fail(err)
	}
}

// end has the goroutine end when the driver has answered. It does not wait.
func (q *queries) end() {
	q.over.Store(true)
	q.begin.Do(func() { close(q.ended) }) // there was nothing to ask
	q.rouse()
}

// await waits until the goroutine has ended, for d at most, and reports whether it has.
func (q *queries) await(d time.Duration) bool {
	select {
	case <-q.ended:
		return true
	case <-time.After(d):
		return false
	}
}

// watched is a call whose end on the device somebody wants to know of.
type watched struct {
	op    *Op
	onEnd func()
}

// OnEnd has f called when the call ends on the device. f must not wait. If the call has ended
// already, OnEnd reports false, and f is never called.
func (o *Op) OnEnd(f func()) bool {
	q := &o.g.queries
	q.watching.Lock()
	done, _ := o.Done() // in here, since the group looks after its calls a last time when it ends
	if !done {
		o.holders.Add(1)
		q.watched = append(q.watched, watched{o, f})
	}
	q.watching.Unlock()
	if !done {
		q.rouse()
	}
	return !done
}

// lookAfter lets go of the watched calls that have ended. It reports whether any has, and whether
// others have not.
func (q *queries) lookAfter() (ended, watching bool) {
	q.watching.Lock()
	q.looking = append(q.looking, q.watched...)
	clear(q.watched)
	q.watched = q.watched[:0]
	q.watching.Unlock()
	left := q.looking[:0]
	for _, w := range q.looking {
		if done, _ := w.op.Done(); done {
			ended = true
			w.onEnd()
			w.op.drop()
		} else {
			left = append(left, w)
		}
	}
	clear(q.looking[len(left):])
	q.looking = left
	return ended, len(left) > 0
}
