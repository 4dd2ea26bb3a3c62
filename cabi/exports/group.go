package exports

// #include "goccl.h"
import "C"

import (
	"fmt"
	"strings"
	"time"
	"unsafe"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/pgbackend"
)

var groups table[pgbackend.Group]

func findGroup(handle C.goccl_group) (*pgbackend.Group, error) {
	if g := groups.get(uint64(handle)); g != nil {
		return g, nil
	}
	return nil, fault.New(fault.Closed, "the process group was destroyed (handle %#x)", uint64(handle))
}

//export goccl_go_version
func goccl_go_version(buf *C.char, size C.size_t) C.int {
	if size == 0 || buf == nil {
		return C.GOCCL_INVALID
	}
	text := unsafe.Slice((*byte)(unsafe.Pointer(buf)), int(size))
	text[copy(text[:len(text)-1], ccl.Version)] = 0
	return C.GOCCL_OK
}

//export goccl_go_group_open
func goccl_go_group_open(options *C.goccl_group_options, group *C.goccl_group,
	buf unsafe.Pointer, size C.size_t, length *C.size_t, record *C.goccl_error) (code C.int) {
	defer caught(&code, record)
	switch {
	case options == nil:
		return answer(null("options"), record)
	case group == nil:
		return answer(null("group"), record)
	case length == nil:
		return answer(null("length"), record)
	case buf == nil && size > 0:
		return answer(null("buf"), record)
	}
	config, err := configOf(options)
	if err != nil {
		return answer(err, record)
	}
	g, err := pgbackend.Open(config)
	if err != nil {
		return answer(err, record)
	}
	address := g.Address()
	if len(address) > int(size) {
		return answer(fault.New(fault.Invalid,
			"the address has %d bytes, the buffer %d", len(address), int(size)), record)
	}
	copy(unsafe.Slice((*byte)(buf), len(address)), address)
	*length = C.size_t(len(address))
	*group = C.goccl_group(groups.put(g))
	return C.GOCCL_OK
}

// configOf reads the options of a group.
func configOf(options *C.goccl_group_options) (pgbackend.Config, error) {
	if options.abi != C.GOCCL_ABI {
		return pgbackend.Config{}, fault.New(fault.Mismatch,
			"the caller was built for C ABI %d, this library (goccl %s) has %d; install both from the same source",
			uint32(options.abi), ccl.Version, C.GOCCL_ABI)
	}
	return pgbackend.Config{
		Name: C.GoString(options.name), Rank: int(options.rank), Size: int(options.size),
		Timeout: time.Duration(options.timeout_ns), Options: C.GoString(options.options),
		Shim: C.GoString(options.shim_version), Device: C.GoString(options.device),
	}, nil
}

//export goccl_go_group_join
func goccl_go_group_join(group C.goccl_group, addresses *unsafe.Pointer, lengths *C.size_t,
	n C.int, slice C.int64_t, work *C.goccl_work, record *C.goccl_error) (code C.int) {
	defer caught(&code, record)
	switch {
	case addresses == nil && n > 0:
		return answer(null("addresses"), record)
	case lengths == nil && n > 0:
		return answer(null("lengths"), record)
	}
	g, err := findGroup(group)
	if err != nil {
		return answer(err, record)
	}
	if n < 0 || n > ccl.MaxRanks {
		return answer(fault.New(fault.Invalid, "%d addresses", int(n)), record)
	}
	all := make([][]byte, int(n))
	for i := range all {
		size := int(unsafe.Slice(lengths, int(n))[i])
		if size > ccl.MaxAddress {
			return answer(fault.Peer(fault.Invalid, i, "its address has %d bytes", size), record)
		}
		at := unsafe.Slice(addresses, int(n))[i]
		if at == nil && size > 0 {
			return answer(null(fmt.Sprintf("addresses[%d]", i)), record)
		}
		all[i] = C.GoBytes(at, C.int(size))
	}
	return inSlices(slice, work, record, func() error { return g.Join(all) })
}

