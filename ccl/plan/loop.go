package plan

// Len returns the number of steps of a lane with its loops unrolled.
func Len(lane []Step) int {
	n := 0
	for i := range lane {
		if s := &lane[i]; s.Kind == Loop {
			n += s.Times * len(s.Body)
		} else {
			n++
		}
	}
	return n
}

// Advanced returns the step as iteration i of the loop around it executes it. The result may share
// lists with s; only lists that advance are copied.
func (s *Step) Advanced(i int) Step {
	t := *s
	t.By = nil
	if s.By == nil {
		return t
	}
	by := s.By
	t.Dst.At = by.Dst.At(t.Dst.At, i)
	t.Peer = by.Peer.At(t.Peer, i)
	if by.Src != nil {
		t.Src = make([]Ref, len(s.Src))
		for k, r := range s.Src {
			r.At = by.Src[k].At(r.At, i)
			t.Src[k] = r
		}
	}
	if by.From != nil {
		t.From = make([]int, len(s.From))
		for k, r := range s.From {
			t.From[k] = by.From[k].At(r, i)
		}
	}
	if by.After != nil {
		t.After = make([]Point, len(s.After))
		for k, a := range s.After {
			t.After[k] = Point{a.Lane, a.Step + i*by.After[k]}
		}
	}
	return t
}

// Flat returns the program with its loops unrolled. A lane without loops is returned as it is.
// Validate the program first: a file can describe more steps than fit in memory.
func (p *Program) Flat() Program {
	q := Program{Tmp: p.Tmp, Win: p.Win, Lanes: make([][]Step, len(p.Lanes))}
	for l, lane := range p.Lanes {
		q.Lanes[l] = flatLane(lane)
	}
	return q
}

func flatLane(lane []Step) []Step {
	n := Len(lane)
	loops := false
	for i := range lane {
		loops = loops || lane[i].Kind == Loop
	}
	if !loops {
		return lane
	}
	flat := make([]Step, 0, n)
	for i := range lane {
		s := &lane[i]
		if s.Kind != Loop {
			flat = append(flat, *s)
			continue
		}
		for k := range s.Times {
			for j := range s.Body {
				flat = append(flat, s.Body[j].Advanced(k))
			}
		}
	}
	return flat
}

// StepAt returns step i of a lane, counted with its loops unrolled. The lane must have that step.
func StepAt(lane []Step, i int) Step {
	for k := range lane {
		s := &lane[k]
		if s.Kind != Loop {
			if i == 0 {
				return *s
			}
			i--
			continue
		}
		if n := s.Times * len(s.Body); i >= n {
			i -= n
			continue
		}
		return s.Body[i%len(s.Body)].Advanced(i / len(s.Body))
	}
	panic("plan: no such step")
}
