/* What rank.c asks of a library. One adapter (goccl.c, mpi.c, floor.c) is linked with it into a program of its own. */
#ifndef LIBRARY_H
#define LIBRARY_H

#include <stddef.h>
#include <stdio.h>

enum op { ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, BROADCAST, PING_PONG, OPS };
enum element { F32, BF16 };

/* One operation. all_reduce and broadcast are in place, in `in`; the others read `in` and write `out`. */
struct work {
  enum op op;
  enum element element;
  void* in;
  void* out;
  size_t count; /* elements of the whole vector: of the input, for all_gather of the output */
};

/* A process's place. The address is what the other ranks must know to join; hexadecimal, may be empty. */
struct place {
  int rank, size;
  char address[2 * 16384 + 1];
};

/* Starts the library. arguments are those after the common ones. */
void library_open(int argc, char** argv, struct place* place);

/* Joins the other ranks, whose addresses are in rank order. */
void library_join(int size, char** addresses);

/* Takes the operation that library_run repeats. Returns 0 if the library does not have it. */
int library_prepare(const struct work* work);

void library_run(void);
void library_barrier(void);
void library_close(void);

/* Prints the message and ends the process. */
void fail(const char* format, ...) __attribute__((noreturn, format(printf, 1, 2)));

#endif
