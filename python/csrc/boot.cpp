// How a group is made: opened, its address exchanged for those of the other ranks, joined.
#include "backend.h"

#include <torch/csrc/utils/pybind.h>

namespace goccl {
namespace {

// Returns the addresses of all ranks, by rank. It waits for them; the exception names the missing
// ranks.
std::vector<std::string> exchange(const StorePtr& store, const std::string& own, int rank, int size,
                                  const GroupOptionsPtr& options) {
  py::gil_scoped_acquire gil;
  const py::object meet = py::module_::import("goccl._boot").attr("exchange");
  return meet(store, py::bytes(own), rank, size, options).cast<std::vector<std::string>>();
}

} // namespace

GocclBackend::Opening GocclBackend::open(int rank, int size, const GocclOptions& options, const std::string& device) {
  char version[64] = "";
  check(lib.version(version, sizeof version), Failure(), "goccl_version");
  // Records and messages tell the groups of one backend apart by their names.
  const std::string name = device.empty() ? options.group_name : c10::str(options.group_name, "/cuda");
  const goccl_group_options open{
      .abi = GOCCL_ABI, .rank = rank, .size = size,
      .timeout_ns = std::chrono::nanoseconds(options.timeout).count(), .name = name.c_str(),
      .options = options.lines.c_str(), .shim_version = version, .device = device.c_str()};
  Opening opening{0, std::string(GOCCL_MAX_ADDRESS, '\0')};
  size_t length = 0;
  Failure failure;
  const int rc = lib.group_open(&open, &opening.group, opening.address.data(), opening.address.size(), &length,
                                &failure);
  TORCH_CHECK_VALUE(rc != GOCCL_INVALID, failure.text); // an invalid option, rank or size
  check(rc, failure, "goccl_group_open");
  opening.address.resize(length);
  return opening;
}

void GocclBackend::join(const StorePtr& store, const Opening& opening, int rank, int size,
                        const GroupOptionsPtr& options) {
  const auto addresses = exchange(store, opening.address, rank, size, options);
  std::vector<const void*> data;
  std::vector<size_t> lengths;
  for (const std::string& address : addresses) {
    data.push_back(address.data());
    lengths.push_back(address.size());
  }
  goccl_work joining = 0;
  std::exception_ptr interrupt;
  Failure failure;
  int rc = lib.group_join(opening.group, data.data(), lengths.data(), size, slice_ns(), &joining, &failure);
  if (joining != 0) rc = await(joining, Limit(), opening.group, interrupt, &failure), give_back(joining);
  if (interrupt) std::rethrow_exception(interrupt);
  // All addresses are known here, so an unreachable address is a failure of the network.
  if (rc == GOCCL_TIMEOUT || rc == GOCCL_PEER_LOST || rc == GOCCL_PEER_LEFT)
    C10_THROW_ERROR(DistNetworkError, failure.text);
  check(rc, failure, "goccl_group_join");
}

c10::intrusive_ptr<GocclBackend> GocclBackend::create(const StorePtr& store, int rank, int size,
                                                      const GroupOptionsPtr& options) {
  TORCH_CHECK_VALUE(store, "goccl: a process group needs a store; make groups with torch.distributed");
  TORCH_CHECK(lib.group_open != nullptr, "goccl: libgoccl is not loaded; make groups with torch.distributed");
  check_not_forked("goccl");
  if (size > 1) Callback::refuse("goccl: making a group");
  bool later = false; // the group gets its members later
#ifdef C10D_BACKEND_HAS_RECONFIGURE
  later = options->enable_reconfigure;
  if (later) options->strangers = true;
#endif
  const Opening opening = open(later ? 0 : rank, later ? 0 : size, *options, "");
  // From here on, this object closes the group whatever happens.
  const auto backend = c10::make_intrusive<GocclBackend>(store, rank, size, options, opening.group);
  if (!later) join(store, opening, rank, size, options);
  return backend;
}

} // namespace goccl
