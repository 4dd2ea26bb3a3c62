#include "request.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace goccl {

namespace {

// The core's type for a torch type; 0 for those that it can only move as bytes.
int32_t core_type(at::ScalarType type) {
  switch (type) {
    case at::kDouble: return GOCCL_F64;
    case at::kFloat: return GOCCL_F32;
    case at::kHalf: return GOCCL_F16;
    case at::kBFloat16: return GOCCL_BF16;
    case at::kChar: return GOCCL_I8;
    case at::kByte: return GOCCL_U8;
    case at::kShort: return GOCCL_I16;
    case at::ScalarType::UInt16: return GOCCL_U16;
    case at::kInt: return GOCCL_I32;
    case at::ScalarType::UInt32: return GOCCL_U32;
    case at::kLong: return GOCCL_I64;
    case at::ScalarType::UInt64: return GOCCL_U64;
    case at::kBool: return GOCCL_BOOL;
    case at::kComplexFloat: return GOCCL_C64;
    case at::kComplexDouble: return GOCCL_C128;
    case at::ScalarType::Float8_e4m3fn: return GOCCL_F8E4M3;
    case at::ScalarType::Float8_e5m2: return GOCCL_F8E5M2;
    default: return 0;
  }
}

bool reduces(goccl_coll coll) {
  return coll == GOCCL_REDUCE || coll == GOCCL_REDUCE_SCATTER || coll == GOCCL_ALL_REDUCE;
}

// Whether the tensor's elements lie one after the other in memory as they read.
bool plain(const at::Tensor& t) { return t.is_contiguous() && !t.is_conj() && !t.is_neg() && !t._is_zerotensor(); }

// Copies are the backend's own business: no autograd, and no Python (a dispatch mode) while a lock may be held.
struct QuietCopies {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  c10::impl::ExcludeDispatchKeyGuard no_python{c10::DispatchKeySet(
      {c10::DispatchKey::Python, c10::DispatchKey::PythonTLSSnapshot, c10::DispatchKey::PythonDispatcher})};
};

template <typename List>
void move_all(List& to, List& from) {
  to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
}

} // namespace

void Held::absorb(Held&& other) {
  move_all(works, other.works);
  move_all(inputs, other.inputs);
  move_all(outputs, other.outputs);
  move_all(copies, other.copies);
}

void Held::copy_back() {
  if (copies.empty()) {
    return;
  }
  QuietCopies quiet;
  for (auto& copy : copies) {
    copy.view.copy_(copy.packed);
  }
}

Request::Request(const Kind& kind, std::chrono::milliseconds timeout) : kind_(kind) {
  call.coll = kind.coll;
  call.timeout_ns = timeout_ns(timeout);
}

Request::Request(const Kind& kind, const at::Tensor& example, std::chrono::milliseconds timeout) : Request(kind, timeout) {
  GOCCL_CHECK(example.defined(), kind, "got an undefined tensor");
  dtype_ = example.scalar_type();
  call.dtype = core_type(dtype_);
  if (C10_UNLIKELY(call.dtype == 0)) {
    GOCCL_CHECK(!reduces(kind.coll), kind, "cannot reduce elements of type ", dtype_);
    GOCCL_CHECK(!at::isQIntType(dtype_), kind, "does not support quantized tensors (", dtype_, ")");
    call.dtype = GOCCL_U8;
    scale_ = c10::elementSize(dtype_);
  }
}

void Request::check(const at::Tensor& t, const char* role) const {
  GOCCL_CHECK(t.defined(), kind_, "an ", role, " tensor is undefined");
  GOCCL_CHECK(t.device().is_cpu(), kind_, "not supported yet: goccl moves CPU tensors in this version; got device ",
              t.device());
  GOCCL_CHECK(t.layout() == at::kStrided, kind_, "only supports dense tensors; got an ", role, " tensor of layout ",
              t.layout());
  GOCCL_CHECK(t.scalar_type() == dtype_, kind_, "invalid tensor type: all tensors must have the same; expected ", dtype_,
              ", got an ", role, " tensor of ", t.scalar_type());
}

at::Tensor Request::packed_input(const at::Tensor& t) {
  check(t, "input");
  if (C10_LIKELY(plain(t))) {
    return t;
  }
  QuietCopies quiet;
  return at::empty(t.sizes(), t.options().memory_format(at::MemoryFormat::Contiguous)).copy_(t);
}

at::Tensor Request::packed_output(const at::Tensor& t, bool with_values) {
  check(t, "output");
  held.outputs.push_back(t);
  if (C10_LIKELY(plain(t))) {
    return t;
  }
  GOCCL_CHECK(at::has_internal_overlap(t) != at::MemOverlap::Yes, kind_, "cannot write to an expanded tensor (sizes ",
              t.sizes(), ", strides ", t.strides(), "): several of its elements share memory; clone() it first");
  QuietCopies quiet;
  at::Tensor packed = at::empty(t.sizes(), t.options().memory_format(at::MemoryFormat::Contiguous));
  if (with_values) {
    packed.copy_(t);
  }
  held.copies.push_back({packed, t});
  return packed;
}

