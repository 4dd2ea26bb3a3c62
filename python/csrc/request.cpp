#include "request.h"

#include <ATen/MemoryOverlap.h>

#include "device.h"
#include "overlap.h"

namespace goccl {
namespace {

using S = at::ScalarType;
constexpr std::pair<S, goccl_dtype> kTypes[] = {
  {S::Float, GOCCL_F32}, {S::BFloat16, GOCCL_BF16}, {S::Half, GOCCL_F16}, {S::Double, GOCCL_F64}, {S::Long, GOCCL_I64},
  {S::Int, GOCCL_I32}, {S::Byte, GOCCL_U8}, {S::Char, GOCCL_I8}, {S::Short, GOCCL_I16}, {S::Bool, GOCCL_BOOL},
  {S::UInt16, GOCCL_U16}, {S::UInt32, GOCCL_U32}, {S::UInt64, GOCCL_U64}, {S::ComplexFloat, GOCCL_C64},
  {S::ComplexDouble, GOCCL_C128}, {S::Float8_e4m3fn, GOCCL_F8E4M3}, {S::Float8_e5m2, GOCCL_F8E5M2},
};

bool reduces(int32_t c) { return c == GOCCL_REDUCE || c == GOCCL_REDUCE_SCATTER || c == GOCCL_ALL_REDUCE; }

// Whether the tensor's elements lie in memory one after the other, with their actual values.
bool plain(const at::Tensor& t) { return t.is_contiguous() && !t.is_conj() && !t.is_neg() && !t._is_zerotensor(); }

// The same memory as a type that torch can copy: some types, such as its bits types, it can only
// store.
at::Tensor copyable(const at::Tensor& t) {
  if (core_type(t.scalar_type()) != 0 || t.is_complex()) return t;
  switch (t.element_size()) {
    case 1: return t.view(at::kByte);
    case 2: return t.view(at::kShort);
    case 4: return t.view(at::kInt);
    default: return t;
  }
}

// A contiguous tensor of the same sizes.
at::Tensor packed(const at::Tensor& t, bool with_values) {
  Quietly quietly;
  at::Tensor p = at::empty(t.sizes(), t.options().memory_format(at::MemoryFormat::Contiguous));
  if (with_values) copyable(p).copy_(copyable(t));
  return p;
}

// An uninitialized tensor for n stacked tensors like this one.
at::Tensor stack_of(size_t n, const at::Tensor& like) {
  std::vector<int64_t> sizes{static_cast<int64_t>(n)};
  sizes.insert(sizes.end(), like.sizes().begin(), like.sizes().end());
  return at::empty(sizes, like.options());
}

// The blocks of a tensor as n separate tensors in its memory.
std::vector<at::Tensor> parts_of(const at::Tensor& whole, int n) {
  Quietly quietly;
  return whole.is_contiguous() ? whole.view({n, -1}).unbind() : whole.unflatten(0, {n, -1}).unbind();
}

template <typename List>
void move_all(List& to, List& from) {
  to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
}

} // namespace

int32_t core_type(S type) {
  const auto* found = std::find_if(std::begin(kTypes), std::end(kTypes), [type](auto& t) { return t.first == type; });
  return found == std::end(kTypes) ? 0 : found->second;
}

void Held::absorb(Held&& other) {
  move_all(works, other.works);
  move_all(inputs, other.inputs);
  move_all(outputs, other.outputs);
  move_all(copies, other.copies);
  if (other.lists) lists = std::move(other.lists);
}

void Held::keep_lists(const std::vector<std::vector<at::Tensor>>& given) {
  if (given.size() > 1) lists = std::make_unique<const std::vector<std::vector<at::Tensor>>>(given);
}

void Held::copy_back() {
  if (copies.empty()) return;
  Quietly quietly;
  for (auto& copy : copies) copyable(copy.view).copy_(copyable(copy.packed));
}

Request::Request(const Caller& caller, std::chrono::milliseconds timeout, c10::Device device)
    : caller(caller), device(device) {
  call.coll = caller.kind.coll;
  call.timeout_ns = timeout_ns(timeout);
}

Request::Request(const Caller& caller, const at::Tensor& example, std::chrono::milliseconds timeout)
    : Request(caller, timeout, example.defined() ? example.device() : at::kCPU) {
  GOCCL_CHECK(example.defined(), caller, "got an undefined tensor");
  check_device(caller, example);
  dtype_ = example.scalar_type();
  call.dtype = core_type(dtype_);
  if (C10_UNLIKELY(call.dtype == 0)) {
    TORCH_CHECK_NOT_IMPLEMENTED(!reduces(call.coll), caller, ": cannot reduce elements of type ", dtype_);
    TORCH_CHECK_NOT_IMPLEMENTED(!at::isQIntType(dtype_), caller, ": does not support quantized tensors (", dtype_, ")");
    call.dtype = GOCCL_U8;
    scale_ = c10::elementSize(dtype_);
  }
}

void check_device(const Caller& caller, const at::Tensor& t) {
  GOCCL_CHECK(t.device().is_cpu() || t.device().type() == device_type(), caller,
              "goccl moves tensors of the host and of ", device_type(), " devices; got device ", t.device());
}

void Request::check(const at::Tensor& t, const char* role) const {
  GOCCL_CHECK(t.defined(), caller, "an ", role, " tensor is undefined");
  GOCCL_CHECK(t.device() == device, caller, "all tensors must be on the same device; expected ", device, ", got an ",
              role, " tensor on ", t.device());
  GOCCL_CHECK(t.layout() == at::kStrided, caller, "only supports dense tensors; got ", t.layout(), " (", role,
              "): call to_dense() first");
  GOCCL_CHECK(t.scalar_type() == dtype_, caller, "invalid tensor type: all tensors must have the same; expected ",
              dtype_, ", got an ", role, " tensor of ", t.scalar_type());
}

const at::Tensor& Request::packed_input(const at::Tensor& t) {
  check(t, "input");
  held.inputs.push_back(C10_LIKELY(plain(t) && !separate) ? t : packed(t, true));
  return held.inputs.back();
}

void Request::check_writable(const at::Tensor& t) const {
  GOCCL_CHECK(at::has_internal_overlap(t) != at::MemOverlap::Yes, caller, "cannot write to an expanded tensor (sizes ",
              t.sizes(), ", strides ", t.strides(), "): several of its elements share memory; clone() it first");
}

const at::Tensor& Request::packed_output(const at::Tensor& t, bool with_values) {
  check(t, "output");
  held.outputs.push_back(t);
  if (C10_LIKELY(plain(t) && !separate)) return held.outputs.back();
  check_writable(t);
  held.copies.push_back({packed(t, with_values), t});
  return held.copies.back().packed;
}

void Request::add(Blocks& blocks, const void* data, int64_t numel) {
  blocks.push_back({const_cast<void*>(data), static_cast<uint64_t>(numel) * scale_});
}

void Request::read(const at::Tensor& tensor) {
  const at::Tensor& t = packed_input(tensor);
  add(in_, t.const_data_ptr(), t.numel());
}

void Request::write(const at::Tensor& tensor) {
  const at::Tensor& t = packed_output(tensor, false);
  add(out_, t.mutable_data_ptr(), t.numel());
}

void Request::update(const at::Tensor& tensor) {
  const at::Tensor& t = packed_output(tensor, true);
  add(in_, t.mutable_data_ptr(), t.numel());
  out_.push_back(in_.back());
}

void Request::gather_all(at::TensorList tensors, const std::vector<std::vector<at::Tensor>>& lists) {
  for (const at::Tensor& t : tensors) check(t, "input");
  Quietly quietly;
  const at::Tensor own = stack_of(tensors.size(), tensors[0]), all = stack_of(lists[0].size(), tensors[0]);
  for (size_t i = 0; i < tensors.size(); i++) copyable(own[i]).copy_(copyable(tensors[i]));
  read(own);
  write_parts(all);
  held.outputs.clear();
  for (const auto& list : lists) {
    for (size_t i = 0; i < list.size(); i++) give(all[i], list[i]);
  }
  held.keep_lists(lists);
}

void Request::update_all(at::TensorList tensors) {
  for (const at::Tensor& t : tensors) check(t, "input");
  at::Tensor all = packed(tensors[0], true);
  for (const at::Tensor& t : tensors.slice(1)) reduce_into(all, t);
  update(all);
  give_all(all, tensors);
}

void Request::give_all(const at::Tensor& own, at::TensorList tensors) {
  held.outputs.clear();
  for (const at::Tensor& t : tensors) give(own, t);
}

void Request::give(const at::Tensor& own, const at::Tensor& t) {
  check(t, "output");
  check_writable(t);
  held.outputs.push_back(t);
  if (!t.is_same(own)) held.copies.push_back({own, t});
}

void Request::reduce_into(at::Tensor& sum, const at::Tensor& t) const {
  using R = c10d::ReduceOp;
  Quietly quietly;
  switch (call.redop) {
    case R::SUM: case R::PREMUL_SUM: sum.add_(t); break;
    case R::PRODUCT: sum.mul_(t); break;
    case R::MIN: at::minimum_out(sum, sum, t); break;
    case R::MAX: at::maximum_out(sum, sum, t); break;
    case R::BAND: sum.bitwise_and_(t); break;
    case R::BOR: sum.bitwise_or_(t); break;
    case R::BXOR: sum.bitwise_xor_(t); break;
    default:
      TORCH_CHECK_NOT_IMPLEMENTED(false, caller,
          ": ReduceOp.AVG is not defined for several tensors on a rank: use ReduceOp.SUM and divide");
  }
}

void Request::add_blocks(at::TensorList own, at::TensorList blocks, const char* role) {
  const bool written = *role == 'o';
  separate = separate || Overlap(caller.rank).add(written ? own : blocks, written ? blocks : own).found();
  for (const at::Tensor& t : own) written ? read(t) : write(t);
  for (const at::Tensor& t : blocks) written ? write(t) : read(t);
  if (blocks.empty()) return;
  const at::Tensor &block = blocks[caller.rank], &counterpart = own[own.size() == 1 ? 0 : caller.rank];
  GOCCL_CHECK(block.numel() == counterpart.numel(), caller, "invalid tensor size at index ", caller.rank, ": the ",
              role, " block of this rank itself must have as many elements as its counterpart (expected ",
              counterpart.numel(), " for sizes ", counterpart.sizes(), ", got ", block.numel(), " for sizes ",
              block.sizes(), ")");
}

void Request::read_parts(const at::Tensor& tensor, at::IntArrayRef splits) {
  const at::Tensor& t = packed_input(tensor);
  add_parts(in_, t.const_data_ptr(), t, splits);
}

void Request::write_parts(const at::Tensor& tensor, at::IntArrayRef splits) {
  if (separate) { // each part is copied in its turn
    for (const at::Tensor& part : parts_of(tensor, caller.size)) write(part);
    held.outputs = {tensor};
    return;
  }
  const at::Tensor& t = packed_output(tensor, false);
  add_parts(out_, t.mutable_data_ptr(), t, splits);
}

void Request::add_parts(Blocks& blocks, const void* data, const at::Tensor& t, at::IntArrayRef splits) {
  const int ranks = caller.size;
  const int64_t rows = t.dim() == 0 ? 1 : t.size(0);
  GOCCL_CHECK(call.coll != GOCCL_ALL_TO_ALL || !splits.empty() || rows % ranks == 0, caller,
              "Tensor's dim 0 does not divide equally across group size: sizes ", t.sizes(), ", ", ranks, " ranks");
  int64_t sum = 0;
  for (int64_t s : splits) {
    GOCCL_CHECK(s >= 0 && s <= rows, caller,
                "splits ", splits, " are not numbers of rows of a tensor of sizes ", t.sizes());
    sum += s;
  }
  GOCCL_CHECK(splits.empty() || splits.size() == static_cast<size_t>(ranks), caller,
              "Number of tensor splits not equal to group size: got ", splits.size(), " splits for ", ranks, " ranks");
  GOCCL_CHECK(splits.empty() || sum == rows, caller, "Split sizes doesn't match total dim 0 size: splits ", splits,
              " are ", sum, " rows, the tensor has ", rows);
  const int64_t unit = splits.empty() ? t.numel() / ranks : rows == 0 ? 0 : t.numel() / rows;
  const char* next = static_cast<const char*>(data);
  for (int r = 0; r < ranks; r++) {
    const int64_t numel = splits.empty() ? unit : splits[r] * unit;
    add(blocks, next, numel);
    next += numel * t.element_size();
  }
}

void Request::reduce_with(const c10d::ReduceOp& op) {
  // The core numbers its operators as c10d does.
  using R = c10d::ReduceOp;
  static_assert(GOCCL_SUM == +R::SUM && GOCCL_AVG == +R::AVG && GOCCL_PROD == +R::PRODUCT && GOCCL_MIN == +R::MIN &&
                GOCCL_MAX == +R::MAX && GOCCL_BAND == +R::BAND && GOCCL_BOR == +R::BOR && GOCCL_BXOR == +R::BXOR &&
                GOCCL_PREMUL_SUM == +R::PREMUL_SUM);
  GOCCL_CHECK(op.op_ <= R::PREMUL_SUM, caller, "unknown reduce operator ", static_cast<int>(op.op_));
  call.redop = op.op_;
  if (op.op_ == R::PREMUL_SUM) {
    GOCCL_CHECK(op.supplement_, caller, "ReduceOp.PREMUL_SUM needs a factor: use ReduceOp.PREMUL_SUM(factor)");
    // This name exists in every version; an operator of this kind always carries this supplement.
    auto* s = static_cast<c10d::NCCLPreMulSumSupplement*>(op.supplement_.get());
    call.factor = s->tensor_factor.defined() ? s->tensor_factor.item().toDouble() : s->double_factor;
  }
}

bool Request::set_root(int64_t root, int64_t root_tensor, size_t tensors) {
  GOCCL_CHECK(root >= 0 && root < caller.size, caller,
              "invalid root rank: ", root, "; the group has ", caller.size, " ranks");
  GOCCL_CHECK(root_tensor >= 0 && root_tensor < static_cast<int64_t>(tensors), caller,
              "invalid root tensor: ", root_tensor, "; this rank has ", tensors, tensors == 1 ? " tensor" : " tensors");
  call.root = static_cast<int32_t>(root);
  return root == caller.rank;
}

std::ostream& operator<<(std::ostream& out, const Request& request) {
  uint64_t read = 0, written = 0;
  for (const goccl_block& block : request.in_) read += block.count / request.scale_;
  for (const goccl_block& block : request.out_) written += block.count / request.scale_;
  out << request.caller.kind.title;
  if (request.in_.empty() && request.out_.empty()) return out;
  return out << " of " << std::max(read, written) << " x " << request.dtype_;
}

const goccl_call& Request::finish() {
  call.in = in_.data();
  call.out = out_.data();
  call.n_in = static_cast<uint32_t>(in_.size());
  call.n_out = static_cast<uint32_t>(out_.size());
  return call;
}

int64_t timeout_ns(std::chrono::milliseconds timeout) {
  return timeout.count() <= 0 ? GOCCL_NO_TIMEOUT_GIVEN : std::chrono::nanoseconds(timeout).count();
}

} // namespace goccl
