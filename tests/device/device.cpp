// A torch device for tests (PrivateUse1): memory of the host, with the streams and events of the
// simulated GPU driver in libgoccl's build for tests (cabi/libgoccl/cudatest.go).
//
// An operator is a kernel in the current stream: it starts when it is its turn there, and is the CPU's
// on the same memory. Mostly the caller executes it. So the host waits for kernels, but it learns
// nothing by that: the driver checks accesses as if kernels were executed later, as on a GPU. Copies,
// and what tests do while a stream is held (kLater), are executed by the machine, and nobody waits.
//
// Memory goes back to the stream for which it was allocated, as with torch's allocator for CUDA, and
// is filled by a kernel in that stream. So whoever still uses it in another one, and has not recorded
// that, is told (a race), and finds NaNs. Strictly, that happens as soon as it is freed; otherwise when
// it is allocated again, for programs that order their streams in between, as FSDP does.
#include <dlfcn.h>
#include <pthread.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/is_set_to_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>
#include <torch/version.h>

#include "libgoccl.h" // as cgo has written it

namespace {

constexpr auto kSim = c10::DeviceType::PrivateUse1;
constexpr int kMostDevices = 16;
constexpr int kPool = 32; // streams of each urgency, as torch has for CUDA
constexpr int kFreed = 0xff; // the bytes of freed memory: NaN, or -1

#define FUNCTIONS(X)                                                                            \
  X(start) X(stream_new) X(stream_done) X(stream_synchronize) X(stream_capturing) X(copy)       \
  X(fill) X(launch) X(kernel_begin) X(kernel_end) X(event_new) X(event_record) X(event_wait)              \
  X(event_done) X(event_synchronize) X(event_destroy) X(expose) X(hide) X(free_text)

struct {
#define X(name) decltype(&::goccl_test_##name) name = nullptr;
  FUNCTIONS(X)
#undef X
} driver;

std::atomic<int> devices{0}; // 0 until start
std::atomic<bool> forked{false};
std::atomic<bool> strict{true};

void check(char* error, const char* what) {
  if (error == nullptr) return;
  std::string text = error;
  driver.free_text(error);
  TORCH_CHECK(false, "simulated device: ", what, ": ", text);
}

// For what must not throw.
bool ends_well(char* error) {
  if (error != nullptr) driver.free_text(error);
  return error == nullptr;
}

// Streams. The id of a stream is its handle; 0 is that of the default stream, as in CUDA.

thread_local c10::DeviceIndex current_device = 0;
thread_local std::array<c10::StreamId, kMostDevices> current_streams{};

c10::Device device_at(c10::DeviceIndex index) { return c10::Device(kSim, index < 0 ? current_device : index); }

c10::Stream stream_of(c10::Device device, c10::StreamId id) {
  return c10::Stream(c10::Stream::UNSAFE, device_at(device.index()), id);
}

c10::StreamId current_stream(c10::DeviceIndex device) { return current_streams.at(device_at(device).index()); }

c10::Stream pool_stream(c10::Device device, bool urgent) {
  static std::mutex mutex;
  static std::map<std::pair<int, bool>, std::pair<std::vector<uintptr_t>, size_t>> pools;
  device = device_at(device.index());
  std::lock_guard<std::mutex> lock(mutex);
  auto& [streams, next] = pools[{device.index(), urgent}];
  if (streams.size() < kPool) {
    uintptr_t native = 0;
    check(driver.stream_new(device.index(), urgent, &native), "a new stream");
    streams.push_back(native);
    return stream_of(device, native);
  }
  return stream_of(device, streams[next++ % kPool]);
}

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kSim; }

  c10::Device exchangeDevice(c10::Device device) const override {
    const auto former = current_device;
    setDevice(device);
    return c10::Device(kSim, former);
  }
  c10::Device getDevice() const override { return c10::Device(kSim, current_device); }
  void setDevice(c10::Device device) const override {
    TORCH_CHECK(device.type() == kSim && device.index() < devices, "there is no device ", device);
    uncheckedSetDevice(device);
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.index() >= 0) current_device = device.index();
  }
  c10::DeviceIndex deviceCount() const noexcept override { return static_cast<c10::DeviceIndex>(devices.load()); }

  c10::Stream getStream(c10::Device device) const override { return stream_of(device, current_stream(device.index())); }
  c10::Stream getDefaultStream(c10::Device device) const override { return stream_of(device, 0); }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool urgent) const override {
    return pool_stream(device, urgent);
  }
  c10::Stream getNewStream(c10::Device device, int priority) const override {
    return pool_stream(device, priority < 0);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    return stream_of(stream.device(), std::exchange(current_streams.at(stream.device_index()), stream.id()));
  }
  // Not marked as overrides: not every supported torch has them.
  void* getStreamNativeHandle(const c10::Stream stream) const { return reinterpret_cast<void*>(stream.id()); }
  bool isStreamCapturing(const c10::Stream& stream) const {
    int is = 0;
    check(driver.stream_capturing(stream.device_index(), stream.id(), &is), "isStreamCapturing");
    return is != 0;
  }
  bool queryStream(const c10::Stream& stream) const override {
    int done = 0;
    check(driver.stream_done(stream.device_index(), stream.id(), &done), "queryStream");
    return done != 0;
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    check(driver.stream_synchronize(stream.device_index(), stream.id()), "synchronizeStream");
  }
  void synchronizeDevice(const c10::DeviceIndex device) const override;

  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex, const c10::EventFlag) const override {
    uintptr_t handle = reinterpret_cast<uintptr_t>(*event);
    if (handle == 0) check(driver.event_new(stream.device_index(), &handle), "a new event");
    *event = reinterpret_cast<void*>(handle);
    check(driver.event_record(stream.device_index(), handle, stream.id()), "record");
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event == nullptr) return;
    check(driver.event_wait(stream.device_index(), reinterpret_cast<uintptr_t>(event), stream.id()), "block");
  }
  bool queryEvent(void* event) const override {
    int done = 1;
    if (event != nullptr) check(driver.event_done(0, reinterpret_cast<uintptr_t>(event), &done), "queryEvent");
    return done != 0;
  }
  void synchronizeEvent(void* event) const override {
    if (event != nullptr) check(driver.event_synchronize(0, reinterpret_cast<uintptr_t>(event)), "synchronizeEvent");
  }
  void destroyEvent(void* event, const c10::DeviceIndex device) const noexcept override {
    if (event != nullptr && !forked) ends_well(driver.event_destroy(device, reinterpret_cast<uintptr_t>(event)));
  }
  double elapsedTime(void*, void*, const c10::DeviceIndex) const override { return 0; } // the clock doesn't run
  void recordDataPtrOnStream(const c10::DataPtr& memory, const c10::Stream& stream) const override;
};

