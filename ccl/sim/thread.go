package sim

import "math"

// thread executes the steps of a rank, one task at a time.
type thread struct {
	tasks   []task
	core    int32   // index in engine.cores
	more    float64 // seconds that the next task takes longer
	busy    bool    // with the first of tasks
	calls   int     // that it has ended
	waiting bool    // for others, before it begins the next call
}

// task is what a lane has a thread do. Of a message it is one fragment of so many bytes.
type task struct {
	lane    int32 // none for frames
	flow    int32 // of a frame
	what    taskKind
	bytes   int64
	seconds float64
}

type taskKind uint8

const (
	wholeStep taskKind = iota
	sendsPart
	takesPart
	takesFrame
	enters
)

// core runs the threads of some ranks in turns: one that has nothing to do looks whether something
// has come, and gives the core to the next.
type core struct {
	ranks []int32
	at    int     // whose turn it is, or was when the core had nothing to do any more
	since float64 // when that was
	busy  bool
}

// shareCores gives each simulated rank a thread, and spreads the threads of a machine over its
// cores. If ranks stand for others, each has a core.
func (e *engine) shareCores() {
	type cores struct{ first, count, ranks int }
	known := map[string]*cores{}
	e.threads = make([]thread, e.shift)
	for rank := range e.shift {
		name := e.o.On.Machine(rank)
		of, ok := known[name]
		if !ok {
			of = &cores{first: len(e.cores), count: e.o.On.Cores(rank)}
			if !e.o.On.Oversubscribed() {
				of.count = e.shift
			}
			known[name] = of
			e.cores = append(e.cores, make([]core, of.count)...)
		}
		at := of.first + of.ranks%of.count
		of.ranks++
		e.threads[rank].core = int32(at)
		e.cores[at].ranks = append(e.cores[at].ranks, int32(rank))
	}
}

// do has a rank's thread do something.
func (e *engine) do(rank int32, t task) {
	th := &e.threads[rank]
	th.tasks = append(th.tasks, t)
	if c := &e.cores[th.core]; !c.busy {
		// Meanwhile the core has turned from one rank to the next.
		if n, turn := len(c.ranks), e.turn(); n > 1 && turn > 0 {
			turns := math.Floor((e.now - c.since) / turn)
			c.at = (c.at + int(math.Mod(turns, float64(n)))) % n
		}
		e.next(c)
	}
}

// turn returns how long a core takes to turn to the next rank.
func (e *engine) turn() float64 {
	if len(e.o.On.Hosts()) > 1 {
		return e.o.Costs.Network.Switch
	}
	return e.o.Costs.Memory.Switch
}

// next has a core begin the next task of the first rank that has one, from the one on whose turn it
// is.
func (e *engine) next(c *core) {
	for turns := range c.ranks {
		rank := c.ranks[(c.at+turns)%len(c.ranks)]
		th := &e.threads[rank]
		if len(th.tasks) == 0 {
			continue
		}
		c.at, c.busy, th.busy = (c.at+turns)%len(c.ranks), true, true
		seconds := th.tasks[0].seconds + th.more + float64(turns)*e.turn()
		th.more = 0
		e.queue.push(e.now+seconds, event{kind: worked, id: rank})
		return
	}
	c.busy, c.since = false, e.now
}

// rest has the cores whose threads have ended a task go on.
func (e *engine) rest() {
	for _, rank := range e.resting {
		e.next(&e.cores[e.threads[rank].core])
	}
	e.resting = e.resting[:0]
}

// taskDone handles the end of a thread's task.
func (e *engine) taskDone(rank int32) {
	th := &e.threads[rank]
	t := th.tasks[0]
	th.tasks = append(th.tasks[:0], th.tasks[1:]...)
	th.busy = false
	e.resting = append(e.resting, rank)
	switch t.what {
	case takesFrame:
		e.applied(t.flow)
		return
	case enters:
		return
	}
	e.lanes[t.lane].tasked = false
	switch t.what {
	case wholeStep:
		e.stepDone(t.lane)
	case sendsPart:
		e.published(t.lane, t.bytes)
	case takesPart:
		e.took(t.lane, t.bytes)
	}
}
