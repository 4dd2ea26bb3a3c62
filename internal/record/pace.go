package record

import (
	"time"

	"github.com/goccl/goccl/ccl/dtype"
)

// Pace is what a ring tells of the last while.
type Pace struct {
	Operations uint64 // that began in Span
	Bytes      uint64 // of them: of input or output, whichever is more
	Span       time.Duration

	// The oldest collective and the oldest message that have not ended; their ID is 0 if there is
	// none.
	Collective, Message Record
}

// Pace looks back over the given span, or for as far as the ring reaches.
func (r *Ring) Pace(span time.Duration) Pace {
	now := r.clock.now()
	total := r.next.Load()
	p := Pace{Span: span}
	from, known := now.time.Add(-span), min(total, uint64(len(r.entries)))
	for id := total - known + 1; id <= total; id++ {
		each, ok := r.read(id, now)
		if !ok || each.Coll == dtype.NoCollective {
			continue
		}
		oldest := &p.Message
		if each.Coll.Valid() {
			oldest = &p.Collective
		}
		if !each.Done && oldest.ID == 0 {
			*oldest = each
		}
		if each.Begun.Before(from) {
			continue
		}
		if p.Operations == 0 && known < total && id == total-known+1 {
			p.Span = max(now.time.Sub(each.Begun), time.Microsecond) // older ones of the span were overwritten
		}
		p.Operations++
		p.Bytes += max(each.In, each.Out) * uint64(each.Type.Size())
	}
	return p
}
