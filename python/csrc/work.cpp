#include "work.h"

#include <ATen/record_function.h>
#include <c10/core/StreamGuard.h>
#include <c10/util/Logging.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "helper.h"

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

// Ends an operation whose Work was dropped, so nobody is left to receive its outcome.
void finish_dropped(Held* held) {
  bool well = true; // without the text of a failure, which would take longer than the rest
  for (goccl_work work : held->works) {
    int done = 0;
    well = lib.work_poll(work, &done, nullptr) == GOCCL_OK && well;
  }
  try {
    if (well) held->copy_back();
  } catch (const std::exception& e) {
    LOG(WARNING) << "goccl: the result of a dropped operation could not be copied to its tensor: " << e.what();
  }
  free_works(held->works);
  delete held;
}

} // namespace

void Outcome::add(int rc, const goccl_error& failure, const char* title) {
  if (rc != GOCCL_OK && !error) error = as_exception(rc, failure, title), code = rc;
}

bool all_ended(const c10::SmallVectorImpl<goccl_work>& works, const char* title, Outcome& outcome) {
  for (goccl_work work : works) {
    Failure failure;
    int done = 0;
    const int rc = lib.work_poll(work, &done, &failure);
    if (rc == GOCCL_OK && done == 0) return false;
    outcome.add(rc, failure, title);
  }
  return true;
}

// The profiler's event costs allocations, so it is made only if a profiler is active.
EndingWork::EndingWork(Origin origin, at::TensorList inputs)
    : Work(origin.rank, origin.kind.type, C10_UNLIKELY(at::hasCallbacks()) ? origin.kind.title : nullptr,
           C10_UNLIKELY(at::hasCallbacks()) && !inputs.empty() ? std::make_optional(inputs.vec()) : std::nullopt),
      origin_(std::move(origin)), completion_key_(origin_.watch ? origin_.watch->key : 0),
      begun_(origin_.timed ? Clock::now() : Clock::time_point()) {}

void EndingWork::settle(Outcome outcome) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (completed_) return;
  try {
    if (!outcome.error) deliver();
  } catch (...) {
    outcome = {std::current_exception(), GOCCL_INTERNAL};
  }
  if (origin_.timed) ended_ = Clock::now();
  code_ = outcome.code;
  exception_ = std::move(outcome.error);
  completed_ = true;
  const auto profiled = std::exchange(recordFunctionEndCallback_, nullptr);
  const FuturePtr value = value_, result = result_;
  done_.store(true, std::memory_order_release);
  lock.unlock();
  cv_.notify_all();
  // These run code of others, so not under the lock.
  if (C10_UNLIKELY(exception_ != nullptr)) origin_.observers->failed(exception_);
  if (C10_UNLIKELY(origin_.watch != nullptr)) origin_.watch->ended(!exception_);
  if (profiled) profiled();
  if (value && !value->completed()) complete(*value, true);
  if (result) complete(*result, false);
}

void EndingWork::called(bool in_order) {
  if (C10_LIKELY(origin_.watch == nullptr)) return;
  const bool collective = origin_.kind.coll >= GOCCL_BROADCAST && origin_.kind.coll <= GOCCL_BARRIER;
  origin_.watch->called(seq_, collective ? origin_.group : 0, in_order);
}

void EndingWork::settle_at_once() {
  if (C10_UNLIKELY(origin_.watch != nullptr || origin_.timed || recordFunctionEndCallback_)) return settle({});
  completed_ = true;
  done_.store(true, std::memory_order_release);
}

void EndingWork::complete(c10::ivalue::Future& future, bool with_tensors) {
  const Callback unseen(nullptr); // those of goccl._futures.Future know better
  try {
    if (!with_tensors) {
      future.markCompleted(c10::IValue(static_cast<int64_t>(as_result(code_))));
    } else {
      const auto* several = lists();
      exception() ? future.setError(exception())
                  : future.markCompleted(several ? c10::IValue(*several) : c10::IValue(outputs()));
    }
  } catch (const std::exception& e) {
    // The exception is a callback's. The operation itself has ended, and threads that wait for it
    // must not get this exception.
    LOG(ERROR) << origin_.kind.title << ": a callback of the operation's future failed: " << e.what();
  }
}

std::vector<at::Tensor> EndingWork::result() {
  TORCH_CHECK(lists() == nullptr, origin_.kind.title, ": result() cannot return the several lists of tensors that the ",
              "call was given; get_future().value() has them");
  return outputs();
}

EndingWork::FuturePtr EndingWork::future(FuturePtr& slot, const c10::TypePtr& type) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (slot) return slot;
  const auto future = c10::make_intrusive<c10::ivalue::Future>(type);
  slot = future;
  const bool ended = completed_;
  lock.unlock();
  // A thread that waits for a future, or for its continuation, sleeps and does not advance the
  // operation.
  ended ? complete(*future, &slot == &value_) : pursue_once(true);
  return future;
}

void EndingWork::pursue_once(bool urgent) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (completed_ || std::exchange(pursued_[urgent], true)) return;
  lock.unlock();
  check_not_forked(*this);
  pursue(urgent);
}

EndingWork::FuturePtr EndingWork::future_on(const c10::Stream& stream) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (value_) return value_;
  value_ = c10::make_intrusive<c10::ivalue::Future>(value_type(), std::vector{stream.device()});
  const auto future = value_;
  lock.unlock();
  const c10::StreamGuard guard(stream);
  complete(*future, true);
  return future;
}

c10::intrusive_ptr<c10::ivalue::Future> EndingWork::getFuture() {
  const auto stream = on_stream();
  return stream ? future_on(*stream) : future(value_, value_type());
}

c10::intrusive_ptr<c10::ivalue::Future> EndingWork::getFutureResult() { return future(result_, c10::IntType::get()); }

