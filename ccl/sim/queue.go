package sim

import "math"

// event is something that happens at a time.
type event struct {
	kind    eventKind
	version int32 // finish: of the flow when this was foreseen
	id      int32 // of a flow or a lane
}

type eventKind uint8

const (
	begins eventKind = iota // a message is past its latencies
	ends                    // the last byte of a flow has arrived
	worked                  // a lane has done its arithmetic
)

// queue holds events by time, all of one moment together.
type queue struct {
	times  []float64 // a heap
	at     map[float64]int32
	lists  [][]event
	free   []int32
	recent float64 // the time of the last push and its list: most events of a batch have one time
	list   int32
}

func newQueue() *queue { return &queue{at: map[float64]int32{}, recent: math.NaN()} }

func (q *queue) push(t float64, e event) {
	if t != q.recent {
		list, ok := q.at[t]
		if !ok {
			list = q.newList()
			q.at[t] = list
			q.up(t)
		}
		q.recent, q.list = t, list
	}
	q.lists[q.list] = append(q.lists[q.list], e)
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

// next is the time of the earliest event.
func (q *queue) next() (float64, bool) {
	if len(q.times) == 0 {
		return 0, false
	}
	return q.times[0], true
}

// pop appends the events of the earliest moment to events.
func (q *queue) pop(events []event) []event {
	t := q.times[0]
	list := q.at[t]
	events = append(events, q.lists[list]...)
	if cap(q.lists[list]) > 1<<16 {
		q.lists[list] = nil // one crowd must not be remembered by every list
	}
	q.lists[list] = q.lists[list][:0]
	q.free = append(q.free, list)
	delete(q.at, t)
	q.recent = math.NaN()
	q.down()
	return events
}

func (q *queue) up(t float64) {
	h := append(q.times, t)
	for i := len(h) - 1; i > 0; {
		parent := (i - 1) / 2
		if h[parent] <= h[i] {
			break
		}
		h[parent], h[i] = h[i], h[parent]
		i = parent
	}
	q.times = h
}

func (q *queue) down() {
	h := q.times
	last := len(h) - 1
	h[0] = h[last]
	h = h[:last]
	for i := 0; ; {
		child := 2*i + 1
		if child >= len(h) {
			break
		}
		if child+1 < len(h) && h[child+1] < h[child] {
			child++
		}
		if h[i] <= h[child] {
			break
		}
		h[i], h[child] = h[child], h[i]
		i = child
	}
	q.times = h
}
