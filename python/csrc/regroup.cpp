// Groups made from a group: split, merge, shrink, and a group whose members change. All of them meet over the store and make a
// new group of the core; nothing is shared with the former one, which goes on (or is aborted) on its own.
#include "backend.h"

#include <algorithm>
#include <iomanip>
#include <set>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

namespace goccl {

c10::intrusive_ptr<GocclOptions> GocclBackend::options_for(const OptionsPtr& given) const {
  c10::intrusive_ptr<GocclOptions> copy;
  if (!given) {
    copy = c10::make_intrusive<GocclOptions>(*options_);
  } else {
    const auto own = c10::dynamic_intrusive_pointer_cast<GocclOptions>(given);
    TORCH_CHECK_TYPE(own, "goccl: the options of a group made from a goccl group must be goccl's own, as goccl.Options(...).native() ",
                     "or copy.deepcopy(backend.options) gives them; got those of ", given->backend);
    copy = c10::make_intrusive<GocclOptions>(*own); // older versions of torch pass the parent's own
  }
  if (copy->told.count() > 0) copy->timeout = copy->told;
#ifdef C10D_BACKEND_HAS_RECONFIGURE
  copy->enable_reconfigure = false;
#endif
  return copy;
}

uint64_t GocclBackend::global_rank(int rank) const {
  const auto& ranks = options_->global_ranks_in_group;
  return static_cast<size_t>(rank) < ranks.size() ? ranks[rank] : rank; // none are listed where they are the same
}

BackendPtr GocclBackend::split(const StorePtr& store, const std::vector<int>& ranks, const OptionsPtr& options) {
  group("goccl split"); // it is open
  const auto mine = options_for(options);
  mine->global_ranks_in_group.clear();
  for (int rank : ranks) {
    TORCH_CHECK_VALUE(rank >= 0 && rank < getSize(), "goccl split: ", member_, ": ", rank, " is no rank of this group of ", getSize());
    TORCH_CHECK_VALUE(std::count(ranks.begin(), ranks.end(), rank) == 1, "goccl split: ", member_, ": rank ", rank, " is listed twice");
    mine->global_ranks_in_group.push_back(global_rank(rank));
  }
  const auto found = std::find(ranks.begin(), ranks.end(), getRank());
  if (found == ranks.end()) return nullptr;
  WithoutGil without_gil;
  return create(store, static_cast<int>(found - ranks.begin()), static_cast<int>(ranks.size()), mine, version_);
}

BackendPtr GocclBackend::merge(const StorePtr& store, const OptionsPtr& options, const int& rank, const int& size) {
  const auto mine = options_for(options);
  mine->global_ranks_in_group.clear(); // those of the other groups are not known here
  WithoutGil without_gil;
  return create(store, rank, size, mine, version_);
}

BackendPtr GocclBackend::shrink(const std::vector<int64_t>& excluded, int flags, const OptionsPtr& options) {
  constexpr int kAbort = 1; // SHRINK_ABORT of torch.distributed
  TORCH_CHECK_VALUE((flags & ~kAbort) == 0, "goccl shrink: ", member_, ": unknown flags ", flags,
                    "; there are SHRINK_DEFAULT (0) and SHRINK_ABORT (1)");
  const std::set<int64_t> gone(excluded.begin(), excluded.end());
  TORCH_CHECK_VALUE(!gone.empty() && *gone.begin() >= 0 && *gone.rbegin() < getSize(), "goccl shrink: ", member_, ": ", excluded,
                    " are not ranks of this group of ", getSize());
  TORCH_CHECK_VALUE(gone.count(getRank()) == 0, "goccl shrink: ", member_, ": this rank is to be excluded, ",
                    "and only those that stay call this");
  WithoutGil without_gil;
  const auto mine = options_for(options);
  if (mine->group_name.empty()) mine->group_name = options_->group_name;
  if ((flags & kAbort) != 0) abort(c10::str("the group is made anew without ranks ", excluded));
  mine->global_ranks_in_group.clear();
  int rank = 0;
  std::string name = "goccl/shrink";
  for (int r = 0; r < getSize(); r++) {
    if (gone.count(r) != 0) {
      name += c10::str("/", r);
      continue;
    }
    if (r == getRank()) rank = static_cast<int>(mine->global_ranks_in_group.size());
    mine->global_ranks_in_group.push_back(global_rank(r));
  }
  const int size = static_cast<int>(mine->global_ranks_in_group.size());
  return create(c10::make_intrusive<c10d::PrefixStore>(name, store_), rank, size, mine, version_);
}

#ifdef C10D_BACKEND_HAS_RECONFIGURE
namespace {
constexpr const char* kHandle = "goccl:";

// The handles in the order of the ranks to be. Those of a set have none, and are ordered by their numbers in the whole job.
std::vector<c10d::ReconfigureHandle> ordered(const c10d::ReconfigureOptions& options) {
  std::vector<c10d::ReconfigureHandle> handles;
  std::visit([&](const auto& given) { handles.assign(given.begin(), given.end()); }, options.handles);
  auto sorted = handles;
  std::sort(sorted.begin(), sorted.end()); // the numbers have leading zeros
  TORCH_CHECK_VALUE(std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end(), "goccl reconfigure: a handle is listed twice");
  for (const auto& handle : handles) {
    TORCH_CHECK_VALUE(handle.rfind(kHandle, 0) == 0, "goccl reconfigure: ", handle, " is no handle of a goccl group");
  }
  return std::holds_alternative<std::vector<c10d::ReconfigureHandle>>(options.handles) ? handles : sorted;
}

WorkPtr ended_work() {
  auto future = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::ofTensors());
  future->markCompleted(c10::IValue(std::vector<at::Tensor>()));
  return c10d::Work::create_from_future(future);
}
} // namespace

