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

// onGroup makes a call on a group, and returns the code of its error.
func onGroup(group C.goccl_group, record *C.goccl_error, call func(*pgbackend.Group) error) (code C.int) {
	defer caught(&code, record)
	g, err := findGroup(group)
	if err == nil {
		err = call(g)
	}
	return answer(err, record)
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
	n C.int, slice C.int64_t, work *C.goccl_work, record *C.goccl_error) C.int {
	switch {
	case addresses == nil && n > 0:
		return answer(null("addresses"), record)
	case lengths == nil && n > 0:
		return answer(null("lengths"), record)
	}
	return onGroup(group, record, func(g *pgbackend.Group) error {
		if n < 0 || n > ccl.MaxRanks {
			return fault.New(fault.Invalid, "%d addresses", int(n))
		}
		all := make([][]byte, int(n))
		for i := range all {
			size := int(unsafe.Slice(lengths, int(n))[i])
			if size > ccl.MaxAddress {
				return fault.Peer(fault.Invalid, i, "its address has %d bytes", size)
			}
			at := unsafe.Slice(addresses, int(n))[i]
			if at == nil && size > 0 {
				return null(fmt.Sprintf("addresses[%d]", i))
			}
			all[i] = C.GoBytes(at, C.int(size))
		}
		return inSlices(slice, work, func() error { return g.Join(all) })
	})
}

//export goccl_go_group_shrink
func goccl_go_group_shrink(group C.goccl_group, without *C.int32_t, n C.size_t, quorum C.int32_t,
	timeout C.int64_t, next *C.goccl_group, slice C.int64_t, work *C.goccl_work, record *C.goccl_error) C.int {
	switch {
	case next == nil:
		return answer(null("next"), record)
	case without == nil && n > 0:
		return answer(null("without"), record)
	}
	return onGroup(group, record, func(g *pgbackend.Group) error {
		if n > ccl.MaxRanks || timeout <= 0 {
			return fault.New(fault.Invalid, "shrink: %d ranks, a timeout of %d ns", uint64(n), int64(timeout))
		}
		excluded := make([]int, int(n))
		for i := range excluded {
			excluded[i] = int(unsafe.Slice(without, int(n))[i])
		}
		made := g.Empty(time.Duration(timeout))
		*next = C.goccl_group(groups.put(made))
		return inSlices(slice, work, func() error { return made.ShrinkFrom(g, ccl.Quorum(quorum), excluded) })
	})
}

// textOf copies a text of a group, unless it is longer than the buffer, and gives its length.
func textOf(group C.goccl_group, buf *C.char, size C.size_t, length *C.size_t, record *C.goccl_error,
	find func(*pgbackend.Group) (string, error)) C.int {
	switch {
	case length == nil:
		return answer(null("length"), record)
	case buf == nil && size > 0:
		return answer(null("buf"), record)
	}
	return onGroup(group, record, func(g *pgbackend.Group) error {
		text, err := find(g)
		if err != nil {
			return err
		}
		if len(text) <= int(size) {
			copy(unsafe.Slice((*byte)(unsafe.Pointer(buf)), len(text)), text)
		}
		*length = C.size_t(len(text))
		return nil
	})
}

//export goccl_go_group_address
func goccl_go_group_address(group C.goccl_group, buf *C.char, size C.size_t, length *C.size_t,
	record *C.goccl_error) C.int {
	return textOf(group, buf, size, length, record, (*pgbackend.Group).Invitation)
}

//export goccl_go_group_grow
func goccl_go_group_grow(group C.goccl_group, newcomers C.int32_t, wait, timeout C.int64_t,
	next *C.goccl_group, slice C.int64_t, work *C.goccl_work, record *C.goccl_error) C.int {
	if next == nil {
		return answer(null("next"), record)
	}
	return onGroup(group, record, func(g *pgbackend.Group) error {
		if wait < 0 || timeout <= 0 {
			return fault.New(fault.Invalid,
				"grow: newcomers are waited for for %d ns, ranks for %d ns", int64(wait), int64(timeout))
		}
		made := g.Empty(time.Duration(timeout))
		*next = C.goccl_group(groups.put(made))
		return inSlices(slice, work, func() error { return made.GrowFrom(g, int(newcomers), time.Duration(wait)) })
	})
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
	return answer(inSlices(slice, work, func() error { return g.Come(to) }), record)
}

