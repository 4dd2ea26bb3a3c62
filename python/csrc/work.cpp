#include "work.h"

#include <ATen/record_function.h>
#include <c10/util/Logging.h>

#include "completer.h"

namespace goccl {

bool all_ended(const c10::SmallVectorImpl<goccl_work>& works, decltype(lib.work_test) ask, const char* title, std::exception_ptr* error) {
  for (goccl_work work : works) {
    Failure failure;
    int done = 0;
    const int rc = ask(work, &done, &failure);
    if (rc == GOCCL_OK && done == 0) return false;
    if (rc != GOCCL_OK && error != nullptr && !*error) *error = as_exception(rc, failure, title);
  }
  return true;
}

// Making the profiler's event costs allocations: only when somebody listens.
GocclWork::GocclWork(int rank, const Kind& kind, goccl_group group, Held&& held, at::TensorList inputs)
    : Work(rank, kind.type, C10_UNLIKELY(at::hasCallbacks()) ? kind.title : nullptr,
           C10_UNLIKELY(at::hasCallbacks()) && !inputs.empty() ? std::make_optional(inputs.vec()) : std::nullopt),
      kind_(kind), group_(group), held_(std::move(held)) {}

GocclWork::~GocclWork() {
  if (forked() || held_.works.empty()) return; // in a fork the handles belong to the parent
  if (!done()) completer::adopt(std::move(held_)); // and leaves nothing here
  for (goccl_work work : held_.works) give_back(work);
}

void GocclWork::start(Request* requests, size_t count) {
  for (size_t i = 0; i < count; i++) {
    Failure failure;
    goccl_work work = 0;
    check(lib.start(group_, &requests[i].finish(), &work, &seq_, &failure), failure, kind_.title);
    if (work != 0) held_.works.push_back(work);
  }
  if (held_.works.empty()) settle(nullptr);
}

void GocclWork::settle(std::exception_ptr error) {
  std::function<void()> profiled;
  c10::intrusive_ptr<c10::ivalue::Future> future;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (completed_) return;
    try {
      if (!error) held_.copy_back();
    } catch (...) {
      error = std::current_exception();
    }
    exception_ = std::move(error);
    completed_ = true;
    profiled.swap(recordFunctionEndCallback_);
    future = future_;
    done_.store(true, std::memory_order_release);
  }
  // Both run code of others: not under the lock.
  if (profiled) profiled();
  if (future) complete(*future);
}

void GocclWork::complete(c10::ivalue::Future& future) {
  try {
    exception_ ? future.setError(exception_) : future.markCompleted(c10::IValue(result()));
  } catch (const std::exception& e) {
    // From a callback; the operation itself has ended, and whoever waits for it must not get this.
    LOG(ERROR) << kind_.title << ": a callback of the operation's future failed: " << e.what();
  }
}

bool GocclWork::isCompleted() {
  if (done()) return true;
  check_not_forked(kind_.title);
  std::exception_ptr error;
  if (!all_ended(held_.works, lib.work_poll, kind_.title, &error)) return false;
  settle(error);
  return true;
}

int GocclWork::sourceRank() const {
  TORCH_CHECK(kind_.coll == GOCCL_RECV && !held_.works.empty(), kind_.title, ": only a receive has a source rank");
  check_not_forked(kind_.title);
  Failure failure;
  int source = -1;
  check(lib.work_source(held_.works.front(), &source, &failure), failure, kind_.title);
  return source;
}

bool GocclWork::wait(std::chrono::milliseconds timeout) {
  if (!done()) {
    check_not_forked(kind_.title);
    const bool limited = timeout.count() > 0; // kNoTimeout is 0, kUnsetTimeout -1
    using Clock = std::chrono::steady_clock;
    const auto deadline = limited ? Clock::now() + timeout : Clock::time_point();
    std::exception_ptr error;
    // All of them, even after a failure: until then the core may use the memory.
    for (goccl_work work : held_.works) {
      const int64_t left = limited ? std::max<int64_t>(std::chrono::nanoseconds(deadline - Clock::now()).count(), 1) : -1;
      Failure failure;
      const int rc = lib.work_wait(work, left, &failure);
      if (rc != GOCCL_OK && !error) error = as_exception(rc, failure, kind_.title);
    }
    settle(error);
  }
  if (C10_UNLIKELY(exception_ != nullptr)) std::rethrow_exception(exception_);
  return true;
}

void GocclWork::abort() {
  check_not_forked(kind_.title);
  if (done()) return;
  Failure failure;
  const int rc = lib.group_abort(group_, c10::str("Work.abort() was called for ", kind_.title).c_str(), &failure);
  if (rc != GOCCL_CLOSED && rc != GOCCL_INVALID) check(rc, failure, kind_.title); // those: the group is gone already
}

c10::intrusive_ptr<c10::ivalue::Future> GocclWork::getFuture() {
  c10::intrusive_ptr<c10::ivalue::Future> future;
  bool done = false;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (future_) return future_;
    future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::ofTensors());
    future = future_;
    done = completed_;
  }
  if (done) {
    complete(*future);
    return future;
  }
  check_not_forked(kind_.title);
  // Held by the completer from here on, so that the future is completed even if the caller drops this Work.
  if (!completer::watch(c10::intrusive_ptr<GocclWork>::reclaim_copy(this))) {
    isCompleted();
    return future;
  }
  // Whoever waits for a future, or for what follows it, sleeps, and works for nothing.
  for (goccl_work work : held_.works) {
    Failure failure;
    check(lib.work_urge(work, &failure), failure, kind_.title);
  }
  return future;
}

} // namespace goccl
