// Groups made from a group, and a group whose members change: goccl/_regroup.py makes them.
#include "backend.h"

#include <iomanip>

#include <pybind11/chrono.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/utils/pybind.h>

namespace goccl {

uint64_t GocclBackend::global_rank(int rank) const {
  const auto& ranks = options_->global_ranks_in_group;
  return static_cast<size_t>(rank) < ranks.size() ? ranks[rank] : rank; // none are listed if they are the same
}

template <typename... Args>
BackendPtr GocclBackend::regroup(const char* how, const Args&... args) {
  py::gil_scoped_acquire gil;
  const auto self = c10::intrusive_ptr<GocclBackend>::reclaim_copy(this);
  return py::module_::import("goccl._regroup").attr(how)(self, args...).template cast<BackendPtr>();
}

BackendPtr GocclBackend::split(const StorePtr& store, const std::vector<int>& ranks, const OptionsPtr& options) {
  check_open("goccl split");
  return regroup("split", store, ranks, options);
}

BackendPtr GocclBackend::merge(const StorePtr& store, const OptionsPtr& options, const int& rank, const int& size) {
  return regroup("merge", store, options, rank, size);
}

BackendPtr GocclBackend::shrink(const std::vector<int64_t>& excluded, int flags, const OptionsPtr& options) {
  return regroup("shrink", excluded, flags, options);
}

std::pair<c10::intrusive_ptr<GocclBackend>, std::vector<int32_t>>
GocclBackend::remaining(const std::vector<int32_t>& without, int quorum, const GroupOptionsPtr& options) {
  constexpr const char* title = "goccl shrink";
  goccl_group next = 0;
  goccl_work pending = 0;
  std::exception_ptr interrupt;
  Failure failure;
  int rc = lib.group_shrink(group(title), without.data(), without.size(), quorum,
                            timeout_ns(options->timeout), &next, slice_ns(), &pending, &failure);
  if (pending != 0) rc = await(pending, Limit(), next, interrupt, &failure), free_works(pending);
  std::vector<int32_t> members(getSize());
  size_t n = 0;
  if (rc == GOCCL_OK && !interrupt) rc = lib.group_members(next, members.data(), members.size(), &n, &failure);
  if (rc != GOCCL_OK || interrupt) lib.group_free(next);
  if (interrupt) std::rethrow_exception(interrupt);
  check(rc, failure, title);
  members.resize(n);
  options->global_ranks_in_group.clear();
  for (int member : members) options->global_ranks_in_group.push_back(global_rank(member));
  const int rank = std::find(members.begin(), members.end(), getRank()) - members.begin();
  // Every smaller group has other members, so its groups of devices meet elsewhere.
  const auto made = c10::make_intrusive<GocclBackend>(store_, rank, n, options, next);
  made->use_store(c10::make_intrusive<c10d::PrefixStore>(c10::str("shrunk/", c10::Join(",", members)), meeting_));
  return {made, members};
}

c10::intrusive_ptr<GocclBackend>
GocclBackend::grown(int newcomers, std::chrono::nanoseconds wait, const GroupOptionsPtr& options) {
  constexpr const char* title = "goccl grow";
  goccl_group next = 0;
  goccl_work growing = 0;
  Failure failure;
  const int rc = lib.group_grow(group(title), newcomers, wait.count(), timeout_ns(options->timeout), &next, slice_ns(),
                          &growing, &failure);
  return entered(title, rc, next, growing, failure, store_, options);
}

c10::intrusive_ptr<GocclBackend> GocclBackend::come(const std::string& address, const GroupOptionsPtr& options) {
  constexpr const char* title = "goccl join";
  check_not_forked(title);
  char version[64] = "";
  check(lib.version(version, sizeof version), Failure(), "goccl_version");
  const goccl_group_options open{
      .abi = GOCCL_ABI, .rank = 0, .size = 0, .timeout_ns = std::chrono::nanoseconds(options->timeout).count(),
      .name = options->group_name.c_str(), .options = options->lines.c_str(), .shim_version = version, .device = ""};
  goccl_group next = 0;
  goccl_work coming = 0;
  Failure failure;
  const int rc = lib.group_come(&open, address.c_str(), &next, slice_ns(), &coming, &failure);
  TORCH_CHECK_VALUE(rc != GOCCL_INVALID, failure.text); // an invalid option or address
  return entered(title, rc, next, coming, failure, nullptr, options);
}

c10::intrusive_ptr<GocclBackend>
GocclBackend::entered(const char* title, int rc, goccl_group next, goccl_work work, Failure& failure,
                      const StorePtr& store, const GroupOptionsPtr& options) {
  std::exception_ptr interrupt;
  if (work != 0) rc = await(work, Limit(), next, interrupt, &failure), free_works(work);
  goccl_group_state state{};
  if (rc == GOCCL_OK && !interrupt) rc = lib.group_state_of(next, &state, &failure);
  if (next != 0 && (rc != GOCCL_OK || interrupt || state.size == 0)) lib.group_free(next);
  if (interrupt) std::rethrow_exception(interrupt);
  check(rc, failure, title);
  if (state.size == 0) return nullptr;
  options->global_ranks_in_group.clear(); // it is the whole job
  return c10::make_intrusive<GocclBackend>(store, state.rank, state.size, options, next);
}

std::string GocclBackend::address() const {
  std::string text(1 << 16, '\0'); // of at most 8 ranks
  size_t n = 0;
  checked_call("goccl address", lib.group_address, group_, text.data(), text.size(), &n);
  return text.substr(0, std::min(n, text.size()));
}

std::string GocclBackend::locate(int rank) const {
  std::string lines(4096, '\0'); // of at most 32 addresses
  size_t n = 0;
  checked_call("goccl locate", lib.group_locate, group_, rank, lines.data(), lines.size(), &n);
  return lines.substr(0, std::min(n, lines.size()));
}

#ifdef C10D_BACKEND_HAS_RECONFIGURE
void GocclBackend::become(GocclBackend& next) {
  WithoutGil without_gil;
  checked_call("goccl reconfigure", lib.group_become, group_, std::exchange(next.group_, 0));
  checked_call("goccl set_timeout", lib.group_set_timeout, group_, timeout_ns(options_->timeout));
  std::unique_lock<std::mutex> lock(devices_mutex_);
  const auto former = std::exchange(devices_, {});
  lock.unlock();
  for (const auto& each : former) lib.group_free(each->group); // those of the new members are made anew
  meeting_ = next.meeting_;
  rank_ = next.getRank();
  size_ = next.getSize();
  member_ = member(*options_, rank_, size_);
  options_->global_ranks_in_group = next.options_->global_ranks_in_group;
  described_ = false;
  use_members();
  observers_->reset();
}

c10d::ReconfigureHandle GocclBackend::get_reconfigure_handle() const {
  return c10::str("goccl:", std::setw(10), std::setfill('0'),
                  global_rank(getRank()), ':', identity_, ':', state().generation);
}

WorkPtr GocclBackend::reconfigure(const c10d::ReconfigureOptions& options) {
  check_not_forked("goccl reconfigure");
  check_open("goccl reconfigure");
  regroup("reconfigure", store_, get_reconfigure_handle(),
          options.handles, options.uuid, options.timeout.value_or(options_->timeout));
  auto future = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::ofTensors());
  future->markCompleted(c10::IValue(std::vector<at::Tensor>()));
  return c10d::Work::create_from_future(future);
}
#endif

} // namespace goccl
