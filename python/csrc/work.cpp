#include "work.h"

#include <ATen/record_function.h>
#include <c10/util/Logging.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "completer.h"
#include "observers.h"

namespace goccl {
namespace {

c10d::WorkResult as_result(int code) {
  switch (code) {
    case GOCCL_OK: return c10d::WorkResult::SUCCESS;
    case GOCCL_TIMEOUT: return c10d::WorkResult::TIMEOUT;
    case GOCCL_INTERNAL: return c10d::WorkResult::UNKNOWN;
    default: return c10d::WorkResult::COMM_ERROR;
  }
}

} // namespace

void Outcome::add(int rc, const goccl_error& failure, const char* title) {
  if (rc != GOCCL_OK && !error) error = as_exception(rc, failure, title), code = rc;
}

bool all_ended(const c10::SmallVectorImpl<goccl_work>& works, decltype(lib.work_test) ask, const char* title, Outcome* outcome) {
  for (goccl_work work : works) {
    Failure failure;
    int done = 0;
    const int rc = ask(work, &done, &failure);
    if (rc == GOCCL_OK && done == 0) return false;
    if (outcome != nullptr) outcome->add(rc, failure, title);
  }
  return true;
}

// Making the profiler's event costs allocations: only when somebody listens.
EndingWork::EndingWork(const Origin& origin, const Kind& kind, at::TensorList inputs)
    : Work(origin.rank, kind.type, C10_UNLIKELY(at::hasCallbacks()) ? kind.title : nullptr,
           C10_UNLIKELY(at::hasCallbacks()) && !inputs.empty() ? std::make_optional(inputs.vec()) : std::nullopt),
      origin_(origin), kind_(kind), completion_key_(origin.watch ? origin.watch->key : 0), begun_(origin.timed ? Clock::now() : Clock::time_point()) {}

void EndingWork::settle(Outcome outcome) {
  std::function<void()> profiled;
  FuturePtr value, result;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (completed_) return;
    try {
      if (!outcome.failed()) deliver();
    } catch (...) {
      outcome = {std::current_exception(), GOCCL_INTERNAL};
    }
    if (origin_.timed) ended_ = Clock::now();
    code_ = outcome.code;
    exception_ = std::move(outcome.error);
    completed_ = true;
    profiled.swap(recordFunctionEndCallback_);
    value = value_;
    result = result_;
    done_.store(true, std::memory_order_release);
  }
  cv_.notify_all();
  // These run code of others: not under the lock.
  if (C10_UNLIKELY(exception_ != nullptr)) note_failure(origin_.group, exception_);
  if (C10_UNLIKELY(origin_.watch != nullptr)) {
    origin_.watch->seq = seq_;
    origin_.watch->ended(!exception_);
  }
  if (profiled) profiled();
  if (value) complete(*value, true);
  if (result) complete(*result, false);
}

void EndingWork::settle_at_once() {
  if (C10_UNLIKELY(origin_.watch != nullptr || origin_.timed || recordFunctionEndCallback_)) return settle({});
  completed_ = true;
  done_.store(true, std::memory_order_release);
}

void EndingWork::complete(c10::ivalue::Future& future, bool with_tensors) {
  try {
    if (!with_tensors) {
      future.markCompleted(c10::IValue(static_cast<int64_t>(as_result(code_))));
    } else {
      exception_ ? future.setError(exception_) : future.markCompleted(c10::IValue(this->result()));
    }
  } catch (const std::exception& e) {
    // From a callback; the operation itself has ended, and whoever waits for it must not get this.
    LOG(ERROR) << kind_.title << ": a callback of the operation's future failed: " << e.what();
  }
}

EndingWork::FuturePtr EndingWork::future(FuturePtr& slot, const c10::TypePtr& type) {
  FuturePtr future;
  bool ended = false, first = false;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (slot) return slot;
    slot = future = c10::make_intrusive<c10::ivalue::Future>(type);
    ended = completed_;
    if (!ended) first = !std::exchange(pursued_, true);
  }
  if (ended) complete(*future, &slot == &value_);
  if (first) check_not_forked(*this), pursue();
  return future;
}

c10::intrusive_ptr<c10::ivalue::Future> EndingWork::getFuture() { return future(value_, c10::ListType::ofTensors()); }

c10::intrusive_ptr<c10::ivalue::Future> EndingWork::getFutureResult() { return future(result_, c10::IntType::get()); }

