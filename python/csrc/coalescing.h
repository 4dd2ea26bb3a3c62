// What is issued between startCoalescing and endCoalescing, as one Work.
//
// Operations are issued at once, and sends and receives never wait when they are, so their order within the block does not
// matter. A block belongs to the thread that started it. A synchronous collective within one has ended when it returns.
#pragma once

#include <mutex>
#include <thread>
#include <unordered_map>

#include "work.h"

namespace goccl {

using Works = std::vector<c10::intrusive_ptr<EndingWork>>;

// Several Works as one, which ends with the last of them. Its error is that of the first one that failed, its result all of theirs.
class BatchWork final : public EndingWork {
 public:
  BatchWork(Origin origin, Works&& works);

  bool isCompleted() override;
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  std::vector<at::Tensor> result() override;

 private:
  void pursue(bool urgent) override;
  void finish();

  const Works works_;
};

// The open blocks of one group.
class Coalescing {
 public:
  // Opens a block of this thread. One that is open already was left by an exception: what it holds goes on by itself.
  void start();
  // The number of the block that this thread has open, 0 for none.
  uint32_t open() const;
  // Adds to this thread's block, if it has one.
  void add(const c10::intrusive_ptr<EndingWork>& work);
  // Closes this thread's block, and says its number. Throws if none is open.
  Works end(uint32_t& number);
  // A number of a block, or of operations that are issued as one: never used again in this process.
  static uint32_t next_number();

 private:
  struct Block {
    Works works;
    size_t limit; // of works, see add
    uint32_t number;
  };

  mutable std::mutex mutex_;
  std::unordered_map<std::thread::id, Block> blocks_;
  std::atomic<size_t> count_{0}; // of blocks
};

} // namespace goccl
