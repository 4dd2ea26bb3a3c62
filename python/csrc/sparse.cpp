// all_reduce of sparse (COO) tensors. The core does the reduction (goccl_group_sparse_all_reduce);
// the code here converts tensors to indices and values, and the result to a tensor.
#include "sparse.h"

#include "backend.h"

namespace goccl {
namespace {

constexpr Kind kSparse{c10d::OpType::_ALLREDUCE_SPARSE, GOCCL_ALL_REDUCE, "goccl:sparse_all_reduce"};

// Refuses tensors that the core does not see.
void check_sparse(const Caller& caller, const Tensors& tensors) {
  GOCCL_CHECK(!tensors.empty(), caller, "requires non-empty tensor list");
  const at::Tensor& t = tensors[0];
  for (const at::Tensor& each : tensors) {
    GOCCL_CHECK(each.defined(), caller, "got an undefined tensor");
    GOCCL_CHECK(each.layout() == at::kSparse, caller, "only supports sparse tensors in the COO layout; got ",
                each.layout(), ": call to_sparse() or to_dense() first");
    GOCCL_CHECK(each.sparse_dim() == t.sparse_dim(), caller, "all tensors must have as many sparse dimensions; got ",
                t.sparse_dim(), " and ", each.sparse_dim());
  }
  GOCCL_CHECK(t.device().is_cpu(), caller, "goccl reduces sparse tensors on the host only; got device ", t.device(),
              ": call cpu() first");
}

} // namespace

void SparseWork::start(const c10d::ReduceOp& op, int64_t timeout_ns) {
  const at::Tensor& t = held_.outputs[0];
  const at::Tensor indices = joined(&at::Tensor::_indices, 1), values = joined(&at::Tensor::_values, 0);
  const goccl_sparse tensor{
      .dtype = core_type(t.scalar_type()), .redop = op.op_,
      .dims = static_cast<uint32_t>(t.dim()), .sparse_dims = static_cast<uint32_t>(t.sparse_dim()),
      .sizes = t.sizes().data(), .count = static_cast<uint64_t>(indices.size(1)),
      .indices = indices.const_data_ptr<int64_t>(), .values = values.const_data_ptr(), .timeout_ns = timeout_ns};
  begin(lib.group_sparse_all_reduce, tensor);
  called(false); // it goes on with messages, beside later collectives
  look_after(); // the result is delivered even if the caller drops this Work
}

at::Tensor SparseWork::joined(at::Tensor (at::Tensor::*part)() const, int64_t dimension) const {
  Quietly quietly;
  std::vector<at::Tensor> all;
  for (const at::Tensor& t : held_.outputs) all.push_back((t.*part)().resolve_conj().resolve_neg().contiguous());
  return all.size() == 1 ? all[0] : at::cat(all, dimension);
}

void SparseWork::deliver() {
  Quietly quietly;
  const at::Tensor& t = held_.outputs[0];
  uint64_t count = 0;
  checked_call(kSparse.title, lib.work_sparse, held_.works[0], &count, nullptr, nullptr);
  const auto n = static_cast<int64_t>(count);
  std::vector<int64_t> sizes{n};
  sizes.insert(sizes.end(), t.sizes().begin() + t.sparse_dim(), t.sizes().end());
  const at::Tensor indices = at::empty({t.sparse_dim(), n}, at::kLong),
                   values = at::empty(sizes, at::TensorOptions(t.scalar_type()));
  checked_call(kSparse.title, lib.work_sparse, held_.works[0], &count, indices.mutable_data_ptr<int64_t>(),
               values.mutable_data_ptr());
  const at::Tensor sum = at::_sparse_coo_tensor_with_dims_and_tensors(
      t.sparse_dim(), t.dense_dim(), t.sizes(), indices, values, t.options(), /*is_coalesced=*/true);
  for (at::Tensor each : held_.outputs) each.copy_(sum);
}

WorkPtr GocclBackend::allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  if (getSize() > 1) Callback::refuse(c10::str(caller(kSparse)));
  check_sparse(caller(kSparse), tensors);
  const Request request(caller(kSparse), tensors[0], opts.timeout);
  TORCH_CHECK_NOT_IMPLEMENTED(opts.reduceOp.op_ != c10d::ReduceOp::AVG || tensors.size() == 1, request.caller,
      ": ReduceOp.AVG is not defined for several tensors on a rank: use ReduceOp.SUM and divide");
  auto work = c10::make_intrusive<SparseWork>(origin(request, !opts.asyncOp), tensors);
  work->start(opts.reduceOp, request.call.timeout_ns);
  return issued(std::move(work), opts.asyncOp);
}

} // namespace goccl
