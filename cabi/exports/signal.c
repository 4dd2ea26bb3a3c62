// The signal at which a process writes its record. The handler does what a handler may: it writes a
// byte to a pipe, which a goroutine reads. Go could install a handler itself (os/signal), but it would
// enter the Go runtime in forked children, where that does not work, and it cannot tell whether
// somebody has installed another one since.
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

#include "guard.h"

static _Atomic int watched;   // the signal; 0: none
static _Atomic pid_t owner;   // the process that watches it
static _Atomic int wake = -1; // the end of the pipe to write to, which never blocks

static void on_signal(int number) {
  if (getpid() != atomic_load(&owner)) { // a child, for which fork has not yet done what it has to
    signal(number, SIG_DFL);
    raise(number); // it comes when this function returns
    return;
  }
  const int before = errno;
  const char byte = 0;
  // Where the pipe is full, the record is about to be written anyway.
  const ssize_t written = write(atomic_load(&wake), &byte, 1);
  (void)written;
  errno = before;
}

static int unused(const struct sigaction* action) {
  return !(action->sa_flags & SA_SIGINFO) && action->sa_handler == SIG_DFL;
}

int goccl_watch_signal(int number, int fd) {
  struct sigaction before, ours = {0};
  if (sigaction(number, 0, &before) != 0 || !unused(&before)) return 0;
  atomic_store(&wake, fd);
  atomic_store(&owner, getpid());
  ours.sa_handler = on_signal;
  ours.sa_flags = SA_RESTART | SA_ONSTACK; // it may run on a thread of Go, whose stacks are small
  sigemptyset(&ours.sa_mask);
  if (sigaction(number, &ours, &before) != 0) return 0;
  if (!unused(&before)) { // another thread was faster
    sigaction(number, &before, 0);
    return 0;
  }
  atomic_store(&watched, number);
  return 1;
}

void goccl_forget_signal(void) {
  const int number = atomic_exchange(&watched, 0);
  struct sigaction now;
  if (number == 0 || sigaction(number, 0, &now) != 0) return;
  if (!(now.sa_flags & SA_SIGINFO) && now.sa_handler == on_signal) {
    now.sa_handler = SIG_DFL;
    now.sa_flags = 0;
    sigaction(number, &now, 0);
  }
}
