// A libcuda on memory of the host, for the tests of package driver. It has the entry points that
// the driver uses, in the form of version VERSION, and their older forms, which fail. It checks
// arguments, keeps those of the last call, and can be told to fail. Streams are queues: every call
// executes what is not waiting for anything, and between calls a thread does.
//
// Handles and device pointers are no host pointers and no small numbers, so that confusing them
// fails. gcc -fsyntax-only -DCUDA_H='"cuda.h"' compares all functions with NVIDIA's header.
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef VERSION
#define VERSION 12040
#endif

typedef unsigned long long u64;

#ifdef CUDA_H
#include CUDA_H
#undef cuGetProcAddress
#undef cuStreamBatchMemOp
#undef cuStreamGetCaptureInfo
#else
typedef int CUresult, CUdevice, CUdevice_attribute, CUstreamCaptureMode, CUstreamCaptureStatus;
typedef int CUpointer_attribute, CUmemRangeHandleType;
typedef int CUmemAllocationHandleType, CUmemAllocationGranularity_flags, CUdriverProcAddressQueryResult;
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef int CUfunction_attribute;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphNode_st *CUgraphNode;
typedef struct CUuserObject_st *CUuserObject;
typedef void (*CUhostFn)(void *);
typedef u64 CUdeviceptr, CUmemGenericAllocationHandle;
typedef uint64_t cuuint64_t;
typedef struct { char bytes[16]; } CUuuid;
typedef struct { int type, id; } CUmemLocation;
typedef struct {
	int type, requestedHandleTypes;
	CUmemLocation location;
	void *win32HandleMetaData;
	struct { unsigned char compressionType, gpuDirectRDMACapable; unsigned short usage; unsigned char reserved[4]; } allocFlags;
} CUmemAllocationProp;
typedef struct { CUmemLocation location; int flags; } CUmemAccessDesc;
typedef union {
	int operation;
	struct { int operation; CUdeviceptr address; union { uint32_t value; uint64_t value64; }; unsigned flags; CUdeviceptr alias; } waitValue;
	uint64_t pad[6];
} CUstreamBatchMemOpParams;
typedef struct { unsigned gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes; CUstream hStream; void *attrs; unsigned numAttrs; } CUlaunchConfig;
#endif

enum { INVALID_VALUE = 1, NOT_INITIALIZED = 3, INVALID_DEVICE = 101, INVALID_IMAGE = 200, INVALID_CONTEXT = 201,
	INVALID_HANDLE = 400, NOT_FOUND = 500, NOT_READY = 600, ILLEGAL_ADDRESS = 700, ALREADY_REGISTERED = 712, NOT_REGISTERED = 713, NOT_SUPPORTED = 801,
	CAPTURE_UNSUPPORTED = 900 };

// ---- what tests set and ask

typedef struct { const char *name; long calls; u64 args[7]; long fail_at; int code; int hidden; } record;
static record records[128];
static struct { const char *name; long value; } knobs[] = {
	{"init", 0},         // result of cuInit
	{"devices", 2},
	{"capture", 0},      // a thread captures: what is unsafe fails, where threads have not relaxed
	{"status", 0},       // of cuStreamGetCaptureInfo
	{"without", 0},      // this attribute is 0
};
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int initialized, sticky;
static long live; // objects that have to be given back

static long *knob(const char *name) {
	for (size_t i = 0; i < sizeof knobs / sizeof *knobs; i++)
		if (!strcmp(knobs[i].name, name)) return &knobs[i].value;
	abort();
}

static record *of(const char *name) {
	for (int i = 0; i < 128; i++) {
		if (!records[i].name) records[i].name = strdup(name);
		if (!strcmp(records[i].name, name)) return &records[i];
	}
	abort();
}

static int lock(void) { return pthread_mutex_lock(&mutex); }
static void unlock(int *unused) { (void)unused; pthread_mutex_unlock(&mutex); }
#define LOCKED __attribute__((cleanup(unlock), unused)) int locked_ = lock()

void fake_set(const char *name, long value) { LOCKED; *knob(name) = value; }
void fake_fail(const char *name, long nth, int code) { LOCKED; record *r = of(name); r->fail_at = r->calls + nth; r->code = code; }
void fake_hide(const char *name) { LOCKED; of(name)->hidden = 1; }
long fake_calls(const char *name) { LOCKED; return of(name)->calls; }
u64 fake_argument(const char *name, int i) { LOCKED; return of(name)->args[i]; }
long fake_live(void) { LOCKED; return live; }

// ---- contexts, per thread

struct CUctx_st { int device, retained; };
static struct CUctx_st primary[8];
static _Thread_local CUcontext stack[32];
static _Thread_local int depth, mode;

long fake_depth(void) { return depth; } // of the calling thread
int fake_mode(int set) { int was = mode; if (set >= 0) mode = set; return was; }

enum { PLAIN = 0, CONTEXT = 1, UNSAFE = 2, ALWAYS = 4 };