//export goccl_go_group_shrink
func goccl_go_group_shrink(group C.goccl_group, without *C.int32_t, n C.size_t, quorum C.int32_t,
	timeout C.int64_t, next *C.goccl_group, slice C.int64_t, work *C.goccl_work, record *C.goccl_error) (code C.int) {
	defer caught(&code, record)
	switch {
	case next == nil:
		return answer(null("next"), record)
	case without == nil && n > 0:
		return answer(null("without"), record)
	}
	g, err := findGroup(group)
	if err != nil {
		return answer(err, record)
	}
	if n > ccl.MaxRanks || timeout <= 0 {
		return answer(fault.New(fault.Invalid,
			"shrink: %d ranks, a timeout of %d ns", uint64(n), int64(timeout)), record)
	}
	excluded := make([]int, int(n))
	for i := range excluded {
		excluded[i] = int(unsafe.Slice(without, int(n))[i])
	}
	made := g.Empty(time.Duration(timeout))
	*next = C.goccl_group(groups.put(made))
	return inSlices(slice, work, record, func() error { return made.ShrinkFrom(g, ccl.Quorum(quorum), excluded) })
}

//export goccl_go_group_address
func goccl_go_group_address(group C.goccl_group, buf *C.char, size C.size_t, length *C.size_t,
	record *C.goccl_error) (code C.int) {
	defer caught(&code, record)
	switch {
	case length == nil:
		return answer(null("length"), record)
	case buf == nil && size > 0:
		return answer(null("buf"), record)
	}
	g, err := findGroup(group)
	if err != nil {
		return answer(err, record)
	}
	text, err := g.Invitation()
	if err != nil {
		return answer(err, record)
	}
	*length = copyText(buf, size, text)
	return C.GOCCL_OK
}

//export goccl_go_group_grow
func goccl_go_group_grow(group C.goccl_group, newcomers C.int32_t, wait, timeout C.int64_t,
	next *C.goccl_group, slice C.int64_t, work *C.goccl_work, record *C.goccl_error) (code C.int) {
	defer caught(&code, record)
	if next == nil {
		return answer(null("next"), record)
	}
	g, err := findGroup(group)
	if err != nil {
		return answer(err, record)
	}
	if wait < 0 || timeout <= 0 {
		return answer(fault.New(fault.Invalid,
			"grow: newcomers are waited for for %d ns, ranks for %d ns", int64(wait), int64(timeout)), record)
	}
	made := g.Empty(time.Duration(timeout))
	*next = C.goccl_group(groups.put(made))
	return inSlices(slice, work, record, func() error { return made.GrowFrom(g, int(newcomers), time.Duration(wait)) })
}

//export goccl_go_group_come
func goccl_go_group_come(options *C.goccl_group_options, address *C.char, group *C.goccl_group,
	slice C.int64_t, work *C.goccl_work, record *C.goccl_error) (code C.int) {
	defer caught(&code, record)
	switch {
	case options == nil:
		return answer(null("options"), record)
	case address == nil:
		return answer(null("address"), record)
	case group == nil:
		return answer(null("group"), record)
	}
	config, err := configOf(options)
	if err != nil {
		return answer(err, record)
	}
	g, err := pgbackend.OpenNewcomer(config)
	if err != nil {
		return answer(err, record)
	}
	*group = C.goccl_group(groups.put(g))
	to := C.GoString(address)
	return inSlices(slice, work, record, func() error { return g.Come(to) })
}

//export goccl_go_group_members
func goccl_go_group_members(group C.goccl_group, ranks *C.int32_t, size C.size_t, n *C.size_t,
	record *C.goccl_error) (code C.int) {
	defer caught(&code, record)
	switch {
	case n == nil:
		return answer(null("n"), record)
	case ranks == nil && size > 0:
		return answer(null("ranks"), record)
	}
	g, err := findGroup(group)
	if err != nil {
		return answer(err, record)
	}
	members := g.Members()
	*n = C.size_t(len(members))
	if len(members) <= int(size) {
		for i, rank := range members {
			unsafe.Slice(ranks, len(members))[i] = C.int32_t(rank)
		}
	}
	return C.GOCCL_OK
}

//export goccl_go_group_locate
func goccl_go_group_locate(group C.goccl_group, rank C.int, buf *C.char, size C.size_t, length *C.size_t,
	record *C.goccl_error) (code C.int) {
	defer caught(&code, record)
	switch {
	case length == nil:
		return answer(null("length"), record)
	case buf == nil && size > 0:
		return answer(null("buf"), record)
	}
	g, err := findGroup(group)
	if err != nil {
		return answer(err, record)
	}
	addresses, err := g.Locate(int(rank))
	if err != nil {
		return answer(err, record)
	}
	text := ""
	for _, a := range addresses {
		text += a.String() + "\n"
	}
	*length = copyText(buf, size, text)
	return C.GOCCL_OK
}

