// One rank that makes the same calls of the C ABI again and again, as a C program would.
#include "../goccl.h"

// What a rank does in one turn.
typedef enum {
  FROMC_RUN,         // goccl_run of an all_reduce
  FROMC_START,       // goccl_start, goccl_work_wait, goccl_work_free
  FROMC_BURST,       // sixteen started, each waited for, all given back at once
  FROMC_MESSAGE,     // send and receive by goccl_run, rank 0 first
  FROMC_MESSAGES,    // a receive and a send started, both waited for
  FROMC_ORDERS
} fromc_order;

typedef struct {
  goccl_group group;
  int rank;        // of two
  fromc_order order;
  float* memory;   // twice count elements
  size_t count;
  int turns;
  int own_thread;  // a thread that C makes, and that Go has never seen
} fromc_task;

// The code of the first call that failed, with its error.
int fromc_do(const fromc_task* task, goccl_error* error);