static int begin(const char *name, int kind, int n, const u64 *args) {
	record *r = of(name);
	r->calls++;
	memcpy(r->args, args, n * sizeof *args);
	if (r->calls == r->fail_at) {
		if (r->code == ILLEGAL_ADDRESS) sticky = r->code;
		return r->code;
	}
	if (kind & ALWAYS) return 0;
	if (!initialized) return NOT_INITIALIZED;
	if (sticky && kind & CONTEXT) return sticky;
	if (kind & CONTEXT && !depth) return INVALID_CONTEXT;
	if (kind & UNSAFE && *knob("capture") && mode != 2) return CAPTURE_UNSUPPORTED;
	return 0;
}

#define A(x) ((u64)(uintptr_t)(x))
#define CALL(kind, ...) LOCKED; { u64 args_[] = {__VA_ARGS__}; \
	int code_ = begin(__func__, kind, sizeof args_ / sizeof *args_, args_); if (code_) return code_; }
#define CHECK(condition) do { if (!(condition)) return INVALID_VALUE; } while (0)

// ---- driver and devices

static void start(void);
CUresult cuInit(unsigned flags) {
	CALL(ALWAYS, flags);
	CHECK(!flags);
	if (*knob("init")) return *knob("init");
	if (!initialized) start();
	initialized = 1;
	return 0;
}
CUresult cuDriverGetVersion(int *version) { CALL(ALWAYS, A(version)); *version = VERSION; return 0; }
CUresult cuGetErrorName(CUresult code, const char **name) {
	CALL(ALWAYS, A(code), A(name));
	*name = code == 1 ? "CUDA_ERROR_INVALID_VALUE" : code == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : code == 100 ? "CUDA_ERROR_NO_DEVICE" :
		code == 101 ? "CUDA_ERROR_INVALID_DEVICE" : code == 200 ? "CUDA_ERROR_INVALID_IMAGE" :
		code == 201 ? "CUDA_ERROR_INVALID_CONTEXT" : code == 500 ? "CUDA_ERROR_NOT_FOUND" :
		code == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS" : code == 801 ? "CUDA_ERROR_NOT_SUPPORTED" :
		code == 900 ? "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED" : NULL;
	return *name ? 0 : INVALID_VALUE;
}

enum { FIRST = 7 }; // handle of device 0
static int valid(CUdevice d) { return d >= FIRST && d < FIRST + *knob("devices"); }
#define DEVICE(d) do { if (!valid(d)) return INVALID_DEVICE; } while (0)

CUresult cuDeviceGetCount(int *count) { CALL(PLAIN, A(count)); *count = *knob("devices"); return 0; }
CUresult cuDeviceGet(CUdevice *d, int index) { CALL(PLAIN, A(d), A(index)); DEVICE(FIRST + index); *d = FIRST + index; return 0; }
CUresult cuDeviceGetName(char *name, int bytes, CUdevice d) {
	CALL(PLAIN, A(name), A(bytes), A(d)); DEVICE(d);
	snprintf(name, bytes, "Fake %d", d - FIRST);
	return 0;
}
CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice d) {
	CALL(PLAIN, A(uuid), A(d)); DEVICE(d);
	for (int i = 0; i < 16; i++) uuid->bytes[i] = 16 * (d - FIRST) + i;
	return 0;
}
CUresult cuDeviceGetPCIBusId(char *bus, int bytes, CUdevice d) {
	CALL(PLAIN, A(bus), A(bytes), A(d)); DEVICE(d); CHECK(bytes >= 13);
	snprintf(bus, bytes, "0000:B%d:00.0", d - FIRST);
	return 0;
}
CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice d) { CALL(PLAIN, A(bytes), A(d)); DEVICE(d); *bytes = 80ull << 30; return 0; }
CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute a, CUdevice d) {
	CALL(PLAIN, A(value), A(a), A(d)); DEVICE(d);
	CHECK(a < 120 || VERSION >= 11070);
	*value = a == 16 ? 132 : a == 75 ? 9 : a == 76 ? 1 : a == 99 || a == 103 || a == 110 || a == 122 || a == 124; // not 93, the first form of 122
	if (a == *knob("without")) *value = 0;
	return 0;
}
static int reaches(CUdevice d, CUdevice peer) { return d <= peer; } // so the order matters
CUresult cuDeviceCanAccessPeer(int *can, CUdevice d, CUdevice peer) {
	CALL(PLAIN, A(can), A(d), A(peer)); DEVICE(d); DEVICE(peer);
	*can = d != peer && reaches(d, peer); // no device is its own peer
	return 0;
}
CUresult cuDevicePrimaryCtxRetain(CUcontext *c, CUdevice d) {
	CALL(PLAIN, A(c), A(d)); DEVICE(d);
	*c = &primary[d - FIRST];
	(*c)->device = d, (*c)->retained++, live++;
	return 0;
}
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice d) {
	CALL(PLAIN, A(d)); DEVICE(d);
	if (!primary[d - FIRST].retained) return INVALID_CONTEXT;
	primary[d - FIRST].retained--, live--;
	return 0;
}
CUresult cuCtxPushCurrent_v2(CUcontext c) {
	CALL(PLAIN, A(c));
	if (c < primary || c >= primary + 8 || !c->retained || depth == 32) return INVALID_CONTEXT;
	stack[depth++] = c;
	return 0;
}
CUresult cuCtxPopCurrent_v2(CUcontext *c) {
	CALL(PLAIN, A(c));
	if (!depth) return INVALID_CONTEXT;
	*c = stack[--depth];
	return 0;
}
CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest) {
	CALL(CONTEXT, A(least), A(greatest));
	*least = 0, *greatest = -5;
	return 0;
}
CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *m) {
	CALL(PLAIN, A(m)); CHECK((int)*m >= 0 && *m <= 2);
	int was = mode;
	mode = *m, *m = was;
	return 0;
}

