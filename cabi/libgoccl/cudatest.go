//go:build cudatest

package main

// With the build tag cudatest the library is one for tests: its GPU driver is cuda/cudatest, and
// beside the C ABI it exports what a torch device on that driver needs (tests/device). A group and
// the torch device meet in the driver, as they do in CUDA's.

// #include <stdint.h>
// #include <stdlib.h>
// typedef struct {
//   uintptr_t at;
//   size_t bytes;
//   int write;
// } goccl_test_access;
//
// typedef void goccl_test_body(void* argument);
//
// static inline void goccl_test_call(goccl_test_body* body, void* argument) { body(argument); }
import "C"

import (
	"encoding/json"
	"fmt"
	"runtime/cgo"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unsafe"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/cuda"
	"github.com/goccl/goccl/cuda/cudatest"
	"github.com/goccl/goccl/pgbackend"
)

// machine is what the process has: a driver, and a context of each device for torch.
var machine struct {
	once     sync.Once
	driver   *cudatest.Driver
	contexts []cuda.Context
	groups   struct {
		sync.Mutex
		contexts []cuda.Context
	}
}

// noting remembers the contexts of groups.
type noting struct{ *cudatest.Driver }

func (n noting) Retain(device int) (cuda.Context, error) {
	c, err := n.Driver.Retain(device)
	if err == nil {
		machine.groups.Lock()
		machine.groups.contexts = append(machine.groups.contexts, c)
		machine.groups.Unlock()
	}
	return c, err
}

// Every function returns the text of the error, which the caller frees, or NULL.
func text(err error) *C.char {
	if err == nil {
		return nil
	}
	return C.CString(err.Error())
}

// on calls f with the context of a device entered.
func on(device C.int, f func(c cuda.Context) error) *C.char {
	if int(device) >= len(machine.contexts) {
		return text(fault.New(fault.Invalid, "there is no device %d", device))
	}
	c := machine.contexts[device]
	if err := c.Enter(true); err != nil {
		return text(err)
	}
	defer c.Leave()
	return text(f(c))
}

// onStream calls f with a stream that has this handle.
func onStream(device C.int, native C.uintptr_t, f func(s cuda.Stream) error) *C.char {
	return on(device, func(c cuda.Context) error { return f(c.Adopt(uintptr(native))) })
}

// Makes the machine. delay_ns and stuck_ns are those of cudatest.Options: 0 for the default. The
// variable CUDATEST_QUEUES has Options.Queues, if this process is to have few.
//
//export goccl_test_start
func goccl_test_start(seed C.uint64_t, devices C.int, delay_ns, stuck_ns C.int64_t) *C.char {
	err := fault.New(fault.Invalid, "the simulated machine was started before")
	machine.once.Do(func() {
		err = nil
		name := C.CString("CUDATEST_QUEUES")
		defer C.free(unsafe.Pointer(name))
		// os.Getenv has what the process began with.
		queues, _ := strconv.Atoi(C.GoString(C.getenv(name)))
		machine.driver = cudatest.New(cudatest.Options{
			Devices: int(devices), Seed: uint64(seed), Delay: time.Duration(delay_ns), Stuck: time.Duration(stuck_ns),
			Queues: queues,
			// torch allocates while work waits, from what the driver was given once.
			Pending: true,
		})
		for i := range int(devices) {
			c, failed := machine.driver.Retain(i)
			if failed != nil {
				err = fault.Wrap(fault.Internal, failed, "")
				return
			}
			machine.contexts = append(machine.contexts, c)
		}
		pgbackend.SetDriver(func() (cuda.Driver, error) { return noting{machine.driver}, nil })
	})
	if err != nil {
		return text(err)
	}
	return nil
}

//export goccl_test_stream_new
func goccl_test_stream_new(device, urgency C.int, native *C.uintptr_t) *C.char {
	return on(device, func(c cuda.Context) error {
		s, err := c.NewStream(int(urgency))
		if err == nil {
			*native = C.uintptr_t(s.Native())
		}
		return err
	})
}

//export goccl_test_stream_done
func goccl_test_stream_done(device C.int, native C.uintptr_t, done *C.int) *C.char {
	return onStream(device, native, func(s cuda.Stream) error {
		is, err := s.Done()
		*done = truth(is)
		return err
	})
}

//export goccl_test_stream_synchronize
func goccl_test_stream_synchronize(device C.int, native C.uintptr_t) *C.char {
	return onStream(device, native, cuda.Stream.Synchronize)
}

//export goccl_test_stream_capturing
func goccl_test_stream_capturing(device C.int, native C.uintptr_t, is *C.int) *C.char {
	return onStream(device, native, func(s cuda.Stream) error {
		id, err := s.Capture()
		*is = truth(id != 0)
		return err
	})
}