LineagePtr EndingWork::lineage() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!lineage_) lineage_ = trace_back();
  return lineage_;
}

float EndingWork::getDuration() const {
  TORCH_CHECK(origin_.timed, origin_.kind.title, ": getDuration works only for operations that were called after "
              "enableCollectivesTiming (in Python: group._enable_collectives_timing())");
  TORCH_CHECK(done(), origin_.kind.title, ": getDuration works only for operations that have ended");
  return std::chrono::duration<float, std::milli>(ended_ - begun_).count();
}

int EndingWork::source_of(int named, const c10::SmallVectorImpl<goccl_work>& works) const {
  TORCH_CHECK(origin_.kind.coll == GOCCL_RECV, origin_.kind.title, ": only a receive has a source rank");
  check_not_forked(*this);
  if (named != GOCCL_ANY_SOURCE) return named;
  int source = -1;
  checked_call(origin_.kind.title, lib.work_source, works.front(), &source);
  return source;
}

// Within allow_inflight_collective_as_graph_input_ctx torch keeps Works for wait_tensor, until they
// are waited for.
void EndingWork::synchronize() {
  // Only the caller keeps this Work; the check below would take a lock.
  if (c10::raw::intrusive_ptr::use_count(this) == 1) return;
  if (C10_UNLIKELY(c10d::allow_inflight_collective_as_graph_input())) {
    c10d::unregister_work(c10::intrusive_ptr<EndingWork>::reclaim_copy(this));
  }
}

Outcome EndingWork::await_all(const c10::SmallVectorImpl<goccl_work>& works, const Limit& limit,
                              std::exception_ptr& interrupt) const {
  Outcome outcome;
  for (goccl_work work : works) {
    Failure failure;
    bool ended = true;
    const int rc = await(work, limit, origin_.group, interrupt, &failure, &ended);
    if (C10_UNLIKELY(rc == GOCCL_TIMEOUT && !ended)) {
      outcome.unended = as_exception(rc, c10::str(failure.text, " (this wait had ", limit.timeout.count(), " ms)"));
      return outcome;
    }
    outcome.add(rc, failure, origin_.kind.title);
  }
  return outcome;
}

bool EndingWork::wait(std::chrono::milliseconds timeout) {
  std::exception_ptr interrupt;
  if (!done()) {
    check_not_forked(*this);
    if (const auto unended = come_to_end(Limit(timeout), interrupt)) std::rethrow_exception(unended);
  }
  synchronize();
  // Another thread may have seen the end, and be about to notify the observers.
  if (C10_UNLIKELY(origin_.watch != nullptr) && done()) origin_.watch->settle();
  const std::exception_ptr error = interrupt ? interrupt : failure();
  if (C10_UNLIKELY(error != nullptr)) std::rethrow_exception(error);
  return true;
}

void EndingWork::abort() {
  check_not_forked(*this);
  if (done()) return;
  Failure failure;
  const int rc = lib.group_abort(origin_.group,
                                 c10::str("Work.abort() was called for ", origin_.kind.title).c_str(), &failure);
  // With these codes the group is gone already.
  if (rc != GOCCL_CLOSED && rc != GOCCL_INVALID) check(rc, failure, origin_.kind.title);
}

GocclWork::~GocclWork() {
  if (forked() || held_.works.empty()) return; // in a fork the handles belong to the parent
  if (leaving()) {
    new Held(std::move(held_)); // kept for good: the library may write there as long as there is a process
    return;
  }
  if (done()) {
    free_works(held_.works);
    return;
  }
  auto* held = new Held(std::move(held_)); // leaked if there is no memory to register its job
  try {
    helper::when_ended(held->works, false, [held] { finish_dropped(held); });
  } catch (const std::exception& e) {
    LOG(ERROR) << "goccl: the memory of a dropped operation is kept for good: " << e.what();
  }
}

void GocclWork::start(Request* requests, size_t count) {
  source_ = requests[0].call.root;
  key_ = requests[count - 1].call.key;
  for (size_t i = 0; i < count; i++) begin(lib.start, requests[i].finish());
  called(true);
  if (held_.works.empty()) return held_.copies.empty() ? settle_at_once() : settle({});
  // Timing needs the end to be seen when it happens.
  if (C10_UNLIKELY(origin_.timed)) getFutureResult();
}

bool GocclWork::isCompleted() {
  if (done()) return true;
  check_not_forked(*this);
  Outcome outcome;
  if (!all_ended(held_.works, origin_.kind.title, outcome)) return false;
  settle(std::move(outcome));
  return true;
}

LineagePtr GocclWork::trace_back() {
  if (origin_.kind.coll == GOCCL_SEND || origin_.kind.coll == GOCCL_RECV)
    return std::make_shared<Lineage>(c10::str("a message (", origin_.kind.title, "), which has no number that all "
                                              "ranks know"));
  return std::make_shared<Lineage>(origin_.observers->members(), mixed(key_, key_ == 0 ? seq_ : 0), seq_);
}

int GocclWork::sourceRank() const { return source_of(source_, held_.works); }

std::exception_ptr GocclWork::come_to_end(const Limit& limit, std::exception_ptr& interrupt) {
  Outcome outcome = await_all(held_.works, limit, interrupt);
  if (outcome.unended) return outcome.unended;
  settle(std::move(outcome));
  return nullptr;
}

void GocclWork::pursue(bool urgent) {
  // The helper keeps this Work from here on, so that the futures are completed even if the caller
  // drops it.
  auto self = c10::intrusive_ptr<GocclWork>::reclaim_copy(this);
  helper::when_ended(held_.works, urgent, [self] { self->isCompleted(); });
}

} // namespace goccl
