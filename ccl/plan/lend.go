package plan

// Lent returns, for each chunk of the rank's window, the chunk of In or Out that it is merely a
// copy of: the chunk is written by only one step of the rank, a copy that is not final. The Ref has
// no chunks if there is no such source. Verification decides whether the caller's memory may then
// take the place of the window chunk (Lend).
func (p *Program) Lent() []Ref {
	sources, writers := make([]Ref, len(p.Win)), make([]int, len(p.Win))
	flat := p.Flat()
	for _, lane := range flat.Lanes {
		for i := range lane {
			s := &lane[i]
			if does := s.Kind.Traits(); !does.Writes || does.Puts || s.Dst.Buf != Win {
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
