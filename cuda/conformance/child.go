package conformance

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"github.com/goccl/goccl/cuda"
	"github.com/goccl/goccl/internal/mem"
)

// childWord is the first argument of a second process.
const childWord = "cuda-conformance-child"

// shared has what two processes share: the size of the segment, and words in it.
const (
	sharedBytes = 1 << 20
	parentWord  = 0
	childsWord  = 64
	sharedData  = 4096 // bytes from here on
	childRounds = 20
)

// Child runs what the second process of a test does, if this process is one. TestMain calls it
// before anything else, and exits with the code.
func Child(make func() (cuda.Driver, error)) (code int, child bool) {
	if len(os.Args) < 4 || os.Args[1] != childWord {
		return 0, false
	}
	if err := runChild(make); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1, true
	}
	return 0, true
}

// runChild does what the arguments name: on descriptor 3, of a device whose number they have.
func runChild(make func() (cuda.Driver, error)) error {
	d, err := make()
	if err != nil {
		return err
	}
	device, err := strconv.Atoi(os.Args[3])
	if err != nil {
		return err
	}
	c, err := d.Retain(device)
	if err != nil {
		return err
	}
	if err := c.Enter(false); err != nil {
		return err
	}
	s, err := c.NewStream(0)
	if err != nil {
		return err
	}
	work := childMemory
	if os.Args[2] == "words" {
		work = childWords
	}
	err = errors.Join(work(c, s), s.Destroy())
	c.Leave()
	return errors.Join(err, c.Release())
}

// startChild starts the program of the test again, and passes on the descriptor.
func (b *bench) startChild(what string, descriptor int) *exec.Cmd {
	b.t.Helper()
	self, err := os.Executable()
	b.must(err)
	file := os.NewFile(uintptr(descriptor), "shared")
	defer file.Close()
	child := exec.Command(self, childWord, what, strconv.Itoa(b.device))
	child.ExtraFiles = []*os.File{file}
	child.Stderr = new(bytes.Buffer)
	b.must(child.Start())
	b.t.Cleanup(func() { child.Process.Kill() })
	return child
}

func (b *bench) endChild(child *exec.Cmd) {
	b.t.Helper()
	if err := child.Wait(); err != nil {
		b.t.Fatalf("the second process: %v: %s", err, child.Stderr)
	}
}

// expect compares bytes with the pattern.
func expect(got []byte, seed byte) error {
	want := make([]byte, len(got))
	if pattern(want, seed); !bytes.Equal(got, want) {
		return fmt.Errorf("of %d bytes some are wrong", len(got))
	}
	return nil
}

// testMemoryOfProcesses has a second process read and write memory of this one.
func testMemoryOfProcesses(b *bench) {
	host, device, s := b.register(sharedBytes), b.alloc(sharedBytes), b.stream()
	b.fill(host, 0, sharedBytes, 1)
	b.copy(s, device.Ptr(), host.Ptr(), sharedBytes)
	b.must(s.Synchronize())
	fd, err := device.Descriptor()
	b.must(err)
	b.endChild(b.startChild("memory", fd))
	b.copy(s, host.Ptr(), device.Ptr(), sharedBytes)
	b.must(s.Synchronize())
	b.check(host, 0, sharedBytes, 2)
}

func childMemory(c cuda.Context, s cuda.Stream) error {
	block, err := mem.Alloc(sharedBytes)
	if err != nil {
		return err
	}
	defer block.Free()
	device, err := c.Import(3, sharedBytes)
	if err != nil {
		return err
	}
	host, err := c.Register(block.Bytes())
	if err != nil {
		return err
	}
	err = errors.Join(s.Copy(host.Ptr(), device.Ptr(), sharedBytes), s.Synchronize())
	ended := access(c, host, 0, sharedBytes, false)
	err = errors.Join(err, expect(block.Bytes(), 1))
	ended()
	fill(c, host, 0, sharedBytes, 2)
	return errors.Join(err, s.Copy(device.Ptr(), host.Ptr(), sharedBytes), s.Synchronize(),
		host.Free(), device.Free())
}

// testWordsOfProcesses has two processes register the same memory: a stream of each waits for words
// that the other's stream, or its host, writes.
func testWordsOfProcesses(b *bench) {
	segment, err := mem.NewSegment("goccl-conformance", sharedBytes)
	b.must(err)
	b.later(segment.Free)
	r, err := b.c.Register(segment.Bytes())
	b.must(err)
	b.later(r.Free)
	b.waited = append(b.waited, func() { r.Store(childsWord, 1<<40) })
	device, s := b.alloc(sharedBytes), b.stream()
	fd, err := syscall.Dup(segment.FD())
	b.must(err)
	child := b.startChild("words", fd)
	const n = 20000
	for i := range uint64(childRounds) {
		b.fill(r, sharedData, n, byte(i))
		b.copy(s, device.Ptr(), r.Ptr()+sharedData, n)
		b.copy(s, r.Ptr()+sharedData+n, device.Ptr(), n)
		b.enqueue(s, write(r, parentWord, i+1), wait(r, childsWord, i+1))
		b.copy(s, device.Ptr(), r.Ptr()+sharedData+2*n, n)
		b.copy(s, r.Ptr()+sharedData, device.Ptr(), n)
		b.ends(s)
		b.check(r, sharedData, n, byte(i)^0x80)
	}
	b.endChild(child)
}

func childWords(c cuda.Context, s cuda.Stream) error {
	segment, err := mem.MapSegment(3, sharedBytes)
	if err != nil {
		return err
	}
	defer segment.Free()
	r, err := c.Register(segment.Bytes())
	if err != nil {
		return err
	}
	device, err := c.Alloc(sharedBytes)
	if err != nil {
		return err
	}
	const n = 20000
	for i := range uint64(childRounds) {
		// In turn, the stream or the host waits for the word, and writes one.
		if i%2 == 0 {
			if err := s.Words([]cuda.WordOp{wait(r, parentWord, i+1)}); err != nil {
				return err
			}
			if err := s.Synchronize(); err != nil {
				return err
			}
		}
		for deadline := time.Now().Add(hang); !r.Reached(parentWord, i+1); time.Sleep(20 * time.Microsecond) {
			if time.Now().After(deadline) {
				return errors.New("hangs: the word of the other process")
			}
		}
		ended := access(c, r, sharedData+n, n, false)
		err := expect(r.Host()[sharedData+n:sharedData+2*n], byte(i))
		if ended(); err != nil {
			return err
		}
		if fill(c, r, sharedData+2*n, n, byte(i)^0x80); i%3 == 0 {
			r.Store(childsWord, i+1)
			continue
		}
		at := r.Ptr() + sharedData + 2*n
		err = errors.Join(s.Copy(device.Ptr(), at, n), s.Copy(at, device.Ptr(), n),
			s.Words([]cuda.WordOp{write(r, childsWord, i+1)}), s.Synchronize())
		if err != nil {
			return err
		}
	}
	return errors.Join(s.Synchronize(), r.Free(), device.Free())
}
