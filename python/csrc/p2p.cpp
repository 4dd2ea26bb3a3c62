// send, recv, and the monitored barrier.
#include "backend.h"

#include <algorithm>

namespace goccl {
namespace {

constexpr Kind kSend{c10d::OpType::SEND, GOCCL_SEND, "goccl:send"};
constexpr Kind kRecv{c10d::OpType::RECV, GOCCL_RECV, "goccl:recv"};
constexpr Kind kRecvAnySource{c10d::OpType::RECVANYSOURCE, GOCCL_RECV, "goccl:recvAnySource"};
constexpr Kind kMonitoredBarrier{c10d::OpType::BARRIER, GOCCL_BARRIER, "goccl:monitored_barrier"};

} // namespace

WorkPtr GocclBackend::message(const Kind& kind, Tensors& tensors, int peer, int tag) {
  GOCCL_CHECK(tag >= 0, caller(kind), "tag must be nonnegative; got ", tag);
  GOCCL_CHECK(tensors.size() == 1, caller(kind),
              "requires a single-element tensor list; got ", tensors.size(), " tensors");
  GOCCL_CHECK(peer < getSize() && (peer >= 0 || &kind == &kRecvAnySource), caller(kind), "invalid rank ", peer,
              " of the peer; the group has ", getSize(), " ranks");
  Request request(caller(kind), tensors[0], c10d::kUnsetTimeout);
  request.call.root = peer;
  request.call.tag = static_cast<uint32_t>(tag);
  kind.coll == GOCCL_SEND ? request.read(tensors[0]) : request.write(tensors[0]);
  if (kind.coll == GOCCL_SEND) request.held.outputs.push_back(tensors[0]); // the value of the future
  return issue(request, true, tensors);
}

WorkPtr GocclBackend::send(Tensors& tensors, int peer, int tag) { return message(kSend, tensors, peer, tag); }

WorkPtr GocclBackend::recv(Tensors& tensors, int peer, int tag) { return message(kRecv, tensors, peer, tag); }

WorkPtr GocclBackend::recvAnysource(Tensors& tensors, int tag) {
  return message(kRecvAnySource, tensors, GOCCL_ANY_SOURCE, tag);
}

void GocclBackend::monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) {
  if (getSize() > 1) Callback::refuse(c10::str(caller(kMonitoredBarrier)));
  Request request(caller(kMonitoredBarrier), c10d::kUnsetTimeout);
  const bool given = opts.timeout != c10d::kUnsetTimeout;
  const int64_t timeout = std::chrono::nanoseconds(std::max(opts.timeout, std::chrono::milliseconds(0))).count();
  WithoutGil without_gil;
  run(request, lib.group_monitored_barrier, given ? timeout : GOCCL_NO_TIMEOUT_GIVEN, wait_all_ranks);
}

} // namespace goccl
