package fromc

// #include "enqueue.h"
import "C"

import "time"

// Work is a goccl_work.
type Work uint64

// Enqueue enqueues an all_reduce in place of elements of a device's memory behind a stream.
func (r *Rank) Enqueue(memory uint64, count int, stream uintptr) (work Work, seq uint64, err error) {
	var w C.goccl_work
	var s C.uint64_t
	var record C.goccl_error
	code := C.fromc_enqueue(r.group, C.uint64_t(memory), C.size_t(count), C.uint64_t(stream), &w, &s, &record)
	return Work(w), uint64(s), failed(code, &record)
}

// Join makes a stream wait.
func (w Work) Join(stream uintptr) error {
	var record C.goccl_error
	return failed(C.fromc_join(C.goccl_work(w), C.uint64_t(stream), &record), &record)
}

// Wait waits for a slice, or for a timeout if that is not negative.
func (w Work) Wait(timeout, slice time.Duration) (done bool, err error) {
	var is C.int
	var record C.goccl_error
	code := C.goccl_work_wait(C.goccl_work(w), C.int64_t(timeout), C.int64_t(slice), &is, &record)
	return is != 0, failed(code, &record)
}

// Look tests the work, or polls it.
func (w Work) Look(poll bool) (done bool, err error) {
	var is, code C.int
	var record C.goccl_error
	if poll {
		code = C.goccl_work_poll(C.goccl_work(w), &is, &record)
	} else {
		code = C.goccl_work_test(C.goccl_work(w), &is, &record)
	}
	return is != 0, failed(code, &record)
}

// Source returns the source of a receive.
func (w Work) Source() (int, error) {
	var source C.int
	var record C.goccl_error
	return int(source), failed(C.goccl_work_source(C.goccl_work(w), &source, &record), &record)
}

// Expedite asks for the end soon.
func (w Work) Expedite() error {
	var record C.goccl_error
	return failed(C.goccl_work_expedite(C.goccl_work(w), &record), &record)
}

// Watch has the work watched.
func (w Work) Watch() error {
	work := C.goccl_work(w)
	var watched, thread C.int
	var record C.goccl_error
	return failed(C.goccl_queue_watch(&work, 1, 0, 1, &watched, &thread, &record), &record)
}

// Free gives the handle back.
func (w Work) Free() error { return failed(C.goccl_work_free(C.goccl_work(w)), new(C.goccl_error)) }

// Start starts a barrier on the host.
func (r *Rank) Start() (Work, error) {
	var w C.goccl_work
	var s C.uint64_t
	var record C.goccl_error
	call := C.goccl_call{coll: C.GOCCL_BARRIER, timeout_ns: C.GOCCL_NO_TIMEOUT_GIVEN}
	code := C.goccl_start(r.group, &call, &w, &s, &record)
	return Work(w), failed(code, &record)
}

// Abort ends all operations.
func (r *Rank) Abort() error {
	var record C.goccl_error
	return failed(C.goccl_group_abort(r.group, nil, &record), &record)
}
