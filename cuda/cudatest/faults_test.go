package cudatest_test

import (
	"errors"
	"testing"
	"time"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/cuda"
	"github.com/goccl/goccl/cuda/cudatest"
	"github.com/goccl/goccl/cuda/kernel"
)

// TestLacking: what a machine does not have is not supported, and Info says so.
func TestLacking(t *testing.T) {
	b := newBench(t, cudatest.Options{Devices: 2})
	data, words, s := b.alloc(100), b.register(8), b.stream()
	fd, err := data.Descriptor()
	b.must(err)
	defer closeDescriptor(fd)
	if i := b.c.Info(); !i.Words || !i.Registers || !i.Shares {
		t.Errorf("a machine without faults lacks something: %+v", i)
	}
	if _, err := words.Descriptor(); !errors.Is(err, fault.NotSupported) {
		t.Errorf("registered memory has a descriptor: %v", err)
	}
	reaches := func() bool { can, err := b.c.Reaches(1); b.must(err); return can }
	if !reaches() {
		t.Error("devices do not reach each other")
	}
	second := b.context(1)
	there, err := second.Alloc(100)
	b.must(err)
	far, err := there.Descriptor()
	b.must(err)
	defer closeDescriptor(far)
	b.must(b.c.Enter(false))
	imported, err := b.c.Import(far, 100)
	b.must(err)
	b.must(s.Copy(data.Ptr(), imported.Ptr(), 100))
	b.ends(s)
	for _, f := range []cudatest.Faults{{NoPeers: true}, {Apart: [][2]int{{0, 1}}}} {
		b.d.SetFaults(f)
		if _, err := b.c.Import(far, 100); !errors.Is(err, fault.NotSupported) || reaches() {
			t.Errorf("memory of a device that is not reached is imported: %v", err)
		}
	}

	b.d.SetFaults(cudatest.Faults{NoPeers: true, NoWords: true, NoRegister: true, NoDescriptors: true})
	if i := b.c.Info(); i.Words || i.Registers || i.Shares {
		t.Errorf("a poor machine has something: %+v", i)
	}
	if reaches() {
		t.Error("devices reach each other")
	}
	_, registering := b.c.Register(words.Host())
	_, exporting := data.Descriptor()
	_, importing := b.c.Import(fd, data.Bytes())
	for _, err := range []error{
		registering, exporting, importing, s.Words([]cuda.WordOp{{At: words.Ptr(), Value: 1}}),
	} {
		if isCode(t, err, 801); !errors.Is(err, fault.NotSupported) {
			t.Errorf("got error %v, want one of class fault.NotSupported", err)
		}
	}
	b.d.Check(t)
	b.must(s.Copy(data.Ptr(), there.Ptr(), 100))
	isCode(t, s.Synchronize(), 700)
	b.reported(cudatest.Address, "device 0 has no access to allocation 3 (memory of device 1")
	b.c.Leave()
}

