// The collectives: each method checks its arguments, adds the blocks of its call in rank order, and
// issues the call.
#include "backend.h"
#include "overlap.h"

#include <ATen/record_function.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

namespace goccl {
namespace {

using c10d::OpType;
constexpr Kind kBroadcast{OpType::BROADCAST, GOCCL_BROADCAST, "goccl:broadcast"};
constexpr Kind kAllReduce{OpType::ALLREDUCE, GOCCL_ALL_REDUCE, "goccl:all_reduce"};
constexpr Kind kAllReduceCoalesced{OpType::ALLREDUCE_COALESCED, GOCCL_ALL_REDUCE, "goccl:all_reduce"};
constexpr Kind kReduce{OpType::REDUCE, GOCCL_REDUCE, "goccl:reduce"};
constexpr Kind kAllGather{OpType::ALLGATHER, GOCCL_ALL_GATHER, "goccl:all_gather"};
constexpr Kind kAllGatherBase{OpType::_ALLGATHER_BASE, GOCCL_ALL_GATHER, "goccl:_all_gather_base"};
constexpr Kind kAllGatherCoalesced{OpType::ALLGATHER_COALESCED, GOCCL_ALL_GATHER, "goccl:all_gather"};
constexpr Kind kGather{OpType::GATHER, GOCCL_GATHER, "goccl:gather"};
constexpr Kind kScatter{OpType::SCATTER, GOCCL_SCATTER, "goccl:scatter"};
constexpr Kind kReduceScatter{OpType::REDUCE_SCATTER, GOCCL_REDUCE_SCATTER, "goccl:reduce_scatter"};
constexpr Kind kReduceScatterBase{OpType::_REDUCE_SCATTER_BASE, GOCCL_REDUCE_SCATTER, "goccl:_reduce_scatter_base"};
constexpr Kind kReduceScatterCoalesced{OpType::COALESCED, GOCCL_REDUCE_SCATTER, "goccl:reduce_scatter"};
constexpr Kind kAllToAll{OpType::ALLTOALL, GOCCL_ALL_TO_ALL, "goccl:all_to_all"};
constexpr Kind kAllToAllBase{OpType::ALLTOALL_BASE, GOCCL_ALL_TO_ALL, "goccl:all_to_all"};
constexpr Kind kBarrier{OpType::BARRIER, GOCCL_BARRIER, "goccl:barrier"};

// Checks that all tensors have the type and sizes of the first.
void check_alike(const Caller& caller, const Tensors& tensors, const at::Tensor& first) {
  for (size_t i = 0; i < tensors.size(); i++) {
    if (!first.defined() || !tensors[i].defined()) break; // refused later
    GOCCL_CHECK(tensors[i].scalar_type() == first.scalar_type(), caller, "invalid tensor type at index ", i,
                " (expected ", first.scalar_type(), ", got ", tensors[i].scalar_type(), ")");
    GOCCL_CHECK(tensors[i].sizes() == first.sizes(), caller, "invalid tensor size at index ", i,
                " (expected ", first.sizes(), ", got ", tensors[i].sizes(), ")");
  }
}

// Checks for one tensor on this rank, or several of the same type and sizes.
void check_some(const Caller& caller, const Tensors& tensors, const char* role) {
  GOCCL_CHECK(!tensors.empty(), caller, "requires non-empty tensor list; got no ", role, " tensor, expected 1");
  if (tensors.size() > 1) check_alike(caller, tensors, tensors[0]);
}

void check_one(const Caller& caller, const Tensors& tensors, const char* role) {
  check_some(caller, tensors, role); // first the checks that hold for any list
  GOCCL_CHECK(tensors.size() == 1, caller, "requires a single-element ", role, " tensor list; got ", tensors.size());
}

void check_same_length(const Caller& caller, size_t outputs, size_t inputs) {
  GOCCL_CHECK(inputs > 0, caller, "requires non-empty tensor list");
  GOCCL_CHECK(outputs == inputs, caller,
              "requires input/output tensor lists to have the same length; got ", inputs, "/", outputs);
}

void check_per_rank(const Caller& caller, const Tensors& blocks, const char* role) {
  GOCCL_CHECK(blocks.size() == static_cast<size_t>(caller.size), caller,
              "Incorrect ", role, " list size ", blocks.size(), ". ", (*role == 'i' ? "Input" : "Output"),
              " list size should be ", caller.size, ", same as size of the process group.");
}

// Returns the list of tensors, one for each rank, from a list of lists.
const Tensors& blocks_of(const Caller& caller, const TensorLists& lists, const char* role) {
  GOCCL_CHECK(lists.size() == 1, caller, "requires a single-element ", role, " list containing a list with ",
              caller.size, " tensors; got ", lists.size(), " lists");
  check_per_rank(caller, lists[0], role);
  return lists[0];
}

// Returns the root's blocks, one for each rank. Other ranks give none.
const Tensors& root_blocks(const Caller& caller, const TensorLists& lists, const char* role, bool root) {
  static const Tensors none;
  if (root) return blocks_of(caller, lists, role);
  GOCCL_CHECK(lists.empty(), caller, "requires empty ", role, " on non-root; got ", lists.size(), " lists");
  return none;
}

// all_gather of several tensors per rank. Each of the output lists gets all of them: first the
// tensors of rank 0, then those of rank 1, ...
void gather_several(Request& request, TensorLists& outputs, const Tensors& inputs) {
  const Caller& caller = request.caller;
  check_same_length(caller, outputs.size(), inputs.size());
  const size_t all = inputs.size() * caller.size;
  for (size_t i = 0; i < outputs.size(); i++) {
    GOCCL_CHECK(outputs[i].size() == all, caller, "invalid output tensor list at index ", i,
                " (expected length ", all, ", got ", outputs[i].size(), ")");
    check_alike(caller, outputs[i], inputs[0]);
  }
  request.gather_all(inputs, outputs);
}

// Checks that the whole has a block of as many elements as the part for each rank; shapes do not
// matter.
void check_whole(const Caller& caller, const at::Tensor& whole, const char* role, const at::Tensor& part) {
  GOCCL_CHECK(whole.defined() && part.defined(), caller, "got an undefined tensor");
  const int n = caller.size;
  GOCCL_CHECK(whole.numel() == part.numel() * n, caller,
              "the ", role, " tensor must have ", part.numel() * n, " elements, ", n, " (ranks) times the ",
              part.numel(), " of its counterpart; got ", whole.numel(), " (sizes ", whole.sizes(), ")");
}

// Checks pairs of a whole and a part; role is that of the wholes. Returns whether any of the
// tensors share memory.
bool check_wholes(const Caller& caller, const Tensors& wholes, const char* role, const Tensors& parts) {
  Overlap tensors(caller.rank);
  for (size_t i = 0; i < parts.size(); i++) {
    check_whole(caller, wholes[i], role, parts[i]);
    tensors.add_whole(parts[i], wholes[i], caller.size, *role == 'o');
  }
  return tensors.found();
}

} // namespace

WorkPtr GocclBackend::issue(Request& request, bool asynchronous, at::TensorList inputs) {
  const bool watched = observers_->any();
  const bool message = request.call.coll == GOCCL_SEND || request.call.coll == GOCCL_RECV;
  if (C10_UNLIKELY(Callback::current() != nullptr) && !message) place(request);
  request.call.batch = coalescing_.open();
  if (!request.device.is_cpu()) {
    if (watched) lengthen(request);
    return enqueue(on(request.device, request.caller.kind.title), &request, 1, std::move(request.held), asynchronous,
                   inputs);
  }
  // torch stores Works, if it does, without checking for null.
  const bool kept = !asynchronous && c10d::allow_inflight_collective_as_graph_input();
  if (!asynchronous && C10_LIKELY(!watched && !kept && !at::hasCallbacks() && request.call.batch == 0)) {
    run(request, lib.run, &request.finish());
    return nullptr;
  }
  if (watched) lengthen(request);
  auto work = c10::make_intrusive<GocclWork>(origin(request, !asynchronous), std::move(request.held), inputs);
  work->start(&request, 1);
  return issued(std::move(work), asynchronous);
}

Origin GocclBackend::origin(const Request& request, bool synchronous) const {
  const Kind& kind = request.caller.kind;
  const std::chrono::nanoseconds given(request.call.timeout_ns);
  return {kind, getRank(), group(request),
          given.count() > 0 ? std::chrono::duration_cast<std::chrono::milliseconds>(given) : options_->timeout,
          timed_.load(std::memory_order_relaxed), observers_,
          observers_->any() ? std::make_shared<Watch>(observers_, kind.type, synchronous) : nullptr};
}

WorkPtr GocclBackend::issued(c10::intrusive_ptr<EndingWork> work, bool asynchronous) {
  coalescing_.add(work);
  if (!asynchronous) {
    work->wait();
  } else if (C10_UNLIKELY(work->watched())) {
    work->look_after();
  }
  return work;
}

template <typename Opts, typename Fill>
WorkPtr GocclBackend::coalesced(const Kind& kind, Tensors& inputs, const Opts& opts, bool separate, Fill fill) {
  std::vector<Request> requests;
  requests.reserve(inputs.size());
  for (size_t i = 0; i < inputs.size(); i++) {
    requests.emplace_back(caller(kind), inputs[i], opts.timeout).separate = separate;
    GOCCL_CHECK(requests[i].device == requests[0].device, requests[i].caller,
                "all tensors must be on the same device; expected ", requests[0].device, ", got ", requests[i].device,
                " at index ", i);
    fill(requests.back(), i);
  }
  if (requests.size() == 1) return issue(requests[0], opts.asyncOp, inputs);
  Held held;
  // Results are written in Gloo's order: the first block of every call, then the second blocks.
  for (size_t block = 0; separate && block < requests[0].held.copies.size(); block++) {
    for (Request& request : requests) held.copies.push_back(request.held.copies[block]);
  }
  const uint32_t open = coalescing_.open(), batch = open != 0 ? open : Coalescing::next_number();
  for (Request& request : requests) {
    place(request);
    if (separate) request.held.copies.clear();
    request.call.batch = batch;
    if (C10_UNLIKELY(observers_->any())) lengthen(request);
    held.absorb(std::move(request.held));
  }
  if (!requests[0].device.is_cpu()) {
    const DeviceGroup& group = on(requests[0].device, kind.title);
    const auto work = enqueue(group, requests.data(), requests.size(), std::move(held), opts.asyncOp, inputs);
    if (open == 0) lib.group_batch(group.group, batch, nullptr);
    return work;
  }
  auto work = c10::make_intrusive<GocclWork>(origin(requests[0], !opts.asyncOp), std::move(held), inputs);
  work->start(requests.data(), requests.size());
  if (open == 0) lib.group_batch(group_, batch, nullptr);
  return issued(std::move(work), opts.asyncOp);
}

WorkPtr GocclBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) {
  check_some(caller(kBroadcast), tensors, "input");
  Request request(caller(kBroadcast), tensors[0], opts.timeout);
  const bool root = request.set_root(opts.rootRank, opts.rootTensor, tensors.size());
  const at::Tensor& own = tensors[opts.rootTensor];
  root ? request.update(own) : request.write(own);
  if (C10_UNLIKELY(tensors.size() > 1)) request.give_all(own, tensors);
  return issue(request, opts.asyncOp, tensors);
}

