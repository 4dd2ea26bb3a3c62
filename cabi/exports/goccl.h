/* goccl.h: the C ABI of libgoccl. Written by hand; the C compiler checks the exports against it.
 *
 * Every function returns a goccl_code and takes an optional goccl_error* last, which is filled on
 * failure and left unchanged on success. Handles are opaque numbers and never 0; a stale work is
 * refused with GOCCL_INVALID, a stale group with GOCCL_CLOSED (with GOCCL_INVALID by the functions
 * that end a group). All functions may be called from any thread. In a forked child every function
 * returns GOCCL_FORKED at once; fork has closed the child's copies of the library's sockets. Memory
 * behind a goccl_call must stay valid until the call (or its work) is done; the goccl_call itself, and
 * the arrays it points to, only until goccl_run, goccl_start or goccl_enqueue returns.
 *
 * Functions that may wait long take a slice, for callers that have something else to look at now and
 * then: signals, for example. The library calls nobody back; it returns after slice_ns, and the
 * operation goes on. *work then stands for it: wait for it with goccl_work_wait, and give it back with
 * goccl_work_free. If the operation has ended, *work is 0. With slice_ns 0 the function returns at the
 * end only, and work may be NULL.
 *
 * A group has its tensors in the memory of the host, or on a CUDA device (goccl_group_options.device).
 * On a device its only operations are those of goccl_enqueue, which refuses other groups; goccl_run,
 * goccl_start, goccl_group_sparse_all_reduce and goccl_group_monitored_barrier refuse groups on a
 * device. All these refuse with GOCCL_NOT_SUPPORTED. The other functions serve both.
 */
#ifndef GOCCL_H
#define GOCCL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GOCCL_ABI 5

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

/* One operation. in and out hold the collective's blocks on this rank: one, one per rank (in rank
 * order), or none (see the table below). Blocks may be anywhere, and of unequal lengths where noted;
 * in and out may be the same memory.
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
  uint32_t batch; /* operations issued as one share a number, see goccl_group_batch; 0 for none */
  const goccl_block* in;
  const goccl_block* out;
  double factor;      /* GOCCL_PREMUL_SUM */
  int64_t timeout_ns; /* GOCCL_NO_TIMEOUT_GIVEN or > 0 */
  uint64_t key;    /* of a keyed collective, else 0: see below */
  uint64_t within; /* number of the operation in whose callback a keyed collective is called, for messages */
} goccl_call;

/* The ranks of a group match their collectives by the order in which they call them, except for those
 * with a key: these are matched by it, whatever each rank calls before and meanwhile, so they need no
 * order, and none waits for any other operation. A key is the same on all ranks, no other keyed
 * collective of the group that has not ended has it, and its bits are those of a hash. goccl_run and
 * goccl_start take keyed collectives; their *seq is goccl_call.within. */

/* Options of a group. Strings are NUL-terminated; NULL is the empty string. */
typedef struct {
  uint32_t abi; /* GOCCL_ABI */
  int32_t rank, size;       /* 0 and 0: no members; it cannot be joined until goccl_group_become */
  int64_t timeout_ns;       /* of operations and of connecting; > 0 */
  const char* name;         /* for messages: "default_pg", "dp" */
  const char* options;      /* "NAME=value" lines: GOCCL_* environment variables, then the caller's; see ccl.Options */
  const char* shim_version; /* of the caller; must be the same on all ranks */
  const char* device;       /* of the tensors, such as "cuda:0"; "" is the host. All ranks have one, or none has */
} goccl_group_options;

/* Writes the library's version, such as "0.1.0". */
int goccl_version(char* buf, size_t cap);

/* Creates a group of which this process is one rank, and writes to buf the address that the other
 * ranks need to join it (at most GOCCL_MAX_ADDRESS bytes). Checks the options. The first call starts
 * the library. With a device it opens the CUDA driver of the process and retains the device's primary
 * context until the group is closed. It returns GOCCL_NOT_SUPPORTED, and says what is missing, where
 * there is no driver (libcuda.so.1) or no such device, or the device lacks something. */