// TestFail makes single calls of all kinds fail.
func TestFail(t *testing.T) {
	calls := map[string]func(b *bench, e cuda.Event, s cuda.Stream, m cuda.Registered) error{
		"cuMemcpyAsync": func(b *bench, e cuda.Event, s cuda.Stream, m cuda.Registered) error {
			return s.Copy(m.Ptr(), m.Ptr()+50, 50)
		},
		"cuStreamBatchMemOp": func(b *bench, e cuda.Event, s cuda.Stream, m cuda.Registered) error {
			return s.Words([]cuda.WordOp{{At: m.Ptr() + 1000, Value: 1}})
		},
		"cuModuleLoadData": func(b *bench, e cuda.Event, s cuda.Stream, m cuda.Registered) error {
			_, err := b.c.Load(machineCode)
			return err
		},
		"cuLaunchKernelEx": func(b *bench, e cuda.Event, s cuda.Stream, m cuda.Registered) error {
			a := kernel.Copy().Arguments(uint64(m.Ptr()), 16, 0, uint64(m.Ptr())+16)
			return s.Launch(b.function("goccl_copy"), 1, 1, a.Bytes())
		},
		"cuStreamWaitEvent": func(b *bench, e cuda.Event, s cuda.Stream, m cuda.Registered) error {
			return s.Wait(e)
		},
		"cuEventRecord": func(b *bench, e cuda.Event, s cuda.Stream, m cuda.Registered) error {
			return e.Record(s)
		},
		"cuMemCreate": func(b *bench, e cuda.Event, s cuda.Stream, m cuda.Registered) error {
			_, err := b.c.Alloc(100)
			return err
		},
		"cuStreamCreateWithPriority": func(b *bench, e cuda.Event, s cuda.Stream, m cuda.Registered) error {
			_, err := b.c.NewStream(1)
			return err
		},
		"cuStreamQuery": func(b *bench, e cuda.Event, s cuda.Stream, m cuda.Registered) error {
			_, err := s.Done()
			return err
		},
		"cuDevicePrimaryCtxRetain": func(b *bench, e cuda.Event, s cuda.Stream, m cuda.Registered) error {
			_, err := b.d.Retain(0)
			return err
		},
	}
	for call, run := range calls {
		b := newBench(t, cudatest.Options{})
		m, s, e := b.register(4096), b.stream(), b.event()
		b.must(e.Record(s))
		b.d.SetFaults(cudatest.Faults{Fail: []cudatest.Failure{
			{Call: call, Nth: 2, Code: 2}, {Call: call, Nth: 4, Code: 719}}})
		for nth := 1; nth <= 5; nth++ {
			err := run(b, e, s, m)
			switch nth {
			case 2:
				isCode(t, err, 2)
			case 4:
				if isCode(t, err, 719); !cuda.Lost(err) {
					t.Errorf("%v does not say that the device is lost", err)
				}
			default:
				if err != nil {
					t.Errorf("%s, call %d: %v", call, nth, err)
				}
			}
		}
		if n := b.d.Calls(call); n != 5 {
			t.Errorf("%d calls of %s, want 5", n, call)
		}
		b.ends(s)
		b.d.Check(t)
	}
}

// TestOutOfMemory uses all memory of a device.
func TestOutOfMemory(t *testing.T) {
	b := newBench(t, cudatest.Options{Bytes: 1 << 20})
	b.alloc(1 << 19)
	second := b.alloc(1 << 19)
	_, err := b.c.Alloc(1)
	isCode(t, err, 2)
	b.must(second.Free())
	b.alloc(1 << 19)
}

// TestLost: a lost device executes nothing more, and all calls say so. What is given back is gone.
func TestLost(t *testing.T) {
	b := newBench(t, cudatest.Options{Devices: 2})
	data, words, s, u, e := b.alloc(100), b.register(8), b.stream(), b.stream(), b.event()
	second := b.context(1)
	b.must(b.c.Enter(false))
	b.must(e.Record(s))
	b.wait(s, words, 0, 1)
	ended := make(chan error)
	go func() {
		b.must(b.c.Enter(false))
		defer b.c.Leave()
		ended <- s.Synchronize()
	}()
	for b.d.Calls("cuStreamSynchronize") == 0 {
		time.Sleep(time.Millisecond)
	}
	b.d.Lose(0)
	isCode(t, <-ended, 719)
	_, allocating := b.c.Alloc(1)
	_, asking := s.Done()
	_, query := e.Done()
	for _, err := range []error{
		allocating, asking, query, s.Copy(data.Ptr(), data.Ptr()+50, 50), u.Synchronize(), s.Wait(e), e.Record(s),
		s.Destroy(), u.Destroy(), e.Destroy(), data.Free(), words.Free(),
	} {
		if isCode(t, err, 719); !cuda.Lost(err) {
			t.Errorf("%v does not say that the device is lost", err)
		}
	}
	b.c.Leave()
	for _, left := range b.d.Leaks() {
		if left[0] != 'c' && left[:2] != "an" { // contexts
			t.Error("left behind: " + left)
		}
	}
	s, err := second.NewStream(0) // of the other device
	b.must(err)
	b.ends(s)
	if text := b.d.Blocked(); text != "" {
		t.Errorf("a lost device still has work:\n%s", text)
	}
	b.d.Check(t)
	d := cudatest.New(cudatest.Options{Faults: cudatest.Faults{Lost: true}})
	defer d.Close()
	_, err = d.Retain(0)
	isCode(t, err, 719)
}