WorkPtr GocclBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  check_some(caller(kAllReduce), tensors, "input");
  // torch itself calls allreduce_sparse only for devices other than the CPU.
  if (C10_UNLIKELY(tensors[0].defined() && tensors[0].layout() == at::kSparse)) return allreduce_sparse(tensors, opts);
  Request request(caller(kAllReduce), tensors[0], opts.timeout);
  request.reduce_with(opts.reduceOp);
  C10_LIKELY(tensors.size() == 1) ? request.update(tensors[0]) : request.update_all(tensors);
  return issue(request, opts.asyncOp, tensors);
}

WorkPtr GocclBackend::allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts) {
  check_same_length(caller(kAllReduceCoalesced), tensors.size(), tensors.size());
  for (size_t i = 1; i < tensors.size(); i++) {
    if (!tensors[0].defined() || !tensors[i].defined()) break; // refused later
    GOCCL_CHECK(tensors[i].scalar_type() == tensors[0].scalar_type(), caller(kAllReduceCoalesced),
                "tensors must all have the same type; expected ", tensors[0].scalar_type(), ", got ",
                tensors[i].scalar_type(), " at index ", i, ": make a call for each type");
  }
  const bool separate = Overlap(getRank()).add({}, tensors).found();
  return coalesced(kAllReduceCoalesced, tensors, opts, separate, [&](Request& request, size_t i) {
    request.reduce_with(opts.reduceOp);
    request.update(tensors[i]);
  });
}

