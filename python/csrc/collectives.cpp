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

void check_per_rank(const Caller& caller, const Tensors& blocks, const char* role, int ranks) {
  GOCCL_CHECK(blocks.size() == static_cast<size_t>(ranks), caller,
              "Incorrect ", role, " list size ", blocks.size(), ". ", (*role == 'i' ? "Input" : "Output"),
              " list size should be ", ranks, ", same as size of the process group.");
}

// Returns the list of tensors, one for each rank, from a list of lists.
const Tensors& blocks_of(const Caller& caller, const TensorLists& lists, const char* role, int ranks) {
  GOCCL_CHECK(lists.size() == 1, caller, "requires a single-element ", role, " list containing a list with ", ranks,
              " tensors; got ", lists.size(), " lists");
  check_per_rank(caller, lists[0], role, ranks);
  return lists[0];
}

// Returns the root's blocks, one for each rank. Other ranks give none.
const Tensors& root_blocks(const Caller& caller, const TensorLists& lists, const char* role, bool root, int ranks) {
  static const Tensors none;
  if (root) return blocks_of(caller, lists, role, ranks);
  GOCCL_CHECK(lists.empty(), caller, "requires empty ", role, " on non-root; got ", lists.size(), " lists");
  return none;
}

// all_gather of several tensors per rank. Each of the output lists gets all of them: first the
// tensors of rank 0, then those of rank 1, ...
void gather_several(const Caller& caller, Request& request, TensorLists& outputs, const Tensors& inputs, int ranks) {
  check_same_length(caller, outputs.size(), inputs.size());
  const size_t all = inputs.size() * ranks;
  for (size_t i = 0; i < outputs.size(); i++) {
    GOCCL_CHECK(outputs[i].size() == all, caller, "invalid output tensor list at index ", i,
                " (expected length ", all, ", got ", outputs[i].size(), ")");
    check_alike(caller, outputs[i], inputs[0]);
  }
  request.read_all(inputs);
  request.write_all(outputs, ranks);
}

// Checks that the whole has n times the elements of the part; shapes do not matter.
void check_whole(const Caller& caller, const at::Tensor& whole, const char* role, const at::Tensor& part, int n) {
  GOCCL_CHECK(whole.defined() && part.defined(), caller, "got an undefined tensor");
  GOCCL_CHECK(whole.numel() == part.numel() * n, caller,
              "the ", role, " tensor must have ", part.numel() * n, " elements, ", n, " (ranks) times the ",
              part.numel(), " of its counterpart; got ", whole.numel(), " (sizes ", whole.sizes(), ")");
}

// Checks pairs of a tensor and one that is n times as large; returns whether any of them share
// memory.
bool check_wholes(const Caller& caller, const Tensors& wholes, const char* role, bool written, const Tensors& parts,
                  int rank, int n) {
  Overlap tensors(rank);
  for (size_t i = 0; i < parts.size(); i++) {
    check_whole(caller, wholes[i], role, parts[i], n);
    tensors.add_whole(parts[i], wholes[i], n, written);
  }
  return tensors.found();
}

// Returns the blocks of a tensor as separate tensors in its memory.
Tensors parts_of(const at::Tensor& whole, int n) {
  Quietly quietly;
  return whole.is_contiguous() ? whole.view({n, -1}).unbind() : whole.unflatten(0, {n, -1}).unbind();
}

// Whether the tensors of one call share memory.
bool share_memory(int rank, at::TensorList read, at::TensorList written) {
  Overlap tensors(rank);
  tensors.add(read, written);
  return tensors.found();
}

void check_own(const Caller& caller, const at::Tensor& block, const char* role, int rank, const at::Tensor& own) {
  GOCCL_CHECK(block.numel() == own.numel(), caller, "invalid tensor size at index ", rank, ": the ", role,
              " block of this rank ", "itself must have as many elements as its counterpart (expected ",
              own.numel(), " for sizes ", own.sizes(), ", got ", block.numel(), " for sizes ", block.sizes(), ")");
}

} // namespace

