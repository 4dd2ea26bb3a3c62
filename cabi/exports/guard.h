/* guard.h: what guard.c does for the Go files of this package. */
#ifndef GOCCL_GUARD_H
#define GOCCL_GUARD_H

/* Notes that a forked child must close this descriptor (open 1), or need not any more (0). */
void goccl_track(int fd, int open);

#endif
