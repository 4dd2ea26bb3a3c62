#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "coalescing.h"
#include "device.h"
#include "work.h"

namespace goccl {

using Tensors = std::vector<at::Tensor>;
using TensorLists = std::vector<Tensors>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;
using StorePtr = c10::intrusive_ptr<c10d::Store>;
using BackendPtr = c10::intrusive_ptr<c10d::Backend>;
using OptionsPtr = c10::intrusive_ptr<c10d::Backend::Options>;

// The options with which a group is made. lines are "NAME=value", one per line: every GOCCL_*
// variable of the environment, then the settings of goccl.Options; the core reads and checks them.
struct GocclOptions final : c10d::Backend::Options {
  explicit GocclOptions(std::chrono::milliseconds timeout = kBackendDefaultTimeout, std::string lines = {})
      : c10d::Backend::Options("goccl", timeout), lines(std::move(lines)) {}
#ifdef C10D_BACKEND_HAS_HOOKS
  c10::intrusive_ptr<c10d::Backend::Options> clone() const override { return c10::make_intrusive<GocclOptions>(*this); }
#endif

  std::string lines;
  // The timeout set in lines, which overrides every other; 0 if none.
  std::chrono::milliseconds told{0};
  // The path of the file that a failure or a signal leaves, without the rank in the whole job at its
  // end; empty for none.
  std::string trace_prefix;
  bool trace_failures = true; // whether a failure leaves it, too
  // Whether the numbers of its members in the whole job may stand for other processes than in other
  // groups of this process: after merge, and where reconfigure replaces members.
  bool strangers = false;
  bool blocking_wait = false; // whether wait() of an operation on a device waits for the device
  bool wait_futures = false;  // whether get_future() of an operation on the host waits for its end
};

using GroupOptionsPtr = c10::intrusive_ptr<GocclOptions>;

// A group and a rank of it, for messages: "group dp, rank 0 of 2".
std::string member(const GocclOptions& options, int rank, int size);

// An uninitialized CPU tensor in registered memory. The memory is given back with its last
// reference, even after the last group is gone. If no group was made yet, lines are the options
// that count. Throws if there is no such memory. Call it without the GIL.
at::Tensor empty(at::IntArrayRef size, at::ScalarType type, const std::string& lines);
// Makes the registered memory of a device, if the process has none yet, and returns its bytes.
uint64_t device_arena(const std::string& device, const std::string& lines);

// torch.distributed's view of one group: it translates, and knows nothing of how bytes move.
//
// Tensors of the host have a group of the core, and those of each device another one with the same
// ranks. These groups do not wait for each other.
//
// The names of the overridden methods are those that every torch from 2.9 on has; newer ones
// forward to them.
class GocclBackend final : public c10d::Backend {
 public:
  // Makes a group: opens it, meets the other ranks over the store, and joins. It waits for them for at
  // most the timeout of the options; the error names the missing ranks. Call it without the GIL. With
  // enable_reconfigure the group has no members, and cannot be used, until reconfigure is called.
  static c10::intrusive_ptr<GocclBackend> create(const StorePtr& store, int rank, int size,
                                                 const GroupOptionsPtr& options);
  // Tells the other ranks that this one cannot join a group, and why. They fail at once.
  static void cannot_join(const StorePtr& store, int rank, int size, const GocclOptions& options,
                          const std::string& why) noexcept;
  // Makes the group of a device now, instead of at its first tensor.
  void eagerConnectSingleDevice(at::Device device) override;
  // The members of this process's groups (but for those of strangers) that are known to have died,
  // by their numbers in the whole job, and what happened to them. It never waits. Call it without
  // the GIL.
  static std::vector<std::pair<std::vector<uint64_t>, std::string>> lost();
  // Closes every group of this process. Their operations in flight have one second in all to end.
  static void close_all();

  GocclBackend(StorePtr store, int rank, int size, GroupOptionsPtr options, goccl_group group);
  ~GocclBackend() override;

  const std::string getBackendName() const override { return "goccl"; }
  c10::intrusive_ptr<c10d::Backend::Options> getBackendOptions() override { return options_; }

