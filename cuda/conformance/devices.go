package conformance

import (
	"errors"
	"syscall"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/cuda"
)

// testOtherDevices imports memory of every other device: copies and kernels read and write it, and
// its own device sees that. A device that cannot reach it refuses.
func testOtherDevices(b *bench) {
	all, err := b.d.Devices()
	if b.must(err); len(all) < 2 {
		b.t.Skip("there is one device")
	}
	for _, info := range all {
		if info.Index == b.device || !info.Shares || !info.Words || !info.Registers {
			continue
		}
		reaches, err := b.c.Reaches(info.Index)
		b.must(err)
		b.otherDevice(info.Index, reaches)
	}
}

func (b *bench) otherDevice(index int, reaches bool) {
	b.t.Helper()
	other, err := b.d.Retain(index)
	b.must(err)
	b.must(other.Enter(false))
	memory, err := other.Alloc(sharedBytes)
	b.must(err)
	fd, err := memory.Descriptor()
	b.must(err)
	there, err := other.NewStream(0)
	b.must(err)
	other.Leave()
	back := func() {
		b.must(other.Enter(false))
		b.must(there.Synchronize())
		b.must(there.Destroy())
		b.must(memory.Free())
		other.Leave()
		b.must(other.Release())
	}
	imported, err := b.c.Import(fd, sharedBytes)
	b.must(syscall.Close(fd))
	if !reaches {
		if !errors.Is(err, fault.NotSupported) {
			b.t.Errorf("Import of memory of device %d, which is not reached, returns %v", index, err)
		}
		back()
		return
	}
	b.must(err)
	b.passAround(imported, memory, there, other)
	b.must(imported.Free())
	back()
}

// passAround has the bytes of a pattern go from memory of another device to that of this one, by a
// copy and by a kernel, and back into the memory of the other.
func (b *bench) passAround(imported, memory cuda.Memory, there cuda.Stream, other cuda.Context) {
	b.t.Helper()
	const n, copied = 70000, 30000
	host, words, own, s := b.register(2*n), b.words(), b.alloc(n), b.stream()
	copier := b.copier()
	b.fill(host, 0, n, 3)
	b.copy(s, own.Ptr(), host.Ptr(), n)
	b.enqueue(s, write(words, 0, 1))

	b.must(other.Enter(false)) // its stream writes its memory, with memory of the host of this context
	b.must(there.Words([]cuda.WordOp{wait(words, 0, 1)}))
	b.must(there.Copy(memory.Ptr(), host.Ptr(), n))
	b.must(there.Words([]cuda.WordOp{write(words, 64, 1), wait(words, 8, 1)}))
	b.must(there.Copy(host.Ptr()+ptr(n), memory.Ptr()+ptr(n), n))
	b.must(there.Words([]cuda.WordOp{write(words, 72, 1)}))
	other.Leave()

	b.enqueue(s, wait(words, 64, 1))
	b.copy(s, own.Ptr(), imported.Ptr(), copied)
	b.launchCopy(copier, s, own.Ptr()+ptr(copied), imported.Ptr()+ptr(copied), n-copied)
	b.launchCopy(copier, s, imported.Ptr()+ptr(n), own.Ptr(), copied)
	b.copy(s, imported.Ptr()+ptr(n+copied), own.Ptr()+ptr(copied), n-copied)
	b.enqueue(s, write(words, 8, 1))
	b.ends(s)
	b.reaches("the word of another device", words, 72, 1)
	b.check(host, n, n, 3)
}