const Guard* guard = new Guard; // never destroyed, as the interface asks

// Memory.

// Where the memory of a pool comes from: functions as torch's pluggable allocators have for CUDA.
struct Pool {
  void* (*alloc)(intptr_t bytes, int device, void* stream);
  void (*free)(void* at, intptr_t bytes, int device, void* stream);
};

thread_local const Pool* current_pool = nullptr; // nullptr: the host's

struct Block {
  void* at;
  size_t bytes;
  int device;
  const Pool* pool;
  bool filled;                  // since it was freed
  c10::StreamId stream;         // that of the allocation
  std::set<c10::StreamId> used; // others that have used it
  std::vector<void*> ends;      // events in those, once it is freed
};

struct Memory final : c10::Allocator {
  using Key = std::tuple<int, c10::StreamId, size_t, const Pool*>;

  c10::DataPtr allocate(size_t bytes) override {
    const int device = current_device;
    TORCH_CHECK(device < devices, "the simulated device was not started");
    if (bytes == 0) return {nullptr, nullptr, &release, device_at(device)};
    reap();
    const Key key(device, current_stream(device), bytes, current_pool);
    Block* block = nullptr;
    {
      std::lock_guard<std::mutex> lock(mutex);
      if (auto found = idle.find(key); found != idle.end()) {
        block = found->second;
        idle.erase(found);
      }
    }
    if (block == nullptr) {
      block = current_pool == nullptr ? of_host(bytes, device) : of_pool(bytes, device);
    }
    if (!block->filled) check(fill(block), "allocate");
    block->filled = false;
    std::lock_guard<std::mutex> lock(mutex);
    blocks[block->at] = block;
    return {block->at, block, &release, device_at(device)};
  }
  Block* of_host(size_t bytes, int device) {
    auto* block = new Block{nullptr, bytes, device, nullptr, true, current_stream(device), {}, {}};
    TORCH_CHECK(posix_memalign(&block->at, 256, bytes) == 0, "no memory left for ", bytes, " bytes");
    std::memset(block->at, kFreed, bytes);
    driver.expose(block->at, bytes);
    return block;
  }
  Block* of_pool(size_t bytes, int device) {
    const auto stream = current_stream(device);
    void* at = current_pool->alloc(bytes, device, reinterpret_cast<void*>(stream));
    if (at == nullptr) { // as torch does it, once more without what is kept
      trim();
      at = current_pool->alloc(bytes, device, reinterpret_cast<void*>(stream));
    }
    TORCH_CHECK_WITH(OutOfMemoryError, at != nullptr, "no memory left for ", bytes, " bytes of a pool");
    return new Block{at, bytes, device, current_pool, true, stream, {}, {}};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    check(driver.copy(current_device, current_stream(-1), reinterpret_cast<uintptr_t>(to),
                      reinterpret_cast<uintptr_t>(from), bytes), "copy");
  }

