// tick: adds one to the word at dst, in memory of the host. Whoever sees that sees what came before.

#include "fold.h"

INLINE void tick(const Arguments &a)
{
    if (thread_index() != 0)
        return;
    __threadfence_system();
    atomicAdd_system(global<u64>(a.dst), 1);
    __threadfence_system();
}

KERNEL(tick, tick)
