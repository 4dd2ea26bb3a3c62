// The Go runtime has a monitor thread (sysmon). While C threads keep calling into Go and leaving it
// again, sysmon sleeps for 20 µs at a time, some 60 times in every 10 ms, and each time takes a core
// from a thread that communicates: on two cores, two ranks that post and wait lost a third of their
// time to it. sysmon does not have to be punctual, so its sleeps may end up to a millisecond late,
// which lets them end together with other interrupts. A thread inherits its timer slack from the
// thread that creates it. So the thread that loads the library gets the slack before the runtime
// starts, and loses it afterwards.
#include <sys/prctl.h>

static const unsigned long late = 1000000; // nanoseconds
static int before = -1;

// Constructors with a priority run before those without one, the first of which is the runtime's.
__attribute__((constructor(101))) static void slacken(void) {
  before = prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0);
  if (before > 0) prctl(PR_SET_TIMERSLACK, late, 0, 0, 0);
}

__attribute__((constructor)) static void tighten(void) {
  if (before > 0) prctl(PR_SET_TIMERSLACK, (unsigned long)before, 0, 0, 0);
}
