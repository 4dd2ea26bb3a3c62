// Calls of the C ABI on a device.
#include "../goccl.h"

// Enqueues an all_reduce in place of elements of the device's memory behind a stream.
int fromc_enqueue(goccl_group group, uint64_t memory, size_t count, uint64_t stream, goccl_work* work, uint64_t* seq,
                  goccl_error* error);
int fromc_join(goccl_work work, uint64_t stream, goccl_error* error);
