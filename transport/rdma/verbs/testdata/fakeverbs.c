// A libibverbs with one adapter that does nothing: it counts objects, refuses what a test names, and lays out wrongly
// what a test names. Structures are as in infiniband/verbs.h, up to what callers look at.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char refused[64], broken[64];
static int refused_code, live, acked, posted, lists, refused_at = -1;
static int notices[2], events[2], event_kind;

void fake_refuse(const char* call, int code) { strcpy(refused, call), refused_code = code; }
void fake_refuse_at(int write) { refused_at = write; }
void fake_break(const char* field) { strcpy(broken, field); }
int fake_live(void) { return live; }
int fake_acked(void) { return acked; }
int fake_posted(void) { return posted; }
int fake_lists(void) { return lists; }
void fake_notice(void) { if (write(notices[1], "", 1) != 1) abort(); }
void fake_event(int kind) { event_kind = kind; if (write(events[1], "", 1) != 1) abort(); }

static int is(const char* name, const char* field) { return !strcmp(name, field); }

// refuses sets errno, and reports whether a call is to be refused.
static int refuses(const char* call) {
  if (!refused[0] || !is(refused, call)) return 0;
  errno = refused_code;
  return 1;
}

// made returns memory of an object, and counts it.
static void* made(size_t bytes) { live++; return calloc(1, bytes); }
static int ended(void* object, const char* call) {
  if (refuses(call)) return refused_code;
  live--;
  free(object);
  return 0;
}

struct device { int unused; };
struct context {
  struct device* device;
  void* ops[32];
  int cmd_fd, async_fd, num_comp_vectors;
  pthread_mutex_t mutex;
  void* abi_compat;
};
struct extended { uint64_t before[39]; size_t sz; struct context context; };
struct pd { struct context* context; uint32_t handle; };
struct mr { struct context* context; struct pd* pd; void* addr; size_t length; uint32_t handle, lkey, rkey; };
struct channel { struct context* context; int fd, refcnt; };
struct cq { struct context* context; struct channel* channel; void* cookie; uint32_t handle; int cqe; };
struct srq { struct context* context; void* cookie; struct pd* pd; uint32_t handle; };
struct qp {
  struct context* context; void* cookie; struct pd* pd; struct cq *send_cq, *recv_cq; struct srq* srq;
  uint32_t handle, num, state, type;
};
struct cap { uint32_t send_wr, recv_wr, send_sge, recv_sge, inlined; };
struct qp_init { void* cookie; struct cq *send_cq, *recv_cq; struct srq* srq; struct cap cap; uint32_t type; int all; };
struct srq_init { void* cookie; uint32_t max_wr, max_sge, limit; };
struct wr { uint64_t id; struct wr* next; };
struct event { void* element; int kind; };

static struct device the_device;
static struct device* list[2] = {&the_device, 0};
static struct qp* last_qp;

static int poll_cq(struct cq* cq, int n, void* wc) { return refuses("poll_cq") ? -1 : 0; }
static int req_notify_cq(struct cq* cq, int solicited) { return refuses("req_notify_cq") ? refused_code : 0; }
static int post(struct wr* wr, struct wr** bad, const char* call) {
  lists++;
  for (; wr; wr = wr->next) {
    if (posted == refused_at || refuses(call)) {
      *bad = wr;
      return refused_at >= 0 ? ENOMEM : refused_code;
    }
    posted++;
  }
  return 0;
}
static int post_send(struct qp* qp, struct wr* wr, struct wr** bad) { return post(wr, bad, "post_send"); }
static int post_srq_recv(struct srq* srq, struct wr* wr, struct wr** bad) { return post(wr, bad, "post_srq_recv"); }

