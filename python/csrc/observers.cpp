#include "observers.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <thread>
#include <unordered_map>

#include <c10/util/Logging.h>

#include "library.h"
#include "trace.h"
#include "work.h"

namespace goccl {
namespace {

std::atomic<uint64_t> next_key{1};

// The hooks that run just now: the process must not end under them.
struct Running {
  std::atomic<int> count{0};
  std::atomic<bool> over{false}; // no more are begun
  std::mutex mutex;
  std::condition_variable changed;
};

Running& running() {
  static auto* r = new Running;
  return *r;
}

// Runs the code of somebody else, whose failure is not the operation's.
template <typename Hook, typename... Args>
void run(const char* what, const Hook& hook, Args&&... args) {
  Running& r = running();
  r.count++;
  try {
    if (!r.over) hook(std::forward<Args>(args)...);
  } catch (const std::exception& e) {
    LOG(ERROR) << "goccl: " << what << " failed: " << e.what();
  }
  if (--r.count == 0 && r.over) {
    std::lock_guard<std::mutex> lock(r.mutex);
    r.changed.notify_all();
  }
}

// A thread that looks at Works now and then, without keeping them or their tensors alive, and runs abort hooks.
struct Lookout {
  using AbortHook = std::shared_ptr<const Observers::AbortHook>;

  std::mutex mutex;
  std::condition_variable changed;
  std::vector<c10::weak_intrusive_ptr<EndingWork>> works;
  std::vector<AbortHook> due;
  bool running = false, stopping = false;
  std::thread::id busy; // with abort hooks

  // What was added is seen to. The caller holds the mutex.
  void wake() {
    changed.notify_all();
    if (!running) std::thread([this] { loop(); }).detach();
    running = true;
  }
  // Waits until no abort hook runs or is due. One of them may itself ask for that.
  void wait_for_hooks();
  void loop();
};

constexpr auto kLook = std::chrono::milliseconds(100);
constexpr auto kLongestStop = std::chrono::seconds(5);

// Never destroyed: its thread may be in a hook of the user when the process ends.
Lookout& lookout() {
  static auto* l = new Lookout;
  return *l;
}

void Lookout::loop() {
  sigset_t all;
  sigfillset(&all);
  for (int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGURG, SIGPROF}) sigdelset(&all, signal);
  pthread_sigmask(SIG_BLOCK, &all, nullptr); // signals are for the threads of Python
  pthread_setname_np(pthread_self(), "goccl-hooks");
  std::unique_lock<std::mutex> lock(mutex);
  while (!stopping) {
    changed.wait(lock, [this] { return stopping || !works.empty() || !due.empty(); });
    changed.wait_for(lock, kLook, [this] { return stopping || !due.empty(); });
    std::vector<AbortHook> hooks;
    hooks.swap(due);
    if (!hooks.empty()) {
      busy = std::this_thread::get_id();
      lock.unlock();
      for (auto& hook : hooks) run("an abort hook", *hook), hook.reset();
      lock.lock();
      busy = {};
      changed.notify_all();
      continue;
    }
    std::vector<c10::weak_intrusive_ptr<EndingWork>> seen, left;
    seen.swap(works);
    lock.unlock();
    for (auto& weak : seen) {
      if (auto work = weak.lock(); work && !work->settled()) {
        if (!work->ended() || !work->isCompleted()) left.push_back(std::move(weak));
      }
    }
    seen.clear();
    lock.lock();
    works.insert(works.end(), std::make_move_iterator(left.begin()), std::make_move_iterator(left.end()));
  }
  running = false;
  changed.notify_all();
}

void Lookout::wait_for_hooks() {
  WithoutGil without_gil;
  std::unique_lock<std::mutex> lock(mutex);
  const auto none = [this] { return busy == std::thread::id() ? due.empty() : busy == std::this_thread::get_id(); };
  if (!changed.wait_for(lock, kLongestStop, none)) LOG(WARNING) << "goccl: an abort hook has not returned in time";
}

std::mutex groups_mutex;
std::unordered_map<goccl_group, std::shared_ptr<Observers>>& groups() {
  static auto* g = new std::unordered_map<goccl_group, std::shared_ptr<Observers>>;
  return *g;
}

} // namespace

