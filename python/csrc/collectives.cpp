// The collectives: each method checks its arguments, names the blocks, and issues.
#include "backend.h"

namespace goccl {

using c10d::OpType;

namespace {

constexpr Kind kBroadcast{OpType::BROADCAST, GOCCL_BROADCAST, "goccl:broadcast"};
constexpr Kind kAllReduce{OpType::ALLREDUCE, GOCCL_ALL_REDUCE, "goccl:all_reduce"};
constexpr Kind kAllReduceSparse{OpType::_ALLREDUCE_SPARSE, GOCCL_ALL_REDUCE, "goccl:all_reduce"};
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

template <typename List>
void check_one(const Kind& kind, const List& tensors, const char* role) {
  GOCCL_CHECK(!tensors.empty(), kind, "requires non-empty tensor list; got no ", role, " tensor, expected 1");
  GOCCL_CHECK(tensors.size() == 1, kind, "requires a single-element ", role, " tensor list; got ", tensors.size());
}

void check_same_length(const Kind& kind, size_t outputs, size_t inputs) {
  GOCCL_CHECK(inputs > 0, kind, "requires non-empty tensor list");
  GOCCL_CHECK(outputs == inputs, kind, "requires input/output tensor lists to have the same length; got ", outputs,
              " outputs for ", inputs, " inputs");
}

// The whole must be n times the part; shapes do not matter.
void check_whole(const Kind& kind, const at::Tensor& whole, const char* whole_role, const at::Tensor& part,
                 const char* part_role, int n) {
  GOCCL_CHECK(whole.defined() && part.defined(), kind, "got an undefined tensor");
  GOCCL_CHECK(whole.numel() == part.numel() * n, kind, "the ", whole_role, " tensor must have ", n, " (ranks) times the ",
              part.numel(), " elements of the ", part_role, " tensor, so ", part.numel() * n, "; got ", whole.numel(),
              " (sizes ", whole.sizes(), ")");
}

void check_numel(const Kind& kind, const at::Tensor& block, const char* role, int rank, const at::Tensor& own) {
  GOCCL_CHECK(block.defined() && own.defined(), kind, "got an undefined tensor");
  GOCCL_CHECK(block.numel() == own.numel(), kind, "invalid tensor size at index ", rank, ": the ", role,
              " of this rank itself must have as many elements as its counterpart (expected ", own.numel(), " for sizes ",
              own.sizes(), ", got ", block.numel(), " for sizes ", block.sizes(), ")");
}

} // namespace

GocclBackend::WorkPtr GocclBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) {
  check_one(kBroadcast, tensors, "input");
  GOCCL_CHECK(opts.rootTensor == 0, kBroadcast, "invalid root tensor: ", opts.rootTensor, "; a rank has one tensor");
  Request request(kBroadcast, tensors[0], opts.timeout);
  request.call.root = checked_root(kBroadcast, opts.rootRank);
  if (request.call.root == getRank()) {
    request.update(tensors[0]);
  } else {
    request.write(tensors[0]);
  }
  return issue(kBroadcast, request, opts.asyncOp, tensors);
}

GocclBackend::WorkPtr GocclBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  check_one(kAllReduce, tensors, "input");
  Request request(kAllReduce, tensors[0], opts.timeout);
  request.reduce_with(opts.reduceOp);
  request.update(tensors[0]);
  return issue(kAllReduce, request, opts.asyncOp, tensors);
}

GocclBackend::WorkPtr GocclBackend::allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& /*opts*/) {
  check_one(kAllReduceSparse, tensors, "input");
  GOCCL_CHECK(false, kAllReduceSparse, "only supports dense tensors; got layout ", tensors[0].layout(),
              ": call to_dense() first, or make the gradients dense (nn.Embedding(sparse=False))");
}

GocclBackend::WorkPtr GocclBackend::allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts) {
  GOCCL_CHECK(!tensors.empty(), kAllReduceCoalesced, "requires non-empty tensor list");
  std::vector<Request> requests;
  requests.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) {
    Request& request = requests.emplace_back(kAllReduceCoalesced, tensor, opts.timeout);
    request.reduce_with(opts.reduceOp);
    request.update(tensor);
  }
  return issue_all(kAllReduceCoalesced, requests, opts.asyncOp, tensors);
}

GocclBackend::WorkPtr GocclBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& opts) {
  check_one(kReduce, tensors, "input");
  GOCCL_CHECK(opts.rootTensor == 0, kReduce, "invalid root tensor: ", opts.rootTensor, "; a rank has one tensor");
  Request request(kReduce, tensors[0], opts.timeout);
  request.call.root = checked_root(kReduce, opts.rootRank);
  request.reduce_with(opts.reduceOp);
  if (request.call.root == getRank()) {
    request.update(tensors[0]);
  } else {
    request.read(tensors[0]);
  }
  return issue(kReduce, request, opts.asyncOp, tensors);
}

