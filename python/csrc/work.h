#pragma once

#include <atomic>

#include <torch/csrc/distributed/c10d/Work.hpp>

#include "library.h"
#include "request.h"

namespace goccl {

// Whether the core is done with all of these, well or badly; if so and error is not null, *error is the first failure.
// ask is lib.work_test, or lib.work_poll, which works for it.
bool all_ended(const c10::SmallVectorImpl<goccl_work>& works, decltype(lib.work_test) ask, const char* title, std::exception_ptr* error);

// One operation of torch: one of the core, or several (the coalesced forms).
//
// An operation ends for torch in settle, exactly once, on whichever thread first sees that the core is done: one in wait or
// isCompleted, or the completer. A Work that is destroyed before that leaves its memory with the completer, so
// that the core never writes to freed memory.
class GocclWork final : public c10d::Work {
 public:
  GocclWork(int rank, const Kind& kind, goccl_group group, Held&& held, at::TensorList inputs);
  ~GocclWork() override;

  // Starts the calls, before the Work is handed out. What the core does at once has ended then for torch too.
  void start(Request* requests, size_t count);
  // Whether the core is done. Unlike isCompleted it runs no code of others and takes no lock.
  bool ended() const { return done() || all_ended(held_.works, lib.work_test, kind_.title, nullptr); }

  bool isCompleted() override;
  bool isSuccess() const override { return done() && !exception_; }
  std::exception_ptr exception() const override { return done() ? exception_ : nullptr; }
  int sourceRank() const override;
  std::vector<at::Tensor> result() override { return {held_.outputs.begin(), held_.outputs.end()}; }
  void synchronize() override {} // a finished operation on CPU tensors has nothing left to order
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void abort() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  uint64_t getSequencenumber() const override { return seq_; }

 private:
  bool done() const { return done_.load(std::memory_order_acquire); }
  void settle(std::exception_ptr error);
  void complete(c10::ivalue::Future& future);

  const Kind& kind_;
  const goccl_group group_;
  Held held_;
  uint64_t seq_ = 0; // of the last call
  // Set last by settle, after exception_ and the results; both never change afterwards.
  std::atomic<bool> done_{false};
  c10::intrusive_ptr<c10::ivalue::Future> future_; // guarded by mutex_
};

} // namespace goccl