Watch::Watch(std::shared_ptr<Observers> observers, c10d::OpType type, bool synchronous)
    : type(type), synchronous(synchronous), key(next_key.fetch_add(1, std::memory_order_relaxed)),
      observers_(std::move(observers)), extensions_(observers_->begun()) {}

Watch::~Watch() {
  if (open_ && !forked()) observers_->closed(extensions_);
}

void Watch::ended(bool well) {
  open_ = false;
  observers_->ended(*this, well, extensions_);
}

int64_t Observers::begun() {
  std::lock_guard<std::mutex> lock(mutex_);
  pending_++;
  return next_extension_;
}

void Observers::ended(const Watch& watch, bool well, int64_t extensions) {
  WithoutGil without_gil;
  const auto finished = Watch::Clock::now();
  Hooks<CompletionHook> hooks;
  std::shared_ptr<const InfoHook> info;
  if (well) {
    std::lock_guard<std::mutex> lock(mutex_);
    hooks = completion_hooks_;
    info = info_;
  }
  using Milliseconds = std::chrono::duration<float, std::milli>;
  // Whoever waits may come late; then the time until now is not the operation's.
  const auto duration = watch.synchronous ? std::make_optional(Milliseconds(finished - watch.started).count()) : std::nullopt;
  for (const auto& [id, hook] : hooks) run("a completion hook", *hook, watch.key, duration);
  if (info) {
    run("the completion hook", *info,
        std::make_shared<c10d::WorkInfo>(watch.type, watch.seq, watch.started, finished, finished - watch.started));
  }
  closed(extensions);
}

void Observers::closed(int64_t extensions) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto over = std::remove_if(extensions_.begin(), extensions_.end(), [&](const Extension& e) { return e.number < extensions; });
  interested_ -= static_cast<int>(extensions_.end() - over);
  extensions_.erase(over, extensions_.end());
  pending_--;
  changed_.notify_all();
}

void Observers::wait_for_pending() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [this] { return pending_ == 0; });
}

void Observers::on_abort(int64_t id, AbortHook hook) {
  auto kept = std::make_shared<const AbortHook>(std::move(hook));
  std::lock_guard<std::mutex> lock(mutex_);
  kept.swap(abort_hooks_[id]); // a former one is destroyed after the lock
}

void Observers::off_abort(int64_t id) {
  std::shared_ptr<const AbortHook> gone;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = abort_hooks_.find(id);
    if (found == abort_hooks_.end()) return;
    gone = std::move(found->second);
    abort_hooks_.erase(found);
  }
  if (error() != c10d::ErrorType::SUCCESS) lookout().wait_for_hooks();
}

void Observers::wait_for_trace() const {
  if (!trace_.empty() && error() != c10d::ErrorType::SUCCESS) lookout().wait_for_hooks();
}

void Observers::on_completion(int64_t id, CompletionHook hook) {
  auto kept = std::make_shared<const CompletionHook>(std::move(hook));
  std::lock_guard<std::mutex> lock(mutex_);
  if (completion_hooks_.count(id) == 0) interested_++;
  kept.swap(completion_hooks_[id]);
}

void Observers::off_completion(int64_t id) {
  std::shared_ptr<const CompletionHook> gone;
  std::lock_guard<std::mutex> lock(mutex_);
  if (const auto found = completion_hooks_.find(id); found != completion_hooks_.end()) {
    gone = std::move(found->second);
    completion_hooks_.erase(found);
    interested_--;
  }
}

void Observers::on_info(InfoHook hook) {
  std::lock_guard<std::mutex> lock(mutex_);
  TORCH_CHECK(!info_, "goccl: a group has one completion hook (_register_on_completion_hook), and this one has it already");
  info_ = std::make_shared<const InfoHook>(std::move(hook));
  interested_++;
}

