/* goccl through its C ABI. Arguments: RANK SIZE LIBGOCCL OPTIONS ("NAME=value" lines, may be empty). */
#include "goccl.h"
#include "library.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 256 };

static int (*group_open)(const goccl_group_options*, goccl_group*, void*, size_t, size_t*, goccl_error*);
static int (*group_join)(goccl_group, const void* const*, const size_t*, int, int64_t, goccl_work*, goccl_error*);
static int (*group_close)(goccl_group, goccl_error*);
static int (*run)(goccl_group, const goccl_call*, int64_t, goccl_work*, goccl_error*);

static goccl_group group;
static goccl_error error;
static struct place me;
static goccl_block ins[RANKS], outs[RANKS];
static goccl_call first, second; /* the second of a ping-pong */
static int calls;

static void* symbol(void* lib, const char* name) {
  void* p = dlsym(lib, name);
  if (!p)
    fail("%s", dlerror());
  return p;
}

static void must(int code, const char* what) {
  if (code != GOCCL_OK)
    fail("%s: code %d: %s", what, code, error.text);
}

void library_open(int argc, char** argv, struct place* place) {
  if (argc != 4)
    fail("wanted: RANK SIZE LIBGOCCL OPTIONS");
  void* lib = dlopen(argv[2], RTLD_NOW | RTLD_GLOBAL);
  if (!lib)
    fail("%s", dlerror());
  group_open = symbol(lib, "goccl_group_open");
  group_join = symbol(lib, "goccl_group_join");
  group_close = symbol(lib, "goccl_group_close");
  run = symbol(lib, "goccl_run");

  goccl_group_options options = {.abi = GOCCL_ABI, .rank = atoi(argv[0]), .size = atoi(argv[1]),
                                 .timeout_ns = 120000000000, .name = "bench", .options = argv[3],
                                 .shim_version = "bench"};
  unsigned char address[GOCCL_MAX_ADDRESS];
  size_t length;
  if (options.size > RANKS)
    fail("%d ranks, at most %d", options.size, RANKS);
  must(group_open(&options, &group, address, sizeof address, &length, &error), "goccl_group_open");
  for (size_t i = 0; i < length; i++)
    sprintf(place->address + 2 * i, "%02x", address[i]);
  place->rank = options.rank;
  place->size = options.size;
  me = *place;
}

void library_join(int size, char** addresses) {
  const void* pointers[RANKS];
  size_t lengths[RANKS];
  for (int r = 0; r < size; r++) {
    lengths[r] = strlen(addresses[r]) / 2;
    unsigned char* bytes = malloc(lengths[r] + 1);
    for (size_t i = 0; i < lengths[r]; i++) {
      unsigned value;
      sscanf(addresses[r] + 2 * i, "%2x", &value);
      bytes[i] = (unsigned char)value;
    }
    pointers[r] = bytes;
  }
  must(group_join(group, pointers, lengths, size, 0, 0, &error), "goccl_group_join");
  for (int r = 0; r < size; r++)
    free((void*)pointers[r]);
}

/* count elements in n blocks, one after the other. */
static uint32_t split(goccl_block* blocks, void* memory, size_t count, int n, size_t width) {
  for (int i = 0; i < n; i++)
    blocks[i] = (goccl_block){.ptr = (char*)memory + (size_t)i * (count / (size_t)n) * width,
                              .count = count / (size_t)n};
  return (uint32_t)n;
}

int library_prepare(const struct work* work) {
  size_t count = work->count, part = count / (size_t)me.size, width = work->element == F32 ? 4 : 2;
  goccl_call call = {.dtype = work->element == F32 ? GOCCL_F32 : GOCCL_BF16, .redop = GOCCL_SUM, .in = ins, .out = outs,
                     .factor = 1, .timeout_ns = GOCCL_NO_TIMEOUT_GIVEN};
  calls = 1;
  switch (work->op) {
    case ALL_REDUCE:
      call.coll = GOCCL_ALL_REDUCE;
      call.n_in = split(ins, work->in, count, 1, width);
      call.n_out = split(outs, work->in, count, 1, width);
      break;
    case ALL_GATHER:
      call.coll = GOCCL_ALL_GATHER;
      call.n_in = split(ins, work->in, part, 1, width);
      call.n_out = split(outs, work->out, count, me.size, width);
      break;
    case REDUCE_SCATTER:
      call.coll = GOCCL_REDUCE_SCATTER;
      call.n_in = split(ins, work->in, count, me.size, width);
      call.n_out = split(outs, work->out, part, 1, width);
      break;
    case ALL_TO_ALL:
      call.coll = GOCCL_ALL_TO_ALL;
      call.n_in = split(ins, work->in, count, me.size, width);
      call.n_out = split(outs, work->out, count, me.size, width);
      break;
    case BROADCAST:
      call.coll = GOCCL_BROADCAST;
      call.n_in = me.rank == 0 ? split(ins, work->in, count, 1, width) : 0;
      call.n_out = split(outs, work->in, count, 1, width);
      break;
    default: {
      goccl_call send = call, receive = call;
      split(ins, work->in, count, 1, width);
      split(outs, work->out, count, 1, width);
      send.coll = GOCCL_SEND;
      receive.coll = GOCCL_RECV;
      send.n_in = receive.n_out = 1;
      send.root = receive.root = 1 - me.rank;
      first = me.rank == 0 ? send : receive;
      second = me.rank == 0 ? receive : send;
      calls = me.rank < 2 ? 2 : 0;
      return 1;
    }
  }
  first = call;
  return 1;
}

void library_run(void) {
  if (calls > 0)
    must(run(group, &first, 0, 0, &error), "goccl_run");
  if (calls > 1)
    must(run(group, &second, 0, 0, &error), "goccl_run");
}

void library_barrier(void) {
  static const goccl_call barrier = {.coll = GOCCL_BARRIER, .dtype = GOCCL_F32, .factor = 1,
                                     .timeout_ns = GOCCL_NO_TIMEOUT_GIVEN};
  must(run(group, &barrier, 0, 0, &error), "goccl_run of a barrier");
}

void library_close(void) { must(group_close(group, &error), "goccl_group_close"); }