  void record(const c10::DataPtr& memory, const c10::Stream& stream) {
    std::lock_guard<std::mutex> lock(mutex);
    const auto found = blocks.find(memory.get());
    if (found == blocks.end()) return; // of the host, or of nobody
    if (stream.id() != found->second->stream) found->second->used.insert(stream.id());
  }

  static void release(void* context);

  void free(Block* block) {
    {
      std::lock_guard<std::mutex> lock(mutex);
      blocks.erase(block->at);
    }
    try {
      for (const c10::StreamId id : std::exchange(block->used, {})) {
        void* event = nullptr;
        guard->record(&event, stream_of(device_at(block->device), id), block->device, c10::EventFlag::PYTORCH_DEFAULT);
        block->ends.push_back(event);
      }
    } catch (const c10::Error&) {
      return; // the device is lost, and its memory with it
    }
    if (block->ends.empty()) return retire(block);
    std::lock_guard<std::mutex> lock(mutex);
    waiting.push_back(block);
  }

  char* fill(Block* block) {
    return driver.fill(block->device, block->stream, const_cast<char*>(block->filled ? "free" : "empty"), block->at,
                       block->bytes, kFreed);
  }

  // Gives a block to the stream of its allocation.
  void retire(Block* block) {
    block->filled = strict;
    if (block->filled && !ends_well(fill(block))) return;
    std::lock_guard<std::mutex> lock(mutex);
    idle.emplace(Key(block->device, block->stream, block->bytes, block->pool), block);
  }

  // Retires blocks that no other stream uses any more.
  void reap() {
    std::vector<Block*> looked;
    {
      std::lock_guard<std::mutex> lock(mutex);
      looked.swap(waiting);
    }
    for (Block* block : looked) {
      bool ended = true;
      for (void* event : block->ends) ended = ended && guard->queryEvent(event);
      if (!ended) {
        std::lock_guard<std::mutex> lock(mutex);
        waiting.push_back(block);
        continue;
      }
      for (void* event : block->ends) guard->destroyEvent(event, static_cast<c10::DeviceIndex>(block->device));
      block->ends.clear();
      retire(block);
    }
  }

  // Gives idle memory back to where it came from.
  void trim() {
    reap();
    std::multimap<Key, Block*> all;
    {
      std::lock_guard<std::mutex> lock(mutex);
      all.swap(idle);
    }
    for (auto& [key, block] : all) {
      guard->synchronizeStream(stream_of(device_at(block->device), block->stream));
      if (block->pool != nullptr) {
        block->pool->free(block->at, block->bytes, block->device, reinterpret_cast<void*>(block->stream));
      } else {
        driver.hide(block->at);
        std::free(block->at);
      }
      delete block;
    }
  }

  std::mutex mutex; // not held during calls of the driver, which may wait
  std::unordered_map<void*, Block*> blocks; // in use
  std::multimap<Key, Block*> idle;
  std::vector<Block*> waiting; // freed, and still used by other streams
};

Memory* memory = new Memory; // tensors may be freed at the very end

// Memory of the host that torch takes for pinned. Copies from it are the same as from any other.
struct Pinned final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override;
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, size_t bytes) const override { std::memcpy(to, from, bytes); }
  bool has(const void* at) {
    std::lock_guard<std::mutex> lock(mutex);
    auto found = ends.upper_bound(at);
    return found != ends.begin() && at < (--found)->second;
  }

  std::mutex mutex;
  std::map<const void*, const void*> ends; // of each block, by its begin
};

Pinned* pinned = new Pinned;

c10::DataPtr Pinned::allocate(size_t bytes) {
  void* at = std::malloc(std::max<size_t>(bytes, 1));
  TORCH_CHECK(at != nullptr, "no memory left for ", bytes, " bytes");
  std::lock_guard<std::mutex> lock(mutex);
  ends[at] = static_cast<char*>(at) + std::max<size_t>(bytes, 1);
  const auto free = [](void* block) {
    {
      std::lock_guard<std::mutex> lock(pinned->mutex);
      pinned->ends.erase(block);
    }
    std::free(block);
  };
  return {at, at, free, c10::Device(c10::kCPU)};
}

