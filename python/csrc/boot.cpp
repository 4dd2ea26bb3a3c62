// How the ranks of a group find each other: everyone puts its address into the store and collects those of the others.
#include "backend.h"

#include <thread>

#include <c10/util/ScopeExit.h>

namespace goccl {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;

constexpr size_t kNamedRanks = 32; // no message names more
// The ranks whose key is missing, with their global ranks where those are other numbers.
std::string missing_ranks(c10d::Store& store, const std::vector<std::string>& keys, const std::vector<uint64_t>& global) {
  std::string names;
  size_t count = 0;
  for (size_t r = 0; r < keys.size(); r++) {
    if (!store.check({keys[r]}) && ++count <= kNamedRanks) {
      names += c10::str(count == 1 ? "" : ", ", r);
      names += r < global.size() && global[r] != r ? c10::str(" (global rank ", global[r], ")") : "";
    }
  }
  names += count > kNamedRanks ? c10::str(" and ", count - kNamedRanks, " more") : "";
  return count == 0 ? "" : (count == 1 ? "rank " : "ranks ") + names;
}

// Whether all keys are there before the deadline. It asks again and again: a wait in the store would hold up every other thread
// that uses the same client, and a client of its own (clone) takes seconds to connect now and then.
bool await(c10d::Store& store, const std::vector<std::string>& keys, Clock::time_point deadline) {
  for (auto pause = microseconds(100); !store.check(keys); pause = std::min(pause * 2, microseconds(20000))) {
    if (Clock::now() >= deadline) return false;
    std::this_thread::sleep_for(pause);
  }
  return true;
}

std::vector<std::vector<uint8_t>> get_all(c10d::Store& store, const std::vector<std::string>& keys) {
  if (store.hasExtendedApi()) return store.multiGet(keys);
  std::vector<std::vector<uint8_t>> values;
  for (const std::string& key : keys) values.push_back(store.get(key));
  return values;
}

// Puts the own address into the store, and returns those of all ranks. The exception names the ranks that did not come.
std::vector<std::vector<uint8_t>> exchange(c10d::Store& store, const std::vector<uint8_t>& own, int rank, int size,
                                           const GocclOptions& options, Clock::time_point deadline) {
  std::string missing;
  try {
    // The same store and group name may be used again after destroy_process_group: each rank counts its attempts, and the keys
    // of earlier ones are left alone.
    const int64_t attempt = store.add(c10::str("goccl/gen/", rank), 1);
    std::vector<std::string> keys;
    for (int r = 0; r < size; r++) keys.push_back(c10::str("goccl/addr/", attempt, "/", r));
    store.set(keys[rank], own);
    if (!await(store, keys, deadline)) missing = missing_ranks(store, keys, options.global_ranks_in_group);
    if (missing.empty()) return get_all(store, keys);
  } catch (const std::exception& e) {
    const auto* error = dynamic_cast<const c10::Error*>(&e);
    C10_THROW_ERROR(DistNetworkError, c10::str("goccl: ", member(options, rank, size), ": join: the store, over which ranks exchange ",
                                               "their addresses, failed; is the process that serves it (rank 0, as a rule) alive? ",
                                               error != nullptr ? error->what_without_backtrace() : e.what()));
  }
  fail(GOCCL_TIMEOUT, "goccl", member(options, rank, size), ": join: timeout: ", missing, " (of ", size, ") did not come to group ",
       options.group_name, " within ", options.timeout.count() / 1000.0, " s: not started, still busy, or failed before the call of ",
       "init_process_group or new_group; look at the output there, or raise the timeout");
}

// All addresses are known here: that one of them cannot be reached is a failure of the network.
void check_joined(int code, const goccl_error& failure) {
  if (code == GOCCL_TIMEOUT || code == GOCCL_PEER_LOST || code == GOCCL_PEER_LEFT) C10_THROW_ERROR(DistNetworkError, failure.text);
  check(code, failure, "goccl_group_join");
}

} // namespace

c10::intrusive_ptr<GocclBackend> GocclBackend::create(const StorePtr& store, int rank, int size,
                                                      const c10::intrusive_ptr<GocclOptions>& options,
                                                      const std::string& version) {
  TORCH_CHECK_VALUE(store, "goccl: a process group needs a store; make groups with torch.distributed");
  goccl_group group = 0;
#ifdef C10D_BACKEND_HAS_RECONFIGURE
  if (!options->enable_reconfigure) // else it gets its members later
#endif
  group = join(*store, rank, size, *options, version);
  return c10::make_intrusive<GocclBackend>(store, rank, size, options, version, group);
}

goccl_group GocclBackend::join(c10d::Store& store, int rank, int size, const GocclOptions& options, const std::string& version) {
  TORCH_CHECK(lib.group_open != nullptr, "goccl: libgoccl is not loaded; make groups with torch.distributed");
  check_not_forked("goccl");
  TORCH_CHECK_VALUE(options.timeout.count() > 0, "goccl: ", member(options, rank, size), ": a timeout must be longer than zero; got ",
                    options.timeout.count(), " ms");
  const auto deadline = Clock::now() + options.timeout;

  goccl_group_options open{};
  open.abi = GOCCL_ABI;
  open.rank = rank;
  open.size = size;
  open.timeout_ns = timeout_ns(options.timeout);
  open.name = options.group_name.c_str();
  open.options = options.lines.c_str();
  open.shim_version = version.c_str();
  std::vector<uint8_t> own(GOCCL_MAX_ADDRESS);
  size_t length = 0;
  goccl_group group = 0;
  Failure failure;
  const int rc = lib.group_open(&open, &group, own.data(), own.size(), &length, &failure);
  TORCH_CHECK_VALUE(rc != GOCCL_INVALID, failure.text); // an option, a rank or a size that cannot be
  check(rc, failure, "goccl_group_open");
  own.resize(length);
  auto close = c10::make_scope_exit([group] { lib.group_close(group, nullptr); });

  const auto addresses = exchange(store, own, rank, size, options, deadline);
  std::vector<const void*> data;
  std::vector<size_t> lengths;
  for (const auto& address : addresses) {
    data.push_back(address.data());
    lengths.push_back(address.size());
  }
  check_joined(lib.group_join(group, data.data(), lengths.data(), size, &failure), failure);
  close.release();
  return group;
}

} // namespace goccl
