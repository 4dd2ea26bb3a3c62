#pragma once

#include <condition_variable>
#include <mutex>
#include <vector>

#include "work.h"

namespace goccl {

// The one thread of the process that ends operations nobody waits for: those whose future was asked for, and those
// whose Work was dropped before they were done. It is started when it is first needed and asleep unless an operation ends.
//
// While it completes a future it holds neither a lock nor the GIL.
class Completer {
 public:
  // Keeps the Work until it is done, and completes its future then. Returns false if it is done already.
  static bool watch(c10::intrusive_ptr<GocclWork> work);
  // Keeps the memory of a dropped Work until it is done, then copies back and frees.
  static void adopt(Held&& held);
  // Ends the thread, before the interpreter ends. All groups have been closed, so what it waited for is done; memory of what
  // is not is given up, never freed.
  static void stop();

 private:
  struct Entry {
    c10::intrusive_ptr<GocclWork> work; // null for a dropped one
    Held held;                          // of a dropped one

    bool done();
    void finish();
  };

  static Completer& instance();
  bool add(Entry&& entry);
  void loop();

  std::mutex mutex_;
  std::condition_variable changed_; // entries, stopping, exited
  std::vector<Entry> entries_;
  bool running_ = false;
  bool stopping_ = false;
  bool exited_ = false;
};

} // namespace goccl
