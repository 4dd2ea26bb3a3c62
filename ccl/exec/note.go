package exec

import (
	"errors"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/program"
	"github.com/goccl/goccl/internal/record"
)

// note records that a call begins, and returns the number of its record; 0 if nothing is recorded.
func (c *Comm) note(call *Call) uint64 {
	note := c.reserve()
	c.fill(note, call, c.last(call)+1)
	return note
}

// reserve returns the number of a record that fill is going to make; 0 if nothing is recorded.
func (c *Comm) reserve() uint64 {
	if c.opts.Record == nil || c.opts.CallerRecords {
		return 0
	}
	return c.opts.Record.Reserve()
}

func (c *Comm) fill(note uint64, call *Call, seq uint64) {
	if note == 0 {
		return
	}
	c.opts.Record.Fill(note, &record.Operation{
		Seq: seq, In: program.Elements(call.In), Out: program.Elements(call.Out),
		Coll: call.Coll, Type: call.Type, Op: call.Op, Root: int32(call.Root), Tag: call.Tag, Batch: call.Batch,
	})
}

// noteEnd records how a call ended, if its beginning was recorded. timed means that the call took
// so long that reading the clock for its end is worth the cost.
func (c *Comm) noteEnd(note uint64, err error, timed bool) {
	if note == 0 {
		return
	}
	code := fault.OK
	if err != nil {
		code = fault.Internal
		if f := (*fault.Error)(nil); errors.As(err, &f) {
			code = f.Code
		}
	}
	c.opts.Record.End(note, code, timed)
}

// Recorded returns the recorder of the operations; nil if there is none.
func (c *Comm) Recorded() *record.Ring { return c.opts.Record }
