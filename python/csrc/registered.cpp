// Tensors in registered memory, which ranks of one host read in place.
#include "backend.h"
#include "device.h"

#include <ATen/EmptyTensor.h>
#include <c10/core/Allocator.h>
#include <c10/util/Logging.h>
#include <c10/util/ScopeExit.h>
#include <torch/csrc/utils/pybind.h>

namespace goccl {
namespace {

// A fork shares the memory with its parent, which keeps it.
void free_memory(void* memory) {
  if (memory == nullptr || leaving()) return;
  Failure failure;
  if (lib.free(memory, &failure) != GOCCL_OK)
    LOG(WARNING) << "goccl: registered memory was not given back: " << failure.text;
}

// The options that count if no group was made yet, set by the calling thread.
thread_local const char* lines_now = "";

class RegisteredMemory final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    void* memory = nullptr;
    if (bytes > 0) {
      check_not_forked("goccl.empty");
      checked_call("goccl.empty", lib.alloc, lines_now, bytes, &memory);
    }
    return {memory, memory, &free_memory, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_memory; }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }
};

// Storages that may be resized keep a pointer to their allocator, so it is never destroyed.
RegisteredMemory& registered_memory() {
  static auto* memory = new RegisteredMemory;
  return *memory;
}

} // namespace

at::Tensor empty(at::IntArrayRef size, at::ScalarType type, const std::string& lines) {
  lines_now = lines.c_str();
  auto forget = c10::make_scope_exit([] { lines_now = ""; });
  return at::detail::empty_generic(size, &registered_memory(), c10::DispatchKeySet(c10::DispatchKey::CPU), type,
                                   c10::nullopt);
}

uint64_t device_arena(const std::string& device, const std::string& lines) {
  check_not_forked("goccl.mem_pool");
  uint64_t bytes = 0;
  checked_call("goccl.mem_pool", lib.device_arena, lines.c_str(), device.c_str(), &bytes);
  return bytes;
}

std::shared_ptr<c10::Allocator> GocclBackend::getMemAllocator() {
  check_not_forked("goccl mem_allocator");
  return {std::shared_ptr<c10::Allocator>(), &registered_memory()}; // it is never destroyed
}

#if GOCCL_TORCH_AT_LEAST(2, 12)
std::unordered_map<std::string, uint64_t> GocclBackend::getMemoryStats() {
  uint64_t bytes = 0, peak = 0, blocks = 0;
  lib.memory_stats(&bytes, &peak, &blocks);
  return {{"registered_bytes", bytes}, {"registered_bytes_peak", peak}, {"registered_blocks", blocks}};
}
#endif

// What lacks registered memory is warned of once if some was asked for; NotImplementedError means
// that none was.
static at::Tensor empty_on_device(long size, const at::TensorOptions& options) {
  namespace py = pybind11;
  py::gil_scoped_acquire gil;
  try {
    const auto type = c10::typeMetaToScalarType(options.dtype());
    return py::module_::import("goccl._registered")
        .attr("empty")(std::vector<int64_t>{size}, py::cast(type), py::cast(options.device()))
        .cast<at::Tensor>();
  } catch (const py::error_already_set& e) {
    if (!e.matches(PyExc_RuntimeError)) throw;
    if (!e.matches(PyExc_NotImplementedError)) {
      TORCH_WARN_ONCE(e.what(), "; buffers of collectives are ordinary memory then, which is slower");
    }
  }
  return {};
}

// FSDP and others allocate buffers of collectives here. They get ordinary memory if there is no
// registered memory, or none left.
at::Tensor GocclBackend::allocateTensor(long size, at::TensorOptions options) {
  check_not_forked("goccl allocate_tensor");
  if (options.device().type() == device_type()) {
    const at::Tensor made = empty_on_device(size, options);
    if (made.defined()) return made;
  }
  if (options.device().is_cpu()) {
    try {
      WithoutGil without_gil;
      return empty({size}, c10::typeMetaToScalarType(options.dtype()), options_->lines);
    } catch (const c10::NotImplementedError&) { // GOCCL_REGISTERED=0
    } catch (const c10::DistBackendError& e) {
      TORCH_WARN_ONCE(e.what_without_backtrace(), "; buffers of collectives are ordinary memory then, which is slower");
    }
  }
  return at::empty({size}, options);
}

} // namespace goccl
