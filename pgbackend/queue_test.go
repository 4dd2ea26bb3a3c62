package pgbackend

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// fake returns an operation that the test ends.
func fake() *ending {
	e := newEnding()
	return &e
}

// crew is a Queue with its threads, run as the shim runs them. Each token runs code of the test.
type crew struct {
	*Queue
	code    map[uint64]func()
	ran     chan uint64
	threads atomic.Int32
	most    atomic.Int32
}

func newCrew(code map[uint64]func()) *crew {
	return &crew{Queue: NewQueue(), code: code, ran: make(chan uint64, 100)}
}

// start starts a thread, which counts from here on, not from when it first runs.
func (c *crew) start() {
	n := c.threads.Add(1)
	for most := c.most.Load(); n > most && !c.most.CompareAndSwap(most, n); {
		most = c.most.Load()
	}
	go c.thread()
}

func (c *crew) thread() {
	defer c.threads.Add(-1)
	token, more := c.Next(0)
	for ; token != 0; token, more = c.Next(token) {
		if more {
			c.start()
		}
		if f := c.code[token]; f != nil {
			f()
		}
		c.ran <- token
	}
}

func (c *crew) watch(t *testing.T, token uint64, ops ...Operation) {
	t.Helper()
	watched, thread := c.Watch(token, ops)
	require.True(t, watched)
	if thread {
		c.start()
	}
}

func (c *crew) next(t *testing.T) uint64 {
	t.Helper()
	select {
	case token := <-c.ran:
		return token
	case <-time.After(forever):
		t.Fatal("HANG")
		return 0
	}
}

// all returns the next n tokens. Entries whose code ends at about the same time come in any order.
func (c *crew) all(t *testing.T, n int) (tokens []uint64) {
	t.Helper()
	for range n {
		tokens = append(tokens, c.next(t))
	}
	return tokens
}

func TestQueueGivesWhatHasEnded(t *testing.T) {
	c := newCrew(nil)
	ops := [4]*ending{fake(), fake(), fake(), fake()}
	c.watch(t, 1, ops[0])
	c.watch(t, 2, ops[1])
	c.watch(t, 3, ops[2], ops[3]) // due when both have ended
	ops[2].end()
	ops[1].end()
	require.EqualValues(t, 2, c.next(t))
	ops[0].end()
	require.EqualValues(t, 1, c.next(t))
	c.watch(t, 9) // a hook is due at once, also while a thread sleeps until an operation ends
	require.EqualValues(t, 9, c.next(t))
	require.Empty(t, c.ran)
	ops[3].end()
	require.EqualValues(t, 3, c.next(t))
	watched, thread := c.Watch(4, []Operation{ops[0], ops[1]})
	require.False(t, watched || thread, "they have ended")
	require.True(t, c.Stop(forever))
}

// The code of an entry may wait for another entry, and the code of that one for a third.
func TestQueueWhileCodeWaits(t *testing.T) {
	const depth = 5
	var ops [depth]*ending
	var did [depth]chan struct{}
	var ended []int // by the code itself: the threads report in any order
	code := map[uint64]func(){}
	for i := range depth {
		ops[i], did[i] = fake(), make(chan struct{})
		code[uint64(i+1)] = func() {
			if i+1 < depth {
				ops[i+1].end()
				<-did[i+1]
			}
			ended = append(ended, i+1)
			close(did[i])
		}
	}
	c := newCrew(code)
	for i := range depth {
		c.watch(t, uint64(i+1), ops[i])
	}
	ops[0].end()
	require.ElementsMatch(t, []uint64{1, 2, 3, 4, 5}, c.all(t, depth))
	require.Equal(t, []int{5, 4, 3, 2, 1}, ended)
	require.Eventually(t, func() bool { return c.threads.Load() <= 1 },
		forever, time.Millisecond, "one in reserve is enough")
	require.LessOrEqual(t, c.most.Load(), int32(2*depth), "each Watch and each Next starts one at most")
	require.True(t, c.Stop(forever))
}

// The code of an entry may add entries and wait for them.
func TestQueueWhileCodeAdds(t *testing.T) {
	first, second := fake(), fake()
	inner := make(chan struct{})
	var ended []int
	c := newCrew(nil)
	c.code = map[uint64]func(){
		1: func() {
			c.watch(t, 2, second)
			second.end()
			<-inner
			ended = append(ended, 1)
		},
		2: func() {
			ended = append(ended, 2)
			close(inner)
		},
	}
	c.watch(t, 1, first)
	first.end()
	require.ElementsMatch(t, []uint64{1, 2}, c.all(t, 2))
	require.Equal(t, []int{2, 1}, ended)
	require.True(t, c.Stop(forever))
}

