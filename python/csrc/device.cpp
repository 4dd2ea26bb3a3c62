#include "device.h"

#include <c10/core/StreamGuard.h>
#include <c10/util/Logging.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "backend.h"
#include "helper.h"

namespace goccl {
namespace {

std::atomic<c10::DeviceType> served{c10::DeviceType::CUDA};

// The device as libgoccl knows it.
std::string name_of(c10::Device device) { return c10::str("cuda:", static_cast<int>(device.index())); }

} // namespace

c10::DeviceType device_type() noexcept { return served.load(std::memory_order_relaxed); }

void use_device_type(const std::string& name) { served = c10::Device(name).type(); }

DeviceWork::DeviceWork(Origin origin, Held&& held, at::TensorList inputs, const DeviceGroup& group, bool blocking)
    : EndingWork(std::move(origin), inputs), held_(std::move(held)), device_(group.device), side_(group.side),
      blocking_(blocking) {}

DeviceWork::~DeviceWork() {
  if (forked() || held_.works.empty()) return; // in a fork the handles belong to the parent
  if (leaving()) {
    new Held(std::move(held_)); // kept for good: the device may write there as long as there is a process
    return;
  }
  if (!joined_) {
    try {
      on_stream();
      const c10::impl::VirtualGuardImpl guard(device_.type());
      const auto keep = [&](const at::Tensor& t) { guard.recordDataPtrOnStream(t.storage().data_ptr(), side_); };
      for (const at::Tensor& t : held_.inputs) keep(t);
      for (const at::Tensor& t : held_.outputs) keep(t);
      for (const auto& copy : held_.copies) keep(copy.packed), keep(copy.view);
    } catch (const std::exception& e) {
      LOG(ERROR) << origin_.kind.title << ": the memory of a dropped operation is kept for good: " << e.what();
      new Held(std::move(held_));
      return;
    }
  }
  free_works(held_.works);
}

void DeviceWork::enqueue(Request* requests, size_t count) {
  const c10::Stream stream = current_stream(device_);
  for (size_t i = 0; i < count; i++) {
    goccl_work work = 0;
    origin_.observers->call(origin_.kind.title, lib.enqueue, origin_.group, &requests[i].finish(),
                            stream.native_handle(), &work, &seq_);
    held_.works.push_back(work);
  }
  called(false); // calls may have several streams
  if (!held_.copies.empty()) on_stream();
  // The range of a profiler is that of the call; what the device does has ranges of its own.
  if (const auto profiled = std::exchange(recordFunctionEndCallback_, nullptr)) profiled();
  // Timing needs the end to be seen when it happens.
  if (C10_UNLIKELY(origin_.timed)) getFutureResult();
}

void DeviceWork::join(const c10::Stream& stream) {
  Outcome outcome;
  for (goccl_work work : held_.works) {
    Failure failure;
    outcome.add(lib.work_join(work, stream.native_handle(), &failure), failure, origin_.kind.title);
  }
  if (outcome.error) settle(std::move(outcome));
}

std::optional<c10::Stream> DeviceWork::on_stream() {
  check_not_forked(*this);
  std::lock_guard<std::mutex> lock(side_mutex_);
  if (std::exchange(on_side_, true)) return side_;
  join(side_);
  if (held_.copies.empty()) return side_;
  const c10::StreamGuard guard(side_);
  held_.copy_back();
  copied_.emplace(device_.type());
  copied_->record(side_);
  return side_;
}

void DeviceWork::synchronize() {
  check_not_forked(*this);
  const c10::Stream stream = current_stream(device_);
  join(stream);
  if (copied_) copied_->block(stream);
  joined_ = true;
  EndingWork::synchronize();
}

std::exception_ptr DeviceWork::come_to_end(const Limit& limit, std::exception_ptr& interrupt) {
  if (!blocking_ && !limit.given) return nullptr;
  Outcome outcome = await_all(held_.works, limit, interrupt);
  if (outcome.unended) return outcome.unended;
  if (copied_) copied_->synchronize();
  settle(std::move(outcome));
  return nullptr;
}

bool DeviceWork::isCompleted() {
  if (done()) return true;
  check_not_forked(*this);
  Outcome outcome;
  if (!all_ended(held_.works, origin_.kind.title, outcome)) return false;
  if (!outcome.error && copied_ && !copied_->query()) return false;
  settle(std::move(outcome));
  return true;
}

int DeviceWork::sourceRank() const { return source_of(GOCCL_ANY_SOURCE, held_.works); }

void DeviceWork::pursue(bool urgent) {
  auto self = c10::intrusive_ptr<DeviceWork>::reclaim_copy(this);
  helper::when_ended(held_.works, urgent, [self] {
    if (self->copied_) self->copied_->synchronize();
    self->isCompleted();
  });
}

const DeviceGroup& GocclBackend::on(c10::Device device, const char* title) {
  {
    std::lock_guard<std::mutex> lock(devices_mutex_);
    for (const auto& each : devices_) {
      if (each->joined && each->device == device) return *each;
    }
  }
  WithoutGil without_gil;
  std::lock_guard<std::mutex> making(making_mutex_);
  std::unique_lock<std::mutex> lock(devices_mutex_);
  for (const auto& each : devices_) {
    if (each->device == device) return *each;
  }
  if (ended_ || state().joined == 0) {
    fail(GOCCL_CLOSED, title, member_, ": the group was aborted or shut down, or has no members yet, and so cannot ",
         "begin to serve tensors on ", device);
  }
  const size_t ordinal = devices_.size();
  lock.unlock();
  // Every rank makes its groups of devices in the same order, and each may have another index.
  const auto meeting = c10::make_intrusive<c10d::PrefixStore>(c10::str("device/", ordinal), meeting_);
  const Opening opening = open_or_tell(meeting, getRank(), getSize(), *options_, name_of(device));
  const auto side = c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device, true);
  const auto made = std::make_shared<DeviceGroup>(DeviceGroup{device, opening.group, side, false});
  lock.lock();
  devices_.push_back(made); // from here on abort ends it
  lock.unlock();
  try {
    join(meeting, opening, getRank(), getSize(), options_);
  } catch (...) {
    lock.lock();
    devices_.pop_back();
    lock.unlock();
    lib.group_free(opening.group);
    throw;
  }
  lock.lock();
  made->joined = true;
  described_ = false;
  return *made;
}

