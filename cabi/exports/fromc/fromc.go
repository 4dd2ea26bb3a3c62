// Package fromc calls the C ABI from C, for tests. It is in the same binary as the exports, so that
// tests can count the allocations of a call. Its users must also link package exports, which
// provides the functions of goccl.h.
package fromc

// #cgo LDFLAGS: -Wl,--unresolved-symbols=ignore-all
// #include <stdlib.h>
// #include "drive.h"
import "C"

import (
	"fmt"
	"time"
	"unsafe"
)

// Order is the sequence of calls that a rank makes in one turn.
type Order int

// Run is a synchronous all-reduce, Start a started one, Burst sixteen started ones; Message is a
// send and a receive through Run, Messages through Start.
const (
	Run Order = iota
	Start
	Burst
	Message
	Messages
	Orders int = iota
)

func (o Order) String() string {
	return [Orders]string{"run", "start", "burst", "message", "messages"}[o]
}

// Rank is a rank of a group of two in this process.
type Rank struct {
	group   C.goccl_group
	rank    int
	address []byte
	memory  unsafe.Pointer
	bytes   int
}

func failed(code C.int, record *C.goccl_error) error {
	if code == C.GOCCL_OK {
		return nil
	}
	return fmt.Errorf("code %d: %s", int(code), C.GoString(&record.text[0]))
}

// Open opens a rank of a group with room for messages of the given number of bytes. options are
// NAME=value lines.
func Open(rank, bytes int, options string) (*Rank, error) { return OpenOn(rank, bytes, options, "") }

// OpenOn is Open for a group on a device.
func OpenOn(rank, bytes int, options, device string) (*Rank, error) {
	name, text, where := C.CString("fromc"), C.CString(options), C.CString(device)
	defer C.free(unsafe.Pointer(name))
	defer C.free(unsafe.Pointer(text))
	defer C.free(unsafe.Pointer(where))
	r := &Rank{
		rank: rank, address: make([]byte, C.GOCCL_MAX_ADDRESS), memory: C.calloc(2, C.size_t(bytes)), bytes: bytes,
	}
	wanted := C.goccl_group_options{
		abi: C.GOCCL_ABI, rank: C.int32_t(rank), size: 2, timeout_ns: C.int64_t(30 * time.Second),
		name: name, options: text, shim_version: name, device: where,
	}
	var length C.size_t
	var record C.goccl_error
	code := C.goccl_group_open(
		&wanted, &r.group, unsafe.Pointer(&r.address[0]), C.size_t(len(r.address)), &length, &record)
	r.address = r.address[:length]
	return r, failed(code, &record)
}

// Number returns the rank's number in its group.
func (r *Rank) Number() int { return r.rank }

// Join connects the rank to the other one.
func (r *Rank) Join(other *Rank) error {
	var addresses [2]unsafe.Pointer
	var lengths [2]C.size_t
	for _, of := range []*Rank{r, other} {
		addresses[of.rank], lengths[of.rank] = C.CBytes(of.address), C.size_t(len(of.address))
		defer C.free(addresses[of.rank])
	}
	var record C.goccl_error
	return failed(C.goccl_group_join(r.group, &addresses[0], &lengths[0], 2, 0, nil, &record), &record)
}

// Do makes the calls of an order turns times, with messages of the given number of bytes, on this
// thread or on a thread that C creates.
func (r *Rank) Do(order Order, bytes, turns int, ownThread bool) error {
	if bytes > r.bytes {
		return fmt.Errorf("%d bytes of %d", bytes, r.bytes)
	}
	task := C.fromc_task{group: r.group, rank: C.int(r.rank), order: C.fromc_order(order), memory: (*C.float)(r.memory),
		count: C.size_t(bytes / 4), turns: C.int(turns)}
	if ownThread {
		task.own_thread = 1
	}
	var record C.goccl_error
	return failed(C.fromc_do(&task, &record), &record)
}

// Close leaves the group.
func (r *Rank) Close() error {
	var record C.goccl_error
	code := C.goccl_group_close(r.group, &record)
	C.free(r.memory)
	return failed(code, &record)
}
