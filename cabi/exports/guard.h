/* guard.h: what guard.c, files.c and signal.c do for the Go files of this package, and for each other. */
#ifndef GOCCL_GUARD_H
#define GOCCL_GUARD_H

/* Notes that a forked child must close this descriptor (open 1), or need not any more (0). */
void goccl_track(int fd, int open);

/* Puts back the soft limit of open files that the process had before the Go runtime began. */
void goccl_restore_files(void);

/* Has a byte written to this descriptor at each signal of this number. Returns 0, and does nothing, if
 * the program has a handler for it or ignores it. A handler that the program installs later stays. */
int goccl_watch_signal(int number, int fd);

/* Gives that signal its default action again, in a forked child, unless the program has a handler. */
void goccl_forget_signal(void);

#endif
