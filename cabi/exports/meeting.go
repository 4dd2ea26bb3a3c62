package exports

// #include "goccl.h"
import "C"

import (
	"strings"
	"time"
	"unsafe"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/member"
	"github.com/goccl/goccl/pgbackend"
)

var meetings table[pgbackend.Meeting]

const mostValue = 64 << 20 // bytes of a record

//export goccl_go_meeting_open
func goccl_go_meeting_open(options *C.goccl_meeting_options, meeting *C.goccl_meeting,
	record *C.goccl_error) (code C.int) {
	defer caught(&code, record)
	switch {
	case options == nil:
		return answer(null("options"), record)
	case meeting == nil:
		return answer(null("meeting"), record)
	case options.global_ranks == nil && options.n_global_ranks > 0:
		return answer(null("global_ranks"), record)
	case options.address == nil && options.address_len > 0:
		return answer(null("address"), record)
	case options.size > ccl.MaxRanks || options.n_global_ranks > ccl.MaxRanks || options.address_len > ccl.MaxAddress:
		return answer(fault.New(fault.Invalid, "%d ranks, an address of %d bytes",
			int(options.size), uint64(options.address_len)), record)
	}
	m, err := pgbackend.NewMeeting(member.Config{
		Name: C.GoString(options.name), Call: "init_process_group or new_group",
		Rank: int(options.rank), Size: int(options.size),
		OfJob:      append([]uint64(nil), unsafe.Slice((*uint64)(options.global_ranks), options.n_global_ranks)...),
		Timeout:    time.Duration(options.timeout_ns),
		Address:    C.GoBytes(options.address, C.int(options.address_len)),
		Failed:     C.GoString(options.failed),
		KeepsStore: options.keeps_store != 0,
	})
	if err != nil {
		return answer(err, record)
	}
	*meeting = C.goccl_meeting(meetings.put(m))
	return C.GOCCL_OK
}

//export goccl_go_meeting_step
func goccl_go_meeting_step(meeting C.goccl_meeting, number C.int64_t, values *unsafe.Pointer, lengths *C.size_t,
	n C.size_t, request *C.goccl_meeting_request, buf unsafe.Pointer, size C.size_t,
	record *C.goccl_error) (code C.int) {
	defer caught(&code, record)
	switch {
	case (values == nil || lengths == nil) && n > 0:
		return answer(null("values"), record)
	case n > 2*ccl.MaxRanks:
		return answer(fault.New(fault.Invalid, "%d values", uint64(n)), record)
	}
	a := member.Answer{Number: int64(number), Values: make([][]byte, n)}
	for i := range a.Values {
		at, length := unsafe.Slice(values, n)[i], unsafe.Slice(lengths, n)[i]
		if length > mostValue {
			return answer(fault.New(fault.Invalid, "a value of %d bytes", uint64(length)), record)
		}
		a.Values[i] = C.GoBytes(at, C.int(length))
	}
	return proceed(meeting, request, buf, size, record, func(m *pgbackend.Meeting) (member.Request, error) {
		return m.Step(a)
	})
}

//export goccl_go_meeting_interrupt
func goccl_go_meeting_interrupt(meeting C.goccl_meeting, why *C.char, request *C.goccl_meeting_request,
	buf unsafe.Pointer, size C.size_t, record *C.goccl_error) (code C.int) {
	defer caught(&code, record)
	return proceed(meeting, request, buf, size, record, func(m *pgbackend.Meeting) (member.Request, error) {
		return m.Interrupt(C.GoString(why))
	})
}

// proceed gives the caller the next request of a meeting.
func proceed(meeting C.goccl_meeting, request *C.goccl_meeting_request, buf unsafe.Pointer, size C.size_t,
	record *C.goccl_error, next func(*pgbackend.Meeting) (member.Request, error)) C.int {
	m := meetings.get(uint64(meeting))
	switch {
	case m == nil:
		return answer(stale("meeting", uint64(meeting)), record)
	case request == nil:
		return answer(null("request"), record)
	case buf == nil && size > 0:
		return answer(null("buf"), record)
	}
	r, err := next(m)
	if err != nil {
		return answer(err, record)
	}
	keys := 0
	for _, key := range r.Keys {
		keys += len(key) + 1
	}
	if keys+len(r.Value) > int(size) {
		return answer(fault.New(fault.Invalid, "a buffer of %d bytes for a request of %d; it needs GOCCL_MEETING_BUFFER",
			uint64(size), keys+len(r.Value)), record)
	}
	to := unsafe.Slice((*byte)(buf), size)
	copy(to, strings.Join(r.Keys, "\n"))
	if keys > 0 {
		to[keys-1] = '\n'
	}
	copy(to[keys:], r.Value)
	request.op, request.number = C.int32_t(r.Op), C.int64_t(r.Number)
	request.keys_len, request.value_len = C.size_t(keys), C.size_t(len(r.Value))
	return C.GOCCL_OK
}

//export goccl_go_meeting_join
func goccl_go_meeting_join(meeting C.goccl_meeting, group C.goccl_group, slice C.int64_t, work *C.goccl_work,
	record *C.goccl_error) C.int {
	m := meetings.get(uint64(meeting))
	if m == nil {
		return answer(stale("meeting", uint64(meeting)), record)
	}
	return onGroup(group, record, func(g *pgbackend.Group) error {
		addresses, err := m.Addresses()
		if err != nil {
			return err
		}
		return inSlices(slice, work, func() error { return g.Join(addresses) })
	})
}

//export goccl_go_meeting_free
func goccl_go_meeting_free(meeting C.goccl_meeting) (code C.int) {
	defer caught(&code, nil)
	if meetings.take(uint64(meeting)) == nil {
		return C.GOCCL_INVALID
	}
	return C.GOCCL_OK
}
