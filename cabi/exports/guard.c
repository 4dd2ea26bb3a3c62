// The functions of goccl.h. A forked child has one thread and a copy of the Go runtime that waits for
// threads which no longer exist; entering it would hang. So every function checks here, in C, before
// it enters Go. A child also closes its copies of the sockets: while it holds them, the peers' kernels
// do not learn that its parent has died.
#include "_cgo_export.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "guard.h"

static volatile int forked;

// A bit for each descriptor that a child closes. Larger numbers have none; few processes have them.
enum { kMostTracked = 1 << 20 };
static _Atomic uint64_t tracked[kMostTracked / 64];
static _Atomic int tracked_end; // no word from here on has had a bit

void goccl_track(int fd, int open) {
  if (fd < 0 || fd >= kMostTracked) return;
  const uint64_t bit = UINT64_C(1) << fd % 64;
  if (!open) {
    atomic_fetch_and(&tracked[fd / 64], ~bit);
    return;
  }
  atomic_fetch_or(&tracked[fd / 64], bit);
  int end = atomic_load(&tracked_end);
  while (end <= fd / 64 && !atomic_compare_exchange_weak(&tracked_end, &end, fd / 64 + 1)) {
  }
}

// Called in the child before fork returns there. It may only do what a signal handler may.
static void in_child(void) {
  forked = 1;
  goccl_forget_signal();
  const int end = atomic_load(&tracked_end);
  for (int i = 0; i < end; i++) {
    // The bits go: a child of this child has other descriptors with these numbers.
    for (uint64_t word = atomic_exchange(&tracked[i], 0); word != 0; word &= word - 1)
      close(64 * i + __builtin_ctzll(word));
  }
}

__attribute__((constructor)) static void watch_forks(void) { pthread_atfork(0, 0, in_child); }

static int refuse(goccl_error* error) {
  if (error) {
    error->code = GOCCL_FORKED;
    error->peer = -1;
    strncpy(error->text,
            "goccl: forked: this process is a fork of one that uses goccl, and cannot use it itself; start processes "
            "that communicate by spawn or forkserver, or fork before the first process group",
            sizeof error->text - 1);
    error->text[sizeof error->text - 1] = 0;
  }
  return GOCCL_FORKED;
}

#define GUARD(error) \
  if (forked) return refuse(error)

int goccl_version(char* buf, size_t cap) {
  GUARD(0);
  return goccl_go_version(buf, cap);
}

int goccl_group_open(const goccl_group_options* options, goccl_group* group, void* buf, size_t cap, size_t* len,
                     goccl_error* error) {
  GUARD(error);
  return goccl_go_group_open((goccl_group_options*)options, group, buf, cap, len, error);
}

int goccl_group_join(goccl_group group, const void* const* addresses, const size_t* lengths, int n, int64_t slice_ns,
                     goccl_work* work, goccl_error* error) {
  GUARD(error);
  return goccl_go_group_join(group, (void**)addresses, (size_t*)lengths, n, slice_ns, work, error);
}

int goccl_meeting_open(const goccl_meeting_options* options, goccl_meeting* meeting, goccl_error* error) {
  GUARD(error);
  return goccl_go_meeting_open((goccl_meeting_options*)options, meeting, error);
}

int goccl_meeting_step(goccl_meeting meeting, int64_t number, const void* const* values, const size_t* lengths,
                       size_t n, goccl_meeting_request* request, void* buf, size_t cap, goccl_error* error) {
  GUARD(error);
  return goccl_go_meeting_step(meeting, number, (void**)values, (size_t*)lengths, n, request, buf, cap, error);
}

int goccl_meeting_interrupt(goccl_meeting meeting, const char* why, goccl_meeting_request* request, void* buf,
                            size_t cap, goccl_error* error) {
  GUARD(error);
  return goccl_go_meeting_interrupt(meeting, (char*)why, request, buf, cap, error);
}

int goccl_meeting_join(goccl_meeting meeting, goccl_group group, int64_t slice_ns, goccl_work* work,
                       goccl_error* error) {
  GUARD(error);
  return goccl_go_meeting_join(meeting, group, slice_ns, work, error);
}

int goccl_meeting_free(goccl_meeting meeting) {
  GUARD(0);
  return goccl_go_meeting_free(meeting);
}

