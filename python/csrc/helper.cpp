#include "helper.h"

#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <memory>
#include <system_error>
#include <thread>

#include <c10/util/Logging.h>

namespace goccl::helper {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000;

thread_local uint64_t here = 0;    // the token of this thread's current job, a Job*
std::atomic<bool> starting{false}; // a started thread that has not reached the queue yet
// Jobs pass from thread to thread through the core, whose locks ThreadSanitizer does not see.
// passed repeats that order where it can see it.
std::atomic<uint64_t> passed{0};
void pass() { passed.fetch_add(1, std::memory_order_release); }
void take() { passed.load(std::memory_order_acquire); }

// Signals are for Python's threads. Signals of faults and of Go's own preemption are not blocked.
void block_signals() {
  sigset_t set;
  sigfillset(&set);
  for (int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGURG, SIGPROF}) sigdelset(&set, signal);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

void loop();
void start_thread() {
  if (starting.exchange(true)) return;
  try {
    std::thread(loop).detach();
  } catch (const std::system_error& e) { // the next thread that calls the queue retries
    starting = false;
    LOG(WARNING) << "goccl: no thread could be started to complete futures: " << e.what();
  }
}

// Runs jobs that are due until the core no longer needs this thread.
void work() {
  std::unique_ptr<Job> job;
  int thread = 0;
  while (lib.queue_next(&here, &thread) == GOCCL_OK && here != 0) {
    take();
    if (thread != 0) start_thread();
    // The address of the previous job is freed only now, when the core has forgotten it.
    job.reset(reinterpret_cast<Job*>(here));
    try {
      (*job)();
    } catch (const std::exception& e) {
      LOG(ERROR) << "goccl: the end of an operation could not be passed on: " << e.what();
    }
    *job = nullptr; // drops what the job holds before it counts as done
    pass();
  }
  here = 0;
}

// Waits for the jobs that are due, or for hooks only; returns whether they have all run in time.
bool settled(bool hooks, int64_t at_most) {
  WithoutGil without_gil;
  int settled = 1;
  lib.queue_settle(here, hooks, at_most, &settled);
  take();
  return settled != 0;
}

void loop() {
  block_signals();
  pthread_setname_np(pthread_self(), "goccl-helper");
  starting = false;
  work();
}

} // namespace

void when_ended(c10::ArrayRef<goccl_work> works, bool urgent, Job job) {
  auto kept = std::make_unique<Job>(std::move(job));
  int watched = 0, thread = 0;
  pass();
  const auto token = reinterpret_cast<uint64_t>(kept.get());
  checked_call("goccl", lib.queue_watch, works.data(), works.size(), urgent, token, &watched, &thread);
  if (watched == 0) return (*kept)();
  kept.release();
  if (thread != 0) start_thread();
}

void soon(Job hook) { when_ended({}, false, std::move(hook)); }

void settle_hooks() {
  if (!settled(true, 5 * kSecondNs)) LOG(WARNING) << "goccl: an abort hook has not returned in time";
}

void settle() { settled(false, kSecondNs); }

void stop() {
  if (forked() || lib.queue_stop == nullptr) return; // the threads are the parent's; or the library was never loaded
  lib.queue_stop(5 * kSecondNs); // a callback of the user may hang in a thread; that must not hang the process
  work();
}

} // namespace goccl::helper
