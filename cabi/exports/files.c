// Go's package os raises the soft limit of open files (RLIMIT_NOFILE) to the hard one when it begins.
// The process is not ours: its children would inherit that, and programs that walk all descriptors,
// or use select, bear it badly. So what was there before the runtime began is put back.
#include <sys/resource.h>

#include "guard.h"

static struct rlimit before;
static int known;

// Constructors with a priority run before those without one, the first of which is the runtime's.
__attribute__((constructor(101))) static void remember(void) { known = getrlimit(RLIMIT_NOFILE, &before) == 0; }

void goccl_restore_files(void) {
  struct rlimit now;
  // Where it is neither of the two, the program has set it meanwhile.
  if (known && getrlimit(RLIMIT_NOFILE, &now) == 0 && now.rlim_max == before.rlim_max && now.rlim_cur > before.rlim_cur)
    setrlimit(RLIMIT_NOFILE, &before);
}
