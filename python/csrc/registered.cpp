#include "registered.h"

#include <mutex>

#include <ATen/EmptyTensor.h>
#include <c10/core/Allocator.h>
#include <c10/util/Logging.h>

#include "backend.h"

namespace goccl {
namespace {

// A fork shares the memory with its parent, who keeps it.
void give_back(void* memory) {
  if (memory == nullptr || forked()) return;
  Failure failure;
  if (lib.free(memory, &failure) != GOCCL_OK) LOG(WARNING) << "goccl: registered memory was not given back: " << failure.text;
}

class RegisteredMemory final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    void* memory = nullptr;
    if (bytes > 0) {
      check_not_forked("goccl.empty");
      Failure failure;
      check(lib.alloc(lines.c_str(), bytes, &memory, &failure), failure, "goccl.empty");
    }
    return {memory, memory, &give_back, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &give_back; }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }

  std::string lines;
  std::mutex mutex; // of the lines
};

// Storages that may be resized know their allocator, so it stays until the end.
RegisteredMemory& registered_memory() {
  static auto* memory = new RegisteredMemory;
  return *memory;
}

at::Tensor allocate(at::IntArrayRef size, at::ScalarType type) {
  return at::detail::empty_generic(size, &registered_memory(), c10::DispatchKeySet(c10::DispatchKey::CPU), type, c10::nullopt);
}

} // namespace

at::Tensor empty(at::IntArrayRef size, at::ScalarType type, const std::string& lines) {
  RegisteredMemory& memory = registered_memory();
  std::lock_guard<std::mutex> lock(memory.mutex);
  memory.lines = lines;
  return allocate(size, type);
}

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
