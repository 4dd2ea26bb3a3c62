/* goccl.h: the C ABI of libgoccl. Written by hand; the exports are checked against it by the C compiler.
 *
 * Every function returns a goccl_code and takes an optional goccl_error* last, which is filled on failure (and
 * left alone on success). Handles are opaque numbers; 0 is never one, and a stale one is answered with GOCCL_INVALID.
 * All functions may be called from any thread. In a forked child every function returns GOCCL_FORKED at once.
 * Memory behind a goccl_call must stay valid until the call (or its work) is done; the goccl_call itself, and the arrays it points to, only
 * until goccl_run or goccl_start returns.
 */
#ifndef GOCCL_H
#define GOCCL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GOCCL_ABI 1

/* Classes of failure; the numbers of ccl/fault. */
typedef enum {
  GOCCL_OK = 0,
  GOCCL_INVALID = 1,
  GOCCL_NOT_SUPPORTED = 2,
  GOCCL_TIMEOUT = 3,
  GOCCL_PEER_LOST = 4,
  GOCCL_PEER_LEFT = 5,
  GOCCL_MISMATCH = 6,
  GOCCL_ABORTED = 7,
  GOCCL_CLOSED = 8,
  GOCCL_FORKED = 9,
  GOCCL_SYSTEM = 10,
  GOCCL_INTERNAL = 11
} goccl_code;

/* Element types; the numbers of ccl/dtype. */
typedef enum {
  GOCCL_F64 = 1, GOCCL_F32, GOCCL_F16, GOCCL_BF16,
  GOCCL_I8, GOCCL_U8, GOCCL_I16, GOCCL_U16, GOCCL_I32, GOCCL_U32, GOCCL_I64, GOCCL_U64,
  GOCCL_BOOL, GOCCL_C64, GOCCL_C128, GOCCL_F8E4M3, GOCCL_F8E5M2
} goccl_dtype;

typedef enum {
  GOCCL_SUM = 0, GOCCL_AVG, GOCCL_PROD, GOCCL_MIN, GOCCL_MAX, GOCCL_BAND, GOCCL_BOR, GOCCL_BXOR, GOCCL_PREMUL_SUM
} goccl_redop;

typedef enum {
  GOCCL_BROADCAST = 1, GOCCL_SCATTER, GOCCL_GATHER, GOCCL_ALL_GATHER, GOCCL_REDUCE, GOCCL_REDUCE_SCATTER,
  GOCCL_ALL_REDUCE, GOCCL_ALL_TO_ALL, GOCCL_BARRIER, GOCCL_SEND, GOCCL_RECV
} goccl_coll;

#define GOCCL_ANY_SOURCE (-1)
#define GOCCL_NO_TIMEOUT_GIVEN (-1) /* the group's own timeout */

typedef struct {
  int32_t code; /* goccl_code */
  int32_t peer; /* rank in the group, -1 if none */
  char text[2048]; /* the whole message, NUL-terminated */
} goccl_error;

typedef uint64_t goccl_group;
typedef uint64_t goccl_work;

/* One block of memory: count elements at ptr. */
typedef struct {
  void* ptr;
  uint64_t count;
} goccl_block;

/* One operation. in and out hold the blocks of the collective on this rank: one, one for each rank (in rank order),
 * or none (see the table below). Blocks may be anywhere, of unequal lengths where noted; In and Out may be the same memory.
 *
 *   coll            in                    out                   root     unequal blocks
 *   broadcast       1 at the root, else 0 1                     yes
 *   scatter         N at the root, else 0 1                     yes      yes
 *   gather          1                     N at the root, else 0 yes      yes
 *   all_gather      1                     N                              yes
 *   reduce          1                     1 at the root, else 0 yes
 *   reduce_scatter  N                     1                              yes
 *   all_reduce      1                     1
 *   all_to_all      N                     N                              yes
 *   barrier         0                     0
 *   send            1                     0                     peer
 *   recv            0                     1                     peer or GOCCL_ANY_SOURCE
 */
typedef struct {
  int32_t coll;
  int32_t dtype; /* ignored by barrier */
  int32_t redop;
  int32_t root;  /* rank in the group; the peer for send and recv */
  uint32_t tag;  /* send and recv */
  uint32_t n_in, n_out;
  uint32_t batch; /* operations that are issued as one share a number, for goccl_trace; 0 for none */
  const goccl_block* in;
  const goccl_block* out;
  double factor;      /* GOCCL_PREMUL_SUM */
  int64_t timeout_ns; /* GOCCL_NO_TIMEOUT_GIVEN or > 0 */
} goccl_call;