bool GocclBackend::set_root(const Kind& kind, Request& request, int64_t root, int64_t root_tensor,
                            size_t tensors) const {
  GOCCL_CHECK(root >= 0 && root < getSize(), caller(kind),
              "invalid root rank: ", root, "; the group has ", getSize(), " ranks");
  GOCCL_CHECK(root_tensor >= 0 && root_tensor < static_cast<int64_t>(tensors), caller(kind),
              "invalid root tensor: ", root_tensor, "; this rank has ", tensors, tensors == 1 ? " tensor" : " tensors");
  request.call.root = static_cast<int32_t>(root);
  return root == getRank();
}

WorkPtr GocclBackend::issue(const Kind& kind, Request& request, bool asynchronous, at::TensorList inputs) {
  const bool watched = observers_->any();
  request.call.batch = coalescing_.open();
  // torch stores Works, if it does, without checking for null.
  const bool kept = !asynchronous && c10d::allow_inflight_collective_as_graph_input();
  if (!asynchronous && C10_LIKELY(!watched && !kept && !at::hasCallbacks() && request.call.batch == 0)) {
    observers_->call(kind.title, lib.run, group(kind.title, &request), &request.finish());
    request.held.copy_back();
    return nullptr;
  }
  if (watched) lengthen(request);
  auto work = c10::make_intrusive<GocclWork>(origin(kind, request.call.timeout_ns, !asynchronous, &request), kind,
                                             std::move(request.held), inputs);
  work->start(&request, 1);
  return issued(std::move(work), asynchronous);
}

Origin GocclBackend::origin(const Kind& kind, int64_t timeout_ns, bool synchronous, const Request* request) const {
  const auto given = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::nanoseconds(timeout_ns));
  return {getRank(), group(kind.title, request), timeout_ns > 0 ? given : options_->timeout,
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
    fill(requests.back(), i);
  }
  if (requests.size() == 1) return issue(kind, requests[0], opts.asyncOp, inputs);
  Held held;
  // Results are written in Gloo's order: the first block of every call, then the second blocks.
  for (size_t block = 0; separate && block < requests[0].held.copies.size(); block++) {
    for (Request& request : requests) held.copies.push_back(request.held.copies[block]);
  }
  const uint32_t open = coalescing_.open(), batch = open != 0 ? open : Coalescing::next_number();
  for (Request& request : requests) {
    if (separate) request.held.copies.clear();
    request.call.batch = batch;
    if (C10_UNLIKELY(observers_->any())) lengthen(request);
    held.absorb(std::move(request.held));
  }
  const auto from = origin(kind, requests[0].call.timeout_ns, !opts.asyncOp, &requests[0]);
  auto work = c10::make_intrusive<GocclWork>(from, kind, std::move(held), inputs);
  work->start(requests.data(), requests.size());
  if (open == 0) lib.group_batch(from.group, batch, nullptr);
  return issued(std::move(work), opts.asyncOp);
}

WorkPtr GocclBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) {
  check_some(caller(kBroadcast), tensors, "input");
  Request request(caller(kBroadcast), tensors[0], opts.timeout);
  const bool root = set_root(kBroadcast, request, opts.rootRank, opts.rootTensor, tensors.size());
  const at::Tensor& own = tensors[opts.rootTensor];
  root ? request.update(own) : request.write(own);
  if (C10_UNLIKELY(tensors.size() > 1)) request.give_all(own, tensors);
  return issue(kBroadcast, request, opts.asyncOp, tensors);
}

WorkPtr GocclBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  check_some(caller(kAllReduce), tensors, "input");
  // torch itself calls allreduce_sparse only for devices other than the CPU.
  if (C10_UNLIKELY(tensors[0].defined() && tensors[0].layout() == at::kSparse)) return allreduce_sparse(tensors, opts);
  Request request(caller(kAllReduce), tensors[0], opts.timeout);
  request.reduce_with(opts.reduceOp);
  C10_LIKELY(tensors.size() == 1) ? request.update(tensors[0]) : request.update_all(tensors);
  return issue(kAllReduce, request, opts.asyncOp, tensors);
}

WorkPtr GocclBackend::allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts) {
  check_same_length(caller(kAllReduceCoalesced), tensors.size(), tensors.size());
  return coalesced(kAllReduceCoalesced, tensors, opts, share_memory(getRank(), {}, tensors),
                   [&](Request& request, size_t i) {
    request.reduce_with(opts.reduceOp);
    request.update(tensors[i]);
  });
}

