#include "enqueue.h"

int fromc_enqueue(goccl_group group, uint64_t memory, size_t count, uint64_t stream, goccl_work* work, uint64_t* seq,
                  goccl_error* error) {
  const goccl_block block = {(void*)memory, count};
  const goccl_call call = {.coll = GOCCL_ALL_REDUCE, .dtype = GOCCL_F32, .n_in = 1, .n_out = 1, .in = &block,
                           .out = &block, .timeout_ns = GOCCL_NO_TIMEOUT_GIVEN};
  return goccl_enqueue(group, &call, (void*)stream, work, seq, error);
}

int fromc_join(goccl_work work, uint64_t stream, goccl_error* error) {
  return goccl_work_join(work, (void*)stream, error);
}