// ---- memory

enum { UNIT = 2 << 20, FIRST_ALLOCATION = 0x5000 };
static const u64 ALIAS = 1ull << 60; // device pointers are host pointers with this bit
static struct { int fd, exportable, device; size_t bytes; } allocations[64];
typedef struct { char *host; size_t bytes; int reserved, mapped, accessible, registered, owner; u64 id; } range;
static range ranges[64];
static u64 last_id;

static range *range_at(CUdeviceptr p, size_t bytes) {
	for (range *r = ranges; r < ranges + 64; r++)
		if (r->bytes && (A(r->host) | ALIAS) <= p && p + bytes <= (A(r->host) | ALIAS) + r->bytes) return r;
	return NULL;
}
static range *new_range(void *host, size_t bytes) {
	for (range *r = ranges; r < ranges + 64; r++)
		if (!r->bytes) { *r = (range){.host = host, .bytes = bytes}; live++; return r; }
	abort();
}
static void end_range(range *r) { r->bytes = 0, live--; }
// host returns where a device finds an address, or NULL.
static char *host(CUdevice device, CUdeviceptr p, size_t bytes) {
	range *r = range_at(p, bytes);
	return r && (r->registered || r->accessible == device) ? (char *)(uintptr_t)(p & ~ALIAS) : NULL;
}

static int right(const CUmemAllocationProp *p) {
	char flags[8] = {0, p->allocFlags.gpuDirectRDMACapable && *knob("without") != 110};
	return p->type == 1 && (unsigned)p->requestedHandleTypes <= 1 && p->location.type == 1 && valid(p->location.id) &&
		!p->win32HandleMetaData && !memcmp(&p->allocFlags, flags, 8);
}
static CUmemGenericAllocationHandle new_allocation(int fd, size_t bytes, int exportable, int device) {
	for (int i = 0; i < 64; i++)
		if (!allocations[i].bytes) {
			allocations[i].fd = fd, allocations[i].bytes = bytes, allocations[i].exportable = exportable;
			allocations[i].device = device, live++;
			return FIRST_ALLOCATION + i;
		}
	abort();
}
#define ALLOCATION(h) CHECK((h) - FIRST_ALLOCATION < 64 && allocations[(h) - FIRST_ALLOCATION].bytes)

