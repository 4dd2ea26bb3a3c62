package cudatest

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/goccl/goccl/cuda"
)

// version is that of CUDA which the driver says it offers.
const version = 12040

// Driver is a machine with GPUs.
type Driver struct {
	o     Options
	wake  chan struct{} // tells the scheduler to look again
	ended chan struct{} // closed when the scheduler has ended

	mu      sync.Mutex // guards everything below and all that contexts have made
	moved   *sync.Cond // something has ended
	random  *rand.Rand
	closed  bool
	running *operation // a copy or a kernel, which is executed without mu
	seen    time.Time  // when something moved last
	stuck   bool       // a deadlock was reported since

	devices     []*device
	contexts    []*context
	agents      int
	streams     []*stream // all that were ever made, by native handle; see stream.native
	events      int
	modules     int
	allocations []*allocation // that are not freed, by address
	made        int           // allocations so far
	host        *space        // registered memory, by its address for the host
	shared      map[file]*space
	dmaBufs     map[file]*dmaBuf // by what their descriptors are of
	threads     map[int]*thread
	process     process // without Options.Apart
	captures    []*capture
	graphs      []*Graph // that have not ended
	numGraphs   int
	due         []retained // whose release is to be called
	releasing   bool       // some of them are being called

	reports   []Report
	told      map[string]bool
	counts    map[string]int // calls since the faults were set, by name
	orderings int
}

// processors is how many multiprocessors a device has.
const processors = 132

// device is one GPU.
type device struct {
	index  int
	queues []*queue // of all processes
	shares channels // without Options.Apart
	legacy *stream  // without Options.Apart: the default stream, once somebody has adopted it
	bytes  int64    // allocated
	lost   int      // the result that all calls return, 0 while it works
}

// New makes a machine. Close ends it.
func New(o Options) *Driver {
	o.ensureDefaults()
	d := &Driver{
		o: o, wake: make(chan struct{}, 1), ended: make(chan struct{}),
		random: rand.New(rand.NewPCG(o.Seed, 0)), seen: time.Now(),
		host: newSpace(), shared: map[file]*space{}, dmaBufs: map[file]*dmaBuf{}, threads: map[int]*thread{},
		told: map[string]bool{}, counts: map[string]int{},
	}
	d.moved = sync.NewCond(&d.mu)
	for i := range o.Devices {
		d.devices = append(d.devices, &device{index: i})
	}
	if o.Faults.Lost {
		d.loseAll()
	}
	go d.schedule()
	return d
}

// Close ends the machine, with whatever is pending, and frees its memory.
func (d *Driver) Close() {
	d.mu.Lock()
	if !d.closed {
		d.closed = true
		d.moved.Broadcast()
		d.wakeScheduler()
	}
	d.mu.Unlock()
	<-d.ended
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, a := range d.allocations {
		a.unmap()
	}
	for of := range d.dmaBufs {
		d.dropDMABuf(of)
	}
}

// Version returns the version of CUDA that this stands for.
func (d *Driver) Version() int { return version }

// Devices describes the devices.
func (d *Driver) Devices() ([]cuda.Info, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.fails("cuDeviceGetCount"); err != nil {
		return nil, err
	}
	var all []cuda.Info
	for _, dev := range d.devices {
		all = append(all, d.info(dev))
	}
	return all, nil
}

func (d *Driver) info(dev *device) cuda.Info {
	f := &d.o.Faults
	return cuda.Info{
		Index: dev.index, Name: "memory of the host", UUID: [16]byte{'c', 'u', 'd', 'a', 15: byte(dev.index)},
		Bus: fmt.Sprintf("0000:%02x:00.0", dev.index+1), Major: 9, Bytes: d.o.Bytes,
		Processors: processors, Words: !f.NoWords, Registers: !f.NoRegister, Shares: !f.NoDescriptors,
		DMABuf: !f.NoDMABuf,
	}
}

// Retain returns the context of a device. What the hosts of other contexts have done before comes
// before what its host does.
func (d *Driver) Retain(index int) (cuda.Context, error) {
	const call = "cuDevicePrimaryCtxRetain"
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.fails(call); err != nil {
		return nil, err
	}
	if index < 0 || index >= len(d.devices) {
		return nil, failure(call, invalidDevice)
	}
	if lost := d.devices[index].lost; lost != 0 {
		return nil, failure(call, lost)
	}
	c := &context{d: d, device: d.devices[index], index: len(d.contexts), made: here(),
		events: map[*event]bool{}, modules: map[*module]bool{}}
	c.agent = d.newAgent(fmt.Sprintf("the host of context %d", c.index), true)
	for _, other := range d.contexts {
		other.release(c.agent)
	}
	d.contexts = append(d.contexts, c)
	d.noteProgress()
	if d.o.Cost != nil {
		return clocked{c}, nil
	}
	return c, nil
}

// Order says that what the host of one context has done and seen so far comes before what the host
// of another does from now on: the test has made it so by means that the driver cannot see.
func (d *Driver) Order(before, after cuda.Context) {
	d.mu.Lock()
	defer d.mu.Unlock()
	contextOf(before).release(contextOf(after).agent)
}

// wakeScheduler makes the scheduler look again.
func (d *Driver) wakeScheduler() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// noteProgress notes that something has moved.
func (d *Driver) noteProgress() {
	d.seen, d.stuck = time.Now(), false
	d.moved.Broadcast()
	d.wakeScheduler()
}