// copyText copies a text, unless it is longer than the buffer, and returns its length.
func copyText(buf *C.char, size C.size_t, text string) C.size_t {
	if len(text) <= int(size) {
		copy(unsafe.Slice((*byte)(unsafe.Pointer(buf)), len(text)), text)
	}
	return C.size_t(len(text))
}

//export goccl_go_group_state
func goccl_go_group_state(group C.goccl_group, state *C.goccl_group_state, record *C.goccl_error) (code C.int) {
	defer caught(&code, record)
	if state == nil {
		return answer(null("state"), record)
	}
	g, err := findGroup(group)
	if err != nil {
		return answer(err, record)
	}
	s := g.State()
	state.seq, state.generation = C.uint64_t(s.Seq), C.uint64_t(s.Generation)
	state.joined, state.closed = C.int32_t(truth(s.Joined)), C.int32_t(truth(s.Closed))
	state.rank, state.size = C.int32_t(s.Rank), C.int32_t(s.Size)
	return C.GOCCL_OK
}

//export goccl_go_group_become
func goccl_go_group_become(group, next C.goccl_group, record *C.goccl_error) (code C.int) {
	defer caught(&code, record)
	g, err := findGroup(group)
	if err != nil {
		return answer(err, record)
	}
	if next == group {
		return answer(fault.New(fault.Invalid, "become: both handles are of the same group (%#x)", uint64(next)), record)
	}
	other := groups.take(uint64(next))
	if other == nil {
		return answer(stale("group", uint64(next)), record)
	}
	return answer(g.Become(other), record)
}

//export goccl_go_group_set_timeout
func goccl_go_group_set_timeout(group C.goccl_group, timeout C.int64_t, record *C.goccl_error) (code C.int) {
	defer caught(&code, record)
	g, err := findGroup(group)
	if err != nil {
		return answer(err, record)
	}
	return answer(g.SetTimeout(time.Duration(timeout)), record)
}

//export goccl_go_group_monitored_barrier
func goccl_go_group_monitored_barrier(group C.goccl_group, timeout C.int64_t, all C.int,
	slice C.int64_t, work *C.goccl_work, record *C.goccl_error) (code C.int) {
	defer caught(&code, record)
	g, err := findGroup(group)
	if err != nil {
		return answer(err, record)
	}
	return inSlices(slice, work, record, func() error {
		return g.MonitoredBarrier(time.Duration(timeout), all != 0)
	})
}

//export goccl_go_group_abort
func goccl_go_group_abort(group C.goccl_group, reason *C.char, record *C.goccl_error) (code C.int) {
	defer caught(&code, record)
	g, err := findGroup(group)
	if err != nil {
		return answer(err, record)
	}
	return answer(g.Abort(C.GoString(reason)), record)
}

//export goccl_go_group_drain
func goccl_go_group_drain(group C.goccl_group, atMost C.int64_t, done *C.int, record *C.goccl_error) (code C.int) {
	defer caught(&code, record)
	if done == nil {
		return answer(null("done"), record)
	}
	g, err := findGroup(group)
	if err != nil {
		return answer(err, record)
	}
	*done = 0
	if g.Drain(time.Duration(atMost)) {
		*done = 1
	}
	return C.GOCCL_OK
}

//export goccl_go_group_lost
func goccl_go_group_lost(group C.goccl_group, buf *C.char, size C.size_t, length *C.size_t,
	record *C.goccl_error) (code C.int) {
	defer caught(&code, record)
	switch {
	case length == nil:
		return answer(null("length"), record)
	case buf == nil && size > 0:
		return answer(null("buf"), record)
	}
	g, err := findGroup(group)
	if err != nil {
		return answer(err, record)
	}
	text := ""
	for _, lost := range g.Lost() {
		why := lost.Text
		if lost.Cause != nil {
			why += ": " + lost.Cause.Error()
		}
		text += fmt.Sprintf("%d %s\n", lost.Peer, strings.ReplaceAll(why, "\n", " "))
	}
	*length = copyText(buf, size, text)
	return C.GOCCL_OK
}

//export goccl_go_group_close
func goccl_go_group_close(group C.goccl_group, record *C.goccl_error) (code C.int) {
	defer caught(&code, record)
	g := groups.get(uint64(group))
	if g == nil {
		return answer(stale("group", uint64(group)), record)
	}
	return answer(g.Close(), record)
}

//export goccl_go_group_free
func goccl_go_group_free(group C.goccl_group) (code C.int) {
	defer caught(&code, nil)
	g := groups.take(uint64(group))
	if g == nil {
		return C.GOCCL_INVALID
	}
	return answer(g.Close(), nil)
}