std::vector<goccl_group> GocclBackend::groups() const {
  std::lock_guard<std::mutex> lock(devices_mutex_);
  std::vector<goccl_group> all;
  for (const auto& each : devices_) all.push_back(each->group);
  if (group_ != 0) all.push_back(group_);
  return all;
}

void GocclBackend::eagerConnectSingleDevice(at::Device device) {
  if (device.type() == device_type()) on(device, "goccl");
}

// What this rank has put into its streams of the group's devices has ended.
void GocclBackend::synchronize_devices(const std::optional<at::Device>& also) {
  std::vector<c10::Device> devices;
  if (also && also->type() == device_type() && also->has_index()) devices.push_back(*also);
  {
    std::lock_guard<std::mutex> lock(devices_mutex_);
    for (const auto& each : devices_) devices.push_back(each->device);
  }
  if (devices.empty()) return;
  WithoutGil without_gil;
  const c10::impl::VirtualGuardImpl guard(devices[0].type());
  for (const c10::Device& device : devices) guard.synchronizeStream(guard.getStream(device));
}

WorkPtr GocclBackend::enqueue(const DeviceGroup& group, Request* requests, size_t count, Held&& held, bool asynchronous,
                              at::TensorList inputs) {
  const bool kept = asynchronous || c10d::allow_inflight_collective_as_graph_input();
  Origin of = origin(requests[0], false);
  of.group = group.group;
  const auto work =
      c10::make_intrusive<DeviceWork>(std::move(of), std::move(held), inputs, group, options_->blocking_wait);
  work->enqueue(requests, count);
  coalescing_.add(work);
  if (C10_UNLIKELY(work->watched())) work->look_after();
  if (!asynchronous) work->wait();
  return kept ? WorkPtr(work) : nullptr;
}

} // namespace goccl
