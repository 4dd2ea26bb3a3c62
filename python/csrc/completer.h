// Ends operations nobody waits for: those whose future was asked for, and those whose Work was dropped before they were
// done. A thread of its own does that, started when it is first needed and asleep unless an operation ends; a second one
// takes its place while it runs the callbacks of a future, which may wait for other futures (DDP's PowerSGD hook does).
// While a future is completed, its thread holds neither a lock nor the GIL.
#pragma once

#include "work.h"

namespace goccl::completer {

// Keeps the Work until it is done, and completes its future then. Returns false if it is done already.
bool watch(c10::intrusive_ptr<GocclWork> work);

// Keeps the memory of a dropped Work until it is done, then copies back and frees.
void adopt(Held&& held);

// Waits until the entries whose operations have ended are finished, so that nothing is written to tensors any more: for a second at most, since a
// callback of the user may hang.
void settle();

// Ends the threads, before the interpreter ends. All groups have been closed, so what was waited for is done; memory of
// what is not is given up, never freed.
void stop();

} // namespace goccl::completer
