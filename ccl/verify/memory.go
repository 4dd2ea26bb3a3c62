package verify

import "github.com/goccl/goccl/ccl/plan"

// memory is the chunks of one rank: what they hold, and who used them last.
type memory struct {
	lanes int
	first [3]int  // place of chunk 0 of each plan.Buffer
	out   []int   // places of Out where it shares memory with In, else nil
	vals  []value // by place
	wrote []stamp // the last write
	reads []int32 // [place*lanes + lane] the last read since the last write, as ended(step), 0 for none
}

// stamp is a step of a lane; end is ended(step), 0 for the caller.
type stamp struct{ lane, end int32 }

// newMemory lays out a rank's buffers. Where inPlace is set and the rank has both, Out is in the memory of In, or In in
// that of Out, as plan.InPlace says.
func newMemory(p *plan.Plan, rank int, prog *plan.Program, v *values, inPlace bool) *memory {
	ins, outs := p.InChunks(rank), p.OutChunks(rank)
	m := &memory{lanes: len(prog.Lanes), first: [3]int{plan.In: 0, plan.Out: ins, plan.Tmp: ins + outs}}
	places := ins + outs + len(prog.Tmp)
	m.vals = make([]value, places)
	m.wrote = make([]stamp, places)
	m.reads = make([]int32, places*m.lanes)
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

// place finds chunk i of r.
func (m *memory) place(r plan.Ref, i int) int {
	if r.Buf == plan.Out && m.out != nil {
		return m.out[r.At+i]
	}
	return m.first[r.Buf] + r.At + i
}

// conflict looks for a step of another lane that used a place and is not known, by a clock, to have ended. own is the
// part of the clock that is about this rank's lanes. A read conflicts with the last write, a write also with the reads since.
func (m *memory) conflict(place, lane int, own clock, write bool) (stamp, bool) {
	if w := m.wrote[place]; int(w.lane) != lane && w.end > own[w.lane] {
		return w, true
	}
	if write {
		for other, end := range m.reads[place*m.lanes : (place+1)*m.lanes] {
			if other != lane && end > own[other] {
				return stamp{int32(other), end}, true
			}
		}
	}
	return stamp{}, false
}

func (m *memory) noteRead(place, lane, step int) {
	m.reads[place*m.lanes+lane] = ended(step)
}

func (m *memory) noteWrite(place, lane, step int, v value) {
	m.vals[place] = v
	m.wrote[place] = stamp{int32(lane), ended(step)}
	clear(m.reads[place*m.lanes : (place+1)*m.lanes])
}