#define GOCCL_MAX_ADDRESS 16384
int goccl_group_open(const goccl_group_options* options, goccl_group* group, void* buf, size_t cap, size_t* len,
                     goccl_error* error);

/* Joins the group: addresses[r] (lengths[r] bytes) is the address that rank r's goccl_group_open
 * wrote, for every rank including this one. Waits until all ranks have joined, at most until the
 * group's timeout after goccl_group_open; the error names the ranks that did not join. With a device it
 * also allocates and registers memory, which may wait until all streams of the process have ended; if
 * that fails, the group has failed with this error for the other ranks, too. */
int goccl_group_join(goccl_group group, const void* const* addresses, const size_t* lengths, int n, int64_t slice_ns,
                     goccl_work* work, goccl_error* error);

/* A meeting is an attempt of a rank to get the addresses of all ranks, over records that all can read
 * and write: values under keys, as torch's stores have them. The library says what is to be done with
 * the records, and the caller does it: it calls goccl_meeting_step, does the request, and calls it again
 * with what came of that, until the request is GOCCL_MEETING_OVER. All ranks come to the same verdict: they have
 * met, or the code and the error of goccl_meeting_step are the reason why there is no group. */
typedef uint64_t goccl_meeting;

typedef enum {
  GOCCL_MEETING_ADD = 1, /* add number to the counter of a key, which begins at 0; the answer's number is the sum */
  GOCCL_MEETING_SET,     /* write the value */
  GOCCL_MEETING_CHECK,   /* the answer's number is 1 if there are values under all keys, else 0 */
  GOCCL_MEETING_READ,    /* the answer has the values of all keys: they are there; of a counter, its digits */
  GOCCL_MEETING_SWAP,    /* write the value unless the key has one; the answer is the value that the key then has */
  GOCCL_MEETING_PAUSE,   /* wait number ns */
  GOCCL_MEETING_LOOK,    /* the answer has a text for each rank known to have died: its number, a space, and how */
  GOCCL_MEETING_OVER     /* nothing: the ranks have met */
} goccl_meeting_op;

typedef struct {
  int32_t rank, size;
  int32_t keeps_store; /* 1 if the records end with this process: it waits until others have read the verdict */
  int64_t timeout_ns;
  const char* name;             /* of the group, for messages */
  const uint64_t* global_ranks; /* the ranks' numbers in the whole job, for messages */
  size_t n_global_ranks;        /* 0 if they are the same */
  const void* address;          /* as goccl_group_open wrote it */
  size_t address_len;
  const char* failed; /* why this rank cannot join; NULL if it can */
} goccl_meeting_options;

/* What is to be done next. The buffer has the keys, each with a line feed behind it, and then the value. */
typedef struct {
  int32_t op; /* goccl_meeting_op */
  int64_t number;
  size_t keys_len, value_len;
} goccl_meeting_request;

/* The size of a buffer that holds all requests of a group of that size. */
#define GOCCL_MEETING_BUFFER(ranks) (65536 + 192 * (size_t)(ranks))

int goccl_meeting_open(const goccl_meeting_options* options, goccl_meeting* meeting, goccl_error* error);

/* Takes what came of the last request, of which the first call has none, and writes the next one. */
int goccl_meeting_step(goccl_meeting meeting, int64_t number, const void* const* values, const size_t* lengths,
                       size_t n, goccl_meeting_request* request, void* buf, size_t cap, goccl_error* error);

/* Gives the attempt up, in place of the next goccl_meeting_step: the others are told why. */
int goccl_meeting_interrupt(goccl_meeting meeting, const char* why, goccl_meeting_request* request, void* buf,
                            size_t cap, goccl_error* error);

/* goccl_group_join with the addresses of the ranks that have met. */
int goccl_meeting_join(goccl_meeting meeting, goccl_group group, int64_t slice_ns, goccl_work* work,
                       goccl_error* error);

/* Gives the handle back. */
int goccl_meeting_free(goccl_meeting meeting);

/* Runs one operation on the calling thread, to its end or for a slice. */
int goccl_run(goccl_group group, const goccl_call* call, int64_t slice_ns, goccl_work* work, goccl_error* error);

