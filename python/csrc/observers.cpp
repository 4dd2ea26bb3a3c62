#include "observers.h"

#include <algorithm>
#include <thread>

#include <c10/util/Logging.h>

#include "helper.h"

namespace goccl {
namespace {

std::atomic<uint64_t> next_key{1};
// running counts the hooks in progress, because the process must not end while one runs. Once over
// is set, no more hooks begin.
std::atomic<int> running{0};
std::atomic<bool> over{false};

// Runs code of others; its failure is not a failure of the operation.
template <typename Hook, typename... Args>
void run(const char* what, const Hook& hook, const Args&... args) {
  running++;
  try {
    if (!over) hook(args...);
  } catch (const std::exception& e) {
    LOG(ERROR) << "goccl: " << what << " failed: " << e.what();
  }
  running--;
}

} // namespace

Watch::Watch(std::shared_ptr<Observers> observers, c10d::OpType type, bool synchronous)
    : type(type), synchronous(synchronous), key(next_key.fetch_add(1, std::memory_order_relaxed)),
      observers_(std::move(observers)), added_(observers_->begun()) {}

Watch::~Watch() {
  if (open_ && !forked()) observers_->closed(added_);
}

void Watch::ended(bool well) {
  WithoutGil without_gil;
  open_ = false;
  finished = Clock::now();
  if (well) {
    for (const auto& [id, hook] : observers_->end_hooks_.all()) run("a completion hook", *hook, *this);
  }
  observers_->closed(added_);
}

std::chrono::milliseconds Observers::begun() {
  std::lock_guard<std::mutex> lock(mutex_);
  pending_++;
  return added_;
}

void Observers::closed(Milliseconds added) {
  std::lock_guard<std::mutex> lock(mutex_);
  set_extension(added_, std::max(ended_, added));
  pending_--;
  changed_.notify_all();
}

// The caller holds the mutex.
void Observers::set_extension(Milliseconds added, Milliseconds ended) {
  interested_ += (added > ended) - (added_ > ended_);
  added_ = added;
  ended_ = ended;
}

void Observers::wait_for_pending() {
  WithoutGil without_gil;
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [this] { return pending_ == 0; });
}

void Observers::off_abort(int64_t id) {
  if (abort_hooks_.remove(id) && error() != c10d::ErrorType::SUCCESS) helper::settle_hooks();
}

void Observers::wait_for_trace() const {
  if (!trace_.empty() && error() != c10d::ErrorType::SUCCESS) helper::settle_hooks();
}

void Observers::extend(std::chrono::milliseconds time) {
  TORCH_CHECK_VALUE(time.count() >= 0,
                    "goccl: time that is added to a timeout cannot be negative; got ", time.count(), " ms");
  std::lock_guard<std::mutex> lock(mutex_);
  set_extension(added_ + time, ended_);
}

void Observers::failed(const std::exception_ptr& error) {
  auto kind = c10d::ErrorType::COMM_ERROR;
  try {
    std::rethrow_exception(error);
  } catch (const CommunicationError& e) {
    // The group was closed, or belongs to the parent of this fork.
    if (e.code == GOCCL_CLOSED || e.code == GOCCL_FORKED) return;
    if (e.code == GOCCL_TIMEOUT) kind = c10d::ErrorType::TIMEOUT;
    if (e.code == GOCCL_PEER_LOST || e.code == GOCCL_PEER_LEFT) kind = c10d::ErrorType::REMOTE_ERROR;
  } catch (...) {
    return; // an invalid argument, or a failed copy of the result: the group is unaffected
  }
  auto none = c10d::ErrorType::SUCCESS;
  if (!error_.compare_exchange_strong(none, kind)) return;
  WithoutGil without_gil;
  auto hooks = abort_hooks_.all();
  if (hooks.empty() && trace_.empty()) return;
  helper::soon([hooks = std::move(hooks), path = trace_] {
    if (!path.empty()) run("the trace of a failure", [&path] { leave_trace(path); });
    for (const auto& [id, hook] : hooks) run("an abort hook", *hook);
  });
}

void Observers::stop() {
  if (forked()) return; // the threads belong to the parent
  helper::settle_hooks();
  over = true;
  for (int ms = 0; ms < 5000 && running != 0; ms++) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

} // namespace goccl