WorkPtr GocclBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& opts) {
  check_one(caller(kReduce), tensors, "input");
  Request request(caller(kReduce), tensors[0], opts.timeout);
  request.reduce_with(opts.reduceOp);
  const bool root = request.set_root(opts.rootRank, opts.rootTensor);
  root ? request.update(tensors[0]) : request.read(tensors[0]);
  if (!root) request.held.outputs.push_back(tensors[0]); // the future has it on every rank, as with other backends
  return issue(request, opts.asyncOp, tensors);
}

WorkPtr GocclBackend::allgather(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) {
  check_some(caller(kAllGather), inputs, "input");
  Request request(caller(kAllGather), inputs[0], opts.timeout);
  if (C10_LIKELY(inputs.size() == 1)) {
    request.add_blocks(inputs, blocks_of(request.caller, outputs, "output"), "output");
  } else {
    gather_several(request, outputs, inputs);
  }
  return issue(request, opts.asyncOp, inputs);
}

WorkPtr GocclBackend::_allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& opts) {
  check_whole(caller(kAllGatherBase), output, "output", input);
  Request request(caller(kAllGatherBase), input, opts.timeout);
  request.read(input);
  request.write_parts(output);
  return issue(request, opts.asyncOp, input);
}

WorkPtr GocclBackend::allgather_coalesced(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) {
  GOCCL_CHECK(outputs.size() == static_cast<size_t>(getSize()), caller(kAllGatherCoalesced),
              "output lists should be equal to world size; got ", outputs.size(), " lists for ", getSize(), " ranks");
  for (const Tensors& of_rank : outputs) check_same_length(caller(kAllGatherCoalesced), of_rank.size(), inputs.size());
  Overlap tensors(getRank());
  TensorLists blocks(inputs.size()); // of each call
  for (size_t i = 0; i < inputs.size(); i++) {
    for (const Tensors& of_rank : outputs) blocks[i].push_back(of_rank[i]);
    tensors.add(inputs[i], blocks[i]);
  }
  return coalesced(kAllGatherCoalesced, inputs, opts, tensors.found(), [&](Request& request, size_t i) {
    request.add_blocks(inputs[i], blocks[i], "output");
    if (i == 0) request.held.keep_lists(outputs);
  });
}

