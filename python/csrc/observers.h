// Observers of the ends of a group's operations: torch's completion and abort hooks (its flight
// recorder uses both), the older completion hook with its WorkInfo, and timeout extensions, which
// last until the next operation ends.
#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "callbacks.h"
#include "library.h"

namespace goccl {

class Observers;

// The recorded last operations of this process's groups: a pickle, as torch's flight recorder
// writes it.
std::string trace();
// Writes the trace to a file, and hands it to torch's recorder of this backend, which answers
// torch's own dump calls. torch cannot query a backend, so these calls return the state at the last
// failure.
void leave_trace(const std::string& path);

// One operation whose end is observed.
class Watch {
 public:
  using Clock = decltype(c10d::WorkInfo::timeStarted)::clock;
  using Milliseconds = std::chrono::duration<float, std::milli>;

  Watch(std::shared_ptr<Observers> observers, c10d::OpType type, bool synchronous);
  ~Watch();
  Watch(const Watch&) = delete;

  // Notifies the observers on this thread, which must hold no lock. Called once for each operation.
  void ended(bool well);
  // The duration of the operation. A waiting thread may observe the end late, and then the time
  // until now is not the operation's. So it is known only where the end is seen when it happens.
  std::optional<float> duration() const {
    return synchronous ? std::make_optional(Milliseconds(finished - started).count()) : std::nullopt;
  }

  const c10d::OpType type;
  const bool synchronous; // if so, its end is seen when it happens
  const uint64_t key;     // of this operation, unique in this process
  const Clock::time_point started = Clock::now();
  Clock::time_point finished;
  uint64_t seq = 0;

 private:
  const std::shared_ptr<Observers> observers_;
  const std::chrono::milliseconds added_; // time added before it began; void once it ends
  bool open_ = true;
};

// Hooks of one kind, by number. They are run and destroyed without the lock.
template <typename Hook>
class Hooks {
 public:
  using Kept = std::shared_ptr<const Hook>;

  // Returns whether there was no hook with this number.
  bool add(int64_t id, Hook hook) {
    auto kept = std::make_shared<const Hook>(std::move(hook));
    std::lock_guard<std::mutex> lock(mutex_);
    kept.swap(hooks_[id]);
    return kept == nullptr;
  }
  // Returns whether there was such a hook.
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

  // Whether operations must be watched. This is the whole cost of the common case.
  bool any() const { return interested_.load(std::memory_order_relaxed) != 0; }

  // Hooks run without locks and without the GIL. End hooks are called for operations that ended
  // successfully, on the thread that sees the end. Abort hooks are called for the first operation
  // that failed in communication, on a helper thread, so waiting threads learn of the failure at
  // once, however long the hooks take. (The hook of torch's flight recorder writes a file.)
  void on_abort(int64_t id, AbortHook hook) { abort_hooks_.add(id, std::move(hook)); }
  void off_abort(int64_t id); // once it returns, the hook has returned too
  void on_end(int64_t id, EndHook hook) { interested_ += end_hooks_.add(id, std::move(hook)); }
  void off_end(int64_t id) { interested_ -= end_hooks_.remove(id); }
  // Adds time to the timeouts of operations, until the first operation that is watched from now on
  // ends.
  void extend(std::chrono::milliseconds time);
  std::chrono::milliseconds extension() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return added_ - ended_;
  }

  // Returns when all watched operations have ended and their hooks have returned.
  void wait_for_pending();
  // Waits for the hooks that are running or due, and lets no others begin.
  static void stop();

  // The first failure writes a trace of the process's last operations to this file. Set before
  // anything can fail.
  void trace_to(std::string path) { trace_ = std::move(path); }
  // Returns when the trace is written: the group is about to disappear.
  void wait_for_trace() const;

  void failed(const std::exception_ptr& error);
  // A checked_call whose failure is recorded.
  template <typename... Args>
  void call(const char* what, Args... args) {
    try {
      checked_call(what, args...);
    } catch (...) {
      failed(std::current_exception());
      throw;
    }
  }
  c10d::ErrorType error() const { return error_.load(); }
  // The group was made anew.
  void reset() { error_ = c10d::ErrorType::SUCCESS; }

  // What callbacks need to know of the group; set before its first operation.
  MembersPtr members() const { return std::atomic_load(&members_); }
  void use_members(MembersPtr members) { std::atomic_store(&members_, std::move(members)); }

 private:
  friend class Watch;
  using Milliseconds = std::chrono::milliseconds;

  Milliseconds begun();
  void closed(Milliseconds added);
  void set_extension(Milliseconds added, Milliseconds ended);

  std::string trace_; // a path
  MembersPtr members_;
  Hooks<AbortHook> abort_hooks_;
  Hooks<EndHook> end_hooks_;
  std::atomic<int> interested_{0};                               // end hooks, plus one while time is added
  std::atomic<c10d::ErrorType> error_{c10d::ErrorType::SUCCESS}; // of the first failure
  mutable std::mutex mutex_;                                     // guards the members below
  std::condition_variable changed_;
  Milliseconds added_{0}, ended_{0}; // time added so far, and the part of it that no longer applies
  int64_t pending_ = 0;
};

} // namespace goccl
