package plan

// Lent says for each chunk of the rank's window which chunk of In or Out it is a mere copy of: it
// is written by one step of the rank, a copy that does nothing else. The Ref has no chunks where
// there is none. Whether the window may then stand for that memory is for verification to say
// (Lend).
func (p *Program) Lent() []Ref {
	sources, writers := make([]Ref, len(p.Win)), make([]int, len(p.Win))
	flat := p.Flat()
	for _, lane := range flat.Lanes {
		for i := range lane {
			s := &lane[i]
			if s.Kind == Send || s.Kind == Put || s.Kind == Packet || s.Kind == Signal || s.Kind == Wait || s.Dst.Buf != Win {
				continue
			}
			for k := range s.Dst.N {
				at := s.Dst.At + k
				writers[at]++
				if s.Kind == Copy && !s.Final && (s.Src[0].Buf == In || s.Src[0].Buf == Out) {
					sources[at] = Ref{Buf: s.Src[0].Buf, At: s.Src[0].At + k, N: 1}
				}
			}
		}
	}
	for at, n := range writers {
		if n != 1 {
			sources[at] = Ref{}
		}
	}
	return sources
}
