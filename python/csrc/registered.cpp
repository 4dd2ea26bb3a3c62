#include "registered.h"

#include <algorithm>
#include <mutex>
#include <unordered_map>

#include <ATen/EmptyTensor.h>
#include <c10/core/Allocator.h>
#include <c10/util/Logging.h>
#include <c10/util/ScopeExit.h>

#include "backend.h"

namespace goccl {
namespace {

// What is in use, for getMemoryStats.
struct Uses {
  std::mutex mutex;
  std::unordered_map<void*, size_t> blocks;
  uint64_t bytes = 0, peak = 0;
};

Uses& uses() {
  static auto* u = new Uses; // tensors are freed until the very end
  return *u;
}

void taken(void* memory, size_t bytes) {
  std::lock_guard<std::mutex> lock(uses().mutex);
  uses().blocks[memory] = bytes;
  uses().peak = std::max(uses().peak, uses().bytes += bytes);
}

// A fork shares the memory with its parent, who keeps it.
void give_back(void* memory) {
  if (memory == nullptr || forked()) return;
  {
    std::lock_guard<std::mutex> lock(uses().mutex);
    const auto found = uses().blocks.find(memory);
    uses().bytes -= found->second;
    uses().blocks.erase(found);
  }
  Failure failure;
  if (lib.free(memory, &failure) != GOCCL_OK) LOG(WARNING) << "goccl: registered memory was not given back: " << failure.text;
}

// Options for where no group was made yet; those of the thread that asks.
thread_local const char* lines_now = "";

class RegisteredMemory final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    void* memory = nullptr;
    if (bytes > 0) {
      check_not_forked("goccl.empty");
      Failure failure;
      check(lib.alloc(lines_now, bytes, &memory, &failure), failure, "goccl.empty");
      taken(memory, bytes);
    }
    return {memory, memory, &give_back, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &give_back; }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }
};

// Storages that may be resized know their allocator, so it stays until the end.
RegisteredMemory& registered_memory() {
  static auto* memory = new RegisteredMemory;
  return *memory;
}

} // namespace

at::Tensor empty(at::IntArrayRef size, at::ScalarType type, const std::string& lines) {
  lines_now = lines.c_str();
  auto forget = c10::make_scope_exit([] { lines_now = ""; });
  return at::detail::empty_generic(size, &registered_memory(), c10::DispatchKeySet(c10::DispatchKey::CPU), type, c10::nullopt);
}

std::shared_ptr<c10::Allocator> GocclBackend::getMemAllocator() {
  check_not_forked("goccl mem_allocator");
  return {std::shared_ptr<c10::Allocator>(), &registered_memory()}; // it is never destroyed
}

#if GOCCL_TORCH_AT_LEAST(2, 12)
std::unordered_map<std::string, uint64_t> GocclBackend::getMemoryStats() {
  std::lock_guard<std::mutex> lock(uses().mutex);
  return {{"registered_bytes", uses().bytes}, {"registered_bytes_peak", uses().peak}, {"registered_blocks", uses().blocks.size()}};
}
#endif

bool GocclBackend::supportsTensorAlloc(c10::DeviceIndex device) { return device < 0; } // of the CPU

// FSDP and others ask for buffers of collectives here. They do without where there is no registered memory, or none left.
at::Tensor GocclBackend::allocateTensor(long size, at::TensorOptions options) {
  check_not_forked("goccl allocate_tensor");
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