CUresult cuMemGetAllocationGranularity(size_t *unit, const CUmemAllocationProp *p, CUmemAllocationGranularity_flags option) {
	CALL(CONTEXT, A(unit), A(p), A(option)); CHECK(right(p) && option == 0);
	*unit = UNIT;
	return 0;
}
CUresult cuMemCreate(CUmemGenericAllocationHandle *h, size_t bytes, const CUmemAllocationProp *p, u64 flags) {
	CALL(CONTEXT | UNSAFE, A(h), bytes, A(p), flags, A(p->requestedHandleTypes), A(p->location.id),
		p->allocFlags.gpuDirectRDMACapable);
	CHECK(bytes && bytes % UNIT == 0 && right(p) && !flags);
	char name[32];
	snprintf(name, sizeof name, "fakecuda%d", p->location.id);
	int fd = memfd_create(name, MFD_CLOEXEC);
	if (fd < 0 || ftruncate(fd, bytes)) return 2;
	*h = new_allocation(fd, bytes, p->requestedHandleTypes, p->location.id);
	return 0;
}
CUresult cuMemRelease(CUmemGenericAllocationHandle h) {
	CALL(CONTEXT, h); ALLOCATION(h);
	close(allocations[h - FIRST_ALLOCATION].fd);
	allocations[h - FIRST_ALLOCATION].bytes = 0, live--;
	return 0;
}
CUresult cuMemAddressReserve(CUdeviceptr *p, size_t bytes, size_t alignment, CUdeviceptr wish, u64 flags) {
	CALL(CONTEXT, A(p), bytes, alignment, wish, flags);
	CHECK(bytes && bytes % UNIT == 0 && !alignment && !wish && !flags);
	void *at = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (at == MAP_FAILED) return 2;
	new_range(at, bytes)->reserved = 1;
	*p = A(at) | ALIAS;
	return 0;
}
// The calls for a whole reserved range.
static range *reserved(CUdeviceptr p, size_t bytes) {
	range *r = range_at(p, bytes);
	return r && r->reserved && bytes == r->bytes ? r : NULL;
}
CUresult cuMemAddressFree(CUdeviceptr p, size_t bytes) {
	CALL(CONTEXT, p, bytes);
	range *r = reserved(p, bytes);
	CHECK(r && !r->mapped);
	munmap(r->host, bytes);
	end_range(r);
	return 0;
}
CUresult cuMemMap(CUdeviceptr p, size_t bytes, size_t offset, CUmemGenericAllocationHandle h, u64 flags) {
	CALL(CONTEXT, p, bytes, offset, h, flags); ALLOCATION(h);
	range *r = reserved(p, bytes);
	CHECK(r && !r->mapped && !offset && !flags && bytes <= allocations[h - FIRST_ALLOCATION].bytes);
	if (mmap(r->host, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, allocations[h - FIRST_ALLOCATION].fd, 0) == MAP_FAILED)
		return 2;
	r->mapped = 1, r->id = ++last_id, r->owner = allocations[h - FIRST_ALLOCATION].device;
	return 0;
}
CUresult cuMemUnmap(CUdeviceptr p, size_t bytes) {
	CALL(CONTEXT, p, bytes);
	range *r = reserved(p, bytes);
	CHECK(r && r->mapped);
	mmap(r->host, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	r->mapped = r->accessible = 0;
	return 0;
}
CUresult cuMemSetAccess(CUdeviceptr p, size_t bytes, const CUmemAccessDesc *a, size_t count) {
	CALL(CONTEXT, p, bytes, A(a), count, A(a->location.id));
	range *r = reserved(p, bytes);
	CHECK(r && r->mapped && count == 1 && a->location.type == 1 && valid(a->location.id) && a->flags == 3);
	if (!reaches(a->location.id, r->owner)) return INVALID_DEVICE;
	r->accessible = a->location.id;
	return 0;
}
CUresult cuMemExportToShareableHandle(void *to, CUmemGenericAllocationHandle h, CUmemAllocationHandleType kind, u64 flags) {
	CALL(CONTEXT, A(to), h, A(kind), flags); ALLOCATION(h);
	CHECK(kind == 1 && !flags && allocations[h - FIRST_ALLOCATION].exportable);
	*(int *)to = dup(allocations[h - FIRST_ALLOCATION].fd);
	return 0;
}
CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *h, void *from, CUmemAllocationHandleType kind) {
	CALL(CONTEXT, A(h), A(from), A(kind)); CHECK(kind == 1);
	struct stat s;
	CHECK(!fstat((int)(intptr_t)from, &s) && S_ISREG(s.st_mode) && s.st_size);
	// The name of the memory has its device, also for another process.
	char path[64], name[64] = "";
	int device = 0;
	snprintf(path, sizeof path, "/proc/self/fd/%d", (int)(intptr_t)from);
	CHECK(readlink(path, name, sizeof name - 1) > 0 && sscanf(name, "/memfd:fakecuda%d", &device) == 1);
	*h = new_allocation(dup((int)(intptr_t)from), s.st_size, 1, device);
	return 0;
}
CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *p, CUmemGenericAllocationHandle h) {
	CALL(CONTEXT, A(p), h); ALLOCATION(h);
	memset(p, 0, sizeof *p);
	p->type = 1, p->requestedHandleTypes = 1, p->location.type = 1, p->location.id = allocations[h - FIRST_ALLOCATION].device;
	return 0;
}
CUresult cuPointerGetAttribute(void *value, CUpointer_attribute a, CUdeviceptr p) {
	CALL(CONTEXT, A(value), A(a), p);
	range *r = range_at(p, 1);
	CHECK(r && (r->registered || r->mapped) && (a == 2 || a == 7));
	if (a == 2) *(unsigned *)value = r->registered ? 1 : 2;
	if (a == 7) *(u64 *)value = r->id;
	return 0;
}
CUresult cuMemGetAddressRange_v2(CUdeviceptr *start, size_t *bytes, CUdeviceptr p) {
	CALL(CONTEXT, A(start), A(bytes), p);
	range *r = range_at(p, 1);
	if (!r || !r->mapped) return NOT_FOUND;
	*start = A(r->host) | ALIAS, *bytes = r->bytes;
	return 0;
}
CUresult cuMemGetHandleForAddressRange(void *descriptor, CUdeviceptr p, size_t bytes, CUmemRangeHandleType kind, u64 flags) {
	CALL(CONTEXT, A(descriptor), p, bytes, A(kind), flags);
	range *r = range_at(p, bytes);
	CHECK(r && r->mapped && bytes && p % 4096 == 0 && bytes % 4096 == 0 && kind == 1 && !flags);
	int fd = memfd_create("fakecuda dma-buf", 0);
	if (fd < 0) return 2;
	*(int *)descriptor = fd;
	return 0;
}
CUresult cuMemHostRegister_v2(void *p, size_t bytes, unsigned flags) {
	CALL(CONTEXT | UNSAFE, A(p), bytes, flags);
	CHECK(bytes && bytes % 4096 == 0 && A(p) % 4096 == 0 && flags == 3);
	if (range_at(A(p) | ALIAS, 1)) return ALREADY_REGISTERED;
	new_range(p, bytes)->registered = 1;
	return 0;
}
CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *to, void *p, unsigned flags) {
	CALL(CONTEXT, A(to), A(p), flags);
	range *r = range_at(A(p) | ALIAS, 1);
	CHECK(r && r->registered && !flags);
	*to = A(p) | ALIAS;
	return 0;
}
CUresult cuMemHostUnregister(void *p) {
	CALL(CONTEXT, A(p));
	range *r = range_at(A(p) | ALIAS, 1);
	if (!r || !r->registered || r->host != p) return NOT_REGISTERED;
	end_range(r);
	return 0;
}

