// Observers of the ends of a group's operations: torch's completion and abort hooks (its flight
// recorder uses both), the older completion hook with its WorkInfo, and timeout extensions, which
// last until the next operation ends.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>

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
//
// Ends of the collectives of a group of the core are reported in the order of the calls, since torch's
// recorder takes the last report for the last collective: without that, a helper thread that reports
// an end late sets the number back. Works of the host end in that order, so the report of one is that
// of all before it.
class Watch : public std::enable_shared_from_this<Watch> {
 public:
  using Clock = decltype(c10d::WorkInfo::timeStarted)::clock;
  using Milliseconds = std::chrono::duration<float, std::milli>;

  Watch(std::shared_ptr<Observers> observers, c10d::OpType type, bool synchronous);
  ~Watch();
  Watch(const Watch&) = delete;

  // What is known once the operation was called: its number, and its group of the core if it is a
  // collective, else 0. in_order: it ends after those that were called before it.
  void called(uint64_t seq, goccl_group line, bool in_order);
  // Notifies the observers of this end, and of others that are due, on this thread, which must hold no
  // lock; or leaves that to a thread that is notifying them, or to the end of an earlier collective.
  void ended(bool well);
  // Called after ended, by whatever thread: returns when the observers have been notified, unless an
  // earlier collective has not ended. A hook that does not return is waited for at most five seconds.
  void settle() const;
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
  friend class Observers;

  const std::shared_ptr<Observers> observers_;
  const std::chrono::milliseconds added_; // time added before it began; void once it ends
  // Guarded by the observers' mutex.
  goccl_group line_ = 0;
  bool in_order_ = false, ended_ = false, well_ = false, reported_ = false;
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
  // The watched collectives of a group of the core that were not reported, by seq.
  struct Line {
    std::deque<Watch*> open;
    bool reporting = false; // by a thread
    bool due() const { return !open.empty() && open.front()->ended_; }
  };

  Milliseconds begun();
  void closed(Milliseconds added);
  void close(Milliseconds added);
  void report(Watch& watch);
  void report_line(goccl_group group, std::unique_lock<std::mutex>& lock);
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
  std::unordered_map<goccl_group, Line> lines_;
};

} // namespace goccl
