package cudatest

import "github.com/goccl/goccl/cuda"

// Access is one that a kernel makes.
type Access struct {
	At    cuda.Ptr
	Bytes int
	Write bool
}

// Launch enqueues a kernel: run, which makes these accesses. It stands for what the program around
// a group does; Stream.Launch has the kernels of modules. run must not call the driver.
func (d *Driver) Launch(s cuda.Stream, name string, accesses []Access, run func()) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.launch(s, &kernelWork{name: name, accesses: accesses, body: run})
}

// Begin enqueues a kernel that the caller executes itself, and returns when it is its turn. Nothing
// else is executed until end is called. The host learns nothing by it: for the order of accesses it
// is as if the kernel were executed later.
func (d *Driver) Begin(s cuda.Stream, name string, accesses []Access) (end func(), err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	begun, ended := false, make(chan struct{})
	w := &kernelWork{name: name, accesses: accesses}
	w.body = func() {
		d.mu.Lock()
		begun = true
		d.moved.Broadcast()
		d.mu.Unlock()
		<-ended
	}
	if h := s.(*handle); h.s != nil && h.s.capture != nil {
		return nil, failure(launchKernel, captureForbids) // nobody knows when the graph is executed
	}
	if err := d.launch(s, w); err != nil {
		return nil, err
	}
	dev := s.(*handle).c.device
	for !begun {
		switch {
		case d.closed:
			return nil, failure(launchKernel, deinitialized)
		case dev.lost != 0:
			return nil, failure(launchKernel, dev.lost)
		}
		d.moved.Wait()
	}
	return func() { close(ended) }, nil
}

const launchKernel = "cuLaunchKernel"

func (d *Driver) launch(s cuda.Stream, w *kernelWork) error {
	h := s.(*handle)
	if err := h.begin(launchKernel, false); err != nil {
		return err
	}
	d.enqueue(h, w)
	return nil
}

type kernelWork struct {
	name     string
	accesses []Access
	body     func()
}

func (w *kernelWork) text(d *Driver) string {
	text := w.name
	for i, a := range w.accesses {
		if i == mostNamed {
			return text + ", and more"
		}
		verb := ", which reads "
		if a.Write {
			verb = ", which writes "
		}
		text += verb + d.place(a.At, a.Bytes)
	}
	return text
}

// mostNamed limits how many accesses of a kernel texts have.
const mostNamed = 4

func (w *kernelWork) uses(a *allocation) bool {
	for _, x := range w.accesses {
		if a.has(x.At, x.Bytes) {
			return true
		}
	}
	return false
}

func (w *kernelWork) ready(*Driver) bool { return true }

func (w *kernelWork) waits(*Driver) string { return "" }

func (w *kernelWork) run(d *Driver, op *operation) {
	made, ok := w.check(d, op)
	if !ok {
		return
	}
	for _, acc := range made {
		d.touch(acc, op.stream.agent.clock)
	}
	d.running = op
	d.mu.Unlock()
	w.body()
	d.mu.Lock()
	d.running = nil
}

// check returns the accesses of a kernel, if all of them are to memory.
func (w *kernelWork) check(d *Driver, op *operation) (made []*access, ok bool) {
	for _, x := range w.accesses {
		if x.Bytes == 0 {
			continue
		}
		a, why := d.reach(op, x.At, x.Bytes)
		if why != "" {
			d.illegal(op, why)
			return nil, false
		}
		verb := "reads in " + w.name
		if x.Write {
			verb = "writes in " + w.name
		}
		acc := op.access(verb, a, x.At, x.Bytes)
		acc.write = x.Write
		made = append(made, acc)
	}
	return made, true
}
