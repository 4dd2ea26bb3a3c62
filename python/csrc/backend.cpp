// The life of a group: construction to shutdown, and the step that every operation goes through.
#include "backend.h"

#include <mutex>
#include <unordered_set>

#include "gil.h"

namespace goccl {

namespace {
// Groups that are open, for close_all.
std::mutex open_mutex;
std::unordered_set<GocclBackend*>& open_groups() {
  static auto* groups = new std::unordered_set<GocclBackend*>;
  return *groups;
}
} // namespace

GocclBackend::GocclBackend(int rank, int size, c10::intrusive_ptr<GocclOptions> options, goccl_group group)
    : Backend(rank, size), options_(std::move(options)), group_(group) {
  std::lock_guard<std::mutex> lock(open_mutex);
  open_groups().insert(this);
}

GocclBackend::~GocclBackend() {
  if (forked()) {
    return; // the group belongs to the parent
  }
  WithoutGil without_gil;
  {
    std::lock_guard<std::mutex> lock(open_mutex);
    open_groups().erase(this);
  }
  try {
    shutdown();
  } catch (const std::exception& e) {
    LOG(WARNING) << "goccl: closing group " << options_->group_name << ": " << e.what();
  }
}

void GocclBackend::close_all() {
  if (forked()) {
    return;
  }
  std::lock_guard<std::mutex> lock(open_mutex);
  for (GocclBackend* backend : open_groups()) {
    try {
      backend->shutdown();
    } catch (const std::exception& e) {
      LOG(WARNING) << "goccl: closing group " << backend->options_->group_name << ": " << e.what();
    }
  }
}

void GocclBackend::shutdown() {
  check_not_forked("goccl shutdown");
  const goccl_group group = group_.exchange(0);
  if (group == 0) {
    return;
  }
  WithoutGil without_gil;
  Failure failure;
  const int rc = lib.group_close(group, &failure);
  if (rc != GOCCL_OK) {
    throw_failure(rc, failure, "goccl shutdown");
  }
}

void GocclBackend::abort() {
  check_not_forked("goccl abort");
  const goccl_group group = group_.load();
  if (group == 0) {
    return;
  }
  WithoutGil without_gil;
  Failure failure;
  const int rc = lib.group_abort(group, "abort() was called on this rank", &failure);
  if (rc != GOCCL_OK && rc != GOCCL_CLOSED) {
    throw_failure(rc, failure, "goccl abort");
  }
}

goccl_group GocclBackend::group(const char* title) const {
  check_not_forked(title);
  const goccl_group group = group_.load(std::memory_order_relaxed);
  if (C10_UNLIKELY(group == 0)) {
    throw_failure(GOCCL_CLOSED, title, c10::str("the process group ", options_->group_name,
      " was shut down (destroy_process_group) and cannot be used any more"));
  }
  return group;
}

void GocclBackend::setTimeout(std::chrono::milliseconds timeout) {
  TORCH_CHECK(timeout.count() > 0, "goccl: a timeout must be longer than zero; got ", timeout.count(), " ms");
  Failure failure;
  const int rc = lib.group_set_timeout(group("goccl set_timeout"), timeout_ns(timeout), &failure);
  if (rc != GOCCL_OK) {
    throw_failure(rc, failure, "goccl set_timeout");
  }
  options_->timeout = timeout;
}

uint64_t GocclBackend::getSequenceNumberForGroup() {
  uint64_t seq = 0;
  Failure failure;
  const int rc = lib.group_seq(group("goccl sequence number"), &seq, &failure);
  if (rc != GOCCL_OK) {
    throw_failure(rc, failure, "goccl sequence number");
  }
  return seq;
}

// The core tells the state of a group with any question about it.
c10d::ErrorType GocclBackend::getError() {
  const goccl_group group = group_.load();
  if (group == 0 || forked()) {
    return c10d::ErrorType::COMM_ERROR;
  }
  uint64_t seq = 0;
  Failure failure;
  switch (lib.group_seq(group, &seq, &failure)) {
    case GOCCL_OK:
      return c10d::ErrorType::SUCCESS;
    case GOCCL_TIMEOUT:
      return c10d::ErrorType::TIMEOUT;
    case GOCCL_PEER_LOST:
    case GOCCL_PEER_LEFT:
      return c10d::ErrorType::REMOTE_ERROR;
    default:
      return c10d::ErrorType::COMM_ERROR;
  }
}

int GocclBackend::checked_root(const Kind& kind, int64_t root) const {
  GOCCL_CHECK(root >= 0 && root < getSize(), kind, "invalid root rank: ", root, "; the group has ", getSize(), " ranks");
  return static_cast<int>(root);
}

GocclBackend::WorkPtr GocclBackend::issue(const Kind& kind, Request& request, bool asynchronous, at::TensorList inputs) {
  const goccl_group group = this->group(kind.title);
  auto work = c10::make_intrusive<GocclWork>(getRank(), kind, group, std::move(request.held), inputs);
  const goccl_call& call = request.finish();
  const bool collective = call.coll <= GOCCL_BARRIER;
  const uint64_t seq = collective ? posted_.fetch_add(1, std::memory_order_relaxed) + 1 : 0;
  if (asynchronous) {
    work->start(call);
  } else {
    work->run(call, seq);
  }
  return work;
}

GocclBackend::WorkPtr GocclBackend::issue_all(const Kind& kind, std::vector<Request>& requests, bool asynchronous,
                                              at::TensorList inputs) {
  if (requests.size() == 1) {
    return issue(kind, requests.front(), asynchronous, inputs);
  }
  const goccl_group group = this->group(kind.title);
  Held held;
  for (Request& request : requests) {
    held.absorb(std::move(request.held));
  }
  auto work = c10::make_intrusive<GocclWork>(getRank(), kind, group, std::move(held), inputs);
  for (Request& request : requests) {
    work->start(request.finish());
    posted_.fetch_add(1, std::memory_order_relaxed);
  }
  return work;
}

} // namespace goccl
