package verify

import (
	"slices"

	"github.com/goccl/goccl/ccl/plan"
)

// memory holds the chunks of one rank in one plan: their values, and the steps that used them last.
type memory struct {
	rank, lanes int
	base        int32  // id of the rank's lane 0
	first       [4]int // place of chunk 0 of each plan.Buffer; the window comes last
	out         []int  // places of Out where it shares memory with In, else nil
	vals        []value
	wrote       []stamp // by place: the last write
	// Indexed by place*lanes + lane, without the window: the last read since the last write, as
	// ended(step), 0 for none.
	reads    []int32
	winReads [][]stamp // by place in the window: the last read of each lane since the last write
	arrivals []arrival // by place in the window
	// The first place that other ranks may read and that is treated like the window: place 0 if
	// window chunks may be lent.
	shared   int
	lent     []loan          // by chunk of the window, if it may stand for memory of the caller; else nil
	touched  map[int32]int32 // in sequences: for each lane, its last access to the window
	recorded map[int32]int32 // in sequences: the same for the record
}

// stamp names a step of a lane by the lane's id; end is ended(step), or 0 for the caller.
type stamp struct{ lane, end int32 }

// arrival records whether the last write to a place in the window is a put, and which waits of the
// owner make that put visible.
type arrival struct {
	put  bool
	seen []stamp
}

// newMemory lays out a rank's buffers. If inPlace is set and the rank has both, Out is in the
// memory of In, or In in that of Out, as plan.InPlace defines.
func newMemory(p *plan.Plan, rank int, base int32, lanes int, prog *plan.Program, v *values, inPlace bool) *memory {
	ins, outs := p.InChunks(rank), p.OutChunks(rank)
	window := ins + outs + len(prog.Tmp)
	m := &memory{rank: rank, lanes: lanes, base: base,
		first: [4]int{plan.In: 0, plan.Out: ins, plan.Tmp: ins + outs, plan.Win: window}}
	places := window + len(prog.Win)
	m.vals = make([]value, places)
	m.wrote = make([]stamp, places)
	m.shareFrom(window)
	for i := range ins {
		m.vals[i] = v.raw(rank, i)
	}
	if !inPlace || ins == 0 || outs == 0 {
		return m
	}
	m.out = make([]int, outs)
	for i := range outs {
		m.out[i] = ins + i
		switch {
		case ins == outs:
			m.out[i] = i
		case ins < outs: // In is the rank's own block of Out
			if own := i - rank*p.Split; own >= 0 && own < ins {
				m.out[i] = own
			}
		default: // Out is the rank's own block of In
			m.out[i] = rank*p.Split + i
		}
	}
	return m
}

// shareFrom makes the memory from a place on count as the window.
func (m *memory) shareFrom(place int) {
	m.shared = place
	m.reads = make([]int32, place*m.lanes)
	m.winReads = make([][]stamp, len(m.vals)-place)
	m.arrivals = make([]arrival, len(m.vals)-place)
}

// place returns the place of chunk i of r.
func (m *memory) place(r ref, i int) int {
	at := int(r.at) + i
	if r.buf == plan.Out && m.out != nil {
		return m.out[at]
	}
	return m.first[r.buf] + at
}

// window returns the index of a place in the window; it is negative for places elsewhere.
func (m *memory) window(place int) int { return place - m.shared }

// conflict looks for a step that used a place and is not known, by the clock of l, to have ended. A
// read conflicts with the last write, a write also with the reads since. A put conflicts with every
// access that does not know of a wait that makes the put visible, except for later puts of the same
// rank.
func (x *execution) conflict(l *lane, m *memory, place int, write, put bool) (stamp, bool) {
	known := func(s stamp) bool {
		return s.end == 0 || s.lane == l.id || s.end <= l.clock[s.lane-l.offset] || x.behind(l, m, place, s)
	}
	w, in := m.wrote[place], m.window(place)
	switch {
	case in >= 0 && m.arrivals[in].put && !(put && l.sameRank(w.lane)):
		if !slices.ContainsFunc(m.arrivals[in].seen, known) {
			return w, true
		}
	case !known(w):
		return w, true
	}
	if !write {
		return stamp{}, false
	}
	if in >= 0 {
		for _, r := range m.winReads[in] {
			if !known(r) {
				return r, true
			}
		}
		return stamp{}, false
	}
	for other, end := range m.reads[place*m.lanes : (place+1)*m.lanes] {
		if r := (stamp{m.base + int32(other), end}); !known(r) {
			return r, true
		}
	}
	return stamp{}, false
}

// see records that a wait, the step of l, makes visible the put at a place. A wait that comes after
// a recorded one is not recorded: any step that knows of it knows of the recorded one.
func (m *memory) see(l *lane, place int) {
	at := &m.arrivals[m.window(place)]
	for _, s := range at.seen {
		if s.lane == l.id || s.end <= l.clock[s.lane-l.offset] {
			return
		}
	}
	at.seen = append(at.seen, l.stamp())
}

func (m *memory) noteRead(l *lane, place int) {
	in := m.window(place)
	if in < 0 {
		m.reads[place*m.lanes+l.lane] = ended(l.pc)
		return
	}
	for i := range m.winReads[in] {
		if r := &m.winReads[in][i]; r.lane == l.id {
			r.end = ended(l.pc)
			return
		}
	}
	m.winReads[in] = append(m.winReads[in], l.stamp())
}

func (m *memory) noteWrite(l *lane, place int, v value, put bool) {
	m.vals[place] = v
	m.wrote[place] = l.stamp()
	if in := m.window(place); in >= 0 {
		m.winReads[in] = m.winReads[in][:0]
		m.arrivals[in] = arrival{put, m.arrivals[in].seen[:0]}
		return
	}
	clear(m.reads[place*m.lanes : (place+1)*m.lanes])
}
