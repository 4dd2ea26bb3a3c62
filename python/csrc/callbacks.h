// Collectives that are called in callbacks of futures.
//
// The ranks of a group match their collectives by the order of the calls. Callbacks have none:
// threads run them when operations end, or then() does where the operation has ended already, and
// which comes first differs between ranks. So a collective that is called in a callback gets a key
// (goccl_call), by which the ranks match it. The key is made of what all ranks know: the operation
// whose future was given the callback, the number of the callback among those of that future, and
// the number of the call among those of the callback. The library needs no order for such calls, and
// none of them waits for another operation. So it does not matter where a callback runs and what
// else its thread, or any other, waits for.
//
// Who may wait for whom: a collective in a callback waits for the same callback on the other ranks.
// That runs when the operation has ended there, and ends on all ranks once all have called it. It
// runs on a helper thread, of which there are always enough (helper.h), or on a thread of the program:
// in then(), if the operation has ended, or in wait() of its work. Callbacks of one future that a
// helper runs follow each other in the order in which they were given; those of different futures
// never wait for each other, nor for calls of the program. So a collective in a callback ends once
// all ranks have given the callback. Only a thread of the program that runs one is held up until
// then, as torch's contract has it for then().
//
// The key travels with the callback: Python's future of a work (goccl._futures.Future) tells the
// thread that runs a callback in which one it is. The work of a call with a key has a future of this
// kind in its turn, and so has then().
//
// Some callbacks have no key: those of messages, which have no number that all ranks know; those of
// groups which lack ranks of the called one; and those of futures that goccl does not make, for
// example by torch.futures.collect_all. A collective in them is an error. In the last case only
// ranks where a helper thread runs the callback can see it, and the group ends, so that no other
// rank takes it for a call of the program.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include <c10/util/SmallVector.h>

#include "request.h"

namespace goccl {

// What callbacks need to know of a group.
struct Members {
  uint64_t name;               // a hash, the same on all its ranks
  std::vector<uint64_t> ranks; // in the whole job
  bool strangers;              // these numbers may stand for other processes in another group
  bool wait;                   // its futures are complete when they are returned (GOCCL_FUTURES=wait)

  bool contain(const Members& other) const;
};
using MembersPtr = std::shared_ptr<const Members>;

// What all ranks know of a future, or of a callback.
class Lineage {
 public:
  // Of a future of an operation: id belongs to it alone in the group, seq is for messages.
  Lineage(MembersPtr group, uint64_t id, uint64_t seq) : group(std::move(group)), id(id), seq(seq) {}
  // Of a future of which all ranks know nothing, for a reason.
  explicit Lineage(std::string why) : id(0), seq(0), why(std::move(why)) {}

  bool known() const { return group != nullptr; }
  // Of the next callback that is given to the future.
  std::shared_ptr<Lineage> next();

  const MembersPtr group;
  const uint64_t id, seq;
  const std::string why;

 private:
  std::atomic<uint32_t> callbacks_{0};
};
using LineagePtr = std::shared_ptr<Lineage>;

// Combines numbers to one with its bits spread.
uint64_t mixed(uint64_t a, uint64_t b);

// While it lives, this thread runs a callback.
class Callback {
 public:
  // Null: of a future that goccl does not make.
  explicit Callback(LineagePtr lineage);
  ~Callback();
  Callback(const Callback&) = delete;

  // The innermost one of this thread, or null.
  static Callback* current() {
    return C10_LIKELY(running_.load(std::memory_order_relaxed) == 0) ? nullptr : innermost();
  }
  // Whether its future is one of goccl's.
  bool seen() const { return lineage_ != nullptr; }
  // Sets the key of a collective of the group that this callback calls. Throws if it has none.
  void key(Request& request, const MembersPtr& of);
  // Refuses what has no keys.
  static void refuse(const std::string& what);

 private:
  static Callback* innermost();

  static std::atomic<int> running_; // on all threads
  const LineagePtr lineage_;
  Callback* const outer_;
  c10::SmallVector<std::pair<MembersPtr, uint32_t>, 1> calls_; // of each group
};

} // namespace goccl
