// The one thread of the process that ends operations nobody waits for: those whose future was asked for, and those
// whose Work was dropped before they were done. It is started when it is first needed and asleep unless an operation ends.
// While it completes a future it holds neither a lock nor the GIL.
#pragma once

#include "work.h"

namespace goccl::completer {

// Keeps the Work until it is done, and completes its future then. Returns false if it is done already.
bool watch(c10::intrusive_ptr<GocclWork> work);

// Keeps the memory of a dropped Work until it is done, then copies back and frees.
void adopt(Held&& held);

// Ends the thread, before the interpreter ends. All groups have been closed, so what it waited for is done; memory of what is
// not is given up, never freed.
void stop();

} // namespace goccl::completer