/* Options of a group. Strings are NUL-terminated; NULL is the empty string. */
typedef struct {
  uint32_t abi; /* GOCCL_ABI */
  int32_t rank, size;       /* 0 and 0: it has no members, and cannot be joined, until goccl_group_become */
  int64_t timeout_ns;       /* of operations and of connecting; > 0 */
  const char* name;         /* for messages: "default_pg", "dp" */
  const char* options;      /* "NAME=value" lines: every GOCCL_* variable of the environment, then the caller's; see ccl.Options */
  const char* shim_version; /* of the caller; must be the same on all ranks */
} goccl_group_options;

/* The library's version, "0.1.0". */
int goccl_version(char* buf, size_t cap);

/* Makes a group of which this process is one rank, and writes what the other ranks must know to join it to buf (at most
 * GOCCL_MAX_ADDRESS bytes). Checks the options; starts the library when it is the first. */
#define GOCCL_MAX_ADDRESS 16384
int goccl_group_open(const goccl_group_options* options, goccl_group* group, void* buf, size_t cap, size_t* len, goccl_error* error);

/* Joins the group: addresses[r] (lengths[r] bytes) is what rank r's goccl_group_open wrote, for every rank, the own one too.
 * Waits until all have joined, at most the group's timeout; the error names the ranks that did not come. */
int goccl_group_join(goccl_group group, const void* const* addresses, const size_t* lengths, int n, goccl_error* error);

/* Runs one operation to its end on the calling thread. */
int goccl_run(goccl_group group, const goccl_call* call, goccl_error* error);

/* Starts one operation, and says its number among the collectives (or the messages) of the group. If it has ended well already
 * and is no receive from any source, *work is 0 and nothing is left to do; else the work must be given back by goccl_work_free. */
int goccl_start(goccl_group group, const goccl_call* call, goccl_work* work, uint64_t* seq, goccl_error* error);

/* A tensor in coordinate form. Indices are those of the first sparse dimension, count of them,
 * then those of the second one, and so on; each of the values is a dense block. Elements at the
 * same place are added up. The memory is not used any more when the call returns. */
typedef struct {
  int32_t dtype;
  int32_t redop; /* GOCCL_SUM or GOCCL_AVG */
  uint32_t dims, sparse_dims;
  const int64_t* sizes; /* dims of them */
  uint64_t count;       /* elements */
  const int64_t* indices;
  const void* values;
  int64_t timeout_ns; /* GOCCL_NO_TIMEOUT_GIVEN or > 0 */
} goccl_sparse;

/* Starts an all_reduce of sparse tensors, a collective whose number is *seq. Where type, sizes,
 * sparse dimensions or operator differ among the ranks it fails with GOCCL_MISMATCH, and the
 * group goes on. The work is like others, but has no source. */
int goccl_group_sparse_all_reduce(goccl_group group, const goccl_sparse* tensor, goccl_work* work, uint64_t* seq, goccl_error* error);

/* What such a work that has ended well has made: *count elements in the order of their places.
 * Their indices and values are put where the pointers say that are not NULL. */
int goccl_work_sparse(goccl_work work, uint64_t* count, int64_t* indices, void* values, goccl_error* error);

/* Waits until the work is done, at most timeout_ns (negative: as long as the operation's own timeout lets it). When that time ends
 * first, the operation fails with GOCCL_TIMEOUT, on this rank and soon on the others. Returns the operation's code. */
int goccl_work_wait(goccl_work work, int64_t timeout_ns, goccl_error* error);

/* Sets *done to 1 if the work is done. Then returns its code, else GOCCL_OK. Never waits. */
int goccl_work_test(goccl_work work, int* done, goccl_error* error);

/* goccl_work_test, after some work for the group on this thread unless another one is at it: for who asks again and again. */
int goccl_work_poll(goccl_work work, int* done, goccl_error* error);

/* Has the work done without delay although no thread waits for it. Most works are soon waited
 * for, so otherwise a thread of the library looks after it some milliseconds later at the most.
 * For who needs its end soon and learns of it in another way than by waiting. */
int goccl_work_urge(goccl_work work, goccl_error* error);

/* The rank that a finished receive came from, -1 for other works. */
int goccl_work_source(goccl_work work, int* source, goccl_error* error);

/* Gives the handle back. The operation goes on if it is not done. */
int goccl_work_free(goccl_work work);

/* Gives n handles back: less than n calls cost, for who has many. All are given back even if one is stale (GOCCL_INVALID). */
int goccl_work_free_all(const goccl_work* works, size_t n);

/* The queue of what the caller's helper threads have to do. An entry is a token, a number other
 * than 0 that means something to the caller, and the works that have to end before it is due;
 * they must not be given back before. Without works it is due at once. urgent: goccl_work_urge
 * for each of them. *watched is 0, and the entry is not in the queue, if there are works and all
 * have ended already. *thread is 1 if a thread has to be started that calls goccl_queue_next
 * again and again. */