func TestSettle(t *testing.T) {
	const soon = 20 * time.Millisecond
	for name, c := range map[string]struct {
		prepare func(q *Queue)
		own     uint64
		hooks   bool
		settled bool
	}{
		"nothing":                   {func(q *Queue) {}, 0, false, true},
		"what has not ended":        {func(q *Queue) { q.add(1, false) }, 0, false, true},
		"what is due":               {func(q *Queue) { q.add(1, true) }, 0, false, false},
		"a hook that is due":        {func(q *Queue) { q.Watch(1, nil) }, 0, true, false},
		"of hooks, a work":          {func(q *Queue) { q.add(1, true) }, 0, true, true},
		"what runs":                 {func(q *Queue) { q.add(1, true); q.Next(0) }, 0, false, false},
		"what runs here":            {func(q *Queue) { q.add(1, true); q.Next(0) }, 1, false, true},
		"a hook that runs":          {func(q *Queue) { q.Watch(1, nil); q.Next(0) }, 0, true, false},
		"within a hook":             {func(q *Queue) { q.Watch(1, nil); q.Next(0); q.Watch(2, nil) }, 1, true, true},
		"hooks, from within a work": {func(q *Queue) { q.add(1, true); q.Next(0); q.Watch(2, nil) }, 1, true, false},
		"what has run": {
			func(q *Queue) { q.add(1, true); q.Next(0); q.add(2, true); q.Next(1) }, 2, false, true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			q := NewQueue()
			c.prepare(q)
			require.Equal(t, c.settled, q.Settle(c.own, c.hooks, soon))
		})
	}
}

// add adds an entry, and ends its operation if it is to be due.
func (q *Queue) add(token uint64, due bool) {
	op := fake()
	q.Watch(token, []Operation{op})
	if due {
		op.end()
	}
}

func TestSettleWaits(t *testing.T) {
	op := fake()
	release := make(chan struct{})
	c := newCrew(map[uint64]func(){1: func() { <-release }})
	c.watch(t, 1, op)
	op.end()
	settled := make(chan bool)
	go func() { settled <- c.Settle(0, false, forever) }()
	select {
	case <-settled:
		t.Fatal("code still runs")
	case <-time.After(20 * time.Millisecond):
	}
	close(release)
	require.True(t, <-settled)
	require.True(t, c.Stop(forever))
}

func TestStop(t *testing.T) {
	pending, ended := fake(), fake()
	c := newCrew(nil)
	c.watch(t, 1, pending)
	require.True(t, c.Stop(forever), "a thread that sleeps is no obstacle")
	require.Eventually(t, func() bool { return c.threads.Load() == 0 }, forever, time.Millisecond)
	pending.end()
	token, _ := c.Next(0)
	require.EqualValues(t, 1, token, "what ended later is for who has stopped")
	token, _ = c.Next(token)
	require.Zero(t, token)
	watched, thread := c.Watch(2, []Operation{fake()})
	require.True(t, watched && !thread, "it is forgotten")
	token, _ = c.Next(0)
	require.Zero(t, token)

	begun, hang := make(chan struct{}), make(chan struct{})
	defer close(hang)
	c = newCrew(map[uint64]func(){7: func() { close(begun); <-hang }})
	c.watch(t, 7, ended)
	ended.end()
	<-begun
	require.False(t, c.Stop(20*time.Millisecond), "code that hangs is not waited for")
}

// asked counts how often a Queue asks an operation anything.
type asked struct {
	*ending
	times atomic.Int32
}

func (a *asked) OnEnd(f func()) bool {
	a.times.Add(1)
	return a.ending.OnEnd(f)
}

// With very many entries each operation is asked once, whichever ends first, and entries are given
// in the order in which they become due.
func TestQueueOfMany(t *testing.T) {
	many := 100_000
	if testing.Short() {
		many = 10_000
	}
	ops := make([]*asked, many)
	q := NewQueue()
	for i := range ops {
		ops[i] = &asked{ending: fake()}
		watched, thread := q.Watch(uint64(i+1), []Operation{ops[i]})
		require.True(t, watched && thread)
	}
	var want, got []uint64
	for i := 0; i < many; i += 2 { // from the front and from the end in turn
		for _, at := range [2]int{i, many - 1 - i} {
			ops[at].end()
			want = append(want, uint64(at+1))
		}
	}
	last, more := uint64(0), true
	for range many {
		require.True(t, more || last == 0)
		last, more = q.Next(last)
		got = append(got, last)
	}
	require.False(t, more, "nothing is left")
	require.Equal(t, want, got)
	for _, op := range ops {
		require.EqualValues(t, 1, op.times.Load())
	}
	require.False(t, q.Settle(0, false, time.Millisecond), "the last one runs")
	require.True(t, q.Settle(last, false, forever))
}

// Operations end while others are watched, by several threads; nothing is lost.
func TestQueueWhileManyEnd(t *testing.T) {
	const many, enders = 20_000, 4
	c := newCrew(nil)
	c.ran = make(chan uint64, many)
	feeds := [enders]chan *ending{}
	for i := range feeds {
		feed := make(chan *ending, many)
		feeds[i] = feed
		go func() {
			for op := range feed {
				op.end()
			}
		}()
	}
	watched := 0
	for i := range many {
		first, second := fake(), fake()
		feeds[i%enders] <- first
		feeds[(i+1)%enders] <- second
		is, thread := c.Watch(uint64(i+1), []Operation{first, second})
		if is {
			watched++
		}
		if thread {
			c.start()
		}
	}
	for i := range feeds {
		close(feeds[i])
	}
	c.all(t, watched)
	require.True(t, c.Settle(0, false, forever))
	require.True(t, c.Stop(forever))
	require.Empty(t, c.ran)
}