int ibv_fork_init(void) { return refuses("ibv_fork_init") ? refused_code : 0; }
struct device** ibv_get_device_list(int* n) {
  if (refuses("ibv_get_device_list")) return 0;
  live++;
  *n = 1;
  return list;
}
void ibv_free_device_list(struct device** l) { live--; }
const char* ibv_get_device_name(struct device* d) { return "fake0"; }
struct context* ibv_open_device(struct device* d) {
  if (refuses("ibv_open_device")) return 0;
  struct extended* e = made(sizeof *e);
  struct context* c = &e->context;
  e->sz = is(broken, "verbs_context.sz") ? 7 : sizeof *e;
  c->device = is(broken, "ibv_context.device") ? 0 : d;
  c->ops[11] = is(broken, "ibv_context.ops.poll_cq") ? (void*)list : (void*)poll_cq;
  c->ops[12] = is(broken, "ibv_context.ops.req_notify_cq") ? 0 : req_notify_cq;
  c->ops[20] = is(broken, "ibv_context.ops.post_srq_recv") ? 0 : post_srq_recv;
  c->ops[25] = is(broken, "ibv_context.ops.post_send") ? (void*)e : (void*)post_send;
  if (pipe2(events, O_CLOEXEC) || (c->cmd_fd = open("/dev/null", O_RDONLY | O_CLOEXEC)) < 0) abort();
  c->async_fd = is(broken, "ibv_context.async_fd") ? 1 << 20 : events[0];
  c->num_comp_vectors = is(broken, "ibv_context.num_comp_vectors") ? -1 : 1;
  c->abi_compat = is(broken, "ibv_context.abi_compat") ? 0 : (void*)UINTPTR_MAX;
  return c;
}
int ibv_close_device(struct context* c) {
  if (refuses("ibv_close_device")) return refused_code;
  close(c->cmd_fd), close(events[0]), close(events[1]);
  return ended((char*)c - offsetof(struct extended, context), "");
}
int ibv_query_device(struct context* c, char* attr) {
  memset(attr, 0, 232);
  attr[227] = 1; // ports
  return refuses("ibv_query_device") ? refused_code : 0;
}
int ibv_query_port(struct context* c, uint8_t port, char* attr) {
  if (refuses("ibv_query_port")) return refused_code;
  memset(attr, 0, 48);
  attr[0] = is(broken, "ibv_port_attr.state") ? 9 : 4;
  attr[8] = is(broken, "ibv_port_attr.active_mtu") ? 6 : 5;
  attr[12] = 3; // GIDs
  if (is(broken, "ibv_port_attr.gid_tbl_len")) attr[15] = -1;
  attr[46] = 2; // Ethernet
  return 0;
}
int ibv_query_gid(struct context* c, uint8_t port, int index, char* gid) {
  if (refuses("ibv_query_gid")) return -1;
  memset(gid, 0, 16);
  gid[15] = index; // that of 0 is empty
  return 0;
}
int ibv_get_async_event(struct context* c, struct event* e) {
  char byte;
  if (refuses("ibv_get_async_event") || read(events[0], &byte, 1) != 1) return -1;
  e->kind = event_kind;
  e->element = last_qp;
  return 0;
}
void ibv_ack_async_event(struct event* e) { acked++; }
struct pd* ibv_alloc_pd(struct context* c) {
  if (refuses("ibv_alloc_pd")) return 0;
  struct pd* p = made(sizeof *p);
  p->context = is(broken, "ibv_pd.context") ? 0 : c;
  return p;
}
int ibv_dealloc_pd(struct pd* p) { return ended(p, "ibv_dealloc_pd"); }
struct mr* ibv_reg_mr(struct pd* pd, char* addr, size_t length, int access) {
  if (refuses("ibv_reg_mr")) return 0;
  struct mr* m = made(sizeof *m);
  m->context = is(broken, "ibv_mr.context") ? 0 : pd->context;
  m->pd = is(broken, "ibv_mr.pd") ? 0 : pd;
  m->addr = is(broken, "ibv_mr.addr") ? addr + 1 : addr;
  m->length = is(broken, "ibv_mr.length") ? length + 1 : length;
  m->lkey = 1, m->rkey = access;
  return m;
}
#ifndef OLDER
struct mr* ibv_reg_dmabuf_mr(struct pd* pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access) {
  if (refuses("ibv_reg_dmabuf_mr")) return 0;
  if (fcntl(fd, F_GETFD) < 0 || access || iova % 4096 != offset % 4096) abort();
  struct mr* m = made(sizeof *m);
  m->context = pd->context;
  m->pd = is(broken, "ibv_mr.pd") ? 0 : pd;
  m->addr = (void*)(uintptr_t)offset;
  m->length = length;
  m->lkey = iova >> 12;
  return m;
}
#endif
int ibv_dereg_mr(struct mr* m) { return ended(m, "ibv_dereg_mr"); }
struct channel* ibv_create_comp_channel(struct context* c) {
  if (refuses("ibv_create_comp_channel")) return 0;
  struct channel* ch = made(sizeof *ch);
  ch->context = is(broken, "ibv_comp_channel.context") ? 0 : c;
  if (pipe2(notices, O_CLOEXEC)) abort();
  ch->fd = is(broken, "ibv_comp_channel.fd") ? 1 << 20 : notices[0];
  return ch;
}
int ibv_destroy_comp_channel(struct channel* ch) {
  if (refuses("ibv_destroy_comp_channel")) return refused_code;
  close(notices[0]), close(notices[1]);
  return ended(ch, "");
}
struct cq* ibv_create_cq(struct context* c, int cqe, void* cookie, struct channel* channel, int vector) {
  if (refuses("ibv_create_cq")) return 0;
  struct cq* q = made(sizeof *q);
  q->context = is(broken, "ibv_cq.context") ? 0 : c;
  q->channel = is(broken, "ibv_cq.channel") ? 0 : channel;
  q->cookie = is(broken, "ibv_cq.cq_context") ? 0 : cookie;
  q->cqe = is(broken, "ibv_cq.cqe") ? cqe - 1 : cqe;
  return q;
}
int ibv_destroy_cq(struct cq* q) { return ended(q, "ibv_destroy_cq"); }
int ibv_get_cq_event(struct channel* ch, struct cq** q, void** cookie) {
  char byte;
  return refuses("ibv_get_cq_event") || read(ch->fd, &byte, 1) != 1 ? -1 : 0;
}
void ibv_ack_cq_events(struct cq* q, unsigned n) { acked += n; }
struct srq* ibv_create_srq(struct pd* pd, struct srq_init* init) {
  if (refuses("ibv_create_srq")) return 0;
  struct srq* s = made(sizeof *s);
  s->context = is(broken, "ibv_srq.context") ? 0 : pd->context;
  s->cookie = is(broken, "ibv_srq.srq_context") ? 0 : init->cookie;
  s->pd = is(broken, "ibv_srq.pd") ? 0 : pd;
  return s;
}
int ibv_destroy_srq(struct srq* s) { return ended(s, "ibv_destroy_srq"); }
struct qp* ibv_create_qp(struct pd* pd, struct qp_init* init) {
  if (refuses("ibv_create_qp")) return 0;
  struct qp* q = last_qp = made(sizeof *q);
  q->context = is(broken, "ibv_qp.context") ? 0 : pd->context;
  q->cookie = is(broken, "ibv_qp.qp_context") ? 0 : init->cookie;
  q->pd = is(broken, "ibv_qp.pd") ? 0 : pd;
  q->send_cq = is(broken, "ibv_qp.send_cq") ? 0 : init->send_cq;
  q->recv_cq = is(broken, "ibv_qp.recv_cq") ? 0 : init->recv_cq;
  q->srq = is(broken, "ibv_qp.srq") ? 0 : init->srq;
  q->type = is(broken, "ibv_qp.qp_type") ? 4 : init->type;
  q->num = is(broken, "ibv_qp.qp_num") ? 1 << 24 : 0x1234;
  if (is(broken, "ibv_qp_cap.max_inline_data")) init->cap.inlined = 0;
  return q;
}
int ibv_modify_qp(struct qp* q, void* attr, int mask) { return refuses("ibv_modify_qp") ? refused_code : 0; }
int ibv_destroy_qp(struct qp* q) { return ended(q, "ibv_destroy_qp"); }
