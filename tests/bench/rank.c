/* rank SOCKET MAX_BYTES NAME [arguments of the adapter]: one rank of one library under the benchmark's driver.
 *
 * It connects to the driver's unix socket and obeys lines of text. Between two lines it sleeps in read(), so that the
 * ranks of all libraries can live at the same time without taking the cores from the one that is measured.
 *
 *   driver                                    rank
 *                                             join NAME RANK SIZE PID ADDRESS
 *   peers ADDRESS ...                         ready
 *   pin CPU | pin all                         pinned
 *   check OP ELEMENT BYTES                    wrong COUNT | none   (the library does not have it)
 *   block OP ELEMENT BYTES TURNS WARM         time NANOSECONDS
 *   block OP ELEMENT BYTES TURNS WARM touch   time NANOSECONDS TOUCHING_ALONE (of processor time)
 *   quit
 */
#define _GNU_SOURCE
#include "library.h"

#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { LINE = 1 << 20, PATIENCE = 180 /* seconds for one line; a rank never outlives a hang by more */ };
enum { CACHE_LINE = 64 };

static const char* const op_names[OPS] = {"all_reduce", "all_gather", "reduce_scatter",
                                          "all_to_all", "broadcast", "ping_pong"};

static struct place place;
static const char* name = "?";
static char *in, *out;
static size_t capacity;

void fail(const char* format, ...) {
  va_list list;
  fprintf(stderr, "%s, rank %d: ", name, place.rank);
  va_start(list, format);
  vfprintf(stderr, format, list);
  va_end(list);
  fputc('\n', stderr);
  fflush(stderr);
  _exit(1);
}

