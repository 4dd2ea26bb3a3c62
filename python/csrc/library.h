// The functions of libgoccl, found at run time: the extension does not link to it, so importing the
// extension starts no Go runtime. Also the handling around every call of them: failures, forks, the
// GIL, signals.
#pragma once

#include <Python.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <string>

#include <c10/util/ArrayRef.h>
#include <c10/util/Exception.h>
#include <torch/version.h>

#include "goccl.h"

#define GOCCL_FUNCTIONS(X)                                                                                         \
  X(version) X(group_open) X(group_state_of) X(group_become) X(group_set_timeout) X(group_abort)                   \
  X(meeting_open) X(meeting_step) X(meeting_interrupt) X(meeting_join) X(meeting_free)                             \
  X(group_drain) X(group_lost) X(group_shrink) X(group_members) X(group_locate) X(group_close) X(group_free)       \
  X(group_address) X(group_grow) X(group_come)                                                                     \
  X(group_describe) X(group_batch) X(group_record_to) X(group_monitored_barrier) X(group_sparse_all_reduce)        \
  X(trace) X(run) X(start) X(enqueue) X(work_join) X(work_wait) X(work_poll) X(work_source) X(work_sparse)         \
  X(work_free_all) X(queue_watch) X(queue_next) X(queue_settle) X(queue_stop) X(alloc) X(free) X(memory_stats) \
  X(device_arena)

// Whether the headers are of this version of torch or of a later one, for features without a macro
// of their own.
#define GOCCL_TORCH_AT_LEAST(major, minor) \
  (TORCH_VERSION_MAJOR > (major) || (TORCH_VERSION_MAJOR == (major) && TORCH_VERSION_MINOR >= (minor)))

namespace goccl {

struct Library {
#define X(name) decltype(&::goccl_##name) name = nullptr;
  GOCCL_FUNCTIONS(X)
#undef X
};

// Empty until load has returned.
extern Library lib;

// Opens libgoccl by its absolute path, for this extension alone (RTLD_LOCAL), and returns its
// version. Calling it again is harmless. Throws if the file cannot be loaded or lacks a function of
// this ABI.
std::string load(const std::string& path);

// The path of the library that is loaded.
std::string library_path();

// Whether this process is a fork of the one that loaded libgoccl. A Go runtime does not survive
// fork: no function of the library may be called then, and state that the parent left behind must
// not be touched.
bool forked() noexcept;

// Whether destructors leave the library alone: in a fork, and once Python has begun to end. The
// groups were closed before (_stop of _loader.py), and Python takes the signal stack of its main
// thread away, without which a signal of Go's scheduler to that thread ends the process.
bool leaving() noexcept;
[[noreturn]] void fail_forked(const std::string& what);

// Frees works that have ended, several at a time: each call into the core takes
// longer than the work done there.
void free_works(c10::ArrayRef<goccl_work> works);

// A goccl_error that is created without clearing its two kilobytes.
struct Failure : goccl_error {
  Failure() { code = GOCCL_OK, peer = -1, text[0] = '\0'; }
};

// A communication failure; in Python, a torch.distributed.DistBackendError. (If a peer or the store
// cannot be reached while a group is made, the failure is a c10::DistNetworkError, see boot.cpp.)
struct CommunicationError : c10::DistBackendError {
  CommunicationError(c10::SourceLocation where, const std::string& text, int code)
      : c10::DistBackendError(where, text), code(code) {}
  int code; // goccl_code
};

// Communication failures are CommunicationErrors, invalid arguments c10::ValueErrors, and valid but
// unsupported ones c10::NotImplementedErrors. In Python the first and the last are RuntimeErrors.
// Tensors that do not fit are plain RuntimeErrors (GOCCL_CHECK), as with other backends.
std::exception_ptr as_exception(int code, const std::string& text);
std::exception_ptr as_exception(int code, const goccl_error& error, const char* what);

// Throws unless a call of the library succeeded.
inline void check(int code, const goccl_error& error, const char* what) {
  if (C10_UNLIKELY(code != GOCCL_OK)) std::rethrow_exception(as_exception(code, error, what));
}

// Calls a function of the library, whose last parameter is the error; throws unless it succeeds.
template <typename Function, typename... Args>
void checked_call(const char* what, Function function, Args... args) {
  Failure failure;
  check(function(args..., &failure), failure, what);
}

// Python runs the handlers of signals on its main thread only. So the waits of that thread are cut
// into slices, and the handlers run in between. If one of them raises, as the one for Ctrl-C does,
// the group ends on all ranks. The exception, called the interrupt, is thrown once the operation has
// ended: until then the core may use the memory.
extern unsigned long main_thread;
inline int64_t slice_ns() { return PyThread_get_thread_ident() == main_thread ? 50'000'000 : 0; }
// Runs the handlers of signals that came. Returns what one of them raised, or null.
std::exception_ptr raised_by_signals();
// How long a wait may take. Its end is that of the wait alone, never that of the operation.
class Limit {
 public:
  Limit() = default; // for ever
  // As c10d gives it: zero (kNoTimeout) and less mean for ever.
  explicit Limit(std::chrono::milliseconds timeout) : timeout(timeout), given(timeout.count() > 0) {
    if (given) end_ = Clock::now() + timeout;
  }
  // At least 1, or -1 for ever.
  int64_t left_ns() const {
    return given ? std::max<int64_t>(std::chrono::nanoseconds(end_ - Clock::now()).count(), 1) : -1;
  }

  const std::chrono::milliseconds timeout{0};
  const bool given = false;

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point end_;
};

// Waits for a work of the group, and returns its code. interrupt is null, or what an earlier wait has
// set it to. If the limit comes first, *ended is false and the code GOCCL_TIMEOUT: that of the wait.
int await(goccl_work work, const Limit& limit, goccl_group group, std::exception_ptr& interrupt, goccl_error* error,
          bool* ended = nullptr);

// what (and the text) may be anything printable; they are printed only on failure.
template <typename What, typename... Text>
[[noreturn]] void fail(goccl_code code, const What& what, const Text&... text) {
  std::rethrow_exception(as_exception(code, c10::str(what, ": ", text...)));
}

template <typename What>
void check_not_forked(const What& what) {
  if (C10_UNLIKELY(forked())) fail_forked(c10::str(what));
}

// Releases the GIL for a scope, if this thread holds it: for functions that may wait and are called
// from Python and from C++ threads.
class WithoutGil {
 public:
  WithoutGil() : state_(Py_IsInitialized() && PyGILState_Check() ? PyEval_SaveThread() : nullptr) {}
  ~WithoutGil() { if (state_ != nullptr) PyEval_RestoreThread(state_); }
  WithoutGil(const WithoutGil&) = delete;

 private:
  PyThreadState* state_;
};

} // namespace goccl
