// One rank that repeats the same calls of the C ABI, as a C program would make them.
#include "../goccl.h"

// The calls that a rank makes in one turn.
typedef enum {
  FROMC_RUN,         // goccl_run of an all_reduce
  FROMC_START,       // goccl_start, goccl_work_wait, goccl_work_free
  FROMC_BURST,       // sixteen goccl_start, goccl_work_wait for each, one goccl_work_free_all
  FROMC_MESSAGE,     // a send and a receive by goccl_run; rank 0 sends first
  FROMC_MESSAGES,    // goccl_start of a receive and of a send, goccl_work_wait for both
  FROMC_ORDERS
} fromc_order;

typedef struct {
  goccl_group group;
  int rank;        // 0 or 1
  fromc_order order;
  float* memory;   // 2 * count elements
  size_t count;
  int turns;
  int own_thread;  // run on a new thread created by C, unknown to Go
} fromc_task;

// Makes the calls. Returns the code of the first call that failed, with its error.
int fromc_do(const fromc_task* task, goccl_error* error);