/* Starts one operation and sets *seq to its number among the collectives (or the messages) of the
 * group. If it has already ended successfully and is not a receive from any source, *work is 0 and
 * nothing is left to do; otherwise the work must be given back with goccl_work_free. */
int goccl_start(goccl_group group, const goccl_call* call, goccl_work* work, uint64_t* seq, goccl_error* error);

/* Puts one operation behind what is in a stream of the group's device, and returns at once: nothing of
 * it has been done then. stream is a CUstream, 0 the default stream; the blocks are in the device's
 * memory, and nothing but the device uses them. Sets *seq as goccl_start does. On success *work is
 * always set and must be given back with goccl_work_free; the memory of the call must stay valid until
 * the work is done, or until a stream that has joined it (goccl_work_join) has come that far; if the
 * operation has failed, only such a stream, or the end of goccl_group_close, tells. All ranks enqueue
 * their operations in the same order, in whatever streams. A stream in capture is refused with
 * GOCCL_NOT_SUPPORTED: operations cannot be part of a CUDA graph. Once the group has failed, or is
 * closed, streams wait for no other rank any more, and outputs are undefined. */
int goccl_enqueue(goccl_group group, const goccl_call* call, void* stream, goccl_work* work, uint64_t* seq,
                  goccl_error* error);

/* Makes a stream wait for a work of goccl_enqueue: what is put into the stream afterwards sees what the
 * operation has done. Never waits itself. If the operation is known to have failed it returns its code;
 * the stream waits all the same. Refuses other works with GOCCL_NOT_SUPPORTED. */
int goccl_work_join(goccl_work work, void* stream, goccl_error* error);

/* A tensor in coordinate form. indices holds the count indices in the first sparse dimension, then
 * those in the second one, and so on; values holds a dense block for each element. Elements at the
 * same place are added up. The memory is not used after the call returns. */
typedef struct {
  int32_t dtype;
  int32_t redop; /* GOCCL_SUM or GOCCL_AVG */
  uint32_t dims, sparse_dims;
  const int64_t* sizes; /* dims of them, the sparse dimensions first */
  uint64_t count;       /* elements */
  const int64_t* indices;
  const void* values;
  int64_t timeout_ns; /* GOCCL_NO_TIMEOUT_GIVEN or > 0 */
} goccl_sparse;

/* Starts an all_reduce of sparse tensors, a collective whose number is *seq. If type, sizes, sparse
 * dimensions or operator differ between the ranks, it fails with GOCCL_MISMATCH and the group goes
 * on. The work is like other works, but goccl_work_source and goccl_work_expedite refuse it. */
int goccl_group_sparse_all_reduce(goccl_group group, const goccl_sparse* tensor, goccl_work* work, uint64_t* seq,
                                  goccl_error* error);

/* Returns the result of such a work that has ended successfully: *count elements sorted by place.
 * Copies their indices and values to the pointers that are not NULL. */
int goccl_work_sparse(goccl_work work, uint64_t* count, int64_t* indices, void* values, goccl_error* error);

/* Waits until the work is done, sets *done to 1, and returns the operation's code. If timeout_ns from
 * now (negative: never) ends first, it returns GOCCL_TIMEOUT with *done 0; after slice_ns (0: never)
 * GOCCL_OK with *done 0. These end the wait and nothing else: the operation goes on and needs its
 * memory, the other ranks learn nothing of it, and the work can be waited for again; only the
 * timeout of its call, or of its group, ends it. done may be NULL. A work of goccl_enqueue is done when
 * the device has finished with it. Its own timeout ends it when the host has: the device may then still
 * wait for what the caller has enqueued. */
int goccl_work_wait(goccl_work work, int64_t timeout_ns, int64_t slice_ns, int* done, goccl_error* error);

/* Sets *done to 1 if the work is done, and then returns its code; otherwise returns GOCCL_OK. Never
 * waits. */
int goccl_work_test(goccl_work work, int* done, goccl_error* error);

/* goccl_work_test for callers that poll: it first advances the group on this thread, unless another
 * thread is doing so. Works of goccl_enqueue are advanced by a thread of the library only. */
