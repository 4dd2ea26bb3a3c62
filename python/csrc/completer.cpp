#include "completer.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <iterator>
#include <thread>

#include <c10/util/Logging.h>

namespace goccl {

namespace {
// stop has no way to wake a thread that sleeps until an operation ends, so the sleep is bounded.
constexpr int64_t kLongestSleepNs = 250'000'000;
constexpr auto kLongestStop = std::chrono::seconds(5);

// Signals are for the threads of Python. Those of faults and Go's own preemption are not held back.
void block_signals() {
  sigset_t set;
  sigfillset(&set);
  for (int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGURG, SIGPROF}) {
    sigdelset(&set, signal);
  }
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
}
} // namespace

bool Completer::Entry::done() {
  return work ? work->ended() : all_ended(held.works, "goccl", nullptr);
}

void Completer::Entry::finish() {
  if (work) {
    work->isCompleted();
    return;
  }
  std::exception_ptr error; // of a dropped Work: nobody is left to be told
  all_ended(held.works, "goccl", &error);
  if (!error) {
    try {
      held.copy_back();
    } catch (const std::exception& e) {
      LOG(WARNING) << "goccl: the result of a dropped operation could not be copied to its tensor: " << e.what();
    }
  }
  for (goccl_work handle : held.works) {
    lib.work_free(handle);
  }
}

// Never destroyed: Works may be dropped until the very end of the process.
Completer& Completer::instance() {
  static auto* completer = new Completer;
  return *completer;
}

bool Completer::watch(c10::intrusive_ptr<GocclWork> work) { return instance().add({std::move(work), {}}); }

void Completer::adopt(Held&& held) { instance().add({nullptr, std::move(held)}); }

// The test comes after the entry is in reach of the thread (both under the lock): an operation that ends before the test is
// finished here, one that ends later changes the count that the thread read before it looked at this entry.
bool Completer::add(Entry&& entry) {
  {
    std::unique_lock<std::mutex> lock(mutex_);
    if (!entry.done()) {
      if (stopping_) {
        new Entry(std::move(entry)); // the process is ending; the core may still write to this memory
        return true;
      }
      entries_.push_back(std::move(entry));
      if (!running_) {
        running_ = true;
        std::thread([this] { loop(); }).detach();
      }
      changed_.notify_all();
      return true;
    }
  }
  if (!entry.work) {
    entry.finish();
  }
  return false;
}

void Completer::loop() {
  block_signals();
  pthread_setname_np(pthread_self(), "goccl-futures");
  std::vector<Entry> finished;
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !entries_.empty(); });
    if (stopping_) {
      break;
    }
    uint32_t seen = 0;
    lib.completions(&seen); // before the tests, so that what ends after them is noticed
    auto pending = std::stable_partition(entries_.begin(), entries_.end(), [](Entry& e) { return e.done(); });
    finished.assign(std::make_move_iterator(entries_.begin()), std::make_move_iterator(pending));
    entries_.erase(entries_.begin(), pending);
    lock.unlock();
    if (finished.empty()) {
      lib.completions_wait(seen, kLongestSleepNs);
    }
    for (Entry& entry : finished) {
      entry.finish();
    }
    finished.clear();
    lock.lock();
  }
  exited_ = true;
  changed_.notify_all();
}

void Completer::stop() {
  Completer& c = instance();
  std::vector<Entry> left;
  {
    std::unique_lock<std::mutex> lock(c.mutex_);
    if (c.stopping_) {
      return;
    }
    c.stopping_ = true;
    c.changed_.notify_all();
    if (c.running_) {
      // A callback of the user may hang in it; that must not hang the process.
      c.changed_.wait_for(lock, kLongestStop, [&c] { return c.exited_; });
    }
    left.swap(c.entries_);
  }
  for (Entry& entry : left) {
    if (entry.done()) {
      entry.finish();
    } else {
      new Entry(std::move(entry));
    }
  }
}

} // namespace goccl
