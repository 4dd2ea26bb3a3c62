// The life of a group: construction to shutdown.
#include "backend.h"

#include <mutex>
#include <unordered_set>

#include <c10/util/Logging.h>

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
  if (forked()) return; // the group belongs to the parent
  WithoutGil without_gil;
  std::unique_lock<std::mutex> lock(open_mutex);
  open_groups().erase(this);
  lock.unlock();
  close();
}

void GocclBackend::close_all() {
  if (forked()) return;
  std::lock_guard<std::mutex> lock(open_mutex);
  for (GocclBackend* backend : open_groups()) backend->close();
}

void GocclBackend::close() noexcept {
  try {
    shutdown();
  } catch (const std::exception& e) {
    LOG(WARNING) << "goccl: closing group " << options_->group_name << ": " << e.what();
  }
}

void GocclBackend::shutdown() {
  check_not_forked("goccl shutdown");
  const goccl_group group = group_.exchange(0);
  if (group == 0) return;
  WithoutGil without_gil;
  Failure failure;
  check(lib.group_close(group, &failure), failure, "goccl shutdown");
}

void GocclBackend::abort() {
  check_not_forked("goccl abort");
  const goccl_group group = group_.load();
  if (group == 0) return;
  WithoutGil without_gil;
  Failure failure;
  const int rc = lib.group_abort(group, "abort() was called on this rank", &failure);
  check(rc == GOCCL_CLOSED ? GOCCL_OK : rc, failure, "goccl abort");
}

goccl_group GocclBackend::group(const char* title) const {
  check_not_forked(title);
  const goccl_group group = group_.load(std::memory_order_relaxed);
  if (C10_UNLIKELY(group == 0)) {
    fail(GOCCL_CLOSED, title, "the process group ", options_->group_name,
         " was shut down (destroy_process_group) and cannot be used any more");
  }
  return group;
}

void GocclBackend::setTimeout(std::chrono::milliseconds timeout) {
  TORCH_CHECK_VALUE(timeout.count() > 0, "goccl: a timeout must be longer than zero; got ", timeout.count(), " ms");
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

} // namespace goccl
