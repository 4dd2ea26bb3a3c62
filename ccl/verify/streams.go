package verify

// streamKey names a stream of messages, or of signals, that match first in, first out.
type streamKey struct{ from, to, channel int32 }

// stream holds the state of its two ends: the lane that waits there now, and the last step that
// used it. Signals queue up.
type stream struct {
	sender, receiver   *lane
	lastSend, lastRecv stamp
	signals            []signal
}

// tabled is the largest number of ranks for which streams are found in tables, with a row for each
// sender; for larger groups the tables would be too large.
const tabled = 1024

// streams finds streams by their ends, and creates them on demand.
type streams struct {
	ranks, channels int
	rows            [][]*stream // by sender, then by receiver and channel
	far             map[streamKey]*stream
	all             []*stream
}

func newStreams(ranks, channels int) streams {
	s := streams{ranks: ranks, channels: channels}
	if ranks <= tabled {
		s.rows = make([][]*stream, ranks)
	} else {
		s.far = map[streamKey]*stream{}
	}
	return s
}

// of returns the stream with these ends.
func (s *streams) of(from, to, channel int32) *stream {
	if s.rows == nil {
		key := streamKey{from, to, channel}
		st := s.far[key]
		if st == nil {
			st = s.add()
			s.far[key] = st
		}
		return st
	}
	row := s.rows[from]
	if row == nil {
		row = make([]*stream, s.ranks*s.channels)
		s.rows[from] = row
	}
	st := &row[int(to)*s.channels+int(channel)]
	if *st == nil {
		*st = s.add()
	}
	return *st
}

func (s *streams) add() *stream {
	st := &stream{}
	s.all = append(s.all, st)
	return st
}
