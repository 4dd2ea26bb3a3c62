package sim

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
)

// WriteTrace writes the timeline as Chrome trace JSON, which ui.perfetto.dev and chrome://tracing
// open: a process for each rank, a thread for each lane, a slice for each step. Run must have been
// called with Options.Timeline.
func (r *Result) WriteTrace(w io.Writer) error {
	out := bufio.NewWriter(w)
	fmt.Fprint(out, `{"displayTimeUnit":"ns","traceEvents":[`)
	separator := "\n"
	for rank := range r.Finish {
		fmt.Fprintf(out, `%s{"ph":"M","pid":%d,"name":"process_name","args":{"name":"rank %d"}}`, separator, rank, rank)
		fmt.Fprintf(out, ",\n"+`{"ph":"M","pid":%d,"name":"process_sort_index","args":{"sort_index":%d}}`, rank, rank)
		separator = ",\n"
	}
	lanes := map[[2]int32]bool{}
	for i := range r.Timeline {
		s := &r.Timeline[i]
		if key := [2]int32{s.Rank, s.Lane}; !lanes[key] {
			lanes[key] = true
			fmt.Fprintf(out, ",\n"+`{"ph":"M","pid":%d,"tid":%d,"name":"thread_name","args":{"name":"lane %d"}}`,
				s.Rank, s.Lane, s.Lane)
		}
		fmt.Fprintf(out, ",\n"+`{"ph":"X","pid":%d,"tid":%d,"name":%q,"ts":%s,"dur":%s,"args":{"step":%d,"bytes":%d}}`,
			s.Rank, s.Lane, s.name(), micros(s.Start), micros(s.End-s.Start), s.Step, s.Bytes)
	}
	fmt.Fprint(out, "\n]}\n")
	return out.Flush()
}

func micros(seconds float64) string { return strconv.FormatFloat(seconds*1e6, 'f', -1, 64) }

// name returns the title of the step's slice.
func (s *Span) name() string {
	switch does := s.Kind.Traits(); {
	case does.Outward():
		return fmt.Sprintf("%v to %d", s.Kind, s.Peer)
	case does.Peer:
		return fmt.Sprintf("%v from %d", s.Kind, s.Peer)
	}
	return s.Kind.String()
}
