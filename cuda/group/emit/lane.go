// Package emit makes what devices execute of the programs of calls: one loop goes through the
// instructions, and what becomes of them is said by a Sink.
package emit

import (
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/program"
	"github.com/goccl/goccl/cuda/group/page"
)

// Sink is what the instructions of a program become: work of a stream (windows), a part of a CUDA
// graph (graphs), or a table of steps (interpreter). An emitter has copies and reduce of all of
// them.
type Sink interface {
	Enter() // waits until all peers have left the slot
	Signal(nth int)
	Wait(peer, nth int)
	Leave() // tells the peers that this rank has left their slots
	// Copies does the first of some copies that follow each other, and returns how many it has
	// done.
	Copies(lane []program.Instruction) (n int, err error)
	Reduce(b *program.Instruction) error
}

// Emit gives a sink the instructions of a lane.
func (e *Emitter) Emit(lane []program.Instruction, to Sink) (err error) {
	for n := 1; len(lane) > 0 && err == nil; lane = lane[n:] {
		b := &lane[0]
		n = 1
		switch b.Op {
		case program.OpEnter:
			to.Enter()
		case program.OpSignal:
			if b.Nth >= page.MostSignals {
				return fault.New(fault.NotSupported, "plan %s gives too many signals", e.Program.Low.Name)
			}
			to.Signal(b.Nth)
		case program.OpWait:
			to.Wait(b.Peer, b.Nth)
		case program.OpLeave:
			to.Leave()
		case program.OpDrain: // behind the last piece, by who lends
		case program.OpCopy:
			for n < len(lane) && lane[n].Op == program.OpCopy {
				n++
			}
			n, err = to.Copies(lane[:n])
		case program.OpReduce:
			err = to.Reduce(b)
		default:
			err = fault.New(fault.Internal, "an instruction (%d) of plan %s that no device knows", b.Op, e.Program.Low.Name)
		}
	}
	return err
}
