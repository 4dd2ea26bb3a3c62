// The Go runtime has a thread of its own that looks after the others (sysmon). Where C threads call Go and leave it again, it sleeps for
// 20 µs at a time, some 60 times in every 10 ms, and takes a core from a thread that communicates each time: on two cores, two ranks
// that post and wait lost a third of their time to it. It does not have to be punctual, so its sleeps may end up to a millisecond late, which
// lets them end together with other interrupts. A thread inherits this from the one that starts it. So the thread that loads the library
// gets it before the runtime starts, and loses it afterwards.
#include <sys/prctl.h>

static const unsigned long late = 1000000; // nanoseconds
static int before = -1;

// Constructors with a priority run before those without, of which the runtime's is the first.
__attribute__((constructor(101))) static void slacken(void) {
  before = prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0);
  if (before > 0) prctl(PR_SET_TIMERSLACK, late, 0, 0, 0);
}

__attribute__((constructor)) static void tighten(void) {
  if (before > 0) prctl(PR_SET_TIMERSLACK, (unsigned long)before, 0, 0, 0);
}
