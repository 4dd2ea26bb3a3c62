// Whether tensors of one call share memory: then their order counts, and the call is made with copies (Request::separate).
#pragma once

#include <ATen/ATen.h>
#include <c10/util/SmallVector.h>

namespace goccl {

class Overlap {
 public:
  explicit Overlap(int rank) : rank_(rank) {}

  // Tensors that are read and written. A tensor that is both, as the same block of the data, is not an overlap: the core works in place.
  void add(at::TensorList read, at::TensorList written);
  // A tensor, and one that holds a block for each rank, of which one is written. The first may be this rank's block of the other.
  void add_whole(const at::Tensor& part, const at::Tensor& whole, int ranks, bool whole_is_written);
  // Whether memory that is written belongs to two of the tensors.
  bool found();

 private:
  // From the first byte of a tensor to its last; strided ones leave some out.
  struct Span {
    uintptr_t begin = 0, end = 0;
    bool written = false;
    bool same(const Span& other) const { return begin == other.begin && end == other.end; }
  };

  static Span span_of(const at::Tensor& tensor);
  void add(Span span, bool written);

  const int rank_;
  c10::SmallVector<Span, 32> spans_;
};

} // namespace goccl