int goccl_work_poll(goccl_work work, int* done, goccl_error* error);

/* Makes the work progress without delay although no thread waits for it. Most works are soon waited
 * for, so otherwise a thread of the library advances it only some milliseconds later. For callers
 * that need the end soon and learn of it in another way than by waiting. For works of
 * goccl_enqueue it does nothing. */
int goccl_work_expedite(goccl_work work, goccl_error* error);

/* Returns the source rank of a finished receive, -1 for other works. */
int goccl_work_source(goccl_work work, int* source, goccl_error* error);

/* Gives the handle back. An operation that is not done goes on. */
int goccl_work_free(goccl_work work);

/* Gives n handles back, at a lower cost than n calls. If a handle is stale, the others are still
 * given back (GOCCL_INVALID). */
int goccl_work_free_all(const goccl_work* works, size_t n);

/* The queue of jobs for the caller's helper threads. An entry is a token, a number other than 0
 * chosen by the caller, and the works that have to end before the entry is due; they must not be
 * given back before. Without works it is due at once. urgent: goccl_work_expedite for each of the works.
 * *watched is 0, and the entry is not queued, if there are works and all have ended already. *thread
 * is 1 if the caller must start a thread that calls goccl_queue_next repeatedly. */
int goccl_queue_watch(const goccl_work* works, size_t n, int urgent, uint64_t token, int* watched, int* thread,
                      goccl_error* error);

/* Waits for the next entry that is due. On entry, *token is the token that this thread received
 * last, whose job it has finished, or 0. On return it is the next token, or 0 if the thread is no
 * longer needed. If *thread is 1, another thread must be started before this one does its job,
 * because that job may wait for other entries. */
int goccl_queue_next(uint64_t* token, int* thread);

/* Waits until no entry is due or running, for at most timeout_ns. hooks: only entries without works
 * count. own is the token of the job that the calling thread itself is running, or 0. *settled is 0
 * if the time ended first. */
int goccl_queue_settle(uint64_t own, int hooks, int64_t timeout_ns, int* settled);

/* Ends the threads and waits for them, for at most timeout_ns. Entries that are due are returned to
 * threads that call goccl_queue_next afterwards, which no longer waits; no other entry is ever
 * returned. */
int goccl_queue_stop(int64_t timeout_ns);

/* Registered memory: collectives of groups whose ranks are all on this host read it in place instead
 * of copying it first. Each rank decides for itself, call by call, which of its buffers are in it, at
 * any offset. It may also be used for anything else; it is aligned to a page, and its initial content
 * is undefined. options ("NAME=value" lines, as for a group) count only if no group was made yet.
 * Give it back with goccl_free and the same pointer, at any time at which no operation uses it. */
int goccl_alloc(const char* options, size_t bytes, void** memory, goccl_error* error);
int goccl_free(void* memory, goccl_error* error);

/* Registered memory of a device ("cuda:0"): as that of goccl_alloc, for collectives over windows in the
 * memory of devices. The process has GOCCL_CUDA_REGISTERED bytes of it on each device, which are
 * allocated when the first group on the device is opened, or by this call; that may wait until all
 * streams of the process have ended. *bytes is how many there are. */
int goccl_device_arena(const char* options, const char* device, uint64_t* bytes, goccl_error* error);

/* Allocates and frees registered memory of the device with a number, as an allocator that can be
 * plugged into torch does it. The result is NULL if there is none, or none is left; the reason is
 * printed. Memory is aligned to 512 bytes. goccl_device_free waits for the stream (a CUstream), as its
 * work may still use the memory. */
void* goccl_device_alloc(intptr_t bytes, int device, void* stream);
void goccl_device_free(void* memory, intptr_t bytes, int device, void* stream);

/* How many bytes of registered memory this process has in use, the peak of these bytes, and the
 * number of blocks in use. */
int goccl_memory_stats(uint64_t* bytes, uint64_t* peak, uint64_t* blocks);