  // Other groups made from this one (regroup.cpp).
  bool supportsSplitting() const override { return true; }
  // ranks are ranks of this group, in the order of their new numbers. Null on ranks that are not
  // among them.
  BackendPtr split(const StorePtr& store, const std::vector<int>& ranks, const OptionsPtr& options) override;
  BackendPtr merge(const StorePtr& store, const OptionsPtr& options, const int& rank, const int& size) override;
  bool supportsShrinking() const override { return true; }
  // Called by the remaining ranks; the excluded ranks may be gone.
  BackendPtr shrink(const std::vector<int64_t>& excluded, int flags, const OptionsPtr& options) override;
  // The group of the ranks that are left, and their ranks in this group: see goccl_group_shrink. The
  // timeout is that of the options. Call it without the GIL.
  std::pair<c10::intrusive_ptr<GocclBackend>, std::vector<int32_t>>
  remaining(const std::vector<int32_t>& without, int quorum, const GroupOptionsPtr& options);
  // The group of this one's ranks and of at most this number of newcomers, for which it waits; null if
  // nobody has come. See goccl_group_grow. Call it without the GIL.
  c10::intrusive_ptr<GocclBackend> grown(int newcomers, std::chrono::nanoseconds wait, const GroupOptionsPtr& options);
  // The running group that an address leads to, which this process joins: see goccl_group_come. Call it
  // without the GIL.
  static c10::intrusive_ptr<GocclBackend> come(const std::string& address, const GroupOptionsPtr& options);
  // The text by which new processes find this group.
  std::string address() const;
  // Where groups of devices meet: for a group that was made without this store.
  void use_store(StorePtr store) {
    if (!store_) store_ = store;
    meeting_ = std::move(store);
  }
  // The IP addresses at which this process may reach that of a rank, on a line each.
  std::string locate(int rank) const;
#ifdef C10D_BACKEND_HAS_RECONFIGURE
  bool supportsReconfigure() const override { return true; }
  c10d::ReconfigureHandle get_reconfigure_handle() const override;
  WorkPtr reconfigure(const c10d::ReconfigureOptions& options) override;
  // Takes over the members of another group, which is unusable afterwards, and gives up its own
  // members.
  void become(GocclBackend& next);
#endif

  // Observers.
#ifdef C10D_BACKEND_HAS_HOOKS
  void registerAbortHook(int64_t id, c10d::AbortHook hook) override { observers_->on_abort(id, std::move(hook)); }
  void unregisterAbortHook(int64_t id) override { observers_->off_abort(id); }
  void addEphemeralTimeout(const std::chrono::milliseconds& timeout) override { observers_->extend(timeout); }
#endif
#if GOCCL_TORCH_AT_LEAST(2, 15)
  bool supportsAbortHooks() const override { return true; }
  bool supportsCompletionHooks() const override { return true; }
  void registerCompletionHook(int64_t id, c10d::CompletionHook hook) override;
  void unregisterCompletionHook(int64_t id) override { observers_->off_end(id); }
  bool isInitialized() override { return state().joined != 0; }
#endif
  void registerOnCompletionHook(std::function<void(std::shared_ptr<c10d::WorkInfo>)>&& hook) override;
  void waitForPendingWorks() override { observers_->wait_for_pending(); }
  c10d::ErrorType getError() override { return observers_->error(); }

  void setTimeout(std::chrono::milliseconds timeout) override;
  void setSequenceNumberForGroup() override {} // it starts at 0 on every rank
  uint64_t getSequenceNumberForGroup() override; // of the collectives of all its groups
  void enableCollectivesTiming() override { timed_ = true; }
  void abort() override { abort("abort() was called on this rank"); }
  void abort(const std::string& reason);
  void shutdown() override;
  bool supportsTensorAlloc(c10::DeviceIndex) override { return true; }
  at::Tensor allocateTensor(long size, at::TensorOptions options) override;
  std::shared_ptr<c10::Allocator> getMemAllocator() override;
#if GOCCL_TORCH_AT_LEAST(2, 12)
  // Statistics of registered memory, in bytes.
  std::unordered_map<std::string, uint64_t> getMemoryStats() override;
#endif

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) override;
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) override;
  WorkPtr allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& opts) override;
  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& opts) override;
  WorkPtr allgather(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& opts) override;
  WorkPtr allgather_coalesced(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) override;
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& opts) override;
  WorkPtr gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& opts) override;
#ifdef C10D_BACKEND_HAS_HOOKS
  WorkPtr gather_into_tensor(at::Tensor& output, at::Tensor& input, const c10d::GatherOptions& opts) override;