float EndingWork::getDuration() const {
  TORCH_CHECK(origin_.timed, kind_.title, ": getDuration works only for operations that were called after "
              "enableCollectivesTiming (in Python: group._enable_collectives_timing())");
  TORCH_CHECK(done(), kind_.title, ": getDuration works only for operations that have ended");
  return std::chrono::duration<float, std::milli>(ended_ - begun_).count();
}

// Within allow_inflight_collective_as_graph_input_ctx torch keeps Works for wait_tensor, until they are waited for.
void EndingWork::synchronize() {
  if (c10::raw::intrusive_ptr::use_count(this) == 1) return; // nobody keeps it but the caller; the question below takes a lock
  if (C10_UNLIKELY(c10d::allow_inflight_collective_as_graph_input())) {
    c10d::unregister_work(c10::intrusive_ptr<EndingWork>::reclaim_copy(this));
  }
}

bool EndingWork::waited() {
  synchronize();
  if (C10_UNLIKELY(exception_ != nullptr)) std::rethrow_exception(exception_);
  return true;
}

void EndingWork::abort() {
  check_not_forked(*this);
  if (done()) return;
  Failure failure;
  const int rc = lib.group_abort(origin_.group, c10::str("Work.abort() was called for ", kind_.title).c_str(), &failure);
  if (rc != GOCCL_CLOSED && rc != GOCCL_INVALID) check(rc, failure, kind_.title); // those: the group is gone already
}

GocclWork::~GocclWork() {
  if (forked() || held_.works.empty()) return; // in a fork the handles belong to the parent
  if (!done()) {
    held_.watch = origin_.watch;
    completer::adopt(std::move(held_)); // and leaves nothing here
  }
  for (goccl_work work : held_.works) give_back(work);
}

void GocclWork::start(Request* requests, size_t count) {
  source_ = requests[0].call.root;
  for (size_t i = 0; i < count; i++) {
    Failure failure;
    goccl_work work = 0;
    const int rc = lib.start(origin_.group, &requests[i].finish(), &work, &seq_, &failure);
    if (C10_UNLIKELY(rc != GOCCL_OK)) fail_in(origin_.group, as_exception(rc, failure, kind_.title));
    if (work != 0) held_.works.push_back(work);
  }
  if (C10_UNLIKELY(origin_.watch != nullptr)) origin_.watch->seq = seq_;
  if (held_.works.empty()) return held_.copies.empty() ? settle_at_once() : settle({});
  // Its end has to be seen when it comes.
  if (C10_UNLIKELY(origin_.timed)) getFutureResult();
}

bool GocclWork::isCompleted() {
  if (done()) return true;
  check_not_forked(*this);
  Outcome outcome;
  if (!all_ended(held_.works, lib.work_poll, kind_.title, &outcome)) return false;
  settle(std::move(outcome));
  return true;
}

int GocclWork::sourceRank() const {
  TORCH_CHECK(kind_.coll == GOCCL_RECV, kind_.title, ": only a receive has a source rank");
  check_not_forked(*this);
  if (source_ != GOCCL_ANY_SOURCE) return source_;
  Failure failure;
  int source = -1;
  check(lib.work_source(held_.works.front(), &source, &failure), failure, kind_.title);
  return source;
}

bool GocclWork::wait(std::chrono::milliseconds timeout) {
  if (!done()) {
    check_not_forked(*this);
    const bool limited = timeout.count() > 0; // kNoTimeout is 0, kUnsetTimeout -1
    using Clock = std::chrono::steady_clock;
    const auto deadline = limited ? Clock::now() + timeout : Clock::time_point();
    Outcome outcome;
    // All of them, even after a failure: until then the core may use the memory.
    for (goccl_work work : held_.works) {
      const int64_t left = limited ? std::max<int64_t>(std::chrono::nanoseconds(deadline - Clock::now()).count(), 1) : -1;
      Failure failure;
      outcome.add(lib.work_wait(work, left, &failure), failure, kind_.title);
    }
    settle(std::move(outcome));
  }
  return waited();
}

void GocclWork::pursue() {
  // Held by the completer from here on, so that the futures are completed even if the caller drops this Work.
  if (!completer::watch(c10::intrusive_ptr<GocclWork>::reclaim_copy(this))) {
    isCompleted();
    return;
  }
  // Whoever waits for a future, or for what follows it, sleeps, and works for nothing.
  for (goccl_work work : held_.works) {
    Failure failure;
    check(lib.work_urge(work, &failure), failure, kind_.title);
  }
}

} // namespace goccl
