// send, recv, and the monitored barrier, which is made of them.
#include "backend.h"
#include "tags.h"

#include <cstring>

namespace goccl {
namespace {

constexpr Kind kSend{c10d::OpType::SEND, GOCCL_SEND, "goccl:send"};
constexpr Kind kRecv{c10d::OpType::RECV, GOCCL_RECV, "goccl:recv"};
constexpr Kind kRecvAnySource{c10d::OpType::RECVANYSOURCE, GOCCL_RECV, "goccl:recvAnySource"};

enum MonitorPhase : uint32_t { kArrival = 0, kVerdict = 1 };
constexpr int64_t kVerdictBytes = 512; // a text; empty if all ranks came

uint32_t user_tag(const Caller& caller, int tag) {
  GOCCL_CHECK(tag >= 0, caller, "tag must be nonnegative; got ", tag);
  return static_cast<uint32_t>(tag);
}

// The beginning of what is said of a monitored barrier; they are numbered from 1, as other operations are.
std::string which(const std::string& member, uint32_t number) {
  return c10::str("goccl:monitored_barrier: ", member, ", seq ", number + 1);
}

at::Tensor verdict(const std::string& text) {
  at::Tensor t = at::zeros({kVerdictBytes}, at::kByte);
  std::memcpy(t.mutable_data_ptr(), text.data(), std::min<size_t>(text.size(), kVerdictBytes - 1));
  return t;
}

} // namespace

WorkPtr GocclBackend::message(const Kind& kind, Tensors& tensors, int peer, uint32_t tag, std::chrono::milliseconds timeout) {
  GOCCL_CHECK(tensors.size() == 1, caller(kind), "requires a single-element tensor list; got ", tensors.size(), " tensors");
  GOCCL_CHECK(peer < getSize() && (peer >= 0 || &kind == &kRecvAnySource), caller(kind), "invalid rank ", peer,
              " of the peer; the group has ", getSize(), " ranks");
  Request request(caller(kind), tensors[0], timeout);
  request.call.root = peer;
  request.call.tag = tag;
  kind.coll == GOCCL_SEND ? request.read(tensors[0]) : request.write(tensors[0]);
  if (kind.coll == GOCCL_SEND) request.held.outputs.push_back(tensors[0]); // what the future has
  return issue(kind, request, true, tensors);
}

WorkPtr GocclBackend::send(Tensors& tensors, int destination, int tag) {
  return message(kSend, tensors, destination, user_tag(caller(kSend), tag), c10d::kUnsetTimeout);
}

WorkPtr GocclBackend::recv(Tensors& tensors, int source, int tag) {
  return message(kRecv, tensors, source, user_tag(caller(kRecv), tag), c10d::kUnsetTimeout);
}

WorkPtr GocclBackend::recvAnysource(Tensors& tensors, int tag) {
  return message(kRecvAnySource, tensors, GOCCL_ANY_SOURCE, user_tag(caller(kRecvAnySource), tag), c10d::kUnsetTimeout);
}

// Every rank tells rank 0 that it came, and waits for rank 0's verdict. Works that are not done when this returns or throws
// are dropped, which leaves their memory with the completer.
void GocclBackend::monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) {
  WithoutGil without_gil;
  const auto timeout = opts.timeout == c10d::kUnsetTimeout ? options_->timeout : opts.timeout;
  const uint32_t number = monitored_.fetch_add(1);
  getRank() == 0 ? collect_arrivals(number, timeout, wait_all_ranks) : report_arrival(number, timeout);
}

void GocclBackend::report_arrival(uint32_t number, std::chrono::milliseconds timeout) {
  std::string complaint;
  try {
    Tensors came{at::zeros({1}, at::kByte)}, told{verdict("")};
    message(kSend, came, 0, tags::monitored_barrier(number, kArrival), timeout)->wait();
    message(kRecv, told, 0, tags::monitored_barrier(number, kVerdict), timeout)->wait();
    const auto* text = static_cast<const char*>(told[0].const_data_ptr());
    complaint.assign(text, strnlen(text, kVerdictBytes)); // another process wrote it
  } catch (const c10::Error& e) {
    complaint = e.what_without_backtrace();
  }
  if (!complaint.empty()) {
    fail(GOCCL_TIMEOUT, which(member_, number), "Rank ", getRank(), " successfully reached monitoredBarrier, but received ",
         "errors while waiting for send/recv from rank 0. Please check rank 0 logs for faulty rank.\n Original exception: ",
         complaint);
  }
}

void GocclBackend::collect_arrivals(uint32_t number, std::chrono::milliseconds timeout, bool wait_all_ranks) {
  std::vector<WorkPtr> arrivals, answers;
  for (int r = 1; r < getSize() && timeout.count() > 0; r++) {
    Tensors came{at::zeros({1}, at::kByte)};
    arrivals.push_back(message(kRecv, came, r, tags::monitored_barrier(number, kArrival), timeout));
  }
  size_t missing = 0;
  std::string names, reason, complaint;
  for (size_t i = 0; i < arrivals.size() && (missing == 0 || wait_all_ranks); i++) {
    try {
      arrivals[i]->wait();
    } catch (const c10::Error& e) {
      names += c10::str(missing++ == 0 ? "" : ", ", i + 1);
      reason = e.what_without_backtrace();
    }
  }
  if (missing > 0) {
    complaint = c10::str(missing == 1 ? "Rank " : "Ranks ", names, " failed to pass monitoredBarrier in ", timeout.count(),
                         " ms", wait_all_ranks ? ": " : " (the first one; wait_all_ranks=True names all): ", reason);
  } else if (arrivals.empty() && getSize() > 1) {
    complaint = c10::str("Rank 0 timed out in monitoredBarrier after ", timeout.count(),
                         " ms. No ranks successfully processed in monitoredBarrier.");
  }
  // Late ranks are told too; with a complaint it does not matter whether the answer can be sent.
  for (int r = 1; r < getSize(); r++) {
    try {
      Tensors told{verdict(complaint)};
      answers.push_back(message(kSend, told, r, tags::monitored_barrier(number, kVerdict), timeout));
    } catch (const c10::Error&) {
      if (complaint.empty()) throw;
    }
  }
  if (!complaint.empty()) fail(GOCCL_TIMEOUT, which(member_, number), "[Rank 0]: ", complaint);
  for (const WorkPtr& told : answers) told->wait();
}

} // namespace goccl
