package group

import (
	"github.com/goccl/goccl/ccl/exec"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/program"
	"github.com/goccl/goccl/internal/record"
)

// note records that a call was enqueued.
func (o *Op) note(call *exec.Call) {
	o.recorded = 0
	if r := o.g.opts.Record; r != nil {
		o.recorded = r.Begin(&record.Operation{
			Seq: o.seq, In: program.Elements(call.In), Out: program.Elements(call.Out),
			Coll: call.Coll, Type: call.Type, Op: call.Op, Root: int32(call.Root), Tag: call.Tag, Batch: call.Batch,
		})
	}
}

// noteEnd records how a call has ended, and that it has ended now: the device may still be copying
// the last piece of the result.
func (o *Op) noteEnd(err *fault.Error) {
	if o.recorded == 0 {
		return
	}
	code := fault.OK
	if err != nil {
		code = err.Code
	}
	o.g.opts.Record.End(o.recorded, code, true)
}