#endif
  WorkPtr scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& opts) override;
  WorkPtr reduce_scatter(Tensors& outputs, TensorLists& inputs, const c10d::ReduceScatterOptions& opts) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& opts) override;
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& opts) override;
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                        std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& opts) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) override;
  WorkPtr send(Tensors& tensors, int destination, int tag) override;
  WorkPtr recv(Tensors& tensors, int source, int tag) override;
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;
  WorkPtr barrier(const c10d::BarrierOptions& opts) override;
  void monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) override;

  bool supportsCoalescing() const override { return true; }
  void startCoalescing() override { coalescing_.start(); }
  WorkPtr endCoalescing() override;

 private:
  // A group of the core on its way.
  struct Opening {
    goccl_group group;
    std::string address;
  };
  // device is "" for the host.
  static Opening open(int rank, int size, const GocclOptions& options, const std::string& device);
  // open; if that fails, the other ranks are told why.
  static Opening open_or_tell(const StorePtr& store, int rank, int size, const GocclOptions& options,
                              const std::string& device);
  // Meets the other ranks over the store, and joins.
  static void join(const StorePtr& store, const Opening& opening, int rank, int size, const GroupOptionsPtr& options);
  // The backend of next once the call that makes it has ended; null if it has no members then.
  static c10::intrusive_ptr<GocclBackend> entered(const char* title, int rc, goccl_group next, goccl_work work,
                                                  Failure& failure, const StorePtr& store,
                                                  const GroupOptionsPtr& options);
  // The group of a device. The first call makes it, and waits for the other ranks as create does.
  const DeviceGroup& on(c10::Device device, const char* title);
  // All groups of the core.
  std::vector<goccl_group> groups() const;
  // Waits until this thread's streams of the group's devices, and of another one, have ended.
  void synchronize_devices(const std::optional<at::Device>& also);
  // issue for tensors on a device. If not asynchronous, this thread's stream waits for it.
  WorkPtr enqueue(const DeviceGroup& group, Request* requests, size_t count, Held&& held, bool asynchronous,
                  at::TensorList inputs);
  // Calls a function of goccl/_regroup.py that makes a group from this one.
  template <typename... Args>
  BackendPtr regroup(const char* how, const Args&... args);
  // The number of a rank of this group in the whole job.
  uint64_t global_rank(int rank) const;
  // Leaves the group once its operations have ended, or at the deadline. With signals_count, an
  // interrupt ends the wait, and is returned.
  std::exception_ptr leave(std::chrono::steady_clock::time_point deadline, bool signals_count);
  // leave for callers that cannot report a failure.
  void close(std::chrono::steady_clock::time_point deadline) noexcept;
  // Sets what a trace records about the group. torch sets the description only after the group was
  // made.
  void describe() const;
  // The beginning of messages.
  Caller caller(const Kind& kind) const { return {kind, member_, getRank(), getSize()}; }
  goccl_group_state state() const;
  // Tells the observers who the members are.
  void use_members();
  // Gives the collective a key if a callback calls it (callbacks.h).
  void place(Request& request);
  // Throws if the group was shut down.
  void check_open(const char* title) const;
  // The handle of the group; throws if this is a forked child, with a message that names the call:
  // a Request, or a title.
  template <typename Call>
  goccl_group group(const Call& call) const {
    if (C10_UNLIKELY(forked())) fail_forked(c10::str(call, ": ", member_));
    if (C10_UNLIKELY(!described_.load(std::memory_order_relaxed))) describe();
    return group_;
  }
  // The Origin of the request's Work. synchronous: the end is seen when it happens.
  Origin origin(const Request& request, bool synchronous) const;
  // Returns the Work of started calls: ended unless asynchronous, and part of this thread's
  // coalescing block.
  WorkPtr issued(c10::intrusive_ptr<EndingWork> work, bool asynchronous);
  // Starts the call. If not asynchronous, runs it to its end on this thread, in one call of the
  // library and without a Work (null, which torch's Python takes for an operation that has ended),
  // unless a profiler, a coalescing block or an observer needs one. inputs are for the profiler.
  WorkPtr issue(Request& request, bool asynchronous, at::TensorList inputs);
  // Calls a function of the library that takes a slice, and returns when the operation has ended.
  template <typename Function, typename... Args>
  void run(Request& request, Function function, Args... args) {
    goccl_work work = 0;
    observers_->call(request.caller.kind.title, function, group(request), args..., slice_ns(), &work);
    if (C10_LIKELY(work == 0)) return request.held.copy_back();
    request.held.works.push_back(work);
    Origin origin{request.caller.kind, getRank(), group_, options_->timeout, false, observers_, nullptr};
    c10::make_intrusive<GocclWork>(std::move(origin), std::move(request.held), at::TensorList())->wait();
  }
  // Adds the extension by addEphemeralTimeout to the timeout.
  void lengthen(Request& request) const;
  // Makes one call for each of the inputs, and one Work for all; fill(request, i) adds the blocks
  // of call i. separate: see Request.
  template <typename Opts, typename Fill>
  WorkPtr coalesced(const Kind& kind, Tensors& inputs, const Opts& opts, bool separate, Fill fill);
  WorkPtr message(const Kind& kind, Tensors& tensors, int peer, int tag);

  StorePtr store_; // null in a newcomer until use_store
  StorePtr meeting_; // the store of groups of devices, or a part of it: where no other group has met
  const GroupOptionsPtr options_;
  goccl_group group_; // of the host, until the end; 0 once another group has taken it over
  mutable std::mutex devices_mutex_;
  std::mutex making_mutex_; // held while the group of a device is made
  std::vector<std::shared_ptr<DeviceGroup>> devices_; // in the order in which they were made
  std::atomic<bool> ended_{false};                    // no more of them are made
  const std::shared_ptr<Observers> observers_ = std::make_shared<Observers>();
  std::string member_;         // for messages: "group dp, rank 0 of 2"
  const std::string identity_; // of this object, unique among all processes
  std::atomic<bool> timed_{false};
  mutable std::atomic<bool> described_{false};
  Coalescing coalescing_;
};

} // namespace goccl
