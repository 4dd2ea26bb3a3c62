// The life of a group: construction to shutdown.
#include "backend.h"
#include "completer.h"

#include <mutex>
#include <random>
#include <unordered_set>

#include <c10/util/Logging.h>
#include <pybind11/pybind11.h>

namespace goccl {
namespace {
// Groups that are open, for close_all.
std::mutex open_mutex;
std::unordered_set<GocclBackend*>& open_groups() {
  static auto* groups = new std::unordered_set<GocclBackend*>;
  return *groups;
}

using Clock = std::chrono::steady_clock;
constexpr auto kDrainSlice = std::chrono::milliseconds(100); // between two looks for signals
constexpr auto kLastDrain = std::chrono::seconds(1);

// Whether a signal handler of Python, which runs here, has raised something, as that of Ctrl-C does. It is left for the caller.
bool signal_came() {
  pybind11::gil_scoped_acquire gil;
  return PyErr_CheckSignals() != 0;
}

std::string random_name() {
  std::random_device device;
  return c10::str(std::hex, device(), '-', device());
}
} // namespace

std::string member(const GocclOptions& options, int rank, int size) {
  return c10::str("group ", options.group_name.empty() ? "(unnamed)" : options.group_name, ", rank ", rank, " of ", size);
}

GocclBackend::GocclBackend(StorePtr store, int rank, int size, c10::intrusive_ptr<GocclOptions> options, std::string version,
                           goccl_group group)
    : Backend(rank, size), store_(std::move(store)), options_(std::move(options)), version_(std::move(version)),
      member_(member(*options_, rank, size)), identity_(random_name()), group_(group) {
  if (!options_->trace_prefix.empty()) observers_->trace_to(c10::str(options_->trace_prefix, global_rank(rank)));
  if (group != 0) observe(group, observers_);
  std::lock_guard<std::mutex> lock(open_mutex);
  open_groups().insert(this);
}

GocclBackend::~GocclBackend() {
  if (forked()) return; // the group belongs to the parent
  WithoutGil without_gil;
  std::unique_lock<std::mutex> lock(open_mutex);
  open_groups().erase(this);
  lock.unlock();
  close(Clock::time_point::max());
}

void GocclBackend::close_all() {
  if (forked()) return;
  std::lock_guard<std::mutex> lock(open_mutex);
  const auto deadline = Clock::now() + kLastDrain;
  for (GocclBackend* backend : open_groups()) backend->close(deadline);
}

void GocclBackend::close(Clock::time_point deadline) noexcept {
  try {
    leave(deadline, false);
  } catch (const std::exception& e) {
    LOG(WARNING) << "goccl: closing group " << options_->group_name << ": " << e.what();
  }
}

void GocclBackend::shutdown() {
  const bool signalled = leave(Clock::time_point::max(), true);
  {
    WithoutGil without_gil;
    completer::settle();
  }
  if (signalled) {
    pybind11::gil_scoped_acquire gil;
    throw pybind11::error_already_set();
  }
}

bool GocclBackend::leave(Clock::time_point deadline, bool signals_count) {
  check_not_forked("goccl shutdown");
  closed_ = true;
  const goccl_group group = group_.exchange(0);
  if (group == 0) return false;
  WithoutGil without_gil;
  Failure failure;
  bool signalled = false;
  for (int done = 0; done == 0 && !signalled && Clock::now() < deadline;) {
    const auto left = std::min<Clock::duration>(deadline - Clock::now(), kDrainSlice);
    if (lib.group_drain(group, std::chrono::nanoseconds(left).count(), &done, &failure) != GOCCL_OK) break;
    signalled = done == 0 && signals_count && signal_came();
  }
  observers_->wait_for_trace();
  observe_no_more(group);
  uint64_t seq = 0;
  if (lib.group_seq(group, &seq, nullptr) == GOCCL_OK) last_seq_ = seq;
  check(lib.group_close(group, &failure), failure, "goccl shutdown");
  return signalled;
}

void GocclBackend::abort() { abort("abort() was called on this rank"); }

void GocclBackend::abort(const std::string& reason) {
  check_not_forked("goccl abort");
  const goccl_group group = group_.load();
  if (group == 0) return;
  WithoutGil without_gil;
  Failure failure;
  const int rc = lib.group_abort(group, reason.c_str(), &failure);
  check(rc == GOCCL_CLOSED ? GOCCL_OK : rc, failure, "goccl abort");
}

goccl_group GocclBackend::group(const char* title, const Request* request) const {
  const goccl_group group = group_.load(std::memory_order_relaxed);
  if (C10_LIKELY(group != 0 && !forked())) {
    if (C10_UNLIKELY(!described_.load(std::memory_order_relaxed))) describe(group);
    return group;
  }
  const std::string what = c10::str(request != nullptr ? request->text() : title, ": ", member_);
  check_not_forked(what);
  if (!closed_) {
    fail(GOCCL_CLOSED, what, "the process group was made with enable_reconfigure=True and has no members yet; call reconfigure first");
  }
  fail(GOCCL_CLOSED, what, "the process group was shut down (destroy_process_group) after seq ", last_seq_.load(),
       " and cannot be used any more");
}

void GocclBackend::describe(goccl_group group) const {
  described_ = true;
  const auto& ranks = options_->global_ranks_in_group;
  lib.group_describe(group, getGroupDesc().empty() ? "undefined" : getGroupDesc().c_str(), ranks.data(), ranks.size(), nullptr);
}

void GocclBackend::setTimeout(std::chrono::milliseconds timeout) {
  TORCH_CHECK_VALUE(timeout.count() > 0, "goccl set_timeout: ", member_, ": a timeout must be longer than zero; got ",
                    timeout.count(), " ms");
  Failure failure;
  check(lib.group_set_timeout(group("goccl set_timeout"), timeout_ns(timeout), &failure), failure, "goccl set_timeout");
  options_->timeout = timeout;
}

uint64_t GocclBackend::getSequenceNumberForGroup() {
  uint64_t seq = 0;
  Failure failure;
  check(lib.group_seq(group("goccl sequence number"), &seq, &failure), failure, "goccl sequence number");
  return seq;
}

void GocclBackend::lengthen(Request& request) const {
  const std::chrono::milliseconds more = observers_->extension();
  if (more.count() == 0) return;
  int64_t& timeout = request.call.timeout_ns;
  timeout = (timeout > 0 ? timeout : timeout_ns(options_->timeout)) + std::chrono::nanoseconds(more).count();
}

void GocclBackend::registerOnCompletionHook(std::function<void(std::shared_ptr<c10d::WorkInfo>)>&& hook) {
  observers_->on_info(std::move(hook));
  // hasHooks, which torch asks before it closes a group, looks here.
  onCompletionHook_ = [observers = observers_](std::shared_ptr<c10d::WorkInfo> info) { observers->tell(info); };
}

#if GOCCL_TORCH_AT_LEAST(2, 15)
void GocclBackend::registerCompletionHook(int64_t id, c10d::CompletionHook hook) {
  observers_->on_completion(id, [hook = std::move(hook)](uint64_t key, std::optional<float> milliseconds) {
    hook({key, milliseconds});
  });
}
#endif

void GocclBackend::waitForPendingWorks() {
  WithoutGil without_gil;
  observers_->wait_for_pending();
}

} // namespace goccl
