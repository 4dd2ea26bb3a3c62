package cudatest

import "github.com/goccl/goccl/cuda"

// Hold keeps everything that is or will be enqueued in a stream from being executed, as if it stood
// behind a kernel that takes long.
func (d *Driver) Hold(s cuda.Stream) {
	d.mu.Lock()
	defer d.mu.Unlock()
	h := s.(*handle)
	h.s.held = true
	for d.running != nil && d.running.stream == h.s {
		d.moved.Wait()
	}
	d.stir()
}

// Release undoes Hold, for all of the streams at once.
func (d *Driver) Release(streams ...cuda.Stream) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range streams {
		s.(*handle).s.held = false
	}
	d.stir()
}