c10d::ReconfigureHandle GocclBackend::get_reconfigure_handle() const {
  return c10::str(kHandle, std::setw(10), std::setfill('0'), global_rank(getRank()), ':', identity_, ':', generation_);
}

WorkPtr GocclBackend::reconfigure(const c10d::ReconfigureOptions& options) {
  check_not_forked("goccl reconfigure");
  if (closed_) fail(GOCCL_CLOSED, "goccl reconfigure", member_, ": the process group was shut down (destroy_process_group)");
  const auto handles = ordered(options);
  const auto own = get_reconfigure_handle();
  const auto found = std::find(handles.begin(), handles.end(), own);
  TORCH_CHECK_VALUE(found != handles.end(), "goccl reconfigure: ", member_, ": the handle of this rank, ", own, ", is not among the ",
                    handles.size(), " given; handles change with every reconfiguration, so ask for them again before the next");
  WithoutGil without_gil;
  const int rank = static_cast<int>(found - handles.begin());
  const StorePtr store = c10::make_intrusive<c10d::PrefixStore>(c10::str("goccl/reconfigure/", options.uuid), store_);
  const std::string claimed = store->compareSet(c10::str("claimed/", rank), "", own);
  TORCH_CHECK_VALUE(claimed == own, "goccl reconfigure: ", member_, ": uuid ", options.uuid, " was used before (by ", claimed,
                    "); every reconfiguration needs a number of its own");
  std::vector<uint64_t> ranks;
  for (const auto& handle : handles) ranks.push_back(std::stoull(handle.substr(std::string(kHandle).size())));

  GocclOptions mine(*options_);
  mine.global_ranks_in_group = ranks;
  mine.timeout = options.timeout.value_or(options_->timeout);
  const int size = static_cast<int>(handles.size());
  const goccl_group made = join(*store, rank, size, mine, version_); // on failure the group stays what it was
  Failure failure;
  check(lib.group_set_timeout(made, timeout_ns(options_->timeout), &failure), failure, "goccl set_timeout");
  observe(made, observers_);
  const goccl_group former = group_.exchange(made);
  rank_ = rank;
  size_ = size;
  member_ = member(*options_, rank, size);
  options_->global_ranks_in_group = std::move(ranks);
  monitored_ = 0;
  generation_++;
  observers_->reset();
  if (former != 0) {
    observe_no_more(former);
    check(lib.group_close(former, &failure), failure, "goccl reconfigure");
  }
  return ended_work();
}
#endif

} // namespace goccl