// ---- streams and events

// place is what one record has marked. An event and the operations that use it hold it.
typedef struct { int done, holders; } place;
// PARAMETER is the number of bytes of every kernel's parameter. Those of the last kernel that was executed are kept.
enum { PARAMETER = 288 };
static struct { long count; unsigned char bytes[PARAMETER]; } executed;
long fake_executed(void) { LOCKED; return executed.count; }
u64 fake_parameter(int at) { LOCKED; u64 word; memcpy(&word, executed.bytes + at, 8); return word; }

typedef struct op {
	enum { COPY, WRITE, WAIT, RECORD, AWAIT, LAUNCH } kind; u64 to, from, bytes; int device; place *place; unsigned char *parameter; struct op *next;
} op;
struct CUstream_st { op *first, *last; int destroyed; struct CUstream_st *next; };
struct CUevent_st { u64 magic; place *last; };
enum { EVENT = 0xe7e7 };
static struct CUstream_st standard, *streams = &standard;
static long queued; // operations
static pthread_cond_t more = PTHREAD_COND_INITIALIZER;

static place *hold(place *p) { p->holders++; return p; }
static void drop(place *p) { if (p && !--p->holders) free(p); }

static CUstream stream_of(CUstream s) {
	if (!s) return &standard;
	for (CUstream each = streams; each; each = each->next)
		if (each == s && !s->destroyed) return s;
	return NULL;
}
#define STREAM_OF(s) do { if (!((s) = stream_of(s))) return INVALID_HANDLE; } while (0)
#define EVENT_OF(e) do { if (!(e) || (e)->magic != EVENT) return INVALID_HANDLE; } while (0)

// execute does one operation, unless it has to wait.
static int execute(op *o) {
	char *to = NULL, *from = NULL;
	if (o->kind == COPY) from = host(o->device, o->from, o->bytes);
	if (o->kind == COPY) to = host(o->device, o->to, o->bytes);
	if (o->kind == LAUNCH) {
		memcpy(executed.bytes, o->parameter, PARAMETER), executed.count++;
		if (!o->bytes) return 1;
		from = host(o->device, o->from, o->bytes), to = host(o->device, o->to, o->bytes);
	}
	if (o->kind == WRITE || o->kind == WAIT) to = from = host(o->device, o->to, 8);
	switch (o->kind) {
	case RECORD: o->place->done = 1; return 1;
	case AWAIT: return o->place->done;
	default: if (!to || !from) { sticky = ILLEGAL_ADDRESS; return 0; }
	}
	if (o->kind == COPY || o->kind == LAUNCH) memcpy(to, from, o->bytes);
	if (o->kind == WRITE) __atomic_store_n((u64 *)to, o->from, __ATOMIC_SEQ_CST);
	return o->kind != WAIT || (int64_t)(__atomic_load_n((u64 *)to, __ATOMIC_SEQ_CST) - o->from) >= 0;
}
// pump executes what can be executed, in all streams.
static void pump(void) {
	for (int again = 1; again && !sticky;) {
		again = 0;
		for (CUstream s = streams; s; s = s->next)
			while (s->first && !sticky && execute(s->first)) {
				op *o = s->first;
				if (!(s->first = o->next)) s->last = NULL;
				drop(o->place), free(o->parameter), free(o), queued--;
				again = 1;
			}
	}
	for (CUstream *at = &streams, s; (s = *at);) // what was destroyed before it had ended
		if (s->destroyed && !s->first) *at = s->next, free(s);
		else at = &s->next;
}
static void enqueue(CUstream s, op o) {
	op *each = malloc(sizeof o);
	*each = o;
	each->device = stack[depth - 1]->device;
	if (s->last) s->last->next = each; else s->first = each;
	s->last = each;
	queued++;
	pump();
	pthread_cond_signal(&more);
}
// work executes what waits for the host or for another process.
static void *work(void *unused) {
	for (pthread_mutex_lock(&mutex);;) {
		while (!queued || sticky) pthread_cond_wait(&more, &mutex);
		pump();
		pthread_mutex_unlock(&mutex);
		usleep(50);
		pthread_mutex_lock(&mutex);
	}
	return unused;
}
static void start(void) {
	sigset_t all, before;
	pthread_t thread;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before); // signals are for threads that Go knows
	if (pthread_create(&thread, NULL, work, NULL)) abort();
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream s) {
	CALL(CONTEXT, to, from, bytes, A(s)); STREAM_OF(s);
	enqueue(s, (op){COPY, to, from, bytes});
	return 0;
}
CUresult cuStreamCreateWithPriority(CUstream *s, unsigned flags, int priority) {
	CALL(CONTEXT, A(s), flags, A(priority)); CHECK(flags == 1 && priority <= 0 && priority >= -5);
	*s = calloc(1, sizeof **s);
	(*s)->next = streams, streams = *s, live++;
	return 0;
}
CUresult cuStreamDestroy_v2(CUstream s) {
	CALL(CONTEXT, A(s));
	if (!s || !stream_of(s)) return INVALID_HANDLE;
	s->destroyed = 1, live--;
	pump();
	return 0;
}
CUresult cuStreamQuery(CUstream s) {
	CALL(CONTEXT | UNSAFE, A(s)); STREAM_OF(s);
	pump();
	return sticky ? sticky : s->first ? NOT_READY : 0;
}
CUresult cuStreamSynchronize(CUstream s) {
	CALL(CONTEXT | UNSAFE, A(s)); STREAM_OF(s);
	for (pump(); s->first && !sticky; pump()) {
		pthread_mutex_unlock(&mutex);
		usleep(100);
		pthread_mutex_lock(&mutex);
	}
	return sticky;
}
// ---- captures. A test sets the status of all streams. There is one graph, which fake_drop destroys.