void Memory::release(void* context) {
  if (context != nullptr && !forked) memory->free(static_cast<Block*>(context));
}

void Guard::recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const {
  memory->record(data, stream);
}

// All streams that anybody has used here: that of each block, and the default one.
void Guard::synchronizeDevice(const c10::DeviceIndex index) const {
  const auto device = device_at(index);
  synchronizeStream(stream_of(device, 0));
  for (bool urgent : {false, true}) {
    for (int i = 0; i < kPool; i++) synchronizeStream(pool_stream(device, urgent));
  }
}

// Kernels.

// part calls f for each range of bytes that a tensor has; for the whole extent if they are many.
template <typename F>
void parts(const at::Tensor& t, F f) {
  constexpr int64_t kMostParts = 1024;
  if (t.numel() == 0) return;
  std::vector<std::pair<int64_t, int64_t>> dims; // stride and size, from the inner to the outer
  for (int64_t i = 0; i < t.dim(); i++) {
    if (t.size(i) > 1 && t.stride(i) > 0) dims.emplace_back(t.stride(i), t.size(i));
  }
  std::sort(dims.begin(), dims.end());
  int64_t run = 1; // elements in a row
  size_t outer = 0;
  while (outer < dims.size() && dims[outer].first <= run) {
    run = std::max(run, (dims[outer].second - 1) * dims[outer].first + run);
    outer++;
  }
  int64_t runs = 1, extent = run;
  for (size_t i = outer; i < dims.size(); i++) {
    runs *= dims[i].second;
    extent += (dims[i].second - 1) * dims[i].first;
  }
  char* base = static_cast<char*>(const_cast<void*>(t.const_data_ptr()));
  const auto item = static_cast<int64_t>(t.itemsize());
  if (runs > kMostParts) return f(base, extent * item);
  std::vector<int64_t> at(dims.size(), 0);
  for (int64_t n = 0; n < runs; n++) {
    int64_t offset = 0;
    for (size_t i = outer; i < dims.size(); i++) offset += at[i] * dims[i].first;
    f(base + offset * item, run * item);
    for (size_t i = outer; i < dims.size() && ++at[i] == dims[i].second; i++) at[i] = 0;
  }
}

// What a kernel accesses.
class Accesses {
 public:
  void add(const at::Tensor& t, bool write) {
    parts(t, [&](char* at, int64_t bytes) {
      all_.push_back({reinterpret_cast<uintptr_t>(at), static_cast<size_t>(bytes), write});
    });
  }
  goccl_test_access* data() { return all_.data(); }
  size_t size() const { return all_.size(); }

 private:
  std::vector<goccl_test_access> all_;
};

// The time during which it is a kernel's turn in the current stream of a device.
class Turn {
 public:
  Turn(c10::Device device, const std::string& name, Accesses& accesses) {
    check(driver.kernel_begin(device.index(), current_stream(device.index()), const_cast<char*>(name.c_str()),
                              accesses.data(), accesses.size(), &kernel_), name.c_str());
  }
  ~Turn() { driver.kernel_end(kernel_); }
  Turn(const Turn&) = delete;

 private:
  uintptr_t kernel_ = 0;
};

// Enqueues a kernel that nobody waits for.
void launch(c10::Device device, const std::string& name, Accesses& accesses, std::function<void()> body) {
  auto* kernel = new std::function<void()>(std::move(body));
  const auto run = [](void* argument) {
    const std::unique_ptr<std::function<void()>> called(static_cast<std::function<void()>*>(argument));
    const at::AutoDispatchBelowADInplaceOrView below;
    try {
      (*called)();
    } catch (const std::exception& e) { // launch is for what cannot fail
      std::fprintf(stderr, "simulated device: a kernel failed: %s\n", e.what());
      std::abort();
    }
  };
  check(driver.launch(device.index(), current_stream(device.index()), const_cast<char*>(name.c_str()), accesses.data(),
                      accesses.size(), run, kernel), name.c_str());
}

// A tensor of the CPU with the same memory.
at::Tensor host_view(const at::Tensor& t) {
  const auto& storage = t.storage();
  c10::Storage same(c10::Storage::use_byte_size_t(), storage.nbytes(),
                    at::DataPtr(const_cast<void*>(storage.data()), c10::Device(c10::kCPU)), nullptr, false);
  auto result = at::detail::make_tensor<c10::TensorImpl>(std::move(same), c10::DispatchKeySet(c10::DispatchKey::CPU),
                                                         t.dtype());
  auto* impl = result.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(t.sizes(), t.strides(), t.storage_offset());
  if (t.is_conj()) impl->_set_conj(true);
  if (t.is_neg()) impl->_set_neg(true);
  if (t.unsafeGetTensorImpl()->is_wrapped_number()) impl->set_wrapped_number(true);
  return result;
}

