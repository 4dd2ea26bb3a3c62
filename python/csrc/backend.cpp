// The life of a group: construction to shutdown.
#include "backend.h"
#include "helper.h"

#include <random>
#include <unordered_set>

#include <c10/util/Logging.h>

namespace goccl {
namespace {
// The open groups, for close_all.
std::mutex open_mutex;
std::unordered_set<GocclBackend*>& open_groups() {
  static auto* groups = new std::unordered_set<GocclBackend*>;
  return *groups;
}

using Clock = std::chrono::steady_clock;
constexpr int64_t kInfoHook = -1; // torch's own hooks have numbers from 0

// Calls a function of the library for each of the groups; throws the first failure when it was called
// for all.
template <typename Function>
void for_each(const std::vector<goccl_group>& groups, const char* what, Function function) {
  std::exception_ptr first;
  for (goccl_group each : groups) {
    Failure failure;
    const int rc = function(each, &failure);
    if (rc != GOCCL_OK && !first) first = as_exception(rc, failure, what);
  }
  if (first) std::rethrow_exception(first);
}

std::string random_name() {
  std::random_device device;
  return c10::str(std::hex, device(), '-', device());
}
} // namespace

std::string member(const GocclOptions& options, int rank, int size) {
  return c10::str("group ", options.group_name.empty() ? "(unnamed)" : options.group_name,
                  ", rank ", rank, " of ", size);
}

GocclBackend::GocclBackend(StorePtr store, int rank, int size, GroupOptionsPtr options, goccl_group group)
    : Backend(rank, size), store_(std::move(store)), meeting_(store_), options_(std::move(options)), group_(group),
      member_(member(*options_, rank, size)), identity_(random_name()) {
  use_members();
  if (!options_->trace_prefix.empty()) {
    const std::string path = c10::str(options_->trace_prefix, global_rank(rank));
    if (options_->trace_failures) observers_->trace_to(path);
    lib.group_record_to(group_, path.c_str(), nullptr); // of all groups; if it fails, there is no record on a signal
  }
  std::lock_guard<std::mutex> lock(open_mutex);
  open_groups().insert(this);
}

GocclBackend::~GocclBackend() {
  if (leaving()) return; // in a fork the group belongs to the parent
  WithoutGil without_gil;
  std::unique_lock<std::mutex> lock(open_mutex);
  open_groups().erase(this);
  lock.unlock();
  if (!groups().empty()) close(Clock::time_point::max());
  for (goccl_group each : groups()) lib.group_free(each);
}

void GocclBackend::close_all() {
  if (forked()) return;
  std::lock_guard<std::mutex> lock(open_mutex);
  const auto deadline = Clock::now() + std::chrono::seconds(1);
  for (GocclBackend* backend : open_groups()) backend->close(deadline);
}

std::vector<std::pair<std::vector<uint64_t>, std::string>> GocclBackend::lost() {
  std::vector<std::pair<std::vector<uint64_t>, std::string>> all;
  std::lock_guard<std::mutex> lock(open_mutex);
  for (GocclBackend* backend : open_groups()) {
    if (backend->options_->strangers) continue;
    for (goccl_group each : backend->groups()) {
      std::string lines(1 << 16, '\0'); // of some hundred ranks; there is no message for more
      size_t n = 0;
      lib.group_lost(each, lines.data(), lines.size(), &n, nullptr);
      if (n > 0 && n <= lines.size()) all.emplace_back(backend->options_->global_ranks_in_group, lines.substr(0, n));
    }
  }
  return all;
}

void GocclBackend::close(Clock::time_point deadline) noexcept {
  try {
    leave(deadline, false);
  } catch (const std::exception& e) {
    LOG(WARNING) << "goccl: closing group " << options_->group_name << ": " << e.what();
  }
}

void GocclBackend::shutdown() {
  std::exception_ptr failure;
  try {
    failure = leave(Clock::time_point::max(), true);
  } catch (...) { // the last calls of the ranks were not the same
    failure = std::current_exception();
  }
  helper::settle();
  if (failure) std::rethrow_exception(failure);
}

std::exception_ptr GocclBackend::leave(Clock::time_point deadline, bool signals_count) {
  check_not_forked("goccl shutdown");
  WithoutGil without_gil;
  std::exception_ptr interrupt;
  ended_ = true;
  const auto all = groups();
  for (goccl_group each : all) {
    for (int done = 0; done == 0 && !interrupt && Clock::now() < deadline;) {
      const auto left = std::min<Clock::duration>(deadline - Clock::now(), std::chrono::milliseconds(50));
      if (lib.group_drain(each, std::chrono::nanoseconds(left).count(), &done, nullptr) != GOCCL_OK) break;
      if (done == 0 && signals_count) interrupt = raised_by_signals();
    }
  }
  observers_->wait_for_trace();
  for_each(all, "goccl shutdown", lib.group_close);
  return interrupt;
}

void GocclBackend::abort(const std::string& reason) {
  check_not_forked("goccl abort");
  WithoutGil without_gil;
  ended_ = true;
  for_each(groups(), "goccl abort", [&](goccl_group each, goccl_error* error) {
    const int rc = lib.group_abort(each, reason.c_str(), error);
    return rc == GOCCL_CLOSED ? GOCCL_OK : rc;
  });
}

void GocclBackend::use_members() {
  Members members{std::hash<std::string>()(options_->group_name), options_->global_ranks_in_group,
                  options_->strangers, options_->wait_futures};
  for (size_t i = members.ranks.size(); i < static_cast<size_t>(getSize()); i++) members.ranks.push_back(i);
  observers_->use_members(std::make_shared<const Members>(std::move(members)));
}

void GocclBackend::place(Request& request) {
  Callback* const callback = Callback::current();
  if (C10_LIKELY(callback == nullptr) || getSize() == 1) return;
  try {
    callback->key(request, observers_->members());
  } catch (const c10::Error& e) {
    // Other ranks may have taken this call for one of the program.
    if (!callback->seen()) abort(e.what_without_backtrace());
    throw;
  }
}

void GocclBackend::describe() const {
  described_ = !getGroupDesc().empty(); // torch sets it last
  const auto& ranks = options_->global_ranks_in_group;
  for (goccl_group each : groups()) {
    lib.group_describe(each, getGroupDesc().empty() ? "undefined" : getGroupDesc().c_str(), ranks.data(), ranks.size(),
                       nullptr);
  }
}

uint64_t GocclBackend::getSequenceNumberForGroup() {
  uint64_t sum = 0;
  for (goccl_group each : groups()) {
    goccl_group_state state{};
    checked_call("goccl state of a group", lib.group_state_of, each, &state);
    sum += state.seq;
  }
  return sum;
}

goccl_group_state GocclBackend::state() const {
  goccl_group_state state{};
  checked_call("goccl state of a group", lib.group_state_of, group_, &state);
  return state;
}

void GocclBackend::check_open(const char* title) const {
  if (state().closed != 0)
    fail(GOCCL_CLOSED, title, member_, ": the process group was shut down (destroy_process_group)");
}

void GocclBackend::setTimeout(std::chrono::milliseconds timeout) {
  constexpr const char* title = "goccl set_timeout";
  check_not_forked(title);
  const int64_t ns = std::chrono::nanoseconds(timeout).count();
  for_each(groups(), title, [=](goccl_group each, goccl_error* error) {
    return lib.group_set_timeout(each, ns, error);
  });
  options_->timeout = timeout;
}

void GocclBackend::lengthen(Request& request) const {
  const std::chrono::milliseconds more = observers_->extension();
  if (more.count() == 0) return;
  int64_t& timeout = request.call.timeout_ns;
  timeout = (timeout > 0 ? timeout : timeout_ns(options_->timeout)) + std::chrono::nanoseconds(more).count();
}

void GocclBackend::registerOnCompletionHook(std::function<void(std::shared_ptr<c10d::WorkInfo>)>&& hook) {
  TORCH_CHECK(!onCompletionHook_,
              "goccl: a group has one completion hook (_register_on_completion_hook), and this one has it already");
  onCompletionHook_ = hook; // hasHooks, which torch calls before it closes a group, reads this
  observers_->on_end(kInfoHook, [hook = std::move(hook)](const Watch& of) {
    hook(std::make_shared<c10d::WorkInfo>(of.type, of.seq, of.started, of.finished, of.finished - of.started));
  });
}

#if GOCCL_TORCH_AT_LEAST(2, 15)
void GocclBackend::registerCompletionHook(int64_t id, c10d::CompletionHook hook) {
  observers_->on_end(id, [hook = std::move(hook)](const Watch& of) { hook({of.key, of.duration()}); });
}
#endif

} // namespace goccl
