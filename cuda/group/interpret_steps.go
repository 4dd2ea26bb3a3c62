package group

import (
	"unsafe"

	"github.com/goccl/goccl/cuda"
	"github.com/goccl/goccl/cuda/kernel"
)

// steps is a table, and the stream of an emitter: copies and kernels that are enqueued become
// steps.
type steps struct {
	cuda.Stream // nil: nothing else is enqueued
	table       kernel.Table
	full        bool // there was no room
}

// step is the function of an emitter that becomes a step of its kind.
type step kernel.StepKind

func (s step) Name() string { return "a step of a table" }

// stepOf returns the step that does what a kernel does; 0 for kernels that no table has.
func stepOf(f *kernel.Function) step { return step(f.Step()) }

func (s *steps) Copy(to, from cuda.Ptr, bytes int) error {
	s.add(kernel.Copies, kernel.Copy().Arguments(uint64(to), bytes, 1, uint64(from)).Step)
	return nil
}

func (s *steps) Launch(f cuda.Function, _, _ int, args []byte) error {
	s.add(kernel.StepKind(f.(step)), (*kernel.Arguments)(unsafe.Pointer(unsafe.SliceData(args))).Step)
	return nil
}

func (s *steps) add(kind kernel.StepKind, what kernel.Step) {
	s.keep(s.table.Add(kind, what))
}

// keep notes whether there was room for a step.
func (s *steps) keep(added bool) { s.full = s.full || !added }
