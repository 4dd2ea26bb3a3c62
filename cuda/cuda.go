package cuda

import "time"

// Driver is a GPU driver.
type Driver interface {
	// Version returns the version of CUDA that the driver offers: 12040 for 12.4.
	Version() int
	// Devices returns the devices that this process may use; none is no error.
	Devices() ([]Info, error)
	// Retain returns the primary context of a device, and creates it if nobody has yet. Each Retain
	// needs a Release.
	Retain(device int) (Context, error)
}

// Info describes a device.
type Info struct {
	Index        int // among those that the process may use
	Name         string
	UUID         [16]byte
	Bus          string // "0000:65:00.0"
	Major, Minor int    // compute capability
	Bytes        int64  // of memory
	Words        bool   // streams write and wait for words of 64 bits
	Registers    bool   // memory of the host can be registered
	Shares       bool   // memory has descriptors
	DMABuf       bool   // memory has dma-bufs
	Processors   int    // multiprocessors
}

// Context is the primary context of a device.
type Context interface {
	Info() Info
	// Enter makes the context that of the calling thread, to which it ties the goroutine until
	// Leave. With relaxed, calls are legal while other threads capture.
	Enter(relaxed bool) error
	Leave()
	// Alloc allocates memory of the device. bytes is rounded up to what the device can allocate.
	Alloc(bytes int) (Memory, error)
	// Import maps memory that somebody has allocated, in any process and on any device, from its
	// descriptor, which it does not close. Where the device does not reach that memory, the error
	// is a fault.NotSupported.
	Import(descriptor, bytes int) (Memory, error)
	// Register gives the device access to memory of the host, which begins and ends at a page.
	Register(host []byte) (Registered, error)
	// Range returns the allocation of device memory that an address lies in, whoever has made it.
	// Of any other address, the error is a fault.Invalid.
	Range(p Ptr) (Range, error)
	// DMABuf returns a new descriptor of a dma-buf, by which adapters get access to device memory;
	// the caller closes it. p and bytes are whole pages of the host. They belong to one allocation,
	// which may begin and end within a page.
	DMABuf(p Ptr, bytes int) (descriptor int, err error)
	// NewStream makes a stream of an urgency: 0 is that of ordinary streams, and more is more
	// urgent, as far as the device has priorities: its kernels and copies go first. The streams of
	// a process take its hardware queues in turn, whatever their urgency. There may be as few as
	// one, and a stream that waits holds up what was enqueued in its queue behind the wait.
	NewStream(urgency int) (Stream, error)
	// Adopt returns a stream that somebody else has made and will destroy; 0 is the default stream.
	Adopt(native uintptr) Stream
	NewEvent() (Event, error)
	// Load loads the code of kernels: machine code for the device, or PTX.
	Load(code []byte) (Module, error)
	// Reaches reports whether the device can access the memory of a device, once imported. It
	// reaches itself.
	Reaches(device int) (bool, error)
	// Release gives the context back, after everything that came from it.
	Release() error
}

// Ptr is an address in the device's view.
type Ptr uint64

// Range is an allocation.
type Range struct {
	Ptr   Ptr
	Bytes int
	ID    uint64 // that no other allocation of the process ever has, not even at the same address
}

// Memory is memory that the device can access.
type Memory interface {
	Ptr() Ptr
	Bytes() int
	// Descriptor returns a new descriptor for Import, which the caller closes.
	Descriptor() (int, error)
	// Free gives the memory back. No work that uses it may be pending.
	Free() error
}

// Registered is memory of the host that the device can access, too.
type Registered interface {
	Memory
	Host() []byte
	// Load, Store and Reached access the word at the given offset in bytes. Reached reports whether
	// a wait for the value would end. Whoever waits for a word asks by Reached: a driver that
	// checks the order then knows what was waited for.
	Load(at int) uint64
	Reached(at int, value uint64) bool
	Store(at int, value uint64)
}

// Stream is a queue of work for the device.
type Stream interface {
	// Native returns the driver's handle.
	Native() uintptr
	// Copy copies between any two places, without overlap.
	Copy(to, from Ptr, bytes int) error
	// Words executes the operations in their order: what is behind a wait comes after it.
	Words(ops []WordOp) error
	// Launch executes a kernel in some blocks of some threads each. args is its one parameter, all
	// of it, and is copied.
	Launch(f Function, blocks, threads int, args []byte) error
	// Wait makes the stream wait for the place that the event marks now, in any stream of the
	// process.
	Wait(Event) error
	// Done reports whether everything that was enqueued has ended.
	Done() (bool, error)
	// Synchronize waits until everything that was enqueued has ended. It blocks the thread.
	Synchronize() error
	// Capture returns the number of the capture that the stream is in, 0 for none. All streams of
	// one capture have one number, and no other capture of the process ever has it. One that has
	// failed counts until it is ended, perhaps with another number.
	Capture() (id uint64, err error)
	// Retain has release called once the graph that the stream captures, and everything that was
	// made of it, are gone and have ended; at once if capture fails later. After an error it is not
	// called. The stream is in capture. release is called on a thread of the driver, must not call
	// the driver, and must not block.
	Retain(release func()) error
	// Destroy gives the stream back; what was enqueued still ends, and nobody waits for it. It does
	// nothing to an adopted one.
	Destroy() error
}

// WordOp writes a word, or waits until it is not before Value.
type WordOp struct {
	At    Ptr
	Value uint64
	Wait  bool
}

// Module is code on a device.
type Module interface {
	// Function finds a kernel by its name, and has it ready: a Launch loads nothing any more.
	Function(name string) (Function, error)
	// Unload gives the module back, and with it its functions. No work that uses it may be pending.
	Unload() error
}

// Function is a kernel of a Module.
type Function interface {
	Name() string
}

// Event is a place in a stream.
type Event interface {
	// Record marks the end of what is enqueued in s now.
	Record(s Stream) error
	// Done reports whether the work before the marked place has ended, if there is one.
	Done() (bool, error)
	// Destroy gives the event back. A Wait for a place that it marked stays.
	Destroy() error
}

// Clock is what a Context also is if it has a time of its own: what is measured of a device is
// measured by it.
type Clock interface {
	// Elapsed returns the time since the context was made.
	Elapsed() time.Duration
}

// Observer is what a Context also is if it wants to know what the host does with registered memory.
type Observer interface {
	// HostAccess reports that the host begins to read the bytes at p, or to write them. The host
	// calls ended when it has done so.
	HostAccess(p Ptr, bytes int, write bool) (ended func())
}

// WithContext calls f in a context, whether or not other threads capture.
func WithContext(ctx Context, f func() error) error {
	if err := ctx.Enter(true); err != nil {
		return err
	}
	defer ctx.Leave()
	return f()
}
