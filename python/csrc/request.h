// From tensors to a goccl_call: the element type, the memory, and the copies before and after the
// call.
#pragma once

#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/SmallVector.h>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "goccl.h"

namespace goccl {

// One operation of the backend.
struct Kind {
  c10d::OpType type;
  goccl_coll coll;
  const char* title; // of the profiler's event; messages begin with it
};

// The operation and its caller, the beginning of messages: "goccl:send: group dp, rank 0 of 2".
struct Caller {
  const Kind& kind;
  const std::string& member; // group and rank
  int rank, size;            // of this rank, of the group
};

inline std::ostream& operator<<(std::ostream& out, const Caller& caller) {
  return out << caller.kind.title << ": " << caller.member;
}

// Refuses an argument, with a message that names the operation and the caller.
#define GOCCL_CHECK(cond, caller, ...) TORCH_CHECK(cond, caller, ": ", __VA_ARGS__)

// For computing on tensors within the backend: no autograd, and no Python (a dispatch mode) while a
// lock may be held.
struct Quietly {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  c10::impl::ExcludeDispatchKeyGuard no_python{c10::DispatchKeySet(
      {c10::DispatchKey::Python, c10::DispatchKey::PythonTLSSnapshot, c10::DispatchKey::PythonDispatcher})};
};

// The tensors that an operation keeps alive, and the copies to make when it has ended. Empty
// SmallVectors and vectors allocate nothing, which keeps the common case (one contiguous tensor)
// free of allocations.
struct Held {
  struct CopyBack {
    at::Tensor packed, view;
  };

  c10::SmallVector<goccl_work, 1> works;
  c10::SmallVector<at::Tensor, 1> inputs;
  c10::SmallVector<at::Tensor, 1> outputs; // the user's
  std::vector<CopyBack> copies;
  // The outputs as the user gave them, if that is several lists.
  std::unique_ptr<const std::vector<std::vector<at::Tensor>>> lists;

  void absorb(Held&& other);
  // Keeps the lists if there are several.
  void keep_lists(const std::vector<std::vector<at::Tensor>>& given);
  // Writes packed results into their destination tensors.
  void copy_back();
};

// A goccl_call under construction. read, write and update add blocks in order; each checks its
// tensor, and throws before any data has moved.
class Request {
 public:
  Request(const Caller& caller, const at::Tensor& example, std::chrono::milliseconds timeout);
  Request(const Caller& caller, std::chrono::milliseconds timeout, c10::Device device = at::kCPU); // without tensors

  void read(const at::Tensor& tensor);
  void write(const at::Tensor& tensor);
  // Adds one block that is both input and output.
  void update(const at::Tensor& tensor);
  // Several tensors of the same type and sizes on this rank, as one block. gather_all: the tensors
  // one after the other; such blocks of all ranks are copied into each of the lists. update_all:
  // the tensors reduced by the operator of the call; each of them receives the result.
  void gather_all(at::TensorList tensors, const std::vector<std::vector<at::Tensor>>& lists);
  void update_all(at::TensorList tensors);
  // When the call has ended, each of the tensors receives the value of own, which is one of them.
  void give_all(const at::Tensor& own, at::TensorList tensors);
  // Adds this rank's own tensors, one or one for each rank, and their counterparts: a block for
  // each rank, or none on ranks other than the root. Role "output": the blocks are written and the
  // own tensors read; "input": the other way round. The call is separate if any of them share
  // memory.
  void add_blocks(at::TensorList own, at::TensorList blocks, const char* role);
  // Adds a tensor as one block for each rank: equal parts if splits is empty, else splits[r] rows
  // (of dimension 0) for rank r. What a separate call writes is in equal parts.
  void read_parts(const at::Tensor& tensor, at::IntArrayRef splits = {});
  void write_parts(const at::Tensor& tensor, at::IntArrayRef splits = {});
  void reduce_with(const c10d::ReduceOp& op);
  // Sets the root, after a check of it and of its root tensor, of which this rank has tensors.
  // Returns whether this rank is the root.
  bool set_root(int64_t root, int64_t root_tensor = 0, size_t tensors = 1);

  // The operation for messages: "goccl:all_reduce of 5 x Float".
  friend std::ostream& operator<<(std::ostream& out, const Request& request);
  // The finished call; it points into this object.
  const goccl_call& finish();

  const Caller caller;
  // Of all its tensors; that of the host if it has none.
  const c10::Device device;
  goccl_call call{};
  Held held;
  // Whether the call reads and writes only copies; set before the first block is added. Inputs are
  // then read before anything is written, and results are written in the order of the blocks when
  // the call has ended.
  bool separate = false;

 private:
  using Blocks = c10::SmallVector<goccl_block, 1>;

  void check(const at::Tensor& tensor, const char* role) const;
  const at::Tensor& packed_input(const at::Tensor& tensor);
  const at::Tensor& packed_output(const at::Tensor& tensor, bool with_values);
  void check_writable(const at::Tensor& tensor) const;
  // When the call has ended, tensor receives the value of own.
  void give(const at::Tensor& own, const at::Tensor& tensor);
  // Sets sum to sum ⊕ tensor.
  void reduce_into(at::Tensor& sum, const at::Tensor& tensor) const;
  void add(Blocks& blocks, const void* data, int64_t numel);
  void add_parts(Blocks& blocks, const void* data, const at::Tensor& tensor, at::IntArrayRef splits);

  at::ScalarType dtype_ = at::kByte;
  uint64_t scale_ = 1; // elements of the core for each element of torch
  Blocks in_, out_;
};

// Refuses tensors on devices that are not served.
void check_device(const Caller& caller, const at::Tensor& tensor);

// The core's type for a torch type; 0 for types that the core can only move as bytes.
int32_t core_type(at::ScalarType type);

// Converts a timeout of c10d for the core: zero and negative timeouts mean the group's own.
int64_t timeout_ns(std::chrono::milliseconds timeout);

} // namespace goccl