int goccl_run(goccl_group group, const goccl_call* call, int64_t slice_ns, goccl_work* work, goccl_error* error) {
  GUARD(error);
  return goccl_go_run(group, (goccl_call*)call, slice_ns, work, error);
}

int goccl_start(goccl_group group, const goccl_call* call, goccl_work* work, uint64_t* seq, goccl_error* error) {
  GUARD(error);
  return goccl_go_start(group, (goccl_call*)call, work, seq, error);
}

int goccl_enqueue(goccl_group group, const goccl_call* call, void* stream, goccl_work* work, uint64_t* seq,
                  goccl_error* error) {
  GUARD(error);
  return goccl_go_enqueue(group, (goccl_call*)call, stream, work, seq, error);
}

int goccl_work_join(goccl_work work, void* stream, goccl_error* error) {
  GUARD(error);
  return goccl_go_work_join(work, stream, error);
}

int goccl_group_sparse_all_reduce(goccl_group group, const goccl_sparse* tensor, goccl_work* work, uint64_t* seq,
                                  goccl_error* error) {
  GUARD(error);
  return goccl_go_group_sparse_all_reduce(group, (goccl_sparse*)tensor, work, seq, error);
}

int goccl_work_sparse(goccl_work work, uint64_t* count, int64_t* indices, void* values, goccl_error* error) {
  GUARD(error);
  return goccl_go_work_sparse(work, count, indices, values, error);
}

int goccl_work_wait(goccl_work work, int64_t timeout_ns, int64_t slice_ns, int* done, goccl_error* error) {
  GUARD(error);
  return goccl_go_work_wait(work, timeout_ns, slice_ns, done, error);
}

int goccl_work_test(goccl_work work, int* done, goccl_error* error) {
  GUARD(error);
  return goccl_go_work_test(work, done, error);
}

int goccl_work_poll(goccl_work work, int* done, goccl_error* error) {
  GUARD(error);
  return goccl_go_work_poll(work, done, error);
}

int goccl_work_expedite(goccl_work work, goccl_error* error) {
  GUARD(error);
  return goccl_go_work_expedite(work, error);
}

int goccl_work_source(goccl_work work, int* source, goccl_error* error) {
  GUARD(error);
  return goccl_go_work_source(work, source, error);
}

int goccl_work_free(goccl_work work) {
  GUARD(0);
  return goccl_go_work_free(work);
}

int goccl_work_free_all(const goccl_work* works, size_t n) {
  GUARD(0);
  return goccl_go_work_free_all((goccl_work*)works, n);
}

int goccl_queue_watch(const goccl_work* works, size_t n, int urgent, uint64_t token, int* watched, int* thread,
                      goccl_error* error) {
  GUARD(error);
  return goccl_go_queue_watch((goccl_work*)works, n, urgent, token, watched, thread, error);
}

int goccl_queue_next(uint64_t* token, int* thread) {
  GUARD(0);
  return goccl_go_queue_next(token, thread);
}

int goccl_queue_settle(uint64_t own, int hooks, int64_t timeout_ns, int* settled) {
  GUARD(0);
  return goccl_go_queue_settle(own, hooks, timeout_ns, settled);
}

int goccl_queue_stop(int64_t timeout_ns) {
  GUARD(0);
  return goccl_go_queue_stop(timeout_ns);
}

int goccl_alloc(const char* options, size_t bytes, void** memory, goccl_error* error) {
  GUARD(error);
  return goccl_go_alloc((char*)options, bytes, memory, error);
}

int goccl_free(void* memory, goccl_error* error) {
  GUARD(error);
  return goccl_go_free(memory, error);
}

int goccl_device_arena(const char* options, const char* device, uint64_t* bytes, goccl_error* error) {
  GUARD(error);
  return goccl_go_device_arena((char*)options, (char*)device, bytes, error);
}

void* goccl_device_alloc(intptr_t bytes, int device, void* stream) {
  uintptr_t memory = 0;
  if (forked || goccl_go_device_alloc(bytes, device, &memory) != GOCCL_OK) return NULL;
  return (void*)memory;
}

void goccl_device_free(void* memory, intptr_t bytes, int device, void* stream) {
  if (!forked && memory != NULL) goccl_go_device_free((uintptr_t)memory, device, stream);
}

