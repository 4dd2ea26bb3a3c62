package conformance

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/cuda"
	"github.com/goccl/goccl/cuda/kernel"
)

// load loads the code of package kernel, which nobody unloads yet.
func (b *bench) load() cuda.Module {
	b.t.Helper()
	code, err := kernel.Code(b.info.Major, b.info.Minor)
	if err == nil {
		var m cuda.Module
		if m, err = b.c.Load(code); err == nil {
			return m
		}
	}
	if errors.Is(err, fault.NotSupported) {
		b.t.Skipf("kernels cannot be loaded: %v", err)
	}
	b.must(err)
	return nil
}

func (b *bench) module() cuda.Module {
	b.t.Helper()
	m := b.load()
	b.later(m.Unload)
	return m
}

func (b *bench) function(m cuda.Module, name string) cuda.Function {
	b.t.Helper()
	f, err := m.Function(name)
	b.must(err)
	if f.Name() != name {
		b.t.Errorf("function %s is called %s", name, f.Name())
	}
	return f
}

// copier returns the kernel that copies.
func (b *bench) copier() cuda.Function {
	b.t.Helper()
	return b.function(b.module(), kernel.Copy().Name)
}

// launchCopy copies by a kernel.
func (b *bench) launchCopy(f cuda.Function, s cuda.Stream, to, from cuda.Ptr, n int) {
	b.t.Helper()
	a := kernel.Copy().Arguments(uint64(to), n, 0, uint64(from))
	args := a.Bytes()
	b.must(s.Launch(f, kernel.Copy().Blocks(n, b.info.Processors), kernel.BlockSize, args))
	clear(args) // which Launch has copied
}

func testModules(b *bench) {
	m, other := b.module(), b.load()
	for _, f := range kernel.Functions() {
		b.function(m, f.Name)
	}
	b.function(other, kernel.Copy().Name)
	_, err := m.Function("there_is_none")
	var cause *cuda.Error
	if !errors.Is(err, fault.NotSupported) || !errors.As(err, &cause) || cause.Sticky() {
		b.t.Errorf("a function that the module does not have: %v", err)
	}
	for _, nothing := range [][]byte{nil, {}} {
		_, err := b.c.Load(nothing)
		b.isClass(err, fault.Invalid, "Load of nothing")
	}
	b.must(other.Unload())
	b.function(m, kernel.Copy().Name) // which is still there
}

// testUnloaded uses what was unloaded, and unloads it again.
func testUnloaded(b *bench) {
	s, device, m, live := b.stream(), b.alloc(64), b.load(), b.copier()
	f := b.function(m, kernel.Copy().Name)
	gone, err := b.c.NewStream(0)
	b.must(err)
	a := kernel.Copy().Arguments(uint64(device.Ptr()), 32, 0, uint64(device.Ptr())+32)
	b.must(m.Unload())
	b.isClass(m.Unload(), fault.Closed, "a second Unload")
	_, err = m.Function(kernel.Copy().Name)
	b.isClass(err, fault.Closed, "Function after Unload")
	b.isClass(s.Launch(f, 1, 1, a.Bytes()), fault.Closed, "Launch after Unload")
	b.must(gone.Destroy())
	b.isClass(gone.Launch(live, 1, 1, a.Bytes()), fault.Closed, "Launch in a destroyed stream")
	b.isClass(s.Launch(nil, 1, 1, a.Bytes()), fault.Invalid, "Launch of nil")
	b.must(s.Launch(live, 1, 1, a.Bytes())) // what is left still works
	b.must(s.Synchronize())
}

// testLaunchArguments passes what is wrong.
func testLaunchArguments(b *bench) {
	s, device, f := b.stream(), b.alloc(64), b.copier()
	a := kernel.Copy().Arguments(uint64(device.Ptr()), 32, 0, uint64(device.Ptr())+32)
	for _, size := range [][2]int{
		{0, 1}, {1, 0}, {-1, 1}, {1, -1}, {1, kernel.BlockSize + 1}, {1, math.MaxInt}, {math.MaxInt, 1}, {1 << 31, 1},
	} {
		if err := s.Launch(f, size[0], size[1], a.Bytes()); !errors.Is(err, fault.Invalid) {
			b.t.Errorf("a launch of %d blocks of %d threads: %v", size[0], size[1], err)
		}
	}
	b.isClass(s.Launch(f, 1, 1, nil), fault.Invalid, "a launch without arguments")
	b.must(s.Launch(f, 1, kernel.BlockSize, a.Bytes()))
	b.must(s.Synchronize())
}

