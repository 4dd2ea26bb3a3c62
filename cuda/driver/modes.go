package driver

import (
	"sync"
	"sync/atomic"
)

// modes remembers how threads have entered, because Leave has to put the mode back in which its
// thread was, and Enter returns nothing that it could take along. Only threads that have entered
// relaxed are recorded; there are few. While there are none, it costs one load.
type modes struct {
	count atomic.Int32 // the length of entered
	mu    sync.Mutex
	// entered has, for each thread that has entered relaxed, that Enter and those within it that
	// have not been left yet. The last of a thread is the innermost.
	entered []entered
	mode    int32 // what a call exchanges; here, because C must find it in one place
}

type entered struct {
	thread   int
	relaxed  bool
	previous int32 // mode of the thread
}

// enter is called by a goroutine that is tied to its thread.
func (m *modes) enter(l *library, relaxed bool) error {
	if !relaxed && m.count.Load() == 0 { // what this thread has added is counted
		return nil
	}
	e := entered{thread: threadID(), relaxed: relaxed}
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case relaxed:
		m.mode = captureRelaxed
		if err := l.cuThreadExchangeStreamCaptureMode(&m.mode); err != nil {
			return err
		}
		e.previous = m.mode
	case m.innermost(e.thread) < 0:
		return nil
	}
	m.entered = append(m.entered, e)
	m.count.Store(int32(len(m.entered)))
	return nil
}

// leave undoes the innermost enter of the thread.
func (m *modes) leave(l *library) {
	if m.count.Load() == 0 {
		return
	}
	thread := threadID()
	m.mu.Lock()
	defer m.mu.Unlock()
	last := m.innermost(thread)
	if last < 0 {
		return
	}
	if e := m.entered[last]; e.relaxed {
		m.mode = e.previous
		_ = l.cuThreadExchangeStreamCaptureMode(&m.mode) // fails only where all calls do
	}
	m.entered = append(m.entered[:last], m.entered[last+1:]...)
	m.count.Store(int32(len(m.entered)))
}

// innermost returns the index of the last record of a thread, or -1.
func (m *modes) innermost(thread int) int {
	for index := len(m.entered) - 1; index >= 0; index-- {
		if m.entered[index].thread == thread {
			return index
		}
	}
	return -1
}
