#include "completer.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>

#include <c10/util/Logging.h>

#include "observers.h"

namespace goccl::completer {
namespace {

// stop has no way to wake the thread that sleeps until an operation ends, so the sleep is bounded.
constexpr int64_t kLongestSleepNs = 250'000'000;
constexpr auto kLongestStop = std::chrono::seconds(5);
constexpr auto kLongestSettle = std::chrono::seconds(1);

struct Entry {
  c10::intrusive_ptr<GocclWork> work; // null for a dropped one
  Held held;                          // of a dropped one

  bool done() const { return work ? work->ended() : all_ended(held.works, lib.work_test, "goccl", nullptr); }

  void finish() {
    if (work) return void(work->isCompleted());
    Outcome outcome; // nobody is left to be told
    all_ended(held.works, lib.work_test, "goccl", &outcome);
    try {
      if (!outcome.failed()) held.copy_back();
    } catch (const std::exception& e) {
      LOG(WARNING) << "goccl: the result of a dropped operation could not be copied to its tensor: " << e.what();
    }
    for (goccl_work handle : held.works) give_back(handle);
    if (held.watch) held.watch->ended(!outcome.failed());
  }
};

// The process is ending, and the core may still write to this memory: it is never freed.
void give_up(Entry&& entry) { new Entry(std::move(entry)); }

struct State {
  std::mutex mutex;
  std::condition_variable changed; // any of what follows
  std::vector<Entry> entries;
  int threads = 0, idle = 0, finishing = 0;
  bool watched = false, stopping = false; // watched: one of the threads looks after the entries
};

thread_local bool finishing_here = false; // a callback may close a group

// Never destroyed: Works may be dropped until the very end of the process.
State& state() {
  static auto* s = new State;
  return *s;
}

// Signals are for the threads of Python. Those of faults and Go's own preemption are not held back.
void block_signals() {
  sigset_t set;
  sigfillset(&set);
  for (int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGURG, SIGPROF}) sigdelset(&set, signal);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

void loop();
// Sees to it that a thread looks after the entries. Called with the lock.
void have_watched(State& s) {
  if (s.entries.empty() || s.watched || s.stopping) return;
  s.changed.notify_all();
  try {
    if (s.idle == 0) std::thread(loop).detach(), s.threads++;
  } catch (const std::system_error&) {
    if (s.threads == 0) throw; // else one of them will come by
  }
}

void loop() {
  block_signals();
  pthread_setname_np(pthread_self(), "goccl-futures");
  State& s = state();
  std::unique_lock<std::mutex> lock(s.mutex);
  while (!s.stopping && s.idle == 0) { // one in reserve is enough
    s.idle++;
    s.changed.wait(lock, [&s] { return s.stopping || (!s.watched && !s.entries.empty()); });
    s.idle--;
    s.watched = true;
    std::optional<Entry> ended;
    while (!s.stopping) {
      uint32_t seen = 0;
      lib.completions(&seen); // before the tests, so that what ends after them is noticed
      const auto found = std::find_if(s.entries.begin(), s.entries.end(), [](const Entry& e) { return e.done(); });
      if (found != s.entries.end()) {
        ended = std::move(*found);
        s.entries.erase(found);
        break;
      }
      lock.unlock();
      lib.completions_wait(seen, kLongestSleepNs);
      lock.lock();
    }
    s.watched = false;
    have_watched(s); // by another thread, since callbacks may wait for any other future
    s.finishing++, finishing_here = true;
    lock.unlock();
    if (ended) ended->finish();
    ended.reset();
    lock.lock();
    s.finishing--, finishing_here = false;
    s.changed.notify_all();
  }
  s.threads--;
  s.changed.notify_all();
}

// Returns false, and takes nothing, if the entry is done. Test and insertion are one step under the lock: what ends after
// the test is seen when a thread looks next, or changes the count that it had read before it looked.
bool add(Entry&& entry) {
  State& s = state();
  std::lock_guard<std::mutex> lock(s.mutex);
  if (entry.done()) return false;
  if (s.stopping) {
    give_up(std::move(entry));
  } else {
    s.entries.push_back(std::move(entry));
    have_watched(s);
  }
  return true;
}

} // namespace

bool watch(c10::intrusive_ptr<GocclWork> work) { return add({std::move(work), {}}); }

void adopt(Held&& held) {
  Entry entry{nullptr, std::move(held)};
  try {
    if (!add(std::move(entry))) entry.finish(); // add did not take it
  } catch (const std::system_error&) {} // no thread to be had: the memory is kept all the same
}

void settle() {
  State& s = state();
  std::unique_lock<std::mutex> lock(s.mutex);
  s.changed.wait_for(lock, kLongestSettle, [&s] {
    return s.stopping || (s.finishing == finishing_here &&
                          std::none_of(s.entries.begin(), s.entries.end(), [](const Entry& e) { return e.done(); }));
  });
}

void stop() {
  if (forked()) return; // the threads are the parent's
  State& s = state();
  std::vector<Entry> left;
  {
    std::unique_lock<std::mutex> lock(s.mutex);
    s.stopping = true;
    s.changed.notify_all();
    // A callback of the user may hang in a thread; that must not hang the process.
    s.changed.wait_for(lock, kLongestStop, [&s] { return s.threads == 0; });
    left.swap(s.entries);
  }
  for (Entry& entry : left) entry.done() ? entry.finish() : give_up(std::move(entry));
}

} // namespace goccl::completer