static uint64_t clock_of(clockid_t id) {
  struct timespec t;
  clock_gettime(id, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t now(void) { return clock_of(CLOCK_MONOTONIC); }

static int connect_to(const char* path) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (strlen(path) >= sizeof address.sun_path)
    fail("the socket's path is too long: %s", path);
  strcpy(address.sun_path, path);
  if (fd < 0 || connect(fd, (struct sockaddr*)&address, sizeof address))
    fail("cannot connect to %s: %m", path);
  return fd;
}

/* Gives all threads of the process (the libraries' own threads too) one processor, or back all that a launcher took
 * away: the kernel cuts a set down to what the process may have. */
static void pin(const char* where) {
  cpu_set_t want;
  CPU_ZERO(&want);
  if (strcmp(where, "all"))
    CPU_SET(atoi(where), &want);
  else
    for (int i = 0; i < CPU_SETSIZE; i++)
      CPU_SET(i, &want);
  DIR* tasks = opendir("/proc/self/task");
  struct dirent* each;
  while (tasks && (each = readdir(tasks)))
    if (each->d_name[0] != '.' && sched_setaffinity(atoi(each->d_name), sizeof want, &want) && errno != ESRCH)
      fail("cannot set the affinity to %s: %m", where);
  if (tasks)
    closedir(tasks);
}

static size_t width(enum element element) { return element == F32 ? 4 : 2; }

/* Small whole numbers, so that every element type and every order of adding gives the same bits. */
static float value(size_t index, int rank) { return (float)(index % 13) + (float)rank; }

static float sum(size_t index) {
  return (float)(index % 13) * (float)place.size + (float)(place.size * (place.size - 1) / 2);
}

static void put(void* memory, enum element element, size_t index, float v) {
  uint32_t bits;
  memcpy(&bits, &v, 4);
  if (element == F32)
    ((uint32_t*)memory)[index] = bits;
  else
    ((uint16_t*)memory)[index] = (uint16_t)(bits >> 16);
}

static int differs(const void* memory, enum element element, size_t index, float v) {
  uint32_t bits;
  memcpy(&bits, &v, 4);
  return element == F32 ? ((const uint32_t*)memory)[index] != bits
                        : ((const uint16_t*)memory)[index] != (uint16_t)(bits >> 16);
}

/* The bytes that this rank reads as input. */
static size_t input_bytes(const struct work* work) {
  if (work->op == BROADCAST && place.rank != 0)
    return 0;
  return work->count / (work->op == ALL_GATHER ? (size_t)place.size : 1) * width(work->element);
}

/* Writes to each cache line of the input the word that is there: as if the program had computed it anew, no other
 * processor has the line then, but the results stay the same. */
static void touch(size_t bytes) {
  for (size_t i = 0; i < bytes; i += CACHE_LINE) {
    volatile uint16_t* word = (volatile uint16_t*)(in + i);
    *word = *word;
  }
}

/* Runs the operation once on known numbers and counts the wrong ones; leaves zeros, which stay zeros however often they
 * are added. */
static size_t check(const struct work* work) {
  size_t part = work->count / (size_t)place.size, wrong = 0, offset = (size_t)place.rank * part;
  size_t filled = work->op == ALL_GATHER ? part : work->count, bytes = work->count * width(work->element);
  int other = 1 - place.rank;
  memset(in, 0, bytes);
  memset(out, 0xFF, bytes);
  for (size_t k = 0; k < filled; k++)
    put(in, work->element, k, value(work->op == ALL_GATHER ? offset + k : k, place.rank));
  touch(input_bytes(work)); /* so that a touch that changes something is found */
  library_run();
  switch (work->op) {
    case ALL_REDUCE:
      for (size_t k = 0; k < work->count; k++)
        wrong += differs(in, work->element, k, sum(k));
      break;
    case BROADCAST:
      for (size_t k = 0; k < work->count; k++)
        wrong += differs(in, work->element, k, value(k, 0));
      break;
    case ALL_GATHER:
      for (size_t k = 0; k < work->count; k++)
        wrong += differs(out, work->element, k, value(k, (int)(k / part)));
      break;
    case REDUCE_SCATTER:
      for (size_t k = 0; k < part; k++)
        wrong += differs(out, work->element, k, sum(offset + k));
      break;
    case ALL_TO_ALL:
      for (size_t k = 0; k < work->count; k++)
        wrong += differs(out, work->element, k, value(offset + k % part, (int)(k / part)));
      break;
    default:
      for (size_t k = 0; k < work->count; k++)
        wrong += differs(out, work->element, k, value(k, other));
  }
  memset(in, 0, bytes);
  memset(out, 0, bytes);
  return wrong;
}

static uint64_t block(long turns, long warm) {
  library_barrier();
  for (long i = 0; i < warm; i++)
    library_run();
  library_barrier();
  uint64_t start = now();
  for (long i = 0; i < turns; i++)
    library_run();
  return now() - start;
}

/* A block with the input touched before each call. The driver takes off the time of touching alone, which is measured
 * right after it. A clock around each call would add 20 ns to a call of 300, and would leave out that a touch costs
 * more where the library has left the lines in another processor's cache, which is the library's doing. Touching alone
 * is measured in processor time, since ranks that share a processor would count each other's. */
static uint64_t touched_block(const struct work* work, long turns, long warm, uint64_t* alone) {
  size_t bytes = input_bytes(work);
  library_barrier();
  for (long i = 0; i < warm; i++) {
    touch(bytes);
    library_run();
  }
  library_barrier();
  uint64_t start = now();
  for (long i = 0; i < turns; i++) {
    touch(bytes);
    library_run();
  }
  uint64_t time = now() - start;
  library_barrier();
  for (long i = 0; i <= warm; i++) /* takes the lines back from the last call */
    touch(bytes);
  start = clock_of(CLOCK_THREAD_CPUTIME_ID);
  for (long i = 0; i < turns; i++)
    touch(bytes);
  *alone = clock_of(CLOCK_THREAD_CPUTIME_ID) - start;
  return time;
}

static int parse(char* line, struct work* work, long* turns, long* warm, int* touched) {
  char op[32], element[8], last[8] = "";
  size_t bytes;
  *turns = *warm = 0;
  if (sscanf(line, "%*s %31s %7s %zu %ld %ld %7s", op, element, &bytes, turns, warm, last) < 3)
    fail("cannot read the line: %s", line);
  *touched = !strcmp(last, "touch");
  int number = 0;
  while (number < OPS && strcmp(op, op_names[number]))
    number++;
  if (number == OPS)
    fail("unknown operation %s", op);
  *work = (struct work){.op = (enum op)number, .element = strcmp(element, "bf16") ? F32 : BF16, .in = in, .out = out};
  work->count = bytes / width(work->element);
  if (bytes > capacity || work->count == 0)
    fail("%zu bytes: the buffers have %zu", bytes, capacity);
  return library_prepare(work);
}

static void* memory(void) {
  void* p;
  if (posix_memalign(&p, 1 << 21, capacity))
    fail("no memory for %zu bytes", capacity);
  memset(p, 0, capacity);
  return p;
}

int main(int argc, char** argv) {
  if (argc < 4)
    return fprintf(stderr, "usage: %s SOCKET MAX_BYTES NAME ...\n", argv[0]), 2;
  name = argv[3];
  capacity = (size_t)atoll(argv[2]);
  library_open(argc - 4, argv + 4, &place);
  in = memory();
  out = memory();
  int fd = connect_to(argv[1]);
  FILE *from = fdopen(fd, "r"), *to = fdopen(dup(fd), "w");
  char* line = malloc(LINE);
  fprintf(to, "join %s %d %d %d %s\n", name, place.rank, place.size, (int)getpid(),
          place.address[0] ? place.address : "-");
  fflush(to);
  while (fgets(line, LINE, from)) {
    struct work work;
    long turns, warm;
    int touched;
    alarm(PATIENCE);
    line[strcspn(line, "\n")] = 0;
    if (!strncmp(line, "peers ", 6)) {
      char** addresses = calloc((size_t)place.size, sizeof *addresses);
      char* rest = line + 6;
      for (int i = 0; i < place.size; i++)
        addresses[i] = strsep(&rest, " ");
      library_join(place.size, addresses);
      free(addresses);
      fprintf(to, "ready\n");
    } else if (!strncmp(line, "pin ", 4)) {
      pin(line + 4);
      fprintf(to, "pinned\n");
    } else if (!strncmp(line, "check ", 6)) {
      if (parse(line, &work, &turns, &warm, &touched))
        fprintf(to, "wrong %zu\n", check(&work));
      else
        fprintf(to, "none\n");
    } else if (!strncmp(line, "block ", 6)) {
      if (!parse(line, &work, &turns, &warm, &touched))
        fail("asked for what the library does not have: %s", line);
      uint64_t alone = 0, time = touched ? touched_block(&work, turns, warm, &alone) : block(turns, warm);
      fprintf(to, touched ? "time %llu %llu\n" : "time %llu\n", (unsigned long long)time, (unsigned long long)alone);
    } else if (!strcmp(line, "quit")) {
      library_close();
      return 0;
    } else {
      fail("unknown line: %s", line);
    }
    fflush(to);
    alarm(0);
  }
  _exit(1); /* the driver is gone */
}