bool ours(const at::Tensor& t) { return t.defined() && t.device().type() == kSim; }

void copy_bytes(c10::Device device, void* to, const void* from, size_t bytes) {
  if (bytes == 0) return;
  check(driver.copy(device.index(), current_stream(device.index()), reinterpret_cast<uintptr_t>(to),
                    reinterpret_cast<uintptr_t>(from), bytes), "copy");
}

// Operators of this device's own.

at::Tensor empty(c10::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                 std::optional<at::Device> device, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  const c10::DeviceGuard on(device_at(device.value_or(c10::Device(kSim)).index()));
  return at::detail::empty_generic(size, memory, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   c10::dtype_or_default(dtype), format);
}

at::Tensor empty_strided(c10::IntArrayRef size, c10::IntArrayRef stride, std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout>, std::optional<at::Device> device, std::optional<bool>) {
  const c10::DeviceGuard on(device_at(device.value_or(c10::Device(kSim)).index()));
  return at::detail::empty_strided_generic(size, stride, memory, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                           c10::dtype_or_default(dtype));
}

void resize_storage(c10::StorageImpl* storage, size_t bytes) {
  const c10::DeviceGuard on(device_at(storage->device().index()));
  auto fresh = memory->allocate(bytes);
  copy_bytes(storage->device(), fresh.get(), storage->data(), std::min(bytes, storage->nbytes()));
  storage->set_data_ptr_noswap(std::move(fresh));
  storage->set_nbytes(bytes);
}

const at::Tensor& resize_(const at::Tensor& self, c10::IntArrayRef size, std::optional<at::MemoryFormat> format) {
  auto* impl = self.unsafeGetTensorImpl();
  if (self.sizes() != size) impl->set_sizes_contiguous(size);
  if (format && *format != at::MemoryFormat::Preserve) impl->empty_tensor_restride(*format);
  const size_t wanted = at::detail::computeStorageNbytes(self.sizes(), self.strides(), self.itemsize(),
                                                         self.storage_offset());
  if (self.numel() > 0 && wanted > self.storage().nbytes())
    resize_storage(self.storage().unsafeGetStorageImpl(), wanted);
  return self;
}

at::Tensor& set_storage(at::Tensor& self, c10::Storage source, int64_t offset, c10::IntArrayRef size,
                        c10::IntArrayRef stride) {
  auto* impl = self.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(std::move(source));
  if (stride.data() != nullptr && stride.size() == size.size()) {
    impl->set_sizes_and_strides(size, stride, offset);
  } else {
    impl->set_storage_offset(offset);
    impl->set_sizes_contiguous(size);
  }
  const size_t wanted = at::detail::computeStorageNbytes(self.sizes(), self.strides(), self.itemsize(), offset);
  if (self.numel() > 0 && wanted > self.storage().nbytes())
    resize_storage(self.storage().unsafeGetStorageImpl(), wanted);
  return self;
}

at::Tensor& set_whole(at::Tensor& self, c10::Storage source) {
  const auto count = static_cast<int64_t>(source.nbytes() / self.itemsize());
  return set_storage(self, std::move(source), 0, count, {});
}

at::Tensor& set_tensor(at::Tensor& self, const at::Tensor& source) {
  return set_storage(self, source.storage(), source.storage_offset(), source.sizes(), source.strides());
}

at::Tensor& set_nothing(at::Tensor& self) {
  const c10::DeviceGuard on(self.device());
  c10::Storage none(c10::Storage::use_byte_size_t(), 0, memory->allocate(0), memory, true);
  return set_storage(self, std::move(none), 0, {0}, {});
}

// Makes the current stream of one device wait for that of another.
void join(c10::Device later, c10::Device earlier) {
  if (later == earlier) return;
  void* event = nullptr;
  guard->record(&event, guard->getStream(earlier), earlier.index(), c10::EventFlag::PYTORCH_DEFAULT);
  guard->block(event, guard->getStream(later));
  guard->destroyEvent(event, earlier.index());
}