struct CUgraph_st { int number; };
static struct CUgraph_st captured;
struct CUuserObject_st { void *what; CUhostFn destroy; unsigned count; int of_graph; CUuserObject next; };
static CUuserObject objects;
enum { CAPTURE = 0x1234 }; // its number

CUresult cuStreamGetCaptureInfo_v2(CUstream s, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph, const CUgraphNode **nodes,
	size_t *count) {
	CALL(CONTEXT, A(s), A(status), A(id), A(graph), A(nodes), A(count)); STREAM_OF(s); CHECK(!nodes && !count);
	*status = *knob("status");
	if (*status == 1) *id = CAPTURE, *graph = &captured;
	return 0;
}
static CUuserObject *object_at(CUuserObject o) {
	CUuserObject *at = &objects;
	while (*at && *at != o) at = &(*at)->next;
	return at;
}
CUresult cuUserObjectCreate(CUuserObject *o, void *what, CUhostFn destroy, unsigned count, unsigned flags) {
	CALL(CONTEXT, A(o), A(what), A(destroy), count, flags); CHECK(destroy && count == 1 && flags == 1);
	*o = calloc(1, sizeof **o);
	**o = (struct CUuserObject_st){what, destroy, count, 0, objects};
	objects = *o, live++;
	return 0;
}
static void *end_object(void *o) {
	((CUuserObject)o)->destroy(((CUuserObject)o)->what);
	free(o);
	return NULL;
}
// release ends an object, whose function is called by a thread of the driver.
static void release(CUuserObject o) {
	*object_at(o) = o->next, live--;
	pthread_t thread;
	pthread_mutex_unlock(&mutex);
	if (pthread_create(&thread, NULL, end_object, o)) abort();
	pthread_join(thread, NULL);
	pthread_mutex_lock(&mutex);
}
CUresult cuUserObjectRelease(CUuserObject o, unsigned count) {
	CALL(CONTEXT, A(o), count); CHECK(*object_at(o) && count == 1 && o->count == 1);
	release(o);
	return 0;
}
CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject o, unsigned count, unsigned flags) {
	CALL(CONTEXT, A(graph), A(o), count, flags); CHECK(graph == &captured && *object_at(o) && !o->of_graph && count == 1 && flags == 1);
	o->of_graph = 1;
	return 0;
}
void fake_drop(void) {
	LOCKED;
	for (CUuserObject o = objects, next; o; o = next) {
		next = o->next;
		if (o->of_graph) release(o);
	}
}
// ---- waits
CUresult cuStreamWaitEvent(CUstream s, CUevent e, unsigned flags) {
	CALL(CONTEXT, A(s), A(e), flags); STREAM_OF(s); EVENT_OF(e); CHECK(!flags);
	if (e->last) enqueue(s, (op){AWAIT, .place = hold(e->last)});
	return 0;
}
CUresult cuStreamBatchMemOp_v2(CUstream s, unsigned count, CUstreamBatchMemOpParams *ops, unsigned flags) {
	CALL(CONTEXT, A(s), count, A(ops), flags); STREAM_OF(s); CHECK(count && count < 256 && !flags);
	for (unsigned i = 0; i < count; i++)
		CHECK((ops[i].operation == 4 || ops[i].operation == 5) && ops[i].waitValue.address % 8 == 0 &&
			ops[i].waitValue.flags <= (ops[i].operation == 5)); // a write may do without a fence
	for (unsigned i = 0; i < count; i++)
		enqueue(s, (op){ops[i].operation == 4 ? WAIT : WRITE, ops[i].waitValue.address, ops[i].waitValue.value64});
	return 0;
}
// ---- what others in the process call. A free waits until all streams have ended, and with FAKECUDA_FREE_BLOCKS in the
// environment every other call waits for it.

