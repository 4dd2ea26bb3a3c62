package cudatest

import (
	"cmp"
	"time"
)

// Options describes the machine, and what goes wrong in it.
type Options struct {
	Devices int    // 1
	Seed    uint64 // of the order in which streams are executed
	// Queues is how many hardware queues a process has on a device. Its streams take them in turn,
	// in the order in which they are made. 0: each stream has one of its own. A Driver is a
	// process, or with Apart, each of its contexts is.
	Queues int
	Apart  bool
	// Depth is how many operations a stream holds; more block the caller. 1024, about as on a GPU.
	Depth       int
	Bytes       int64 // memory of a device; 1 GiB
	Granularity int   // what sizes of allocations are rounded up to; 64 KiB
	// Stuck is the time after which streams that all wait are a deadlock, if nobody has called the
	// driver but to poll; 2 s. Negative: never. Another process that stores words may need longer.
	Stuck time.Duration
	// Delay is the longest time that the device sleeps between two operations, which it does now
	// and then; 200 µs. Negative: never.
	Delay time.Duration
	// Pending permits what can deadlock on a GPU: Alloc, Import, Register and Free while work
	// waits.
	Pending bool
	// FreeBlocks has these calls, and those that load and unload modules, wait until what the
	// process has enqueued has ended, and every call of its other threads wait meanwhile: a driver
	// with one lock may do so. Other users of a process make them while work waits, so that is
	// permitted, too.
	FreeBlocks bool
	Faults     Faults
	// Cost has contexts be clocks (cuda.Clock), by which what streams execute takes time.
	Cost *Cost
	// LeaveOut is asked at every ordering call whether to leave it out. It must not call the
	// driver.
	LeaveOut func(Ordering) bool
	// Trace is told every operation that has ended, in order. It must not call the driver.
	Trace func(line string)
}

// ensureDefaults replaces zeros.
func (o *Options) ensureDefaults() {
	o.Devices = cmp.Or(o.Devices, 1)
	o.Depth = cmp.Or(o.Depth, 1024)
	o.Bytes = cmp.Or(o.Bytes, 1<<30)
	o.Granularity = cmp.Or(o.Granularity, 64<<10)
	o.Stuck = cmp.Or(o.Stuck, 2*time.Second)
	o.Delay = cmp.Or(o.Delay, 200*time.Microsecond)
}