// Copies. The host waits for those to the host only: those from there have a copy of their own, as
// with CUDA for memory that is not pinned. A copy between devices comes after what either has in its
// current stream, and before what comes there later.
at::Tensor& copy_(at::Tensor& to, const at::Tensor& from, bool) {
  if (from._is_zerotensor()) return to.zero_();
  if (to.numel() == 0) return to;
  const c10::Device device = ours(to) ? to.device() : from.device();
  const c10::DeviceGuard on(device);
  const at::AutoDispatchBelowADInplaceOrView below;
  const at::Tensor source = from.expand_as(to);
  Accesses accesses;
  if (ours(to)) accesses.add(to, true);
  if (!ours(from)) {
    const auto name = "copy_ from the host";
    launch(device, name, accesses, [own = source.clone(), target = host_view(to)]() mutable { target.copy_(own); });
    return to;
  }
  join(device, from.device());
  accesses.add(source, false);
  if (!ours(to)) {
    {
      const Turn turn(device, "copy_ to the host", accesses);
      to.copy_(host_view(source));
    }
    guard->synchronizeStream(guard->getStream(device));
  } else if (to.dtype() == source.dtype() && to.strides() == source.strides() && to.is_non_overlapping_and_dense() &&
             to.is_conj() == source.is_conj() && to.is_neg() == source.is_neg()) {
    if (to.const_data_ptr() != source.const_data_ptr())
      copy_bytes(device, to.data_ptr(), source.const_data_ptr(), to.nbytes());
  } else {
    launch(device, "copy_", accesses, [target = host_view(to), source = host_view(source)]() mutable {
      target.copy_(source);
    });
  }
  join(from.device(), device);
  return to;
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  at::Tensor target = to;
  return copy_(target, from, non_blocking);
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  if (to.sizes() != from.sizes()) to.resize_(from.sizes());
  return copy_from(from, to, false);
}

void record_stream(at::Tensor& self, c10::Stream stream) { memory->record(self.storage().data_ptr(), stream); }

int64_t fused_sdp_choice(const at::Tensor&, const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&,
                         double, bool, std::optional<double>, bool) {
  return 0; // by matrix products
}

// All other operators.

// A tensor argument, and what stands for it.
struct Argument {
  at::Tensor device, host;
  bool write = false, fresh = false;
};

at::Tensor to_device(const at::Tensor& host, c10::Device device, const std::string& name) {
  if (!host.defined() || host.device().type() != c10::kCPU) return host;
  auto result = at::empty_strided(host.sizes(), host.strides(), host.options().device(device).pinned_memory(false));
  Accesses accesses;
  accesses.add(result, true);
  launch(device, name + " (result)", accesses, [host, target = host_view(result)]() mutable { target.copy_(host); });
  if (host.unsafeGetTensorImpl()->is_wrapped_number()) result.unsafeGetTensorImpl()->set_wrapped_number(true);
  return result;
}

// Torch asks devices other than its own for convolutions by operators that the CPU does not have.

