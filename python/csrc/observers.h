// Who wants to know how the operations of a group end: torch's completion and abort hooks (its
// flight recorder has both), the older completion hook with its WorkInfo, and time that was added
// until the next operation ends.
#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "library.h"

namespace goccl {

class Observers;

// What the groups of this process remember of their last operations: a pickle, as torch's flight
// recorder writes it.
std::string trace();
// Writes it to a file, and hands it to torch's recorder of this backend, which answers torch's own
// dump calls. torch has no way to ask a backend, so these know what was there at the last failure.
void leave_trace(const std::string& path);

// One operation that somebody wants to know the end of.
class Watch {
 public:
  using Clock = decltype(c10d::WorkInfo::timeStarted)::clock;
  using Milliseconds = std::chrono::duration<float, std::milli>;

  Watch(std::shared_ptr<Observers> observers, c10d::OpType type, bool synchronous);
  ~Watch();
  Watch(const Watch&) = delete;

  // Tells the observers, on this thread, which must hold no lock. Once for each operation.
  void ended(bool well);
  // How long it took. Whoever waits may come late, and then the time until now is not the
  // operation's: only where its end is seen when it happens.
  std::optional<float> duration() const { return synchronous ? std::make_optional(Milliseconds(finished - started).count()) : std::nullopt; }

  const c10d::OpType type;
  const bool synchronous; // then its end is seen when it happens
  const uint64_t key;     // of this operation, never used again in this process
  const Clock::time_point started = Clock::now();
  Clock::time_point finished;
  uint64_t seq = 0;

 private:
  const std::shared_ptr<Observers> observers_;
  const std::chrono::milliseconds added_; // time that was added until it began: that is over when it ends
  bool open_ = true;
};

// Hooks of one kind, by number. They are destroyed and run without the lock.
template <typename Hook>
class Hooks {
 public:
  using Kept = std::shared_ptr<const Hook>;

  // Returns whether there was none with this number.
  bool add(int64_t id, Hook hook) {
    auto kept = std::make_shared<const Hook>(std::move(hook));
    std::lock_guard<std::mutex> lock(mutex_);
    kept.swap(hooks_[id]);
    return kept == nullptr;
  }
  // Returns whether there was one.
  bool remove(int64_t id) {
    typename std::map<int64_t, Kept>::node_type gone;
    std::lock_guard<std::mutex> lock(mutex_);
    gone = hooks_.extract(id);
    return !gone.empty();
  }
  std::map<int64_t, Kept> all() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return hooks_;
  }

 private:
  mutable std::mutex mutex_;
  std::map<int64_t, Kept> hooks_;
};

class Observers {
 public:
  using AbortHook = std::function<void()>;
  using EndHook = std::function<void(const Watch&)>;

  // Whether operations must be watched. All that the common case pays.
  bool any() const { return interested_.load(std::memory_order_relaxed) != 0; }

  // Hooks run without locks and without the GIL. End hooks hear of operations that ended well, on
  // the thread that sees the end; abort hooks of the first one that failed in communication, on a
  // helper thread: whoever waits hears of it at once, however long they take. (That of torch's
  // flight recorder writes a file.)
  void on_abort(int64_t id, AbortHook hook) { abort_hooks_.add(id, std::move(hook)); }
  void off_abort(int64_t id); // when it returns the hook has, too
  void on_end(int64_t id, EndHook hook) { interested_ += end_hooks_.add(id, std::move(hook)); }
  void off_end(int64_t id) { interested_ -= end_hooks_.remove(id); }
  // Until the first operation that is watched from now on ends, operations have this much longer.
  void extend(std::chrono::milliseconds time);
  std::chrono::milliseconds extension() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return added_ - ended_;
  }

  // Returns when all watched operations have ended and their hooks have returned.
  void wait_for_pending();
  // Waits for the hooks that run or are due, and lets no other begin.
  static void stop();

  // The first failure leaves a trace of the process's last operations in this file. Set before
  // anything can fail.
  void trace_to(std::string path) { trace_ = std::move(path); }
  // Returns when that is written: the group will not be there any more.
  void wait_for_trace() const;

  void failed(const std::exception_ptr& error);
  // Notes it and throws it.
  [[noreturn]] void fail(const std::exception_ptr& error);
  c10d::ErrorType error() const { return error_.load(); }
  // The group was made anew.
  void reset() { error_ = c10d::ErrorType::SUCCESS; }

 private:
  friend class Watch;
  using Milliseconds = std::chrono::milliseconds;

  Milliseconds begun();
  void closed(Milliseconds added);
  void set_extension(Milliseconds added, Milliseconds ended);

  std::string trace_; // a path
  Hooks<AbortHook> abort_hooks_;
  Hooks<EndHook> end_hooks_;
  std::atomic<int> interested_{0};                               // end hooks, and one while time is added
  std::atomic<c10d::ErrorType> error_{c10d::ErrorType::SUCCESS}; // of the first failure
  mutable std::mutex mutex_;                                     // of what follows
  std::condition_variable changed_;
  Milliseconds added_{0}, ended_{0}; // time that was added so far, and what of that does not hold any more
  int64_t pending_ = 0;
};

} // namespace goccl
