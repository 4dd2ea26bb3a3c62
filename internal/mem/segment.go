package mem

import "sync"

// Segment is memory that processes share: an anonymous file of the kernel (memfd), passed as a
// descriptor. Its size is sealed, so that no process can take pages away from a reader. Its pages
// exist from the start, so that a shortage is an error of NewSegment and not a signal later. The
// memory is gone with the last mapping.
type Segment struct {
	mu     sync.Mutex
	memory []byte
	fd     int // -1 once it is closed
}

// Bytes returns the mapped memory, nil after Free.
func (s *Segment) Bytes() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.memory
}

// FD returns the descriptor to pass to peers, or -1 after CloseFD and in received segments.
func (s *Segment) FD() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fd
}
