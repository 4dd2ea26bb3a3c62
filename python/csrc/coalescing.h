// Operations issued between startCoalescing and endCoalescing, as one Work.
//
// Operations are issued at once, and issuing a send or a receive never waits, so their order within
// the block does not matter. A block belongs to the thread that started it. A synchronous
// collective within a block has ended when it returns.
#pragma once

#include <mutex>
#include <thread>
#include <unordered_map>

#include "work.h"

namespace goccl {

using Works = std::vector<c10::intrusive_ptr<EndingWork>>;

// Several Works as one, which ends with the last of them. Its error is the error of the first
// failed Work in order, its outputs those of all.
class BatchWork final : public EndingWork {
 public:
  BatchWork(Origin origin, Works&& works);

  bool isCompleted() override;
  std::exception_ptr come_to_end(const Limit& limit, std::exception_ptr& interrupt) override;
  void synchronize() override;
  std::vector<at::Tensor> outputs() const override;
  std::optional<c10::Stream> on_stream() override;

 private:
  void pursue(bool urgent) override;
  std::exception_ptr failure() const override;
  LineagePtr trace_back() override;
  void finish();

  const Works works_;
};

// The open blocks of one group.
class Coalescing {
 public:
  struct Block {
    Works works;
    size_t limit; // of works, see add
    uint32_t number;
  };

  // Opens a block of this thread. A block that is open already was left by an exception: its
  // operations go on by themselves.
  void start();
  // The number of this thread's open block, 0 for none.
  uint32_t open() const;
  // Adds a Work to this thread's block, if it has one.
  void add(const c10::intrusive_ptr<EndingWork>& work);
  // Closes this thread's block and returns it. Throws if no block is open.
  Block end();
  // The next number of a block, or of operations issued as one: never used again in this process.
  static uint32_t next_number();

 private:
  mutable std::mutex mutex_;
  std::unordered_map<std::thread::id, Block> blocks_;
  std::atomic<size_t> count_{0}; // of blocks
};

} // namespace goccl
