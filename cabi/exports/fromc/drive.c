#include "drive.h"

#include <pthread.h>

enum { BURST = 16, SLICE_NS = 50000000 };

static goccl_call all_reduce(const fromc_task* task, goccl_block* block) {
  *block = (goccl_block){task->memory, task->count};
  return (goccl_call){.coll = GOCCL_ALL_REDUCE, .dtype = GOCCL_F32, .n_in = 1, .n_out = 1, .in = block, .out = block,
                      .timeout_ns = GOCCL_NO_TIMEOUT_GIVEN};
}

static goccl_call message(const fromc_task* task, goccl_block* block, goccl_coll coll) {
  *block = (goccl_block){task->memory + (coll == GOCCL_RECV ? task->count : 0), task->count};
  goccl_call call = {.coll = coll, .dtype = GOCCL_F32, .root = 1 - task->rank, .tag = 3,
                     .timeout_ns = GOCCL_NO_TIMEOUT_GIVEN};
  *(coll == GOCCL_RECV ? &call.n_out : &call.n_in) = 1;
  *(coll == GOCCL_RECV ? &call.out : &call.in) = block;
  return call;
}

// Starts n calls, one work each, waits for every work, and gives all works back.
static int through(goccl_group group, const goccl_call* calls, int distinct, int n, goccl_error* error) {
  goccl_work works[BURST];
  int open = 0, code = GOCCL_OK;
  for (int i = 0; i < n && code == GOCCL_OK; i++) {
    goccl_work work = 0;
    uint64_t seq;
    code = goccl_start(group, &calls[i % distinct], &work, &seq, error);
    if (work != 0) works[open++] = work;
  }
  for (int i = 0; i < open; i++) {
    int ended = goccl_work_wait(works[i], -1, 0, 0, error);
    if (code == GOCCL_OK) code = ended;
  }
  if (open == 1) goccl_work_free(works[0]);
  if (open > 1) goccl_work_free_all(works, open);
  return code;
}

// Runs a call as a thread does that looks at signals between slices.
static int run(goccl_group group, const goccl_call* call, goccl_error* error) {
  goccl_work work = 0;
  int code = goccl_run(group, call, SLICE_NS, &work, error), done = 0;
  if (work == 0) return code;
  while (code == GOCCL_OK && !done) code = goccl_work_wait(work, -1, SLICE_NS, &done, error);
  goccl_work_free(work);
  return code;
}

static int turn(const fromc_task* task, goccl_error* error) {
  goccl_block blocks[2];
  goccl_call calls[2];
  switch (task->order) {
    case FROMC_RUN:
      calls[0] = all_reduce(task, blocks);
      return run(task->group, calls, error);
    case FROMC_START:
    case FROMC_BURST:
      calls[0] = all_reduce(task, blocks);
      return through(task->group, calls, 1, task->order == FROMC_START ? 1 : BURST, error);
    case FROMC_MESSAGE: {
      calls[task->rank] = message(task, &blocks[0], GOCCL_SEND);
      calls[1 - task->rank] = message(task, &blocks[1], GOCCL_RECV);
      int code = run(task->group, &calls[0], error);
      return code == GOCCL_OK ? run(task->group, &calls[1], error) : code;
    }
    default:
      calls[0] = message(task, &blocks[0], GOCCL_RECV);
      calls[1] = message(task, &blocks[1], GOCCL_SEND);
      return through(task->group, calls, 2, 2, error);
  }
}

static int turns(const fromc_task* task, goccl_error* error) {
  int code = GOCCL_OK;
  for (int i = 0; i < task->turns && code == GOCCL_OK; i++) code = turn(task, error);
  return code;
}

typedef struct {
  const fromc_task* task;
  goccl_error* error;
  int code;
} thread_task;

static void* on_thread(void* given) {
  thread_task* t = given;
  t->code = turns(t->task, t->error);
  return 0;
}

int fromc_do(const fromc_task* task, goccl_error* error) {
  if (!task->own_thread) return turns(task, error);
  thread_task given = {task, error, GOCCL_INTERNAL};
  pthread_t thread;
  if (pthread_create(&thread, 0, on_thread, &given) != 0) return GOCCL_SYSTEM;
  pthread_join(thread, 0);
  return given.code;
}