at::Tensor convolution(const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                       c10::SymIntArrayRef stride, c10::SymIntArrayRef padding, c10::SymIntArrayRef dilation,
                       bool transposed, c10::SymIntArrayRef output_padding, c10::SymInt groups) {
  const at::AutoDispatchBelowADInplaceOrView below;
  Accesses accesses;
  for (const auto& t : {input, weight, bias.value_or(at::Tensor())}) {
    if (t.defined()) accesses.add(t, false);
  }
  at::Tensor result;
  {
    const Turn turn(input.device(), "convolution", accesses);
    result = at::convolution_symint(host_view(input), host_view(weight),
                                    bias && bias->defined() ? std::optional(host_view(*bias)) : std::nullopt, stride,
                                    padding, dilation, transposed, output_padding, groups);
  }
  return to_device(result, input.device(), "convolution");
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> convolution_backward(
    const at::Tensor& gradient, const at::Tensor& input, const at::Tensor& weight, c10::SymIntArrayRef stride,
    c10::SymIntArrayRef padding, c10::SymIntArrayRef dilation, bool transposed, c10::SymIntArrayRef output_padding,
    c10::SymInt groups, std::array<bool, 3> mask) {
  const at::AutoDispatchBelowADInplaceOrView below;
  Accesses accesses;
  for (const auto& t : {gradient, input, weight}) accesses.add(t, false);
  const c10::SymInt bias = gradient.sym_size(1);
  std::tuple<at::Tensor, at::Tensor, at::Tensor> r;
  {
    const Turn turn(input.device(), "convolution_backward", accesses);
    r = at::convolution_backward_symint(host_view(gradient), host_view(input), host_view(weight),
                                        c10::SymIntArrayRef(&bias, 1), stride, padding, dilation, transposed,
                                        output_padding, groups, mask);
  }
  const auto give = [&](const at::Tensor& t) { return to_device(t, input.device(), "convolution_backward"); };
  return {give(std::get<0>(r)), give(std::get<1>(r)), give(std::get<2>(r))};
}

// Operators that the machine executes, if their arguments cannot make them fail.
const std::unordered_set<std::string> kLater{"aten::zero_",    "aten::fill_.Scalar", "aten::add.out", "aten::sub.out",
                                             "aten::mul.out", "aten::div.out"};

bool cannot_fail(const std::vector<Argument>& arguments, const std::vector<at::Tensor>& numbers) {
  const auto out = std::find_if(arguments.begin(), arguments.end(), [](const Argument& a) { return a.write; });
  if (out == arguments.end() || out->fresh || !out->host.is_non_overlapping_and_dense()) return false;
  for (const Argument& a : arguments) {
    if (a.host.dtype() != out->host.dtype() || !at::is_expandable_to(a.host.sizes(), out->host.sizes())) return false;
  }
  return std::all_of(numbers.begin(), numbers.end(), [&](const at::Tensor& t) {
    return t.dim() == 0 && !t.is_complex() && (out->host.is_floating_point() || !t.is_floating_point());
  });
}

void by_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto& schema = op.schema();
  const std::string name = schema.operator_name().name +
                           (schema.overload_name().empty() ? "" : "." + schema.overload_name());
  const size_t count = schema.arguments().size(), first = stack->size() - count;
  const std::vector<c10::IValue> given(stack->end() - static_cast<int64_t>(count), stack->end());
  std::vector<Argument> arguments;
  std::vector<at::Tensor> numbers; // arguments of the host
  c10::Device device(kSim, -1);

  auto stand_in = [&](const at::Tensor& t, bool write) -> at::Tensor {
    if (!ours(t)) {
      if (t.defined()) numbers.push_back(t);
      return t;
    }
    TORCH_CHECK(t.layout() == c10::kStrided, name, ": the simulated device has dense tensors only");
    TORCH_CHECK(device.index() < 0 || device == t.device(), name, ": tensors on ", device, " and ", t.device());
    device = t.device();
    for (auto& known : arguments) { // one tensor stays one
      if (known.device.is_same(t)) {
        known.write = known.write || write;
        return known.host;
      }
    }
    Argument a{t, {}, write, write && t.numel() == 0};
    // An empty output may grow.
    a.host = a.fresh ? at::empty(t.sizes(), t.options().device(c10::kCPU)) : host_view(t);
    arguments.push_back(a);
    return a.host;
  };

  const at::AutoDispatchBelowADInplaceOrView below;
  for (size_t i = 0; i < count; i++) {
    const auto* about = schema.arguments()[i].alias_info();
    const bool write = about != nullptr && about->isWrite();
    auto& value = (*stack)[first + i];
    if (value.isTensor()) {
      value = stand_in(value.toTensor(), write);
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& t : value.toTensorVector()) list.push_back(stand_in(t, write));
      value = list;
    } else if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> list;
      for (const auto& t : value.toOptionalTensorVector())
        list.push_back(t ? std::optional<at::Tensor>(stand_in(*t, write)) : std::nullopt);
      value = list;
    } else if (value.isDevice() && value.toDevice().type() == kSim) {
      if (device.index() < 0) device = device_at(value.toDevice().index());
      value = c10::Device(c10::kCPU);
    }
  }
  device = device_at(device.index());
  const c10::DeviceGuard on(device);

  Accesses accesses;
  for (const auto& a : arguments) {
    if (!a.fresh) accesses.add(a.device, a.write);
  }
  const bool later = kLater.count(name) > 0 && cannot_fail(arguments, numbers);
  if (later) {
    launch(device, name, accesses, [op, called = torch::jit::Stack(stack->end() - count, stack->end())]() mutable {
      op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &called);
    });
    stack->resize(first + schema.returns().size()); // replaced below: all of them are arguments
  } else {
    const Turn turn(device, name, accesses);
    op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
  }

  for (auto& a : arguments) {
    if (!a.write || later) continue;
    if (a.host.sizes() != a.device.sizes()) a.device.resize_(a.host.sizes());
    // Some kernels give an output other memory, even if its size is the same in the end.
    if (a.host.storage().data() != a.device.storage().data()) copy_from(a.host, a.device, false);
  }
  const size_t results = schema.returns().size(), begin = stack->size() - results;
  bool host_learns = false;
  for (size_t i = 0; i < results; i++) {
    auto& value = (*stack)[begin + i];
    const auto* about = schema.returns()[i].alias_info();
    if (about != nullptr) {
      TORCH_CHECK(about->isWrite(), name, ": a view, for which the simulated device has no kernel");
      for (size_t n = 0; n < count; n++) {
        const auto* other = schema.arguments()[n].alias_info();
        if (other != nullptr && other->beforeSets() == about->beforeSets()) value = given[n];
      }
    } else if (value.isTensor()) {
      value = to_device(value.toTensor(), device, name);
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& t : value.toTensorVector()) list.push_back(to_device(t, device, name));
      value = list;
    } else {
      host_learns = true;
    }
  }
  if (host_learns) guard->synchronizeStream(guard->getStream(device)); // as CUDA's item() does
}