//export goccl_go_group_members
func goccl_go_group_members(group C.goccl_group, ranks *C.int32_t, size C.size_t, n *C.size_t,
	record *C.goccl_error) C.int {
	switch {
	case n == nil:
		return answer(null("n"), record)
	case ranks == nil && size > 0:
		return answer(null("ranks"), record)
	}
	return onGroup(group, record, func(g *pgbackend.Group) error {
		members := g.Members()
		*n = C.size_t(len(members))
		if len(members) <= int(size) {
			for i, rank := range members {
				unsafe.Slice(ranks, len(members))[i] = C.int32_t(rank)
			}
		}
		return nil
	})
}

//export goccl_go_group_locate
func goccl_go_group_locate(group C.goccl_group, rank C.int, buf *C.char, size C.size_t, length *C.size_t,
	record *C.goccl_error) C.int {
	return textOf(group, buf, size, length, record, func(g *pgbackend.Group) (text string, err error) {
		addresses, err := g.Locate(int(rank))
		for _, a := range addresses {
			text += a.String() + "\n"
		}
		return text, err
	})
}

//export goccl_go_group_state
func goccl_go_group_state(group C.goccl_group, state *C.goccl_group_state, record *C.goccl_error) C.int {
	if state == nil {
		return answer(null("state"), record)
	}
	return onGroup(group, record, func(g *pgbackend.Group) error {
		s := g.State()
		state.seq, state.generation = C.uint64_t(s.Seq), C.uint64_t(s.Generation)
		state.joined, state.closed = C.int32_t(truth(s.Joined)), C.int32_t(truth(s.Closed))
		state.rank, state.size = C.int32_t(s.Rank), C.int32_t(s.Size)
		return nil
	})
}

//export goccl_go_group_become
func goccl_go_group_become(group, next C.goccl_group, record *C.goccl_error) C.int {
	return onGroup(group, record, func(g *pgbackend.Group) error {
		if next == group {
			return fault.New(fault.Invalid, "become: both handles are of the same group (%#x)", uint64(next))
		}
		other := groups.take(uint64(next))
		if other == nil {
			return stale("group", uint64(next))
		}
		return g.Become(other)
	})
}

//export goccl_go_group_set_timeout
func goccl_go_group_set_timeout(group C.goccl_group, timeout C.int64_t, record *C.goccl_error) C.int {
	return onGroup(group, record, func(g *pgbackend.Group) error { return g.SetTimeout(time.Duration(timeout)) })
}

//export goccl_go_group_monitored_barrier
func goccl_go_group_monitored_barrier(group C.goccl_group, timeout C.int64_t, all C.int,
	slice C.int64_t, work *C.goccl_work, record *C.goccl_error) C.int {
	return onGroup(group, record, func(g *pgbackend.Group) error {
		return inSlices(slice, work, func() error { return g.MonitoredBarrier(time.Duration(timeout), all != 0) })
	})
}

//export goccl_go_group_abort
func goccl_go_group_abort(group C.goccl_group, reason *C.char, record *C.goccl_error) C.int {
	return onGroup(group, record, func(g *pgbackend.Group) error { return g.Abort(C.GoString(reason)) })
}

//export goccl_go_group_drain
func goccl_go_group_drain(group C.goccl_group, atMost C.int64_t, done *C.int, record *C.goccl_error) C.int {
	if done == nil {
		return answer(null("done"), record)
	}
	return onGroup(group, record, func(g *pgbackend.Group) error {
		*done = truth(g.Drain(time.Duration(atMost)))
		return nil
	})
}

//export goccl_go_group_lost
func goccl_go_group_lost(group C.goccl_group, buf *C.char, size C.size_t, length *C.size_t,
	record *C.goccl_error) C.int {
	return textOf(group, buf, size, length, record, func(g *pgbackend.Group) (text string, err error) {
		for _, lost := range g.Lost() {
			why := lost.Text
			if lost.Cause != nil {
				why += ": " + lost.Cause.Error()
			}
			text += fmt.Sprintf("%d %s\n", lost.Peer, strings.ReplaceAll(why, "\n", " "))
		}
		return text, nil
	})
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
