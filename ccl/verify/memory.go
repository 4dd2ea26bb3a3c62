package verify

import "github.com/goccl/goccl/ccl/plan"

// memory is the chunks of one rank in one plan: what they hold, and who used them last.
type memory struct {
	rank, lanes int
	base        int32  // number of the rank's lane 0
	first       [4]int // place of chunk 0 of each plan.Buffer; the window comes last
	out         []int  // places of Out where it shares memory with In, else nil
	vals        []value
	wrote       []stamp         // by place: the last write
	reads       []int32         // [place*lanes + lane], the window apart: the last read since the last write, as ended(step), 0 for none
	winReads    [][]stamp       // by place in the window: the last reads of each lane since the last write
	pending     []bool          // by place in the window: the last write is a put that its owner has not waited for
	shared      int             // the first place that other ranks may read, and that counts as of the window: all do where the window stands for others
	lent        []loan          // by chunk of the window, where it may stand for memory of the caller; else nil
	touched     map[int32]int32 // in sequences: for each lane its last access to the window
}

// stamp is a step of a lane, by its number; end is ended(step), 0 for the caller.
type stamp struct{ lane, end int32 }

// newMemory lays out a rank's buffers. Where inPlace is set and the rank has both, Out is in the memory of In, or In in
// that of Out, as plan.InPlace says.
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

// shareFrom makes the memory from a place on count as of the window.
func (m *memory) shareFrom(place int) {
	m.shared = place
	m.reads = make([]int32, place*m.lanes)
	m.winReads = make([][]stamp, len(m.vals)-place)
	m.pending = make([]bool, len(m.vals)-place)
}

// place finds chunk i of r.
func (m *memory) place(r ref, i int) int {
	at := int(r.at) + i
	if r.buf == plan.Out && m.out != nil {
		return m.out[at]
	}
	return m.first[r.buf] + at
}

// window is the index of a place in the window, negative for places elsewhere.
func (m *memory) window(place int) int { return place - m.shared }

// conflict looks for a step that used a place and is not known, by the clock of l, to have ended. A read conflicts with the
// last write, a write also with the reads since. A put that was not waited for conflicts with everything but later puts of the same rank.
func (m *memory) conflict(l *lane, place int, write, put bool) (stamp, bool) {
	w := m.wrote[place]
	in := m.window(place)
	switch {
	case in >= 0 && m.pending[in] && !(put && l.sameRank(w.lane)):
		return w, true
	case w.lane != l.id && w.end > 0 && w.end > l.clock[w.lane-l.offset]:
		return w, true
	case !write:
		return stamp{}, false
	}
	if in >= 0 {
		for _, r := range m.winReads[in] {
			if r.lane != l.id && r.end > l.clock[r.lane-l.offset] {
				return r, true
			}
		}
		return stamp{}, false
	}
	for other, end := range m.reads[place*m.lanes : (place+1)*m.lanes] {
		if lane := m.base + int32(other); end > 0 && lane != l.id && end > l.clock[lane-l.offset] {
			return stamp{lane, end}, true
		}
	}
	return stamp{}, false
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
	m.winReads[in] = append(m.winReads[in], stamp{l.id, ended(l.pc)})
}

func (m *memory) noteWrite(l *lane, place int, v value, put bool) {
	m.vals[place] = v
	m.wrote[place] = stamp{l.id, ended(l.pc)}
	if in := m.window(place); in >= 0 {
		m.winReads[in] = m.winReads[in][:0]
		m.pending[in] = put
		return
	}
	clear(m.reads[place*m.lanes : (place+1)*m.lanes])
}
