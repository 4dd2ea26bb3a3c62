package sim

import "slices"

// thread executes the steps of a rank, one task at a time.
type thread struct {
	tasks   []task
	cores   int32   // index in engine.cores
	more    float64 // seconds that the next task takes longer
	busy    bool    // with the first of tasks
	holds   bool    // it has a core
	queued  bool    // it waits for one
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

// cores are those that some ranks share.
type cores struct {
	free  []int32 // of each free core, the rank that had it last, or -1
	queue []int32 // ranks that wait for one
}

// take takes a free core for a rank, and reports whether another rank had it before.
func (c *cores) take(rank int32) (turns bool) {
	at := max(0, slices.Index(c.free, rank))
	turns = c.free[at] >= 0 && c.free[at] != rank
	c.free = slices.Delete(c.free, at, at+1)
	return turns
}

// shareCores gives each simulated rank a thread. If ranks stand for others, each has a core.
func (e *engine) shareCores() {
	known := map[string]int32{}
	e.threads = make([]thread, e.shift)
	for rank := range e.shift {
		name := e.o.On.Machine(rank)
		at, ok := known[name]
		if !ok {
			at = int32(len(e.cores))
			known[name] = at
			count := e.o.On.Cores(rank)
			if !e.o.On.Oversubscribed() {
				count = e.shift
			}
			free := make([]int32, count)
			for i := range free {
				free[i] = -1
			}
			e.cores = append(e.cores, cores{free: free})
		}
		e.threads[rank].cores = at
	}
}

// do has a rank's thread do something.
func (e *engine) do(rank int32, t task) {
	th := &e.threads[rank]
	th.tasks = append(th.tasks, t)
	if th.busy {
		return
	}
	if !th.holds {
		c := &e.cores[th.cores]
		if len(c.free) == 0 {
			if !th.queued {
				th.queued = true
				c.queue = append(c.queue, rank)
			}
			return
		}
		if c.take(rank) {
			th.more += e.o.Costs.Switch
		}
		th.holds = true
	}
	e.begin(rank)
}

func (e *engine) begin(rank int32) {
	th := &e.threads[rank]
	th.busy = true
	seconds := th.tasks[0].seconds + th.more
	th.more = 0
	e.queue.push(e.now+seconds, event{kind: worked, id: rank})
}

// rest has threads that have nothing to do give their cores to others.
func (e *engine) rest() {
	for _, rank := range e.resting {
		th := &e.threads[rank]
		if th.busy {
			continue
		}
		if len(th.tasks) > 0 {
			e.begin(rank)
			continue
		}
		th.holds = false
		c := &e.cores[th.cores]
		if len(c.queue) == 0 {
			c.free = append(c.free, rank)
			continue
		}
		next := c.queue[0]
		c.queue = append(c.queue[:0], c.queue[1:]...)
		other := &e.threads[next]
		other.queued, other.holds = false, true
		other.more += e.o.Costs.Switch
		e.begin(next)
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