// testLaunchOrder has kernels between copies and words, on memory of the device and of the host.
func testLaunchOrder(b *bench) {
	const n, rounds = 200001, 20
	words, host, back, device, s := b.words(), b.register(n), b.register(n), b.alloc(3*n), b.stream()
	f := b.copier()
	first, second := device.Ptr(), device.Ptr()+n+1
	for i := range uint64(rounds) {
		b.enqueue(s, wait(words, 0, i+1))
		if i%2 == 0 {
			b.copy(s, first, host.Ptr(), n)
			b.launchCopy(f, s, second, first, n) // behind the copy, and before the next one
			b.copy(s, back.Ptr(), second, n)
		} else {
			b.launchCopy(f, s, second, host.Ptr(), n) // behind the word
			b.launchCopy(f, s, first, second, n)
			b.launchCopy(f, s, back.Ptr(), first, n) // before the word
		}
		b.enqueue(s, write(words, 64, i+1))
		b.fill(host, 0, n, byte(i))
		words.Store(0, i+1)
		b.reaches("the word behind a kernel", words, 64, i+1)
		b.check(back, 0, n, byte(i))
	}
	b.ends(s)
}

// testLaunchEvents has kernels of two streams, which events order.
func testLaunchEvents(b *bench) {
	const n, rounds = 100000, 20
	host, back, device := b.register(n), b.register(n), b.alloc(2*n)
	s, u, e, f := b.stream(), b.newStream(1), b.event(), b.copier()
	b.fill(host, 0, n, 8)
	b.copy(s, device.Ptr(), host.Ptr(), n)
	for range rounds {
		for _, each := range []struct {
			in, next cuda.Stream
			to, from cuda.Ptr
		}{{s, u, device.Ptr() + n, device.Ptr()}, {u, s, device.Ptr(), device.Ptr() + n}} {
			b.launchCopy(f, each.in, each.to, each.from, n)
			b.copy(each.in, each.from, back.Ptr(), n) // the old value is not needed any more
			b.must(e.Record(each.in))
			b.must(each.next.Wait(e))
		}
	}
	b.copy(s, back.Ptr(), device.Ptr(), n)
	b.must(s.Synchronize())
	b.check(back, 0, n, 8)
}

// testLaunchAll launches every kernel that does one thing, but for the tick. It gives the bits that
// it has on the processor, and writes nothing else.
func testLaunchAll(b *bench) {
	const n, slot, slots = 1003, 20480, 4
	host, back, device := b.register(slots*slot), b.register(slots*slot), b.alloc(slots*slot)
	s, m := b.stream(), b.module()
	r := rand.New(rand.NewPCG(1, 2))
	want := make([]byte, slots*slot)
	for turn, f := range kernel.Functions() {
		if f == kernel.Tick().Function || kernel.TakesTable(f.Name) || kernel.TakesChunks(f.Name) {
			continue
		}
		for i := range want {
			want[i] = byte(r.Uint32())
		}
		ended := access(b.c, host, 0, len(want), true)
		copy(host.Host(), want)
		ended()
		b.copy(s, device.Ptr(), host.Ptr(), len(want))

		apart := slot + turn/2%2*8 // of the operands: a multiple of 16, or none
		place := func(index int) uint64 { return uint64(device.Ptr()) + uint64(index*apart+turn%3*8) }
		a := kernel.Arguments{Step: kernel.Step{Dst: place(0), N: n, Factor: 0.3, Count: 1}}
		for k := range slots - 1 {
			a.Src[k] = place(k + 1)
		}
		a.Count = slots - 1
		if _, err := kernel.Operands(f.Name, a.Bytes()); err != nil {
			a.Count = 1
		} else if turn%2 == 0 {
			a.Dst = a.Src[1]
		}
		b.must(s.Launch(b.function(m, f.Name), 1+turn%5, kernel.BlockSize>>(turn%4), a.Bytes()))
		b.must(kernel.Execute(f.Name, a.Bytes(), func(p uint64, bytes int) []byte {
			return want[p-uint64(device.Ptr()):][:bytes]
		}))
		b.copy(s, back.Ptr(), device.Ptr(), len(want))
		b.must(s.Synchronize())
		ended = access(b.c, back, 0, len(want), false)
		if got := back.Host()[:len(want)]; !bytes.Equal(got, want) {
			at := 0
			for got[at] == want[at] {
				at++
			}
			b.t.Errorf("%s of %+v: byte %d is %#x, want %#x", f.Name, a, at, got[at], want[at])
		}
		ended()
	}
}