GocclBackend::WorkPtr GocclBackend::allgather(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) {
  check_one(kAllGather, inputs, "input");
  check_one(kAllGather, outputs, "output");
  const Tensors& blocks = outputs[0];
  GOCCL_CHECK(blocks.size() == static_cast<size_t>(getSize()), kAllGather, "Incorrect output list size ", blocks.size(),
              ". Output list size should be ", getSize(), ", same as size of the process group.");
  Request request(kAllGather, inputs[0], opts.timeout);
  request.read(inputs[0]);
  for (const at::Tensor& block : blocks) {
    request.write(block);
  }
  check_numel(kAllGather, blocks[getRank()], "output block", getRank(), inputs[0]);
  return issue(kAllGather, request, opts.asyncOp, inputs);
}

GocclBackend::WorkPtr GocclBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                    const c10d::AllgatherOptions& opts) {
  check_whole(kAllGatherBase, output, "output", input, "input", getSize());
  Request request(kAllGatherBase, input, opts.timeout);
  request.read(input);
  request.write_parts(output, getSize());
  return issue(kAllGatherBase, request, opts.asyncOp, input);
}

GocclBackend::WorkPtr GocclBackend::allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                                                        const c10d::AllgatherOptions& opts) {
  GOCCL_CHECK(!inputs.empty(), kAllGatherCoalesced, "requires non-empty input tensor list");
  GOCCL_CHECK(outputs.size() == static_cast<size_t>(getSize()), kAllGatherCoalesced,
              "output lists should be equal to world size; got ", outputs.size(), " lists for ", getSize(), " ranks");
  for (const Tensors& of_rank : outputs) {
    GOCCL_CHECK(of_rank.size() == inputs.size(), kAllGatherCoalesced, "invalid output size: (expected length ",
                inputs.size(), ", got ", of_rank.size(), ")");
  }
  std::vector<Request> requests;
  requests.reserve(inputs.size());
  for (size_t i = 0; i < inputs.size(); i++) {
    Request& request = requests.emplace_back(kAllGatherCoalesced, inputs[i], opts.timeout);
    request.read(inputs[i]);
    for (const Tensors& of_rank : outputs) {
      request.write(of_rank[i]);
    }
    check_numel(kAllGatherCoalesced, outputs[getRank()][i], "output block", getRank(), inputs[i]);
  }
  return issue_all(kAllGatherCoalesced, requests, opts.asyncOp, inputs);
}

GocclBackend::WorkPtr GocclBackend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                    const c10d::AllgatherOptions& opts) {
  check_same_length(kAllGatherCoalesced, outputs.size(), inputs.size());
  std::vector<Request> requests;
  requests.reserve(inputs.size());
  for (size_t i = 0; i < inputs.size(); i++) {
    check_whole(kAllGatherCoalesced, outputs[i], "output", inputs[i], "input", getSize());
    Request& request = requests.emplace_back(kAllGatherCoalesced, inputs[i], opts.timeout);
    request.read(inputs[i]);
    request.write_parts(outputs[i], getSize());
  }
  return issue_all(kAllGatherCoalesced, requests, opts.asyncOp, inputs);
}

GocclBackend::WorkPtr GocclBackend::gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& opts) {
  check_one(kGather, inputs, "input");
  Request request(kGather, inputs[0], opts.timeout);
  request.call.root = checked_root(kGather, opts.rootRank);
  request.read(inputs[0]);
  if (request.call.root == getRank()) {
    GOCCL_CHECK(outputs.size() == 1, kGather, "requires a single-element output list containing a list with ", getSize(),
                " tensors; got ", outputs.size());
    GOCCL_CHECK(outputs[0].size() == static_cast<size_t>(getSize()), kGather, "Incorrect output list size ",
                outputs[0].size(), ". Output list size should be ", getSize(), ", same as size of the process group.");
    for (const at::Tensor& block : outputs[0]) {
      request.write(block);
    }
    check_numel(kGather, outputs[0][getRank()], "output block", getRank(), inputs[0]);
  } else {
    GOCCL_CHECK(outputs.empty(), kGather, "requires empty output on non-root; got ", outputs.size(), " lists");
  }
  return issue(kGather, request, opts.asyncOp, inputs);
}

#ifdef C10D_BACKEND_HAS_HOOKS
GocclBackend::WorkPtr GocclBackend::gather_into_tensor(at::Tensor& output, at::Tensor& input,
                                                       const c10d::GatherOptions& opts) {
  Request request(kGather, input, opts.timeout);
  request.call.root = checked_root(kGather, opts.rootRank);
  request.read(input);
  if (request.call.root == getRank()) {
    check_whole(kGather, output, "output", input, "input", getSize());
    request.write_parts(output, getSize());
  }
  return issue(kGather, request, opts.asyncOp, input);
}
#endif