void Request::add(Blocks& blocks, void* data, int64_t numel) {
  blocks.push_back({data, static_cast<uint64_t>(numel) * scale_});
}

void Request::read(const at::Tensor& tensor) {
  at::Tensor t = packed_input(tensor);
  add(in_, const_cast<void*>(t.const_data_ptr()), t.numel());
  held.inputs.push_back(std::move(t));
}

void Request::write(const at::Tensor& tensor) {
  at::Tensor t = packed_output(tensor, false);
  add(out_, t.mutable_data_ptr(), t.numel());
}

void Request::update(const at::Tensor& tensor) {
  at::Tensor t = packed_output(tensor, true);
  void* data = t.mutable_data_ptr();
  add(in_, data, t.numel());
  add(out_, data, t.numel());
}

void Request::read_parts(const at::Tensor& tensor, int ranks, at::IntArrayRef splits) {
  at::Tensor t = packed_input(tensor);
  add_parts(in_, const_cast<void*>(t.const_data_ptr()), t, "input", ranks, splits);
  held.inputs.push_back(std::move(t));
}

void Request::write_parts(const at::Tensor& tensor, int ranks, at::IntArrayRef splits) {
  at::Tensor t = packed_output(tensor, false);
  add_parts(out_, t.mutable_data_ptr(), t, "output", ranks, splits);
}

void Request::add_parts(Blocks& blocks, void* data, const at::Tensor& t, const char* role, int ranks,
                        at::IntArrayRef splits) {
  char* next = static_cast<char*>(data);
  const int64_t item = static_cast<int64_t>(t.element_size());
  if (splits.empty()) {
    GOCCL_CHECK(t.numel() % ranks == 0, kind_, "an ", role, " tensor of ", t.numel(), " elements (sizes ", t.sizes(),
                ") cannot be divided equally among ", ranks, " ranks");
    const int64_t part = t.numel() / ranks;
    for (int r = 0; r < ranks; r++, next += part * item) {
      add(blocks, next, part);
    }
    return;
  }
  GOCCL_CHECK(splits.size() == static_cast<size_t>(ranks), kind_, "Number of tensor splits not equal to group size: got ",
              splits.size(), " ", role, " splits for ", ranks, " ranks");
  const int64_t rows = t.dim() == 0 ? 1 : t.size(0);
  int64_t sum = 0;
  for (int64_t s : splits) {
    GOCCL_CHECK(s >= 0, kind_, "negative ", role, " split in ", splits);
    sum += s;
  }
  GOCCL_CHECK(sum == rows, kind_, "Split sizes doesn't match total dim 0 size: ", role, " splits ", splits, " are ", sum,
              " rows, the tensor has ", rows);
  const int64_t row = rows == 0 ? 0 : t.numel() / rows;
  for (int64_t s : splits) {
    add(blocks, next, s * row);
    next += s * row * item;
  }
}

void Request::reduce_with(const c10d::ReduceOp& op) {
  switch (op.op_) {
    case c10d::ReduceOp::SUM: call.redop = GOCCL_SUM; return;
    case c10d::ReduceOp::AVG: call.redop = GOCCL_AVG; return;
    case c10d::ReduceOp::PRODUCT: call.redop = GOCCL_PROD; return;
    case c10d::ReduceOp::MIN: call.redop = GOCCL_MIN; return;
    case c10d::ReduceOp::MAX: call.redop = GOCCL_MAX; return;
    case c10d::ReduceOp::BAND: call.redop = GOCCL_BAND; return;
    case c10d::ReduceOp::BOR: call.redop = GOCCL_BOR; return;
    case c10d::ReduceOp::BXOR: call.redop = GOCCL_BXOR; return;
    case c10d::ReduceOp::PREMUL_SUM: {
      GOCCL_CHECK(op.supplement_, kind_, "ReduceOp.PREMUL_SUM needs a factor: use ReduceOp.PREMUL_SUM(factor)");
      // The name that every version has; an operator of this kind always carries this supplement.
      auto* supplement = static_cast<c10d::NCCLPreMulSumSupplement*>(op.supplement_.get());
      call.redop = GOCCL_PREMUL_SUM;
      call.factor = supplement->tensor_factor.defined() ? supplement->tensor_factor.item().toDouble()
                                                        : supplement->double_factor;
      return;
    }
    default:
      GOCCL_CHECK(false, kind_, "unknown reduce operator ", static_cast<int>(op.op_));
  }
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
