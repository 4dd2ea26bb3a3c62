#include "observers.h"

#include <algorithm>
#include <thread>
#include <utility>

#include <c10/util/Logging.h>

#include "helper.h"

namespace goccl {
namespace {

std::atomic<uint64_t> next_key{1};
// running counts the hooks in progress, because the process must not end while one runs. Once over
// is set, no more hooks begin.
std::atomic<int> running{0};
std::atomic<bool> over{false};
thread_local bool reporting = false; // this thread runs completion hooks
constexpr std::chrono::seconds kPatience{5}; // with hooks

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

// It was dropped before its end: what has waited for its report is due.
Watch::~Watch() {
  if (reported_ || forked()) return;
  std::unique_lock<std::mutex> lock(observers_->mutex_);
  if (line_ != 0) {
    auto& open = observers_->lines_[line_].open;
    open.erase(std::remove(open.begin(), open.end(), this), open.end());
    observers_->report_line(line_, lock);
  }
  lock.unlock();
  observers_->closed(added_);
}

void Watch::called(uint64_t number, goccl_group line, bool in_order) {
  seq = number;
  if (line == 0) return;
  std::lock_guard<std::mutex> lock(observers_->mutex_);
  line_ = line, in_order_ = in_order;
  auto& open = observers_->lines_[line].open;
  auto at = open.end(); // several threads may call: seldom not the end
  while (at != open.begin() && (*std::prev(at))->seq > seq) --at;
  open.insert(at, this);
}

void Watch::ended(bool well) {
  WithoutGil without_gil;
  const auto now = Clock::now();
  std::unique_lock<std::mutex> lock(observers_->mutex_);
  const auto end = [now, well](Watch& watch) {
    watch.ended_ = true, watch.well_ = well, watch.finished = now;
  };
  if (ended_) return observers_->changed_.notify_all(); // that of a later one was seen first
  end(*this);
  if (line_ == 0) {
    lock.unlock();
    return observers_->report(*this);
  }
  if (well && in_order_) {
    const auto& open = observers_->lines_[line_].open;
    for (auto at = std::find(open.rbegin(), open.rend(), this); ++at != open.rend();) {
      Watch& before = **at;
      if (!before.in_order_) continue;
      if (before.ended_) break; // and so have those before it
      end(before);
    }
  }
  observers_->report_line(line_, lock);
}

void Watch::settle() const {
  if (reporting) return; // within a hook
  WithoutGil without_gil;
  std::unique_lock<std::mutex> lock(observers_->mutex_);
  observers_->changed_.wait_for(lock, kPatience, [this] {
    if (reported_ || !ended_ || line_ == 0) return reported_;
    const auto& line = observers_->lines_[line_];
    return !line.reporting && !line.due();
  });
}

// Notifies the observers of an end.
void Observers::report(Watch& watch) {
  if (watch.well_) {
    const bool within = std::exchange(reporting, true);
    for (const auto& [id, hook] : end_hooks_.all()) run("a completion hook", *hook, watch);
    reporting = within;
  }
  std::lock_guard<std::mutex> lock(mutex_);
  watch.reported_ = true;
  close(watch.added_);
}

// Notifies the observers of the ends that are due, unless another thread is doing so. The lock is let
// go meanwhile.
void Observers::report_line(goccl_group group, std::unique_lock<std::mutex>& lock) {
  Line& line = lines_[group];
  if (line.reporting) return;
  line.reporting = true;
  while (line.due()) {
    const auto first = line.open.front()->weak_from_this().lock();
    line.open.pop_front();
    if (!first) continue; // it is just being destroyed, which closes it
    lock.unlock();
    report(*first);
    lock.lock();
  }
  line.reporting = false;
  changed_.notify_all();
}

std::chrono::milliseconds Observers::begun() {
  std::lock_guard<std::mutex> lock(mutex_);
  pending_++;
  return added_;
}

void Observers::closed(Milliseconds added) {
  std::lock_guard<std::mutex> lock(mutex_);
  close(added);
}

// The caller holds the mutex.
void Observers::close(Milliseconds added) {
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
