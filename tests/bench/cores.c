/* How fast one core of this machine hands memory to another: a thread on the first core writes a buffer, one on the
 * second reads it, in turn. Virtual cores may move to places that share a cache or do not, and then all that crosses
 * cores becomes some four times slower or faster, for seconds to minutes.
 *
 * Prints the gigabytes a second of writing and reading, the median of some turns.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BYTES = 256 << 10, TURNS = 101 };

static char from[BYTES], shared[BYTES], to[BYTES];
static atomic_int turn; /* odd: the reader's */

/* The compiler must not leave out a copy whose result nobody reads. */
static void copy(char* dst, const char* src) {
  memcpy(dst, src, BYTES);
  __asm__ volatile("" : : "r"(dst) : "memory");
}

/* Binds this thread to the first core that it may use, or the second. */
static void bind_to(int nth) {
  cpu_set_t all, one;
  int core = -1;
  CPU_ZERO(&one);
  if (sched_getaffinity(0, sizeof all, &all) != 0)
    exit(1);
  do
    core++;
  while (core < CPU_SETSIZE - 1 && !(CPU_ISSET(core, &all) && nth-- == 0));
  CPU_SET(core, &one);
  if (sched_setaffinity(0, sizeof one, &one) != 0)
    exit(1);
}

static void* reader(void* unused) {
  bind_to(1);
  for (int t = 1; t < 2 * TURNS; t += 2) {
    while (atomic_load(&turn) != t)
      ;
    copy(to, shared);
    atomic_store(&turn, t + 1);
  }
  return unused;
}

static int ascending(const void* a, const void* b) {
  double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

int main(void) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, reader, NULL) != 0)
    return 1;
  bind_to(0);
  double ns[TURNS];
  memset(from, 1, BYTES);
  for (int t = 0; t < 2 * TURNS; t += 2) {
    struct timespec begun, ended;
    clock_gettime(CLOCK_MONOTONIC, &begun);
    copy(shared, from);
    atomic_store(&turn, t + 1);
    while (atomic_load(&turn) != t + 2)
      ;
    clock_gettime(CLOCK_MONOTONIC, &ended);
    ns[t / 2] = (ended.tv_sec - begun.tv_sec) * 1e9 + (ended.tv_nsec - begun.tv_nsec);
  }
  pthread_join(thread, NULL);
  qsort(ns, TURNS, sizeof *ns, ascending);
  printf("%.2f\n", BYTES / ns[TURNS / 2]);
  return 0;
}
