// Who wants to know how the operations of a group end: torch's completion and abort hooks (its flight recorder has both), the
// older completion hook with its WorkInfo, and time that was added until the next operation ends.
#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <vector>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "goccl.h"

namespace goccl {

class EndingWork;
class Observers;

// One operation that somebody wants to know the end of. A Work that is dropped leaves it with the completer, so that it is there
// at the end.
class Watch {
 public:
  using Clock = decltype(c10d::WorkInfo::timeStarted)::clock;

  Watch(std::shared_ptr<Observers> observers, c10d::OpType type, bool synchronous);
  ~Watch();
  Watch(const Watch&) = delete;

  // Tells the observers, on this thread, which must hold no lock. Once for each operation.
  void ended(bool well);

  const c10d::OpType type;
  const bool synchronous; // then its end is seen when it happens
  const uint64_t key;     // of this operation, never used again in this process
  const Clock::time_point started = Clock::now();
  uint64_t seq = 0;

 private:
  const std::shared_ptr<Observers> observers_;
  const int64_t extensions_; // those with smaller numbers end with this operation
  bool open_ = true;
};

class Observers {
 public:
  using AbortHook = std::function<void()>;
  using CompletionHook = std::function<void(uint64_t key, std::optional<float> milliseconds)>;
  using InfoHook = std::function<void(std::shared_ptr<c10d::WorkInfo>)>;

  // Whether operations must be watched. All that the common case pays.
  bool any() const { return interested_.load(std::memory_order_relaxed) != 0; }

  // Hooks run without locks and without the GIL. Completion hooks hear of operations that ended well, on the thread that sees the end;
  // abort hooks of the first one that failed in communication, on a thread of their own: whoever waits hears of it at once, however
  // long they take. (That of torch's flight recorder writes a file.)
  void on_abort(int64_t id, AbortHook hook);
  void off_abort(int64_t id); // when it returns the hook has, too
  void on_completion(int64_t id, CompletionHook hook);
  void off_completion(int64_t id);
  void on_info(InfoHook hook);
  void tell(const std::shared_ptr<c10d::WorkInfo>& info) const { (*info_)(info); }
  // Until the first operation that is watched from now on ends, operations have this much longer.
  void extend(std::chrono::milliseconds time);
  std::chrono::milliseconds extension() const;

  // Has the Work's end seen within a tenth of a second or so even if nobody waits for it.
  static void look_after(const c10::intrusive_ptr<EndingWork>& work);
  // Returns when all watched operations have ended and their hooks have returned.
  void wait_for_pending();
  // Waits for the hooks that run or are due, lets no other begin, and ends the thread behind look_after, before the interpreter ends.
  static void stop();

  // The first failure leaves a trace of the process's last operations in this file. Set before anything can fail.
  void trace_to(std::string path) { trace_ = std::move(path); }
  // Returns when that is written: the group will not be there any more.
  void wait_for_trace() const;

  void failed(const std::exception_ptr& error);
  c10d::ErrorType error() const { return error_.load(); }
  // The group was made anew.
  void reset() { error_ = c10d::ErrorType::SUCCESS; }

 private:
  friend class Watch;
  struct Extension {
    int64_t number;
    std::chrono::milliseconds time;
  };
  template <typename Hook>
  using Hooks = std::map<int64_t, std::shared_ptr<const Hook>>;

  int64_t begun();
  void ended(const Watch& watch, bool well, int64_t extensions);
  void closed(int64_t extensions);

  std::string trace_; // a path
  std::atomic<int> interested_{0};
  std::atomic<c10d::ErrorType> error_{c10d::ErrorType::SUCCESS}; // of the first failure
  mutable std::mutex mutex_;                                     // of what follows; never held while a hook runs
  std::condition_variable changed_;
  Hooks<AbortHook> abort_hooks_;
  Hooks<CompletionHook> completion_hooks_;
  std::shared_ptr<const InfoHook> info_; // set once
  std::vector<Extension> extensions_;
  int64_t next_extension_ = 0;
  int64_t pending_ = 0;
};

// The observers of open groups, for failures, which are rare: Works know their group only.
void observe(goccl_group group, std::shared_ptr<Observers> observers);
void observe_no_more(goccl_group group);
void note_failure(goccl_group group, const std::exception_ptr& error);
// Notes it and throws it.
[[noreturn]] void fail_in(goccl_group group, const std::exception_ptr& error);

} // namespace goccl