// What torch asks a device for.

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return devices > 0; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return devices > 0; }
  c10::DeviceIndex deviceCount() const override { return guard->deviceCount(); }
  void setCurrentDevice(c10::DeviceIndex device) const override { guard->setDevice(c10::Device(kSim, device)); }
  c10::DeviceIndex getCurrentDevice() const override { return current_device; }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
    return guard->exchangeDevice(c10::Device(kSim, device)).index();
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override { return exchangeDevice(device); }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override {
    return at::globalContext().defaultGenerator(c10::kCPU); // the kernels that draw numbers are the CPU's
  }
  c10::Allocator* getPinnedMemoryAllocator() const override { return pinned; }
  bool isPinnedPtr(const void* at) const override { return pinned->has(at); }
  c10::Device getDeviceFromPtr(void* at) const override {
    std::lock_guard<std::mutex> lock(memory->mutex);
    const auto found = memory->blocks.find(at);
    return device_at(found == memory->blocks.end() ? 0 : static_cast<c10::DeviceIndex>(found->second->device));
  }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    resize_storage(storage.unsafeGetStorageImpl(), bytes);
  }
};

// Starts the machine, whose driver is in the library at path.
void start(const std::string& path, int64_t seed, int64_t count, int64_t delay_ns, int64_t stuck_ns) {
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  TORCH_CHECK(handle != nullptr, dlerror());
#define X(name)                                                                                        \
  driver.name = reinterpret_cast<decltype(driver.name)>(dlsym(handle, "goccl_test_" #name));           \
  TORCH_CHECK(driver.name != nullptr, path, " was built without the tag cudatest: no goccl_test_" #name);
  FUNCTIONS(X)
#undef X
  TORCH_CHECK(count > 0 && count <= kMostDevices, count, " devices");
  check(driver.start(static_cast<uint64_t>(seed), static_cast<int>(count), delay_ns, stuck_ns), "start");
  pthread_atfork(nullptr, nullptr, [] { forked = true; });
  devices = static_cast<int>(count);
}

const c10::impl::DeviceGuardImplRegistrar registrar(kSim, guard);
const bool registered = [] {
  c10::SetAllocator(kSim, memory);
  at::RegisterPrivateUse1HooksInterface(new Hooks);
  return true;
}();

} // namespace

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &fused_sdp_choice);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&by_cpu>()); }

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", empty);
  m.impl("empty_strided", empty_strided);
  m.impl("resize_", resize_);
  m.impl("set_.source_Storage", set_whole);
  m.impl("set_.source_Storage_storage_offset", set_storage);
  m.impl("set_.source_Tensor", set_tensor);
  m.impl("set_", set_nothing);
  m.impl("is_set_to", at::native::is_set_to);
  m.impl("as_strided", at::native::as_strided_tensorimpl);
  m.impl("view", at::native::view);
  m.impl("_reshape_alias", at::native::_reshape_alias);
  m.impl("unfold", at::native::unfold);
  m.impl("view_as_real", at::native::view_as_real);
  m.impl("view_as_complex", at::native::view_as_complex);
  m.impl("copy_", copy_); // torch's own would lose track of conjugated views on the way to _copy_from
  m.impl("_copy_from", copy_from);
  m.impl("_copy_from_and_resize", copy_from_and_resize);
  m.impl("record_stream", record_stream);
  m.impl("convolution_overrideable", convolution);
  m.impl("convolution_backward_overrideable", convolution_backward);
}

TORCH_LIBRARY(goccl_sim, m) {
  m.def("start(str path, int seed, int devices, int delay_ns, int stuck_ns) -> ()", start);
  m.def("device_count() -> int", [] { return static_cast<int64_t>(devices); });
  m.def("trim() -> ()", [] { memory->trim(); });
  m.def("pool(int alloc, int free) -> int", [](int64_t alloc, int64_t free) { // never destroyed
    return reinterpret_cast<int64_t>(
        new Pool{reinterpret_cast<decltype(Pool::alloc)>(alloc), reinterpret_cast<decltype(Pool::free)>(free)});
  });
  m.def("use_pool(int pool) -> int", [](int64_t pool) { // returns the one before
    return reinterpret_cast<int64_t>(std::exchange(current_pool, reinterpret_cast<const Pool*>(pool)));
  });
  m.def("set_strict(bool strict) -> ()", [](bool is) { strict = is; });
}
