#pragma once

#include <optional>

#include <c10/core/Stream.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "observers.h"
#include "request.h"

namespace goccl {

// How an operation ended. If error is not null, it failed with this code; if unended is not null, it
// has not ended, and this is the error of the wait.
struct Outcome {
  std::exception_ptr error;
  int code = GOCCL_OK;
  std::exception_ptr unended;

  // Keeps the first failure.
  void add(int rc, const goccl_error& failure, const char* title);
};

// What a Work knows about its group and call.
struct Origin {
  const Kind& kind;
  int rank;
  goccl_group group;
  std::chrono::milliseconds timeout; // the effective one: the call's own, else the group's
  bool timed;                        // whether getDuration works
  std::shared_ptr<Observers> observers;
  std::shared_ptr<Watch> watch;      // null unless an observer watches the end
};

// Whether the core is done with all of these works, successfully or not; if so, outcome takes the
// first failure. The check also advances them.
bool all_ended(const c10::SmallVectorImpl<goccl_work>& works, const char* title, Outcome& outcome);

// The common part of all Works of this backend: each ends in settle, exactly once, and its futures
// are completed there.
class EndingWork : public c10d::Work {
 public:
  bool watched() const { return origin_.watch != nullptr; }
  // Ensures that its end is seen when it happens, even if no thread waits for it.
  void look_after() { pursue_once(false); }
  // The part of wait that takes time: it settles, or returns the error of a wait that has run out.
  // interrupt: see await.
  virtual std::exception_ptr come_to_end(const Limit& limit, std::exception_ptr& interrupt) = 0;
  // For works whose results are on a device: has a stream of the group wait for them, and returns it;
  // none if they are the host's.
  virtual std::optional<c10::Stream> on_stream() { return std::nullopt; }
  // For messages: "goccl:all_reduce: rank 0, seq 7".
  friend std::ostream& operator<<(std::ostream& out, const EndingWork& work) {
    return out << work.origin_.kind.title << ": rank " << work.origin_.rank << ", seq " << work.seq_;
  }

  // Waits for the operation. If the timeout ends first, it throws, and the operation goes on as if
  // nobody had waited: it keeps its memory, and can be waited for again.
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  // All outputs in one list.
  virtual std::vector<at::Tensor> outputs() const = 0;
  std::vector<at::Tensor> result() override;
  bool isCompleted() override { return done(); }
  bool isSuccess() const override { return done() && !exception_; }
  std::exception_ptr exception() const override { return done() ? exception_ : nullptr; }
  int code() const { return done() ? code_ : GOCCL_OK; }
  // A finished operation on CPU tensors has nothing left to order. torch may keep the Work until
  // this is called.
  void synchronize() override;
  void abort() override;
  // Its value has the outputs in the lists in which the caller gave them. On a device it is complete
  // at once: its callbacks run on streams that wait.
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  // Its value is a c10d::WorkResult as an int; it never has an error, however the operation ends.
  c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override;
  // What all ranks know of its futures; null if their callbacks need nothing (callbacks.h).
  LineagePtr lineage();
  // Whether get_future waits for the end.
  bool futures_wait() const { return origin_.observers->members()->wait; }
  uint64_t getSequencenumber() const override { return seq_; }
  // Milliseconds from the call until its end was seen, with enableCollectivesTiming.
  float getDuration() const override;
#if GOCCL_TORCH_AT_LEAST(2, 15)
  // 0 if no observer watches ends.
  uint64_t getCompletionKey() const override { return completion_key_; }
#endif
  // Overrides torch's method from torch 2.14 on.
  std::chrono::milliseconds getTimeout() const { return origin_.timeout; }

 protected:
  using Clock = std::chrono::steady_clock;

  EndingWork(Origin origin, at::TensorList inputs);