// testLaunchPairs has the sums and products that are instructions for two elements: of all elements
// with some that are special, with their neighbours, and with any.
func testLaunchPairs(b *bench) {
	const all, turns = 1 << 16, 24
	const n, size = all * turns, 2 * all * turns
	special := []uint16{0, 1, 0x007f, 0x0080, 0x03ff, 0x0400, 0x3c00, 0x3f80, 0x7bff, 0x7c00, 0x7e55, 0x7f7f, 0x7f80}
	host, back, device := b.register(3*size), b.register(size), b.alloc(3*size)
	s, m := b.stream(), b.module()
	r := rand.New(rand.NewPCG(3, 4))
	operands := make([]byte, 3*size)
	for i := range n {
		x, y, turn := uint16(i), uint16(r.Uint32()), i/all
		switch {
		case turn < len(special):
			y = special[turn] ^ y&0x8000
		case turn%2 == 0:
			y = x ^ 0x8000 + y%8
		}
		binary.LittleEndian.PutUint16(operands[size+2*i:], x)
		binary.LittleEndian.PutUint16(operands[2*size+2*i:], y)
	}
	ended := access(b.c, host, 0, len(operands), true)
	copy(host.Host(), operands)
	ended()
	b.copy(s, device.Ptr(), host.Ptr(), len(operands))
	for _, t := range []dtype.Type{dtype.F16, dtype.BF16} {
		for _, op := range []dtype.Op{dtype.Sum, dtype.Prod} {
			call, _ := kernel.Reduce(t, op)
			dst := uint64(device.Ptr())
			a := call.Arguments(dst, n, 0, dst+size, dst+2*size)
			b.must(s.Launch(b.function(m, call.Name), call.Blocks(n, b.info.Processors), kernel.BlockSize, a.Bytes()))
			b.must(kernel.Execute(call.Name, a.Bytes(), func(p uint64, bytes int) []byte {
				return operands[p-dst:][:bytes]
			}))
			b.copy(s, back.Ptr(), device.Ptr(), size)
			b.must(s.Synchronize())
			ended := access(b.c, back, 0, size, false)
			got := back.Host()[:size]
			for i := 0; i < size; i += 2 {
				if !bytes.Equal(got[i:i+2], operands[i:i+2]) {
					b.t.Errorf("%s of %x and %x: %x, want %x (bytes in memory)", call.Name,
						operands[size+i:][:2], operands[2*size+i:][:2], got[i:i+2], operands[i:i+2])
					break
				}
			}
			ended()
		}
	}
}

// testLaunchGather copies chunks of different lengths at once, one of them from where a word says.
func testLaunchGather(b *bench) {
	const n, slot = 50_001, 64 << 10
	const all = kernel.MostChunks * slot
	words, host, back := b.words(), b.register(all), b.register(all)
	from, to, s := b.alloc(all), b.alloc(all), b.stream()
	was := make([]byte, all)
	for i := range kernel.MostChunks {
		b.fill(host, i*slot, slot, byte(i+1))
		pattern(was[i*slot:][:slot], byte(i+1))
	}
	b.copy(s, from.Ptr(), host.Ptr(), all)
	b.copy(s, to.Ptr(), host.Ptr(), all)
	b.enqueue(s, write(words, 0, kernel.Place(1, true, 5*slot)))
	var g kernel.Gather
	want := bytes.Clone(was)
	for i := range kernel.MostChunks {
		at := (kernel.MostChunks - 1 - i) * slot
		c := kernel.Chunk{Dst: uint64(to.Ptr()) + uint64(i*slot+i), Src: uint64(from.Ptr()) + uint64(at),
			N: uint64(n >> i)}
		if i == 3 {
			c.Lent = kernel.Lent{Place: uint64(words.Ptr()), Base: uint64(from.Ptr()), Bytes: all}
			at = 5 * slot
		}
		if !g.Add(c) {
			b.t.Fatalf("chunk %d is not added", i)
		}
		copy(want[i*slot+i:], was[at:][:n>>i])
	}
	f := b.function(b.module(), kernel.Gathering().Name)
	for _, blocks := range []int{1, 5, 8, 29} {
		b.copy(s, to.Ptr(), host.Ptr(), all)
		b.must(s.Launch(f, blocks, kernel.BlockSize, g.Bytes()))
		b.copy(s, back.Ptr(), to.Ptr(), all)
		b.must(s.Synchronize())
		ended := access(b.c, back, 0, all, false)
		if !bytes.Equal(back.Host()[:all], want) {
			b.t.Errorf("%d blocks: chunks have other bytes", blocks)
		}
		ended()
	}
}

// testLaunchIndirect copies from where a word says that a stream has written: from another place
// each time, and from the address of the source where nothing, or nothing that is lent, is said.
func testLaunchIndirect(b *bench) {
	const n, places, rounds = 30001, 4, 40
	words, host, back, device := b.words(), b.register(places*n), b.register(n), b.alloc((places+2)*n)
	s, f := b.stream(), b.copier()
	for i := range places {
		b.fill(host, i*n, n, byte(i+1))
	}
	b.copy(s, device.Ptr(), host.Ptr(), places*n)
	own, to := device.Ptr()+places*n, device.Ptr()+(places+1)*n
	b.copy(s, own, host.Ptr(), n) // as the first place
	for i := range uint64(rounds) {
		at, lent := i%places*n, i%3 > 0
		want := byte(i%places + 1)
		switch {
		case !lent:
			want = 1
		case i%5 == 0: // beyond what is lent
			at, want = at+(places-i%places)*n-n+1, 1
		}
		b.enqueue(s, write(words, 0, kernel.Place(i+1, lent, at)))
		a := kernel.Copy().Arguments(uint64(to), n, 0, uint64(own))
		a.Lend(0, kernel.Lent{Place: uint64(words.Ptr()), Base: uint64(device.Ptr()), Bytes: places * n})
		b.must(s.Launch(f, kernel.Copy().Blocks(n, b.c.Info().Processors), kernel.BlockSize, a.Bytes()))
		b.copy(s, back.Ptr(), to, n)
		b.must(s.Synchronize())
		b.check(back, 0, n, want)
	}
}