void Observers::extend(std::chrono::milliseconds time) {
  TORCH_CHECK_VALUE(time.count() >= 0, "goccl: time that is added to a timeout cannot be negative; got ", time.count(), " ms");
  if (time.count() == 0) return; // torch.compile adds the whole seconds that its caches have saved
  std::lock_guard<std::mutex> lock(mutex_);
  extensions_.push_back({next_extension_++, time});
  interested_++;
}

std::chrono::milliseconds Observers::extension() const {
  std::lock_guard<std::mutex> lock(mutex_);
  std::chrono::milliseconds sum{0};
  for (const Extension& e : extensions_) sum += e.time;
  return sum;
}

void Observers::failed(const std::exception_ptr& error) {
  auto kind = c10d::ErrorType::COMM_ERROR;
  try {
    std::rethrow_exception(error);
  } catch (const CommunicationError& e) {
    if (e.code == GOCCL_CLOSED || e.code == GOCCL_FORKED) return; // the end of the group, or no group at all
    if (e.code == GOCCL_TIMEOUT) kind = c10d::ErrorType::TIMEOUT;
    if (e.code == GOCCL_PEER_LOST || e.code == GOCCL_PEER_LEFT) kind = c10d::ErrorType::REMOTE_ERROR;
  } catch (...) {
    return; // an argument, or a copy of the result: the group is as before
  }
  auto none = c10d::ErrorType::SUCCESS;
  if (!error_.compare_exchange_strong(none, kind)) return;
  WithoutGil without_gil;
  Hooks<AbortHook> hooks;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    hooks = abort_hooks_;
  }
  if (hooks.empty() && trace_.empty()) return;
  Lookout& l = lookout();
  std::lock_guard<std::mutex> lock(l.mutex);
  if (l.stopping) return;
  if (!trace_.empty()) l.due.push_back(std::make_shared<const AbortHook>([path = trace_] { leave_trace(path); }));
  for (auto& [id, hook] : hooks) l.due.push_back(std::move(hook));
  l.wake();
}

void Observers::look_after(const c10::intrusive_ptr<EndingWork>& work) {
  if (work->settled()) return;
  Lookout& l = lookout();
  std::lock_guard<std::mutex> lock(l.mutex);
  if (l.stopping) return;
  l.works.emplace_back(work);
  if (l.works.size() == 1) l.wake();
}

void Observers::stop() {
  if (forked()) return; // the threads are the parent's
  Lookout& l = lookout();
  l.wait_for_hooks();
  Running& r = running();
  r.over = true;
  {
    std::unique_lock<std::mutex> lock(r.mutex);
    r.changed.wait_for(lock, kLongestStop, [&r] { return r.count == 0; });
  }
  std::unique_lock<std::mutex> lock(l.mutex);
  l.stopping = true;
  l.changed.notify_all();
  l.changed.wait_for(lock, kLongestStop, [&l] { return !l.running; });
}

void observe(goccl_group group, std::shared_ptr<Observers> observers) {
  std::lock_guard<std::mutex> lock(groups_mutex);
  groups()[group] = std::move(observers);
}

void observe_no_more(goccl_group group) {
  std::shared_ptr<Observers> gone; // hooks are destroyed after the lock
  std::lock_guard<std::mutex> lock(groups_mutex);
  if (const auto found = groups().find(group); found != groups().end()) {
    gone = std::move(found->second);
    groups().erase(found);
  }
}

void note_failure(goccl_group group, const std::exception_ptr& error) {
  std::shared_ptr<Observers> observers;
  {
    std::lock_guard<std::mutex> lock(groups_mutex);
    const auto found = groups().find(group);
    if (found == groups().end()) return; // closed: nobody is left to be told
    observers = found->second;
  }
  observers->failed(error);
}

void fail_in(goccl_group group, const std::exception_ptr& error) {
  note_failure(group, error);
  std::rethrow_exception(error);
}

} // namespace goccl
