/* A measuring stick of the developer's: a library with
 *
 *     int floor_init(int rank, const char* path);             path: a file that both ranks may map; 0 is success
 *     void floor_allreduce(void* buffer, long long count);    float32 sum in place, 2 ranks
 *
 * Arguments: RANK SIZE LIBRARY PATH.
 */
#include "library.h"

#include <dlfcn.h>
#include <stdlib.h>

static void (*all_reduce)(void*, long long);
static struct work work;

void library_open(int argc, char** argv, struct place* place) {
  if (argc != 4 || atoi(argv[1]) != 2)
    fail("wanted: RANK 2 LIBRARY PATH");
  void* lib = dlopen(argv[2], RTLD_NOW);
  if (!lib)
    fail("%s", dlerror());
  int (*init)(int, const char*) = dlsym(lib, "floor_init");
  all_reduce = dlsym(lib, "floor_allreduce");
  if (!init || !all_reduce)
    fail("%s does not export floor_init and floor_allreduce", argv[2]);
  place->rank = atoi(argv[0]);
  place->size = 2;
  if (init(place->rank, argv[3]))
    fail("floor_init failed");
}

void library_join(int size, char** addresses) { (void)size, (void)addresses; }

int library_prepare(const struct work* wanted) {
  work = *wanted;
  return work.op == ALL_REDUCE && work.element == F32;
}

void library_run(void) { all_reduce(work.in, (long long)work.count); }

void library_barrier(void) {
  static float pair[2] __attribute__((aligned(64)));
  all_reduce(pair, 2);
}

void library_close(void) {}