//export goccl_test_copy
func goccl_test_copy(device C.int, native, to, from C.uintptr_t, bytes C.size_t) *C.char {
	return onStream(device, native, func(s cuda.Stream) error {
		return s.Copy(cuda.Ptr(to), cuda.Ptr(from), int(bytes))
	})
}

// Enqueues a kernel that gives bytes of memory a value.
//
//export goccl_test_fill
func goccl_test_fill(device C.int, native C.uintptr_t, name *C.char, at unsafe.Pointer, bytes C.size_t,
	value C.uint8_t) *C.char {
	called := C.GoString(name)
	memory := unsafe.Slice((*byte)(at), int(bytes))
	return onStream(device, native, func(s cuda.Stream) error {
		whole := []cudatest.Access{{At: cuda.Ptr(uintptr(at)), Bytes: len(memory), Write: true}}
		return machine.driver.Launch(s, called, whole, func() {
			for i := range memory {
				memory[i] = byte(value)
			}
		})
	})
}

// Enqueues a kernel: body, which makes these accesses. It is called by a thread of the machine.
//
//export goccl_test_launch
func goccl_test_launch(device C.int, native C.uintptr_t, name *C.char, accesses *C.goccl_test_access, n C.size_t,
	body *C.goccl_test_body, argument unsafe.Pointer) *C.char {
	called, all := C.GoString(name), accessesOf(accesses, n)
	return onStream(device, native, func(s cuda.Stream) error {
		return machine.driver.Launch(s, called, all, func() { C.goccl_test_call(body, argument) })
	})
}

func accessesOf(accesses *C.goccl_test_access, n C.size_t) []cudatest.Access {
	all := make([]cudatest.Access, 0, int(n))
	for _, a := range unsafe.Slice(accesses, int(n)) {
		all = append(all, cudatest.Access{At: cuda.Ptr(a.at), Bytes: int(a.bytes), Write: a.write != 0})
	}
	return all
}

// Returns when it is the turn of a kernel, which the caller then executes, until
// goccl_test_kernel_end.
//
//export goccl_test_kernel_begin
func goccl_test_kernel_begin(device C.int, native C.uintptr_t, name *C.char, accesses *C.goccl_test_access,
	n C.size_t, kernel *C.uintptr_t) *C.char {
	called, all := C.GoString(name), accessesOf(accesses, n)
	return onStream(device, native, func(s cuda.Stream) error {
		end, err := machine.driver.Begin(s, called, all)
		if err == nil {
			*kernel = C.uintptr_t(cgo.NewHandle(end))
		}
		return err
	})
}

//export goccl_test_kernel_end
func goccl_test_kernel_end(kernel C.uintptr_t) {
	h := cgo.Handle(kernel)
	h.Value().(func())()
	h.Delete()
}

//export goccl_test_event_new
func goccl_test_event_new(device C.int, event *C.uintptr_t) *C.char {
	return on(device, func(c cuda.Context) error {
		e, err := c.NewEvent()
		if err == nil {
			*event = C.uintptr_t(cgo.NewHandle(e))
		}
		return err
	})
}

func eventOf(event C.uintptr_t) cuda.Event { return cgo.Handle(event).Value().(cuda.Event) }

//export goccl_test_event_record
func goccl_test_event_record(device C.int, event, native C.uintptr_t) *C.char {
	return onStream(device, native, func(s cuda.Stream) error { return eventOf(event).Record(s) })
}

//export goccl_test_event_wait
func goccl_test_event_wait(device C.int, event, native C.uintptr_t) *C.char {
	return onStream(device, native, func(s cuda.Stream) error { return s.Wait(eventOf(event)) })
}

//export goccl_test_event_done
func goccl_test_event_done(device C.int, event C.uintptr_t, done *C.int) *C.char {
	return on(device, func(cuda.Context) error {
		is, err := eventOf(event).Done()
		*done = truth(is)
		return err
	})
}

//export goccl_test_event_synchronize
func goccl_test_event_synchronize(device C.int, event C.uintptr_t) *C.char {
	return on(device, func(cuda.Context) error {
		for {
			if done, err := eventOf(event).Done(); done || err != nil {
				return err
			}
			time.Sleep(50 * time.Microsecond) // the contract has no wait for an event
		}
	})
}

//export goccl_test_event_destroy
func goccl_test_event_destroy(device C.int, event C.uintptr_t) *C.char {
	h := cgo.Handle(event)
	defer h.Delete()
	return on(device, func(cuda.Context) error { return eventOf(event).Destroy() })
}

// Makes memory of the host memory of a device.
//
//export goccl_test_expose
func goccl_test_expose(at unsafe.Pointer, bytes C.size_t) {
	machine.driver.Expose(unsafe.Slice((*byte)(at), int(bytes)))
}