GocclBackend::WorkPtr GocclBackend::scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& opts) {
  check_one(kScatter, outputs, "output");
  Request request(kScatter, outputs[0], opts.timeout);
  request.call.root = checked_root(kScatter, opts.rootRank);
  if (request.call.root == getRank()) {
    GOCCL_CHECK(inputs.size() == 1, kScatter, "requires a single-element input list containing a list with ", getSize(),
                " tensors; got ", inputs.size());
    GOCCL_CHECK(inputs[0].size() == static_cast<size_t>(getSize()), kScatter, "Incorrect input list size ",
                inputs[0].size(), ". Input list size should be ", getSize(), ", same as size of the process group.");
    for (const at::Tensor& block : inputs[0]) {
      request.read(block);
    }
    check_numel(kScatter, inputs[0][getRank()], "input block", getRank(), outputs[0]);
  } else {
    GOCCL_CHECK(inputs.empty(), kScatter, "requires empty input on non-root; got ", inputs.size(), " lists");
  }
  request.write(outputs[0]);
  return issue(kScatter, request, opts.asyncOp, inputs.empty() ? at::TensorList() : at::TensorList(inputs[0]));
}

GocclBackend::WorkPtr GocclBackend::reduce_scatter(Tensors& outputs, TensorLists& inputs,
                                                   const c10d::ReduceScatterOptions& opts) {
  check_one(kReduceScatter, outputs, "output");
  check_one(kReduceScatter, inputs, "input");
  GOCCL_CHECK(inputs[0].size() == static_cast<size_t>(getSize()), kReduceScatter,
              "invalid input tensor list size, must be world size; got ", inputs[0].size(), ", expected ", getSize());
  Request request(kReduceScatter, outputs[0], opts.timeout);
  request.reduce_with(opts.reduceOp);
  for (const at::Tensor& block : inputs[0]) {
    request.read(block);
  }
  check_numel(kReduceScatter, inputs[0][getRank()], "input block", getRank(), outputs[0]);
  request.write(outputs[0]);
  return issue(kReduceScatter, request, opts.asyncOp, inputs[0]);
}

GocclBackend::WorkPtr GocclBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                         const c10d::ReduceScatterOptions& opts) {
  check_whole(kReduceScatterBase, input, "input", output, "output", getSize());
  Request request(kReduceScatterBase, output, opts.timeout);
  request.reduce_with(opts.reduceOp);
  request.read_parts(input, getSize());
  request.write(output);
  return issue(kReduceScatterBase, request, opts.asyncOp, input);
}

GocclBackend::WorkPtr GocclBackend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                    const c10d::ReduceScatterOptions& opts) {
  check_same_length(kReduceScatterCoalesced, outputs.size(), inputs.size());
  std::vector<Request> requests;
  requests.reserve(inputs.size());
  for (size_t i = 0; i < inputs.size(); i++) {
    check_whole(kReduceScatterCoalesced, inputs[i], "input", outputs[i], "output", getSize());
    Request& request = requests.emplace_back(kReduceScatterCoalesced, outputs[i], opts.timeout);
    request.reduce_with(opts.reduceOp);
    request.read_parts(inputs[i], getSize());
    request.write(outputs[i]);
  }
  return issue_all(kReduceScatterCoalesced, requests, opts.asyncOp, inputs);
}

GocclBackend::WorkPtr GocclBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                  std::vector<int64_t>& output_splits, std::vector<int64_t>& input_splits,
                                                  const c10d::AllToAllOptions& opts) {
  Request request(kAllToAllBase, output, opts.timeout);
  if (output_splits.empty() && input_splits.empty()) {
    GOCCL_CHECK(input.defined(), kAllToAllBase, "got an undefined tensor");
    GOCCL_CHECK(input.numel() == output.numel(), kAllToAllBase, "without splits the input and output tensors must have as",
                " many elements; got ", input.numel(), " and ", output.numel());
  }
  // Parts are whole rows: without splits as many rows for each rank.
  for (const at::Tensor* t : {&input, &output}) {
    const auto& splits = t == &input ? input_splits : output_splits;
    GOCCL_CHECK(!splits.empty() || t->dim() == 0 || t->size(0) % getSize() == 0, kAllToAllBase,
                "Tensor's dim 0 does not divide equally across group size: ", t->sizes(), " among ", getSize(), " ranks");
  }
  request.read_parts(input, getSize(), input_splits);
  request.write_parts(output, getSize(), output_splits);
  return issue(kAllToAllBase, request, opts.asyncOp, input);
}

GocclBackend::WorkPtr GocclBackend::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) {
  GOCCL_CHECK(inputs.size() == static_cast<size_t>(getSize()), kAllToAll, "input tensor list size ", inputs.size(),
              " does not match world size ", getSize());
  GOCCL_CHECK(outputs.size() == static_cast<size_t>(getSize()), kAllToAll, "output tensor list size ", outputs.size(),
              " does not match world size ", getSize());
  Request request(kAllToAll, outputs[0], opts.timeout);
  for (const at::Tensor& block : inputs) {
    request.read(block);
  }
  for (const at::Tensor& block : outputs) {
    request.write(block);
  }
  check_numel(kAllToAll, outputs[getRank()], "output block", getRank(), inputs[getRank()]);
  return issue(kAllToAll, request, opts.asyncOp, inputs);
}

GocclBackend::WorkPtr GocclBackend::barrier(const c10d::BarrierOptions& opts) {
  Request request(kBarrier, opts.timeout);
  return issue(kBarrier, request, opts.asyncOp, {});
}

} // namespace goccl