CUresult cuMemAlloc_v2(CUdeviceptr *p, size_t bytes) {
	CALL(CONTEXT | UNSAFE, A(p), bytes); CHECK(bytes);
	*p = A(malloc(bytes));
	return 0;
}
CUresult cuMemFree_v2(CUdeviceptr p) {
	CALL(CONTEXT | UNSAFE, p);
	for (pump(); queued && !sticky; pump()) {
		int blocks = getenv("FAKECUDA_FREE_BLOCKS") != NULL;
		if (!blocks) pthread_mutex_unlock(&mutex);
		usleep(100);
		if (!blocks) pthread_mutex_lock(&mutex);
	}
	free((void *)(uintptr_t)p);
	return 0;
}
// ---- modules. Machine code is what begins as such, or PTX, a text. Every module has the kernels whose names begin with
// goccl_, each with one parameter of PARAMETER bytes. A launch does nothing, but that of goccl_copy: it copies.

struct CUmod_st { u64 magic; };
struct CUfunc_st { struct CUmod_st *of; int copies; };
enum { MODULE = 0xc0de, MOST_THREADS = 512 };
#define MODULE_OF(m) do { if (!(m) || (m)->magic != MODULE) return INVALID_HANDLE; } while (0)

CUresult cuModuleLoadData(CUmodule *m, const void *code) {
	int machine = !memcmp(code, "\x7f" "ELF", 4), text = !memcmp(code, "//", 2);
	CALL(CONTEXT | UNSAFE, A(m), A(code), machine ? 0 : strlen(code));
	if (!machine && !text) return INVALID_IMAGE;
	*m = calloc(1, sizeof **m);
	(*m)->magic = MODULE, live++;
	return 0;
}
CUresult cuModuleUnload(CUmodule m) {
	CALL(CONTEXT | UNSAFE, A(m)); MODULE_OF(m);
	m->magic = 0, live--; // and not freed, so that its use is found
	return 0;
}
CUresult cuModuleGetFunction(CUfunction *f, CUmodule m, const char *name) {
	CALL(CONTEXT, A(f), A(m), A(name), strlen(name)); MODULE_OF(m);
	if (strncmp(name, "goccl_", 6)) return NOT_FOUND;
	*f = calloc(1, sizeof **f);
	(*f)->of = m, (*f)->copies = !strcmp(name, "goccl_copy");
	return 0;
}
CUresult cuFuncGetAttribute(int *value, CUfunction_attribute a, CUfunction f) {
	CALL(CONTEXT, A(value), A(a), A(f)); MODULE_OF(f->of); CHECK(a == 0);
	*value = MOST_THREADS;
	return 0;
}
CUresult cuLaunchKernelEx(const CUlaunchConfig *c, CUfunction f, void **parameters, void **extra) {
	CALL(CONTEXT, A(f), c->gridDimX, c->blockDimX, A(c->hStream), A(parameters[0]), A(extra)); MODULE_OF(f->of);
	CUstream s = c->hStream;
	STREAM_OF(s);
	CHECK(c->gridDimX && c->gridDimY == 1 && c->gridDimZ == 1 && c->blockDimX && c->blockDimX <= MOST_THREADS &&
		c->blockDimY == 1 && c->blockDimZ == 1 && !c->sharedMemBytes && !c->attrs && !c->numAttrs && !extra);
	u64 words[PARAMETER / 8]; // destination, source, …; at 9 the number of bytes
	memcpy(words, parameters[0], PARAMETER);
	op o = {LAUNCH, .parameter = malloc(PARAMETER)};
	memcpy(o.parameter, words, PARAMETER);
	if (f->copies) o.to = words[0], o.from = words[1], o.bytes = words[9];
	enqueue(s, o);
	return 0;
}
CUresult cuEventCreate(CUevent *e, unsigned flags) {
	CALL(CONTEXT, A(e), flags); CHECK(flags == 2);
	*e = calloc(1, sizeof **e);
	(*e)->magic = EVENT, live++;
	return 0;
}
CUresult cuEventRecord(CUevent e, CUstream s) {
	CALL(CONTEXT, A(e), A(s)); STREAM_OF(s); EVENT_OF(e);
	drop(e->last);
	e->last = hold(calloc(1, sizeof *e->last));
	enqueue(s, (op){RECORD, .place = hold(e->last)});
	return 0;
}
CUresult cuEventQuery(CUevent e) {
	CALL(CONTEXT | UNSAFE, A(e)); EVENT_OF(e);
	pump();
	return sticky ? sticky : !e->last || e->last->done ? 0 : NOT_READY;
}
CUresult cuEventDestroy_v2(CUevent e) {
	CALL(CONTEXT, A(e)); EVENT_OF(e);
	drop(e->last);
	e->magic = 0, live--; // and not freed, so that its use is found
	return 0;
}