/* The current state of a group. */
typedef struct {
  uint64_t seq;        /* of the last collective that was posted, also after goccl_group_close */
  uint64_t generation; /* how many times goccl_group_become was called */
  int32_t joined;      /* 1 from goccl_group_join to goccl_group_close */
  int32_t closed;
  int32_t rank, size; /* 0 and 0 while it has no members */
} goccl_group_state;
int goccl_group_state_of(goccl_group group, goccl_group_state* state, goccl_error* error);

/* Gives the group the members of next, which has joined and is on the same device, if any. next is gone
 * afterwards, whether or not the call succeeds. Operations that are not done fail with GOCCL_CLOSED. */
int goccl_group_become(goccl_group group, goccl_group next, goccl_error* error);

/* Changes the timeout of later operations. */
int goccl_group_set_timeout(goccl_group group, int64_t timeout_ns, goccl_error* error);

/* Sets what goccl_trace records about the group: a description, and its members' ranks in the whole
 * job, by rank of the group (n 0: the same numbers). */
int goccl_group_describe(goccl_group group, const char* description, const uint64_t* global_ranks, size_t n,
                         goccl_error* error);

/* Says that the operations with this number in goccl_call.batch were issued as one and that no more
 * will follow. Messages of a device go into their streams then, if they have not before. */
int goccl_group_batch(goccl_group group, uint32_t batch, goccl_error* error);

/* Writes the recorded last operations of this process's groups (GOCCL_RECORDER) in the form of
 * torch's flight recorder: a pickle that `python -m torch.distributed.flight_recorder.fr_trace`
 * reads. With a path it is written to that file; otherwise to buf, if cap bytes hold it. *len is its
 * number of bytes. */
int goccl_trace(const char* path, void* buf, size_t cap, size_t* len, goccl_error* error);

/* Names the file to which the record of this process's groups is written, as by goccl_trace, whenever the
 * process gets the signal of GOCCL_RECORD_SIGNAL; a line on standard error then says so. The handler is
 * installed here, once in a process, and only where the signal would end the process: a handler of the
 * program stays, also one that it installs later. path is at most 4,095 bytes long. Without
 * GOCCL_RECORDER the call does nothing. */
int goccl_group_record_to(goccl_group group, const char* path, goccl_error* error);

/* Returns when all ranks have called it, or GOCCL_TIMEOUT if some have not: the error names the first
 * missing rank, with all_ranks every missing rank. timeout_ns: GOCCL_NO_TIMEOUT_GIVEN means the
 * group's timeout, 0 no waiting at all. The group goes on after a failure. */
int goccl_group_monitored_barrier(goccl_group group, int64_t timeout_ns, int all_ranks, int64_t slice_ns,
                                  goccl_work* work, goccl_error* error);

/* Ends all operations of the group with GOCCL_ABORTED, including those that another thread waits
 * for, and goccl_group_join, _shrink, _grow or _come of it; later operations fail in the same way. The
 * other ranks fail, too, with the reason and the number of this rank. */
int goccl_group_abort(goccl_group group, const char* reason, goccl_error* error);

/* For callers about to leave the group: works until all started operations have ended and their data
 * has left this process. It waits for at most at_most_ns; then call it again. *done is 1 when there
 * is nothing more to wait for: all operations have ended, the group has failed, or the group's timeout
 * has passed since the first call. Receives are waited for only one second, since their senders may
 * never send, and ranks whose processes are stopped or whose hosts are silent for 0.9 s. With a device
 * these are waited for like others, and what the device still has to do is not waited for. */
int goccl_group_drain(goccl_group group, int64_t at_most_ns, int* done, goccl_error* error);

/* Tells which ranks of the group are known to have died, or cannot be reached any more: for each of them
 * a line, its number in the group, a space, and what happened. The lines, without a NUL, are written to
 * buf if cap bytes hold them; *len is their number of bytes, 0 as a rule. It never waits, and is cheap.
 * A group that has failed learns of no further deaths. */
int goccl_group_lost(goccl_group group, char* buf, size_t cap, size_t* len, goccl_error* error);