WorkPtr GocclBackend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                      const c10d::AllgatherOptions& opts) {
  check_same_length(caller(kAllGatherCoalesced), outputs.size(), inputs.size());
  const bool separate = check_wholes(caller(kAllGatherCoalesced), outputs, "output", inputs);
  return coalesced(kAllGatherCoalesced, inputs, opts, separate, [&](Request& request, size_t i) {
    request.read(inputs[i]);
    request.write_parts(outputs[i]);
  });
}

WorkPtr GocclBackend::gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& opts) {
  check_one(caller(kGather), inputs, "input");
  Request request(caller(kGather), inputs[0], opts.timeout);
  const bool root = request.set_root(opts.rootRank);
  request.add_blocks(inputs, root_blocks(request.caller, outputs, "output", root), "output");
  return issue(request, opts.asyncOp, inputs);
}

#ifdef C10D_BACKEND_HAS_HOOKS
WorkPtr GocclBackend::gather_into_tensor(at::Tensor& output, at::Tensor& input, const c10d::GatherOptions& opts) {
  Request request(caller(kGather), input, opts.timeout);
  request.read(input);
  if (request.set_root(opts.rootRank)) {
    check_whole(request.caller, output, "output", input);
    request.write_parts(output);
  }
  return issue(request, opts.asyncOp, input);
}
#endif

