package cudatest

import "github.com/goccl/goccl/cuda"

// Hold keeps everything that is or will be enqueued in a stream from being executed, as if it
// were behind a kernel that takes long.
func (d *Driver) Hold(s cuda.Stream) {
	d.mu.Lock()
	defer d.mu.Unlock()
	h := s.(*handle)
	h.s.held = true
	for d.running != nil && d.running.stream == h.s {
		d.moved.Wait()
	}
	d.noteProgress()
}

// Settle waits until nothing that is enqueued can go on: all of it has ended or waits. A mistake is
// reported when the operation is executed that makes it one, so a test settles before it looks.
func (d *Driver) Settle() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for !d.closed && (d.running != nil || d.any() || d.leaving()) {
		d.moved.Wait()
	}
}

// Release undoes Hold, for all of the streams at once.
func (d *Driver) Release(streams ...cuda.Stream) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range streams {
		s.(*handle).s.held = false
	}
	d.noteProgress()
}
