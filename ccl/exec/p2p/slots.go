package p2p

// slots assigns ids to the rendezvous with one peer. An id is a generation and an index, so that
// get does not find an id that the peer invents or uses after its end.
type slots struct {
	entries []slot
	free    []uint32
}

type slot struct {
	msg        *message
	generation uint32 // never 0, so that no id is 0
}

func (s *slots) put(m *message) {
	if len(s.free) == 0 {
		s.entries = append(s.entries, slot{generation: 1})
		s.free = append(s.free, uint32(len(s.entries)-1))
	}
	i := s.free[len(s.free)-1]
	s.free = s.free[:len(s.free)-1]
	s.entries[i].msg = m
	m.id = uint64(s.entries[i].generation)<<32 | uint64(i)
}

// get returns the message with this id and stage, or nil.
func (s *slots) get(id uint64, at stage) *message {
	i := uint32(id)
	if uint64(i) >= uint64(len(s.entries)) || s.entries[i].generation != uint32(id>>32) {
		return nil
	}
	if m := s.entries[i].msg; m != nil && m.stage == at {
		return m
	}
	return nil
}

func (s *slots) drop(id uint64) {
	i := uint32(id)
	s.entries[i].msg = nil
	s.entries[i].generation = max(s.entries[i].generation+1, 1)
	s.free = append(s.free, i)
}