//export goccl_test_hide
func goccl_test_hide(at unsafe.Pointer) { machine.driver.Hide(cuda.Ptr(uintptr(at))) }

// Says that what the host has done and seen in groups comes before what it does on the torch device
// from now on.
//
//export goccl_test_order
func goccl_test_order() {
	machine.groups.Lock()
	groups := slices.Clone(machine.groups.contexts)
	machine.groups.Unlock()
	for _, before := range groups {
		for _, after := range machine.contexts {
			machine.driver.Order(before, after)
		}
	}
}

// Keeps a stream from executing anything (hold is 1), or undoes that (0).
//
//export goccl_test_hold
func goccl_test_hold(device C.int, native C.uintptr_t, hold C.int) *C.char {
	return onStream(device, native, func(s cuda.Stream) error {
		if hold != 0 {
			machine.driver.Hold(s)
		} else {
			machine.driver.Release(s)
		}
		return nil
	})
}

// Puts a stream in capture (begin is 1), or ends that (0), which fails if something was called that
// cannot be captured, and else gives the graph.
//
//export goccl_test_capture
func goccl_test_capture(device C.int, native C.uintptr_t, begin C.int, graph *C.uintptr_t) *C.char {
	return onStream(device, native, func(s cuda.Stream) error {
		if begin != 0 {
			machine.driver.BeginCapture(s)
			return nil
		}
		made, err := machine.driver.EndCapture(s)
		if err == nil {
			*graph = C.uintptr_t(cgo.NewHandle(made))
		}
		return err
	})
}

//export goccl_test_graph_launch
func goccl_test_graph_launch(device C.int, native, graph C.uintptr_t) *C.char {
	return onStream(device, native, cgo.Handle(graph).Value().(*cudatest.Graph).Launch)
}

//export goccl_test_graph_destroy
func goccl_test_graph_destroy(device C.int, native, graph C.uintptr_t) *C.char {
	return onStream(device, native, func(cuda.Stream) error {
		defer cgo.Handle(graph).Delete()
		return cgo.Handle(graph).Value().(*cudatest.Graph).Destroy()
	})
}

// Waits until nothing that is enqueued can go on.
//
//export goccl_test_settle
func goccl_test_settle() { machine.driver.Settle() }

// Loses a device.
//
//export goccl_test_lose
func goccl_test_lose(device C.int) { machine.driver.Lose(int(device)) }

// Replaces the faults by those in JSON, an object with fields of cudatest.Faults.
//
//export goccl_test_faults
func goccl_test_faults(faults *C.char) *C.char {
	var f cudatest.Faults
	if err := json.Unmarshal([]byte(C.GoString(faults)), &f); err != nil {
		return text(err)
	}
	machine.driver.SetFaults(f)
	return nil
}

// Returns how often the driver was called so, since the faults were set.
//
//export goccl_test_calls
func goccl_test_calls(call *C.char) C.int64_t {
	return C.int64_t(machine.driver.Calls(C.GoString(call)))
}

// Returns the reports so far, a list of texts in JSON.
//
//export goccl_test_reports
func goccl_test_reports() *C.char {
	all := []string{}
	for _, r := range machine.driver.Reports() {
		all = append(all, r.String())
	}
	return list(all)
}

//export goccl_test_forget
func goccl_test_forget() { machine.driver.Forget() }

// Returns what each stream that has work waits for.
//
//export goccl_test_blocked
func goccl_test_blocked() *C.char { return C.CString(machine.driver.Blocked()) }

// Returns what groups have not given back, a list of texts in JSON. The torch device gives nothing
// back.
//
//export goccl_test_leaks
func goccl_test_leaks() *C.char {
	all := []string{}
	for _, left := range machine.driver.Leaks() {
		_, at, _ := strings.Cut(left, " at ")
		if !strings.HasPrefix(at, "libgoccl/cudatest.go:") || strings.HasPrefix(left, "context") &&
			!owned(left) {
			all = append(all, left)
		}
	}
	return list(all)
}

// owned reports whether a leak is one of the contexts that were retained first, those of torch.
func owned(left string) bool {
	for i := range machine.contexts {
		if strings.HasPrefix(left, fmt.Sprintf("context %d,", i)) {
			return true
		}
	}
	return false
}

func list(all []string) *C.char {
	encoded, err := json.Marshal(all)
	if err != nil {
		encoded = []byte(`["` + err.Error() + `"]`)
	}
	return C.CString(string(encoded))
}

// Frees a text that a function has returned.
//
//export goccl_test_free_text
func goccl_test_free_text(text *C.char) { C.free(unsafe.Pointer(text)) }

func truth(b bool) C.int {
	if b {
		return 1
	}
	return 0
}