WorkPtr GocclBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& opts) {
  check_one(caller(kReduce), tensors, "input");
  Request request(caller(kReduce), tensors[0], opts.timeout);
  request.reduce_with(opts.reduceOp);
  const bool root = set_root(kReduce, request, opts.rootRank, opts.rootTensor);
  root ? request.update(tensors[0]) : request.read(tensors[0]);
  if (!root) request.held.outputs.push_back(tensors[0]); // the future has it on every rank, as with other backends
  return issue(kReduce, request, opts.asyncOp, tensors);
}

WorkPtr GocclBackend::allgather(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) {
  check_some(caller(kAllGather), inputs, "input");
  Request request(caller(kAllGather), inputs[0], opts.timeout);
  if (C10_UNLIKELY(inputs.size() > 1)) {
    gather_several(caller(kAllGather), request, outputs, inputs, getSize());
    return issue(kAllGather, request, opts.asyncOp, inputs);
  }
  const Tensors& blocks = blocks_of(caller(kAllGather), outputs, "output", getSize());
  request.separate = share_memory(getRank(), inputs, blocks);
  request.read(inputs[0]);
  for (const at::Tensor& block : blocks) request.write(block);
  check_own(caller(kAllGather), blocks[getRank()], "output", getRank(), inputs[0]);
  return issue(kAllGather, request, opts.asyncOp, inputs);
}

WorkPtr GocclBackend::_allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& opts) {
  check_whole(caller(kAllGatherBase), output, "output", input, getSize());
  Request request(caller(kAllGatherBase), input, opts.timeout);
  request.read(input);
  request.write_parts(output, getSize());
  return issue(kAllGatherBase, request, opts.asyncOp, input);
}

WorkPtr GocclBackend::allgather_coalesced(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) {
  GOCCL_CHECK(outputs.size() == static_cast<size_t>(getSize()), caller(kAllGatherCoalesced),
              "output lists should be equal to world size; got ", outputs.size(), " lists for ", getSize(), " ranks");
  for (const Tensors& of_rank : outputs) check_same_length(caller(kAllGatherCoalesced), of_rank.size(), inputs.size());
  Overlap tensors(getRank());
  c10::SmallVector<at::Tensor, 8> blocks(outputs.size());
  for (size_t i = 0; i < inputs.size(); i++) {
    for (size_t r = 0; r < outputs.size(); r++) blocks[r] = outputs[r][i];
    tensors.add(inputs[i], blocks);
  }
  return coalesced(kAllGatherCoalesced, inputs, opts, tensors.found(), [&](Request& request, size_t i) {
    request.read(inputs[i]);
    for (const Tensors& of_rank : outputs) request.write(of_rank[i]);
    check_own(caller(kAllGatherCoalesced), outputs[getRank()][i], "output", getRank(), inputs[i]);
  });
}

WorkPtr GocclBackend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                      const c10d::AllgatherOptions& opts) {
  check_same_length(caller(kAllGatherCoalesced), outputs.size(), inputs.size());
  const bool separate =
      check_wholes(caller(kAllGatherCoalesced), outputs, "output", true, inputs, getRank(), getSize());
  return coalesced(kAllGatherCoalesced, inputs, opts, separate, [&](Request& request, size_t i) {
    request.read(inputs[i]);
    if (separate) {
      for (const at::Tensor& part : parts_of(outputs[i], getSize())) request.write(part);
      request.held.outputs = {outputs[i]};
    } else {
      request.write_parts(outputs[i], getSize());
    }
  });
}

WorkPtr GocclBackend::gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& opts) {
  check_one(caller(kGather), inputs, "input");
  Request request(caller(kGather), inputs[0], opts.timeout);
  const bool root = set_root(kGather, request, opts.rootRank);
  const Tensors& blocks = root_blocks(caller(kGather), outputs, "output", root, getSize());
  request.separate = share_memory(getRank(), inputs, blocks);
  request.read(inputs[0]);
  for (const at::Tensor& block : blocks) request.write(block);
  if (root) check_own(caller(kGather), blocks[getRank()], "output", getRank(), inputs[0]);
  return issue(kGather, request, opts.asyncOp, inputs);
}