  bool done() const { return done_.load(std::memory_order_acquire); }
  void settle(Outcome outcome);
  // Tells the observers of the calls, when seq_ is known, and whether they end after those before them.
  void called(bool in_order);
  // settle for a Work that has ended successfully, has nothing to deliver, and is known only to its
  // maker: there is no thread to lock out or to wake.
  void settle_at_once();
  // The source rank of a receive that has ended. named is the one that was asked for.
  int source_of(int named, const c10::SmallVectorImpl<goccl_work>& works) const;
  // Waits for all of these works, even after a failure: until they end, the core may use the memory.
  // interrupt: see await.
  Outcome await_all(const c10::SmallVectorImpl<goccl_work>& works, const Limit& limit,
                    std::exception_ptr& interrupt) const;
  // The failure that wait throws.
  virtual std::exception_ptr failure() const { return exception(); }
  // Ensures that settle is called although no thread waits; urgent if a thread may sleep until
  // then. Called at most once for each value of urgent.
  virtual void pursue(bool urgent) = 0;
  // Writes the results to the user's tensors.
  virtual void deliver() {}
  // The outputs as the caller gave them, if that is several lists; else null.
  virtual const std::vector<std::vector<at::Tensor>>* lists() const { return nullptr; }
  // Makes the lineage.
  virtual LineagePtr trace_back() = 0;

  const Origin origin_;
  uint64_t seq_ = 0; // of the last call to the core; set before called and settle

 private:
  using FuturePtr = c10::intrusive_ptr<c10::ivalue::Future>;

  c10::TypePtr value_type() const {
    return lists() ? c10::ListType::create(c10::ListType::ofTensors()) : c10::ListType::ofTensors();
  }
  FuturePtr future(FuturePtr& slot, const c10::TypePtr& type);
  FuturePtr future_on(const c10::Stream& stream);
  void complete(c10::ivalue::Future& future, bool with_tensors);
  void pursue_once(bool urgent);

  const uint64_t completion_key_; // of its watch
  const Clock::time_point begun_;
  Clock::time_point ended_;
  int code_ = GOCCL_OK;
  // Set last by settle, after exception_ and the results, which never change afterwards.
  std::atomic<bool> done_{false};
  // Indexed by urgent; guarded by mutex_, as are value_ and result_.
  bool pursued_[2] = {false, false};
  FuturePtr value_, result_;
  LineagePtr lineage_; // guarded by mutex_
};

// One operation of torch: one operation of the core, or several (the coalesced forms).
//
// It ends for torch on the thread that first sees that the core is done: a thread in wait or
// isCompleted, or a helper. A Work that is destroyed before that leaves its memory with the helper,
// so that the core never writes to freed memory.
class GocclWork : public EndingWork {
 public:
  GocclWork(Origin origin, Held&& held, at::TensorList inputs)
      : EndingWork(std::move(origin), inputs), held_(std::move(held)) {}
  ~GocclWork() override;

  // Starts the calls, before the Work is handed out. Operations that the core completes at once
  // have then ended for torch too.
  void start(Request* requests, size_t count);

  bool isCompleted() override;
  int sourceRank() const override;
  std::vector<at::Tensor> outputs() const override { return {held_.outputs.begin(), held_.outputs.end()}; }

 protected:
  // Starts one call of the core.
  template <typename Call>
  void begin(int (*start)(goccl_group, const Call*, goccl_work*, uint64_t*, goccl_error*), const Call& call) {
    goccl_work work = 0;
    origin_.observers->call(origin_.kind.title, start, origin_.group, &call, &work, &seq_);
    if (work != 0) held_.works.push_back(work);
  }
  std::exception_ptr come_to_end(const Limit& limit, std::exception_ptr& interrupt) override;
  void deliver() override { held_.copy_back(); }
  const std::vector<std::vector<at::Tensor>>* lists() const override { return held_.lists.get(); }
  LineagePtr trace_back() override;

  Held held_;

 private:
  void pursue(bool urgent) override;

  int source_ = GOCCL_ANY_SOURCE; // of a receive
  uint64_t key_ = 0;              // of its last call; 0 for none
};

} // namespace goccl