WorkPtr GocclBackend::scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& opts) {
  check_one(caller(kScatter), outputs, "output");
  Request request(caller(kScatter), outputs[0], opts.timeout);
  const bool root = request.set_root(opts.rootRank);
  const Tensors& blocks = root_blocks(request.caller, inputs, "input", root);
  request.add_blocks(outputs, blocks, "input");
  return issue(request, opts.asyncOp, blocks);
}

WorkPtr GocclBackend::reduce_scatter(Tensors& outputs, TensorLists& inputs, const c10d::ReduceScatterOptions& opts) {
  check_one(caller(kReduceScatter), outputs, "output");
  Request request(caller(kReduceScatter), outputs[0], opts.timeout);
  request.reduce_with(opts.reduceOp);
  const Tensors& blocks = blocks_of(request.caller, inputs, "input");
  request.add_blocks(outputs, blocks, "input");
  return issue(request, opts.asyncOp, blocks);
}

WorkPtr GocclBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                           const c10d::ReduceScatterOptions& opts) {
  check_whole(caller(kReduceScatterBase), input, "input", output);
  Request request(caller(kReduceScatterBase), output, opts.timeout);
  request.reduce_with(opts.reduceOp);
  request.read_parts(input);
  request.write(output);
  return issue(request, opts.asyncOp, input);
}

WorkPtr GocclBackend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                      const c10d::ReduceScatterOptions& opts) {
  check_same_length(caller(kReduceScatterCoalesced), outputs.size(), inputs.size());
  const bool separate = check_wholes(caller(kReduceScatterCoalesced), inputs, "input", outputs);
  return coalesced(kReduceScatterCoalesced, inputs, opts, separate, [&](Request& request, size_t i) {
    request.reduce_with(opts.reduceOp);
    request.read_parts(inputs[i]);
    request.write(outputs[i]);
  });
}

WorkPtr GocclBackend::alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                                    std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& opts) {
  Request request(caller(kAllToAllBase), output, opts.timeout);
  GOCCL_CHECK(input.defined(), request.caller, "got an undefined tensor");
  GOCCL_CHECK(!output_splits.empty() || !input_splits.empty() || input.numel() == output.numel(), request.caller,
              "without splits the input and output tensors must have as many elements; got ", input.numel(), " and ",
              output.numel());
  request.read_parts(input, input_splits);
  request.write_parts(output, output_splits);
  return issue(request, opts.asyncOp, input);
}

WorkPtr GocclBackend::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) {
  check_per_rank(caller(kAllToAll), inputs, "input");
  check_per_rank(caller(kAllToAll), outputs, "output");
  Request request(caller(kAllToAll), outputs[0], opts.timeout);
  request.add_blocks(inputs, outputs, "output");
  return issue(request, opts.asyncOp, inputs);
}

WorkPtr GocclBackend::barrier(const c10d::BarrierOptions& opts) {
  synchronize_devices(opts.device);
  Request request(caller(kBarrier), opts.timeout);
  return issue(request, opts.asyncOp, {});
}

} // namespace goccl