/* Makes a group of the ranks that are left of this one, in their order: without the n ranks listed, and
 * without those that have died, which the ranks settle among themselves. All that are left call it,
 * whether or not the group has failed; nothing but the addresses that they have joined with is needed.
 * Ranks that are lost, or listed, and not known to be dead may live, and may do the same. With quorum 0
 * only a majority of the ranks that may live goes on: more than half of them, or half with the lowest;
 * with a larger number at least that many ranks, whatever others do. All give the same quorum. The others
 * get GOCCL_PEER_LOST with the ranks that may have gone on, and GOCCL_PEER_LEFT with those that have, once
 * that is known.
 * *next is set at once: a group without members, which gets them when the call ends, and which
 * goccl_group_abort ends the call with; after a failure, too, it must be given back with
 * goccl_group_free. timeout_ns is that of the call, whose error then names the ranks that have not
 * called it, and of the new group's operations. This group stays as it is; the new one is on the same
 * device, if any. */
int goccl_group_shrink(goccl_group group, const int32_t* without, size_t n, int32_t quorum, int64_t timeout_ns,
                       goccl_group* next, int64_t slice_ns, goccl_work* work, goccl_error* error);

/* Returns the ranks that the members of a group made by goccl_group_shrink had in the former group: *n of
 * them, written to ranks if cap are enough. *n is 0 for other groups. */
int goccl_group_members(goccl_group group, int32_t* ranks, size_t cap, size_t* n, goccl_error* error);

/* Writes the text that a new process gives to goccl_group_come, as printable characters without a NUL, if
 * cap bytes hold them; *len is their number. It leads to some ranks of the group, and of groups that are
 * made of it by goccl_group_shrink and goccl_group_grow. Whoever has it can join, as far as GOCCL_TLS and
 * GOCCL_SECRET_FILE allow: it is a secret. GOCCL_NOT_SUPPORTED without TCP, by which new processes come. */
int goccl_group_address(goccl_group group, char* buf, size_t cap, size_t* len, goccl_error* error);

/* Makes a group of this one and of new processes, which call goccl_group_come. All ranks call it, with the
 * same newcomers, the most that are taken. Once all have, at most timeout_ns later, it waits for newcomers
 * for wait_ns, or until that number has come to any rank. *next is set as by goccl_group_shrink; if nobody has
 * come, it still has no members then (goccl_group_state). Otherwise the ranks keep their numbers, and
 * newcomers have the next ones. A newcomer that dies meanwhile is left out; if a rank of this group is
 * lost, all get GOCCL_PEER_LOST, which names it. This group stays as it is. */
int goccl_group_grow(goccl_group group, int32_t newcomers, int64_t wait_ns, int64_t timeout_ns, goccl_group* next,
                     int64_t slice_ns, goccl_work* work, goccl_error* error);

/* Makes this process a rank of a running group, whose ranks call goccl_group_grow: of that to which the
 * address leads. Of the options, rank, size and name are not looked at, and the rest is as on the other
 * ranks. *group is set at once, and gets its members when the call ends, as *next of goccl_group_grow.
 * The timeout is that of the call, too: GOCCL_TIMEOUT says what was in the way. */
int goccl_group_come(const goccl_group_options* options, const char* address, goccl_group* group, int64_t slice_ns,
                     goccl_work* work, goccl_error* error);

/* Returns the IP addresses at which this process may reach that of a rank, nearest first, each on a line.
 * They are written to buf, without a NUL, if cap bytes hold them; *len is their number of bytes. */
int goccl_group_locate(goccl_group group, int rank, char* buf, size_t cap, size_t* len, goccl_error* error);

/* Leaves the group in order. Operations that are not done fail with GOCCL_CLOSED, and so do later
 * calls; their errors name the last seq. Closing it again has no effect. With a device it waits until
 * the group's streams have ended, so until what was in the callers' streams before the group's
 * operations has: after five seconds it returns GOCCL_TIMEOUT, and their memory stays allocated. */
int goccl_group_close(goccl_group group, goccl_error* error);

/* Gives the handle back and closes the group if it is not closed. */
int goccl_group_free(goccl_group group);

#ifdef __cplusplus
}
#endif

#endif
