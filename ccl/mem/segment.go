package mem

import "sync"

// Access says what the processes that receive a segment may do with it. The one that made it reads and writes.
type Access int

const (
	ReadOnly  Access = iota // where the kernel can, it refuses them any other mapping
	ReadWrite               // they share it with the maker
)

func (a Access) String() string {
	if a == ReadWrite {
		return "read-write"
	}
	return "read-only"
}

// Segment is memory that processes share: a nameless file of the kernel (memfd), passed as a descriptor. Its size is sealed, so
// that nobody can take pages away under a reader, and its pages exist from the start, so that a shortage is an error of
// NewSegment and not a signal later. It is gone with the last mapping.
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
