package sim

import "math"

// event is something that happens at a certain time.
type event struct {
	kind    eventKind
	version int32 // ends: the version of the flow when this event was scheduled
	id      int32 // of a flow or a lane
}

type eventKind uint8

const (
	begins  eventKind = iota // a message has passed its latencies
	ends                     // the last byte of a flow has arrived
	worked                   // a lane has finished its arithmetic; with Options.Costs, a thread its task
	lands                    // the receiver of a fragment can find it
	credits                  // the sender of a fragment has credit for another one
)

// queue holds events by time. It groups the events of one moment as far as it finds them.
type queue struct {
	heap  []moment
	lists [][]event
	free  []int32
	// The last list of a time, by a hash of the time; most events have the time of a recent one.
	recent [recents]moment
}

// moment is a time and its list of events; its time is NaN if there is none.
type moment struct {
	time float64
	list int32
}

// recents must be a power of two.
const recents = 256

func newQueue() *queue {
	q := &queue{}
	for i := range q.recent {
		q.recent[i].time = math.NaN()
	}
	return q
}

// slot returns where the last list of a time is remembered.
func (q *queue) slot(t float64) *moment {
	return &q.recent[math.Float64bits(t)*0x9e3779b97f4a7c15>>(64-8)]
}

func (q *queue) push(t float64, e event) {
	m := q.slot(t)
	if m.time != t {
		*m = moment{t, q.newList()}
		q.up(*m)
	}
	q.lists[m.list] = append(q.lists[m.list], e)
}

func (q *queue) newList() int32 {
	if n := len(q.free); n > 0 {
		list := q.free[n-1]
		q.free = q.free[:n-1]
		return list
	}
	q.lists = append(q.lists, nil)
	return int32(len(q.lists) - 1)
}

// next returns the time of the earliest event.
func (q *queue) next() (float64, bool) {
	if len(q.heap) == 0 {
		return 0, false
	}
	return q.heap[0].time, true
}

// pop appends a list of events of the earliest moment to events.
func (q *queue) pop(events []event) []event {
	first := q.heap[0]
	if m := q.slot(first.time); m.list == first.list {
		m.time = math.NaN()
	}
	list := q.lists[first.list]
	events = append(events, list...)
	if cap(list) > 1<<16 {
		list = nil // one large batch must not make every list keep as much memory
	}
	q.lists[first.list] = list[:0]
	q.free = append(q.free, first.list)
	q.down()
	return events
}

func (q *queue) up(m moment) {
	h := append(q.heap, m)
	i := len(h) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if h[parent].time <= m.time {
			break
		}
		h[i] = h[parent]
		i = parent
	}
	h[i] = m
	q.heap = h
}

func (q *queue) down() {
	last := len(q.heap) - 1
	m := q.heap[last]
	h := q.heap[:last]
	q.heap = h
	if last == 0 {
		return
	}
	i := 0
	for {
		child := 2*i + 1
		if child >= last {
			break
		}
		if child+1 < last && h[child+1].time < h[child].time {
			child++
		}
		if m.time <= h[child].time {
			break
		}
		h[i] = h[child]
		i = child
	}
	h[i] = m
}
