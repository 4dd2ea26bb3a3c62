// How the ranks of a group find each other: everyone puts its address into the store and collects those of the others.
#include "backend.h"

#include <thread>

#include <c10/util/ScopeExit.h>

namespace goccl {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds, std::chrono::milliseconds;

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

// Returns when all keys are there, or throws at the deadline. It asks again and again: a wait in the store would hold up
// every other thread that uses the same client, and a client of its own (clone) takes seconds to connect now and then.
void await(c10d::Store& store, const std::vector<std::string>& keys, Clock::time_point deadline) {
  for (auto pause = microseconds(100); !store.check(keys); pause = std::min(pause * 2, microseconds(20000))) {
    if (Clock::now() >= deadline) throw std::runtime_error("time is over");
    std::this_thread::sleep_for(pause);
  }
}

// The addresses of all ranks under the keys, or an exception that names the ranks whose key is missing.
std::vector<std::vector<uint8_t>> collect(c10d::Store& store, const std::vector<std::string>& keys, int rank,
                                          const GocclOptions& options, Clock::time_point deadline) {
  try {
    await(store, keys, deadline);
    if (store.hasExtendedApi()) return store.multiGet(keys);
    std::vector<std::vector<uint8_t>> addresses;
    for (const std::string& key : keys) addresses.push_back(store.get(key));
    return addresses;
  } catch (const std::exception& e) {
    std::string missing, why = e.what();
    try {
      missing = missing_ranks(store, keys, options.global_ranks_in_group);
    } catch (const std::exception&) {} // the store itself is gone, which is what the first exception says
    if (missing.empty() || Clock::now() < deadline - milliseconds(100)) {
      fail(GOCCL_SYSTEM, "goccl", "rank ", rank, " of group ", options.group_name,
           " could not read the addresses of the other ranks from the store: ", why);
    }
    fail(GOCCL_TIMEOUT, "goccl", missing, " (of ", keys.size(), ") did not come to group ", options.group_name, " within ",
         options.timeout.count() / 1000.0, " s: not started, still busy, or failed before the call of init_process_group or ",
         "new_group; look at the output there, or raise the timeout");
  }
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
  TORCH_CHECK_VALUE(options.timeout.count() > 0, "goccl: a timeout must be longer than zero; got ", options.timeout.count(), " ms");
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

  // The same store and group name may be used again after destroy_process_group: each rank counts its attempts, and the keys
  // of earlier ones are left alone.
  const int64_t attempt = store.add(c10::str("goccl/gen/", rank), 1);
  std::vector<std::string> keys;
  for (int r = 0; r < size; r++) keys.push_back(c10::str("goccl/addr/", attempt, "/", r));
  store.set(keys[rank], own);
  const auto addresses = collect(store, keys, rank, options, deadline);

  std::vector<const void*> data;
  std::vector<size_t> lengths;
  for (const auto& address : addresses) {
    data.push_back(address.data());
    lengths.push_back(address.size());
  }
  check(lib.group_join(group, data.data(), lengths.data(), size, &failure), failure, "goccl_group_join");
  close.release();
  return group;
}

} // namespace goccl
