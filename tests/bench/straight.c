/* The measuring stick between hosts: what straight C reaches over one socket, for 2 ranks. It also stands for iperf3:
 * where a wire is the limit, its ping-pong shows what the wire carries.
 *
 * Arguments: RANK 2 ADDRESS. Rank 0 listens on the IPv4 address.
 */
#include "library.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PIECE = 256 << 10 /* of one send or recv */, HOT = 64 << 10 /* received before it is added */, TRIES = 2000 };

static int listener = -1, fd = -1, rank;
static struct work work;

static void must(int code, const char* what) {
  if (code < 0)
    fail("%s: %m", what);
}

void library_open(int argc, char** argv, struct place* place) {
  if (argc != 3 || atoi(argv[1]) != 2)
    fail("wanted: RANK 2 ADDRESS");
  place->rank = rank = atoi(argv[0]);
  place->size = 2;
  if (rank != 0)
    return;
  struct sockaddr_in at = {.sin_family = AF_INET};
  socklen_t length = sizeof at;
  if (inet_pton(AF_INET, argv[2], &at.sin_addr) != 1)
    fail("not an IPv4 address: %s", argv[2]);
  must(listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket");
  must(bind(listener, (struct sockaddr*)&at, sizeof at), "bind");
  must(listen(listener, 1), "listen");
  must(getsockname(listener, (struct sockaddr*)&at, &length), "getsockname");
  sprintf(place->address, "%s:%d", argv[2], ntohs(at.sin_port));
}

void library_join(int size, char** addresses) {
  (void)size;
  if (rank == 0) {
    must(fd = accept(listener, NULL, NULL), "accept");
  } else {
    struct sockaddr_in to = {.sin_family = AF_INET};
    char* port = strchr(addresses[0], ':');
    if (!port)
      fail("no port in the address of rank 0: %s", addresses[0]);
    *port++ = 0;
    to.sin_port = htons((unsigned short)atoi(port));
    inet_pton(AF_INET, addresses[0], &to.sin_addr);
    must(fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket");
    must(connect(fd, (struct sockaddr*)&to, sizeof to), "connect");
  }
  int yes = 1;
  must(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes), "TCP_NODELAY");
}

static size_t give(const char* from, size_t bytes) {
  ssize_t n = bytes ? send(fd, from, bytes < PIECE ? bytes : PIECE, MSG_DONTWAIT | MSG_NOSIGNAL) : 0;
  if (n < 0 && errno != EAGAIN && errno != EINTR)
    fail("send: %m");
  return n < 0 ? 0 : (size_t)n;
}

static size_t take(char* to, size_t bytes) {
  if (!bytes)
    return 0;
  ssize_t n = recv(fd, to, bytes < PIECE ? bytes : PIECE, MSG_DONTWAIT);
  if (n == 0)
    fail("the other rank has gone");
  if (n < 0 && errno != EAGAIN && errno != EINTR)
    fail("recv: %m");
  return n < 0 ? 0 : (size_t)n;
}

/* Spins for a while, then sleeps until the socket is ready. */
static void rest(size_t moved, int sends, int receives) {
  static int tries;
  tries = moved ? 0 : tries + 1;
  if (tries < TRIES)
    return;
  struct pollfd p = {.fd = fd, .events = (short)((sends ? POLLOUT : 0) | (receives ? POLLIN : 0))};
  poll(&p, 1, 1000);
  tries = 0;
}

/* Sends and receives at the same time. */
static void exchange(const char* from, size_t sends, char* to, size_t receives) {
  for (size_t sent = 0, received = 0; sent < sends || received < receives;) {
    size_t g = give(from + sent, sends - sent), t = take(to + received, receives - received);
    sent += g;
    received += t;
    rest(g + t, sent < sends, received < receives);
  }
}

/* Both ranks send their vector and add what comes, while it is in the cache. What has not been sent is not changed. */
static void all_reduce(float* data, size_t count) {
  static float hot[HOT / sizeof(float)];
  size_t bytes = count * sizeof(float), sent = 0, added = 0, held = 0; /* held: bytes in hot */
  while (sent < bytes || added < bytes) {
    size_t g = give((char*)data + sent, bytes - sent), room = sent + g - added;
    size_t t = take((char*)hot + held, room < HOT ? room - held : HOT - held);
    sent += g;
    held += t;
    size_t whole = held / sizeof(float), first = added / sizeof(float);
    for (size_t i = 0; i < whole; i++)
      data[first + i] += hot[i];
    added += whole * sizeof(float);
    held -= whole * sizeof(float);
    memmove(hot, hot + whole, held);
    rest(g + t, sent < bytes, added < sent);
  }
}

int library_prepare(const struct work* wanted) {
  work = *wanted;
  return work.op == PING_PONG || (work.op == ALL_REDUCE && work.element == F32);
}

void library_run(void) {
  size_t bytes = work.count * (work.element == F32 ? 4 : 2);
  if (work.op == ALL_REDUCE) {
    all_reduce(work.in, work.count);
  } else {
    exchange(work.in, rank == 0 ? bytes : 0, work.out, rank == 0 ? 0 : bytes);
    exchange(work.in, rank == 0 ? 0 : bytes, work.out, rank == 0 ? bytes : 0);
  }
}

void library_barrier(void) {
  char byte = 0, other;
  exchange(&byte, 1, &other, 1);
}

void library_close(void) { close(fd); }
