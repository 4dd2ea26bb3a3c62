// Runs what nobody's thread is there for: the ends of operations that have a future, that somebody
// else wants to know of, or whose Work was dropped; and abort hooks. Threads named goccl-helper do
// that, started when they are first needed and asleep unless something is due. What is due when,
// and how many threads there are, is the core's business (goccl_queue_next); these functions give
// it jobs.
//
// A job runs without locks and without the GIL, and may wait for other jobs, as callbacks of
// futures do (DDP's PowerSGD hook).
#pragma once

#include <functional>

#include <c10/util/ArrayRef.h>

#include "library.h"

namespace goccl::helper {

using Job = std::function<void()>;

// Runs the job when these works have ended, and keeps what it holds until then. urgent: the works
// are done without delay. Returns false, and does not run it, if they have ended already.
bool when_ended(c10::ArrayRef<goccl_work> works, bool urgent, Job job);

// Runs a hook soon.
void soon(Job hook);

// Waits until all hooks that are due have run, for five seconds at most. Within a hook it does not
// wait.
void settle_hooks();

// Waits until the operations that have ended have also ended for torch, so that nothing is written
// to tensors any more: for a second at most, since a callback of the user may hang.
void settle();

// Ends the threads, before the interpreter ends. All groups have been closed, so what was waited
// for is done; what is not is given up: the core may still write to its memory, which is never
// freed.
void stop();

} // namespace goccl::helper
