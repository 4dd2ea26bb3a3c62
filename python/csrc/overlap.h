// Whether tensors of one call share memory: then their order matters, and the call is made with
// copies (Request::separate).
#pragma once

#include <algorithm>

#include <ATen/ATen.h>
#include <c10/util/SmallVector.h>

namespace goccl {

class Overlap {
 public:
  explicit Overlap(int rank) : rank_(rank) {}

  // Adds tensors that are read and written. A tensor that is both, as the same block of the data,
  // is not an overlap: the core works in place.
  Overlap& add(at::TensorList read, at::TensorList written) {
    for (const at::Tensor& t : written) add(span_of(t), true);
    for (size_t i = 0; i < read.size(); i++) {
      const Span span = span_of(read[i]);
      const bool of_rank = i == static_cast<size_t>(rank_);
      // The index of the written tensor that is the same block.
      const size_t own = read.size() == written.size() ? i : read.size() == 1 ? rank_ : of_rank ? 0 : written.size();
      if (own >= written.size() || !span.same(span_of(written[own]))) add(span, false);
    }
    return *this;
  }

  // Adds a tensor, and one that holds a block for each rank; one of the two is written. The first
  // may be this rank's block of the second.
  void add_whole(const at::Tensor& part, const at::Tensor& whole, int ranks, bool whole_is_written) {
    const Span all = span_of(whole), one = span_of(part);
    const auto block = (all.end - all.begin) / ranks;
    const bool in_place = one.begin == all.begin + rank_ * block && one.end == one.begin + block;
    add(all, whole_is_written || in_place);
    if (!in_place) add(one, !whole_is_written);
  }

  // Whether memory that is written belongs to two of the tensors.
  bool found() {
    const auto earlier = [](const Span& a, const Span& b) { return a.begin < b.begin; };
    if (!std::is_sorted(spans_.begin(), spans_.end(), earlier)) std::sort(spans_.begin(), spans_.end(), earlier);
    uintptr_t used = 0, written = 0; // ends of the spans so far
    for (const Span& span : spans_) {
      if (span.begin < written || (span.written && span.begin < used)) return true;
      used = std::max(used, span.end);
      if (span.written) written = std::max(written, span.end);
    }
    return false;
  }

 private:
  // The range from the first byte of a tensor to its last; strided tensors do not fill it.
  struct Span {
    uintptr_t begin = 0, end = 0;
    bool written = false;
    bool same(const Span& other) const { return begin == other.begin && end == other.end; }
  };

  static Span span_of(const at::Tensor& t) {
    // Invalid tensors are reported elsewhere.
    if (!t.defined() || t.layout() != at::kStrided || t.numel() == 0) return {};
    int64_t last = 0;
    for (int64_t d = 0; d < t.dim(); d++) last += (t.size(d) - 1) * t.stride(d);
    const auto memory = reinterpret_cast<uintptr_t>(t.storage().data());
    if (memory == 0) return {};
    const auto begin = memory + t.storage_offset() * t.element_size();
    return {begin, begin + (last + 1) * t.element_size()};
  }

  void add(Span span, bool written) {
    span.written = written;
    if (span.begin != span.end) spans_.push_back(span);
  }

  const int rank_;
  c10::SmallVector<Span, 32> spans_;
};

} // namespace goccl
