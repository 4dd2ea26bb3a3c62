package mem

import "sync"

// Segment is memory that processes share: a nameless file of the kernel (memfd), passed as a
// descriptor. Its size is sealed, so that nobody can take pages away under a reader, and its pages
// exist from the start, so that a shortage is an error of NewSegment and not a signal later. It is
// gone with the last mapping.
type Segment struct {
	mu     sync.Mutex
	memory []byte
	fd     int // -1 once it is closed
}

// Bytes is the mapped memory, nil after Free.
func (s *Segment) Bytes() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.memory
}

// FD is the descriptor to pass on, or -1 after CloseFD and in segments that were received.
func (s *Segment) FD() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fd
}