#ifdef C10D_BACKEND_HAS_HOOKS
WorkPtr GocclBackend::gather_into_tensor(at::Tensor& output, at::Tensor& input, const c10d::GatherOptions& opts) {
  Request request(caller(kGather), input, opts.timeout);
  request.read(input);
  if (set_root(kGather, request, opts.rootRank)) {
    check_whole(caller(kGather), output, "output", input, getSize());
    request.write_parts(output, getSize());
  }
  return issue(kGather, request, opts.asyncOp, input);
}
#endif

WorkPtr GocclBackend::scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& opts) {
  check_one(caller(kScatter), outputs, "output");
  Request request(caller(kScatter), outputs[0], opts.timeout);
  const bool root = set_root(kScatter, request, opts.rootRank);
  const Tensors& blocks = root_blocks(caller(kScatter), inputs, "input", root, getSize());
  request.separate = share_memory(getRank(), blocks, outputs);
  request.write(outputs[0]);
  for (const at::Tensor& block : blocks) request.read(block);
  if (root) check_own(caller(kScatter), blocks[getRank()], "input", getRank(), outputs[0]);
  return issue(kScatter, request, opts.asyncOp, blocks);
}

WorkPtr GocclBackend::reduce_scatter(Tensors& outputs, TensorLists& inputs, const c10d::ReduceScatterOptions& opts) {
  check_one(caller(kReduceScatter), outputs, "output");
  Request request(caller(kReduceScatter), outputs[0], opts.timeout);
  request.reduce_with(opts.reduceOp);
  const Tensors& blocks = blocks_of(caller(kReduceScatter), inputs, "input", getSize());
  request.separate = share_memory(getRank(), blocks, outputs);
  request.write(outputs[0]);
  for (const at::Tensor& block : blocks) request.read(block);
  check_own(caller(kReduceScatter), blocks[getRank()], "input", getRank(), outputs[0]);
  return issue(kReduceScatter, request, opts.asyncOp, blocks);
}

WorkPtr GocclBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                           const c10d::ReduceScatterOptions& opts) {
  check_whole(caller(kReduceScatterBase), input, "input", output, getSize());
  Request request(caller(kReduceScatterBase), output, opts.timeout);
  request.reduce_with(opts.reduceOp);
  request.read_parts(input, getSize());
  request.write(output);
  return issue(kReduceScatterBase, request, opts.asyncOp, input);
}

WorkPtr GocclBackend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                      const c10d::ReduceScatterOptions& opts) {
  check_same_length(caller(kReduceScatterCoalesced), outputs.size(), inputs.size());
  const bool separate =
      check_wholes(caller(kReduceScatterCoalesced), inputs, "input", false, outputs, getRank(), getSize());
  return coalesced(kReduceScatterCoalesced, inputs, opts, separate, [&](Request& request, size_t i) {
    request.reduce_with(opts.reduceOp);
    request.read_parts(inputs[i], getSize());
    request.write(outputs[i]);
  });
}

WorkPtr GocclBackend::alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                                    std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& opts) {
  Request request(caller(kAllToAllBase), output, opts.timeout);
  GOCCL_CHECK(input.defined(), caller(kAllToAllBase), "got an undefined tensor");
  GOCCL_CHECK(!output_splits.empty() || !input_splits.empty() || input.numel() == output.numel(), caller(kAllToAllBase),
              "without splits the input and output tensors must have as many elements; got ", input.numel(), " and ",
              output.numel());
  request.read_parts(input, getSize(), input_splits);
  request.write_parts(output, getSize(), output_splits);
  return issue(kAllToAllBase, request, opts.asyncOp, input);
}

WorkPtr GocclBackend::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) {
  check_per_rank(caller(kAllToAll), inputs, "input", getSize());
  check_per_rank(caller(kAllToAll), outputs, "output", getSize());
  Request request(caller(kAllToAll), outputs[0], opts.timeout);
  request.separate = share_memory(getRank(), inputs, outputs);
  for (const at::Tensor& block : inputs) request.read(block);
  for (const at::Tensor& block : outputs) request.write(block);
  check_own(caller(kAllToAll), outputs[getRank()], "output", getRank(), inputs[getRank()]);
  return issue(kAllToAll, request, opts.asyncOp, inputs);
}

WorkPtr GocclBackend::barrier(const c10d::BarrierOptions& opts) {
  Request request(caller(kBarrier), opts.timeout);
  return issue(kBarrier, request, opts.asyncOp, {});
}

} // namespace goccl
