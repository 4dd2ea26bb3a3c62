// Runs work for which no thread waits: the ends of operations that have a future, that an observer
// watches, or whose Work was dropped; and abort hooks. Threads named goccl-helper do this; they are
// started when they are first needed, and sleep unless a job is due. The core decides which job is
// due when, and how many threads there are (goccl_queue_next); these functions give it jobs.
//
// A job runs without locks and without the GIL, and may wait for other jobs, as callbacks of
// futures do (DDP's PowerSGD hook).
#pragma once

#include <functional>

#include <c10/util/ArrayRef.h>

#include "library.h"

namespace goccl::helper {

using Job = std::function<void()>;

// Runs the job when these works have ended, at once and on this thread if they have ended already;
// until then the job keeps what it holds. urgent: the works make progress without delay.
void when_ended(c10::ArrayRef<goccl_work> works, bool urgent, Job job);

// Runs a hook soon.
void soon(Job hook);

// Waits until all hooks that are due have run, for at most five seconds. Called within a hook, it
// does not wait.
void settle_hooks();

// Waits until the operations that have ended have also ended for torch, so that tensors are no
// longer written: for at most a second, since a callback of the user may hang.
void settle();

// Ends the threads, before the interpreter ends. All groups have been closed, so the awaited
// operations have ended. Unfinished jobs are given up: the core may still write to their memory,
// which is never freed.
void stop();

} // namespace goccl::helper
