package mem

import (
	"fmt"

	"golang.org/x/sys/unix"
)

const (
	// headroom is left to the heaps of the processes, which the kernel kills if they cannot grow.
	headroom = 16 << 20
	// shares is how many processes can see the same memory as available, and take a part of it, at
	// the same time.
	shares = 64
)

// commit creates the pages of a range of a memfd, and this process's mappings of them, so that a
// shortage is an error here and not a signal later. It does so in parts, and looks before each of
// them how much is left: the other ranks of the host commit their memory at the same time.
func commit(fd, offset int, memory []byte, where placement) error {
	for done := 0; done < len(memory); {
		missing := int64(len(memory) - done)
		left := Available() - headroom
		if left < missing {
			return fmt.Errorf("%d bytes are missing, about %d are available", missing, max(left, 0))
		}
		n := int(min(missing, share(left)))
		if err := commitPart(fd, offset+done, memory[done:done+n], where); err != nil {
			return err
		}
		done += n
	}
	return nil
}

// share returns the bytes of one part of what is available: whole huge pages where those are
// enough.
func share(left int64) int64 {
	n := max(left, headroom) / shares
	if n >= hugeBytes {
		return n &^ (hugeBytes - 1)
	}
	return n &^ (64<<10 - 1)
}

func commitPart(fd, offset int, memory []byte, where placement) error {
	where.before(memory)
	if err := again(func() error { return unix.Fallocate(fd, 0, int64(offset), int64(len(memory))) }); err != nil {
		return err
	}
	where.after(memory)
	return populate(fd, offset, memory)
}