int goccl_memory_stats(uint64_t* bytes, uint64_t* peak, uint64_t* blocks) {
  GUARD(0);
  return goccl_go_memory_stats(bytes, peak, blocks);
}

int goccl_group_state_of(goccl_group group, goccl_group_state* state, goccl_error* error) {
  GUARD(error);
  return goccl_go_group_state(group, state, error);
}

int goccl_group_become(goccl_group group, goccl_group next, goccl_error* error) {
  GUARD(error);
  return goccl_go_group_become(group, next, error);
}

int goccl_group_set_timeout(goccl_group group, int64_t timeout_ns, goccl_error* error) {
  GUARD(error);
  return goccl_go_group_set_timeout(group, timeout_ns, error);
}

int goccl_group_describe(goccl_group group, const char* description, const uint64_t* global_ranks, size_t n,
                         goccl_error* error) {
  GUARD(error);
  return goccl_go_group_describe(group, (char*)description, (uint64_t*)global_ranks, n, error);
}

int goccl_group_batch(goccl_group group, uint32_t batch, goccl_error* error) {
  GUARD(error);
  return goccl_go_group_batch(group, batch, error);
}

int goccl_trace(const char* path, void* buf, size_t cap, size_t* len, goccl_error* error) {
  GUARD(error);
  return goccl_go_trace((char*)path, buf, cap, len, error);
}

int goccl_group_record_to(goccl_group group, const char* path, goccl_error* error) {
  GUARD(error);
  return goccl_go_group_record_to(group, (char*)path, error);
}

int goccl_group_monitored_barrier(goccl_group group, int64_t timeout_ns, int all_ranks, int64_t slice_ns,
                                  goccl_work* work, goccl_error* error) {
  GUARD(error);
  return goccl_go_group_monitored_barrier(group, timeout_ns, all_ranks, slice_ns, work, error);
}

int goccl_group_abort(goccl_group group, const char* reason, goccl_error* error) {
  GUARD(error);
  return goccl_go_group_abort(group, (char*)reason, error);
}

int goccl_group_drain(goccl_group group, int64_t at_most_ns, int* done, goccl_error* error) {
  GUARD(error);
  return goccl_go_group_drain(group, at_most_ns, done, error);
}

int goccl_group_lost(goccl_group group, char* buf, size_t cap, size_t* len, goccl_error* error) {
  GUARD(error);
  return goccl_go_group_lost(group, buf, cap, len, error);
}

int goccl_group_shrink(goccl_group group, const int32_t* without, size_t n, int32_t quorum, int64_t timeout_ns,
                       goccl_group* next, int64_t slice_ns, goccl_work* work, goccl_error* error) {
  GUARD(error);
  return goccl_go_group_shrink(group, (int32_t*)without, n, quorum, timeout_ns, next, slice_ns, work, error);
}

int goccl_group_address(goccl_group group, char* buf, size_t cap, size_t* len, goccl_error* error) {
  GUARD(error);
  return goccl_go_group_address(group, buf, cap, len, error);
}

int goccl_group_grow(goccl_group group, int32_t newcomers, int64_t wait_ns, int64_t timeout_ns, goccl_group* next,
                     int64_t slice_ns, goccl_work* work, goccl_error* error) {
  GUARD(error);
  return goccl_go_group_grow(group, newcomers, wait_ns, timeout_ns, next, slice_ns, work, error);
}

int goccl_group_come(const goccl_group_options* options, const char* address, goccl_group* group, int64_t slice_ns,
                     goccl_work* work, goccl_error* error) {
  GUARD(error);
  return goccl_go_group_come((goccl_group_options*)options, (char*)address, group, slice_ns, work, error);
}

int goccl_group_members(goccl_group group, int32_t* ranks, size_t cap, size_t* n, goccl_error* error) {
  GUARD(error);
  return goccl_go_group_members(group, ranks, cap, n, error);
}

int goccl_group_locate(goccl_group group, int rank, char* buf, size_t cap, size_t* len, goccl_error* error) {
  GUARD(error);
  return goccl_go_group_locate(group, rank, buf, cap, len, error);
}

int goccl_group_close(goccl_group group, goccl_error* error) {
  GUARD(error);
  return goccl_go_group_close(group, error);
}

int goccl_group_free(goccl_group group) {
  GUARD(0);
  return goccl_go_group_free(group);
}
