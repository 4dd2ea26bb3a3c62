// all_reduce of sparse (COO) tensors: the sum, or average, of tensors that have different elements on each rank.
//
// Two phases: the ranks gather what each of them has (sizes, number of elements), which is a collective like others, and
// takes its place in their order; then each sends its indices and values to every other one. These are messages with tags
// of their own, because the second phase starts when the first has ended, on whichever thread sees that, and only messages
// need no order that is the same on all ranks. So the call never waits, and other operations may be issued meanwhile.
// Each rank then adds up the same numbers in the order of the ranks: the results have the same bits.
#pragma once

#include "work.h"

namespace goccl {

class SparseWork final : public EndingWork {
 public:
  // member: group and rank, for messages.
  SparseWork(const Origin& origin, std::string member, int ranks, at::TensorList tensors, const c10d::ReduceOp& op);

  void start();

  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  std::vector<at::Tensor> result() override { return tensors_; }

 private:
  // The elements of one rank: indices [sparse dimensions, n], values [n, dense sizes].
  struct Elements {
    at::Tensor indices, values;
  };

  void pursue() override {} // the phases follow each other by themselves
  void deliver() override;
  // A phase is no operation of its own to those who want to know of ends.
  Origin of_phases() const;
  // Runs next, on any thread, when the phase has ended well; the operation ends here if it has not.
  void then(const c10::intrusive_ptr<GocclWork>& phase, void (SparseWork::*next)());
  void exchange();
  void reduce();
  // Whether all ranks have the same kind of tensor; if not, the operation ends here, and the group goes on.
  bool check_same();
  at::Tensor places_of(const at::Tensor& indices) const;
  at::Tensor indices_of(at::Tensor places) const;
  Elements merged(const Elements& elements) const;

  // The beginning of messages.
  std::string text() const;

  const std::string member_;
  const int ranks_;
  const std::vector<at::Tensor> tensors_; // of this rank; each gets the result
  const at::Tensor& tensor_;              // the first, which has the sizes of all
  const bool average_;
  Elements own_;
  at::Tensor facts_; // a row for each rank
  std::vector<Elements> all_;
  at::Tensor sum_;
};

} // namespace goccl
