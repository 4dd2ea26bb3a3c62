package mem

import "sync/atomic"

// Window is memory that one rank writes and its peers on the same host only read. The Release of
// its last user frees it.
type Window struct {
	users   atomic.Int32
	memory  []byte
	segment *Segment // nil where it is private to this process
	block   *Block
}

// NewWindow makes a window with one user, the caller. A shared window can be passed to other
// processes.
func NewWindow(bytes int, shared bool) (*Window, error) {
	w := &Window{}
	w.users.Store(1)
	var err error
	if shared {
		if w.segment, err = NewSegment("goccl-window", bytes); err == nil {
			w.memory = w.segment.Bytes()
		}
	} else if w.block, err = Alloc(bytes); err == nil {
		w.memory = w.block.Bytes()
	}
	if err != nil {
		return nil, err
	}
	return w, nil
}

// Bytes returns the memory. It must not be touched after the last Release.
func (w *Window) Bytes() []byte { return w.memory }

// Size returns the size of the window in bytes, 0 for a nil Window.
func (w *Window) Size() int {
	if w == nil {
		return 0
	}
	return len(w.memory)
}

// Segment returns the segment that other processes map, nil in a window that is not shared.
func (w *Window) Segment() *Segment { return w.segment }

// Joined closes the descriptor that was passed to the peers. It is called once all of them have the
// window.
func (w *Window) Joined() {
	if w != nil && w.segment != nil {
		w.segment.CloseFD()
	}
}

// Retain adds a user.
func (w *Window) Retain() { w.users.Add(1) }

// Release removes a user. A nil Window has no users.
func (w *Window) Release() {
	if w == nil || w.users.Add(-1) != 0 {
		return
	}
	if w.segment != nil {
		w.segment.Free()
	} else {
		w.block.Free()
	}
}
