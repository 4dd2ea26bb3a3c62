package mem

import "golang.org/x/sys/unix"

func mapBlock(bytes int) ([]byte, error) {
	return unix.Mmap(-1, 0, bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
}

func unmapBlock(memory []byte) error { return unix.Munmap(memory) }
