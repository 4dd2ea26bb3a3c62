// Operations on the tensors of a device (CUDA). They are put behind the caller's stream and go on by
// themselves: nothing here waits for the device, unless the caller wants to.
//
// No header of CUDA is used: torch's interface for all devices has streams, whose native handles
// are CUstreams, and events.
#pragma once

#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "work.h"

namespace goccl {

// The type of device whose tensors are served beside those of the host.
c10::DeviceType device_type() noexcept;
// Serves another type of device, by its name in torch, whose streams the library knows. For tests.
void use_device_type(const std::string& name);

// The group that serves the tensors of one device.
struct DeviceGroup {
  c10::Device device;
  goccl_group group;
  c10::Stream side; // for what needs a stream and no caller's stream may wait for: copies, futures
  bool joined;
};

inline c10::Stream current_stream(c10::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

// One operation of torch: one operation of the device group, or several (the coalesced forms).
//
// wait() makes the caller's stream wait. The Work keeps its tensors. After wait() they may go back to
// torch's allocator with it, since that gives memory to the stream it was allocated for, as a rule
// the one that waits. Without wait() the allocator itself has to wait for a stream of the group
// (recordDataPtrOnStream).
//
// It ends for torch when somebody asks and the device is done, or when it is known to have failed.
class DeviceWork final : public EndingWork {
 public:
  // blocking: wait() waits for the device.
  DeviceWork(Origin origin, Held&& held, at::TensorList inputs, const DeviceGroup& group, bool blocking);
  ~DeviceWork() override;

  // Enqueues the calls, before the Work is handed out.
  void enqueue(Request* requests, size_t count);

  bool isCompleted() override;
  void synchronize() override;
  int sourceRank() const override;
  std::vector<at::Tensor> outputs() const override { return {held_.outputs.begin(), held_.outputs.end()}; }
  std::optional<c10::Stream> on_stream() override;

 private:
  const std::vector<std::vector<at::Tensor>>* lists() const override { return held_.lists.get(); }
  void pursue(bool urgent) override;
  // With a limit it waits for the device.
  std::exception_ptr come_to_end(const Limit& limit, std::exception_ptr& interrupt) override;
  // Its futures are complete at once, so callbacks run where they are given.
  LineagePtr trace_back() override { return nullptr; }
  // Makes a stream wait for the operation.
  void join(const c10::Stream& stream);

  Held held_;
  const c10::Device device_;
  const c10::Stream side_;
  const bool blocking_;
  std::mutex side_mutex_;
  bool on_side_ = false;           // side_ waits for it
  std::atomic<bool> joined_{false}; // a caller's stream waits for it
  std::optional<c10::Event> copied_; // behind the copies in side_, if any
};

} // namespace goccl