// ---- older forms, which must not be called, and the table that finds the right ones

#define OLD(name) CUresult old_##name(void) __asm__(#name); CUresult old_##name(void) { LOCKED; of(#name)->calls++; return NOT_SUPPORTED; }
OLD(cuDeviceGetUuid) OLD(cuDeviceTotalMem) OLD(cuDevicePrimaryCtxRelease) OLD(cuCtxPushCurrent) OLD(cuCtxPopCurrent)
OLD(cuStreamDestroy) OLD(cuEventDestroy) OLD(cuMemHostRegister) OLD(cuMemHostGetDevicePointer) OLD(cuStreamBatchMemOp)
OLD(cuStreamGetCaptureInfo) OLD(cuMemGetAddressRange)

#define ONE(name, version) {#name, version, name}
#define TWO(name, before, version) {#name, before, old_##name}, {#name, version, name##_v2}
static const struct { const char *name; int version; void *at; } points[] = {
	ONE(cuInit, 2000), ONE(cuDriverGetVersion, 2020), ONE(cuGetErrorName, 6000), ONE(cuDeviceGetCount, 2000), ONE(cuDeviceGet, 2000),
	ONE(cuDeviceGetName, 2000), TWO(cuDeviceGetUuid, 9020, 11040), ONE(cuDeviceGetPCIBusId, 4010), TWO(cuDeviceTotalMem, 2000, 3020),
	ONE(cuDeviceGetAttribute, 2000), ONE(cuDeviceCanAccessPeer, 4000), ONE(cuDevicePrimaryCtxRetain, 7000),
	TWO(cuDevicePrimaryCtxRelease, 7000, 11000), TWO(cuCtxPushCurrent, 2000, 4000), TWO(cuCtxPopCurrent, 2000, 4000),
	ONE(cuCtxGetStreamPriorityRange, 5050), ONE(cuThreadExchangeStreamCaptureMode, 10010), ONE(cuMemcpyAsync, 4000),
	ONE(cuStreamCreateWithPriority, 5050), TWO(cuStreamDestroy, 2000, 4000), ONE(cuStreamQuery, 2000), ONE(cuStreamSynchronize, 2000),
	TWO(cuStreamGetCaptureInfo, 10010, 11030), ONE(cuUserObjectCreate, 11030), ONE(cuUserObjectRelease, 11030), ONE(cuGraphRetainUserObject, 11030),
	ONE(cuStreamWaitEvent, 3020), TWO(cuStreamBatchMemOp, 8000, 11070), ONE(cuModuleLoadData, 2000),
	ONE(cuModuleUnload, 2000), ONE(cuModuleGetFunction, 2000), ONE(cuFuncGetAttribute, 2020), ONE(cuLaunchKernelEx, 11060), ONE(cuEventCreate, 2000),
	ONE(cuEventRecord, 2000), ONE(cuEventQuery, 2000), TWO(cuEventDestroy, 2000, 4000), TWO(cuMemHostRegister, 4000, 6050),
	TWO(cuMemHostGetDevicePointer, 2020, 3020), ONE(cuMemHostUnregister, 4000), ONE(cuPointerGetAttribute, 4000),
	TWO(cuMemGetAddressRange, 2000, 3020), ONE(cuMemGetHandleForAddressRange, 11070), ONE(cuMemGetAllocationGranularity, 10020),
	ONE(cuMemCreate, 10020), ONE(cuMemRelease, 10020), ONE(cuMemAddressReserve, 10020), ONE(cuMemAddressFree, 10020), ONE(cuMemMap, 10020),
	ONE(cuMemUnmap, 10020), ONE(cuMemSetAccess, 10020), ONE(cuMemExportToShareableHandle, 10020), ONE(cuMemImportFromShareableHandle, 10020),
	ONE(cuMemGetAllocationPropertiesFromHandle, 10020),
};
__attribute__((unused)) static void *search(const char *name, int version) {
	void *at = NULL;
	for (size_t i = 0; i < sizeof points / sizeof *points; i++) // in the order of versions
		if (!strcmp(points[i].name, name) && points[i].version <= version && points[i].version <= VERSION && !of(name)->hidden)
			at = points[i].at;
	return at;
}
#if VERSION >= 12000
CUresult cuGetProcAddress_v2(const char *name, void **at, int version, cuuint64_t flags, CUdriverProcAddressQueryResult *status) {
	CALL(ALWAYS, A(name), A(at), A(version), flags, A(status)); CHECK(flags == 1);
	*at = search(name, version);
	return 0;
}
#endif
#if VERSION >= 11030
CUresult cuGetProcAddress(const char *name, void **at, int version, cuuint64_t flags) {
	CALL(ALWAYS, A(name), A(at), A(version), flags); CHECK(flags == 1 && VERSION < 12000);
	*at = search(name, version);
	return *at ? 0 : NOT_FOUND;
}
#endif
