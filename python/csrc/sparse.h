#pragma once

#include "work.h"

namespace goccl {

// An all_reduce of sparse tensors. Its outputs are the tensors of this rank; each receives the
// result.
class SparseWork final : public GocclWork {
 public:
  SparseWork(Origin origin, at::TensorList tensors) : GocclWork(std::move(origin), Held(), tensors) {
    held_.outputs.assign(tensors.begin(), tensors.end());
  }

  void start(const c10d::ReduceOp& op, int64_t timeout_ns);

 private:
  // The indices or the values of all tensors of this rank.
  at::Tensor joined(at::Tensor (at::Tensor::*part)() const, int64_t dimension) const;
  void deliver() override;
};

} // namespace goccl