int goccl_queue_watch(const goccl_work* works, size_t n, int urgent, uint64_t token, int* watched, int* thread, goccl_error* error);

/* Waits for the next entry that is due. *token is the one that this thread was given last, which
 * it has done by now, or 0; then the next one, or 0 if the thread is not needed any more. With
 * *thread another one has to be started first: what this one does may wait for other entries. */
int goccl_queue_next(uint64_t* token, int* thread);

/* Waits until no entry is due or being done, for timeout_ns at most. hooks: those without works
 * only. own is the token that the calling thread is at itself, or 0. *settled is 0 if the time
 * was over first. */
int goccl_queue_settle(uint64_t own, int hooks, int64_t timeout_ns, int* settled);

/* Ends the threads, and waits for them, for timeout_ns at most. What is due goes to who calls
 * goccl_queue_next afterwards, which does not wait any more; no other entry is ever given. */
int goccl_queue_stop(int64_t timeout_ns);

/* Registered memory: collectives of groups whose ranks are all on this host read it where it lies, instead of copying it first.
 * Each rank decides for itself which of its buffers are in it, call by call, at any offset. It may be used for anything else, too; it is
 * aligned to a page, and its content is not defined. options ("NAME=value" lines, as of a group) count where no group was
 * made yet. Give it back by goccl_free with the same pointer, at any time at which no operation uses it. */
int goccl_alloc(const char* options, size_t bytes, void** memory, goccl_error* error);
int goccl_free(void* memory, goccl_error* error);

/* How many bytes of it this process has in use, how many at the most it had, and in how many
 * blocks. */
int goccl_memory_stats(uint64_t* bytes, uint64_t* peak, uint64_t* blocks);

/* What a group has come to. */
typedef struct {
  uint64_t seq;        /* of the last collective that was posted, also after goccl_group_close */
  uint64_t generation; /* how often goccl_group_become was called */
  int32_t joined;      /* 1 from goccl_group_join to goccl_group_close */
  int32_t closed;
} goccl_group_state;
int goccl_group_state_of(goccl_group group, goccl_group_state* state, goccl_error* error);

/* The group gets the members of another one, which has joined and is gone afterwards, whatever
 * comes of it. Operations that are not done fail with GOCCL_CLOSED. */
int goccl_group_become(goccl_group group, goccl_group next, goccl_error* error);

/* Changes the timeout of later operations. */
int goccl_group_set_timeout(goccl_group group, int64_t timeout_ns, goccl_error* error);

/* What goccl_trace shall say of the group: a description, and its members' ranks in the whole job, by rank of the group (n 0: the same numbers). */
int goccl_group_describe(goccl_group group, const char* description, const uint64_t* global_ranks, size_t n, goccl_error* error);

/* The operations with this number in goccl_call.batch were issued as one, and there will be no more. */
int goccl_group_batch(goccl_group group, uint32_t batch, goccl_error* error);

/* What the groups of this process remember of their last operations (GOCCL_RECORDER), in the form of torch's flight recorder: a pickle that
 * `python -m torch.distributed.flight_recorder.fr_trace` reads. With a path it is written there; else it is put into buf if cap bytes hold
 * it. *len says how many there are. */
int goccl_trace(const char* path, void* buf, size_t cap, size_t* len, goccl_error* error);

/* Returns when all ranks have called it, GOCCL_TIMEOUT if some have not: the error names the
 * first one that is missing, with all_ranks all of them. timeout_ns: GOCCL_NO_TIMEOUT_GIVEN is
 * the group's, 0 none at all. The group goes on after a failure. */
int goccl_group_monitored_barrier(goccl_group group, int64_t timeout_ns, int all_ranks, goccl_error* error);

/* Ends all operations of the group with GOCCL_ABORTED, also those that another thread waits for; later ones fail alike. */
int goccl_group_abort(goccl_group group, const char* reason, goccl_error* error);

/* For who is about to leave the group: works until what was started has ended, and has left this process. It waits for at_most_ns, then it is to be
 * called again; *done is 1 when there is nothing more to wait for: all has ended, the group has failed, or since the first call the
 * group's timeout is over. Receives are waited for one second only, since nobody may ever send to them. */
int goccl_group_drain(goccl_group group, int64_t at_most_ns, int* done, goccl_error* error);

/* Leaves the group in order. Operations that are not done fail with GOCCL_CLOSED, and so do
 * later calls, which say how far it had come. To close it again changes nothing. */
int goccl_group_close(goccl_group group, goccl_error* error);

/* Gives the handle back, of a group that is closed or not. */
int goccl_group_free(goccl_group group);

#ifdef __cplusplus
}
#endif

#endif
