#include "coalescing.h"

#include <algorithm>

#include "backend.h"

namespace goccl {
namespace {

constexpr Kind kCoalesced{c10d::OpType::COALESCED, goccl_coll(0), "goccl:coalesced"};
constexpr size_t kFewWorks = 1024;

} // namespace

BatchWork::BatchWork(Origin origin, Works&& works)
    : EndingWork(std::move(origin), {}), works_(std::move(works)) {
  for (const auto& work : works_) seq_ = std::max(seq_, work->getSequencenumber());
  called(false);
}

bool BatchWork::isCompleted() {
  if (done()) return true;
  if (!std::all_of(works_.begin(), works_.end(), [](auto& work) { return work->isCompleted(); })) return false;
  finish();
  return true;
}

std::exception_ptr BatchWork::come_to_end(const Limit& limit, std::exception_ptr& interrupt) {
  for (const auto& work : works_) { // also after a failure: the others have to end too
    if (work->isCompleted()) continue;
    if (const auto unended = work->come_to_end(limit, interrupt)) return unended;
  }
  isCompleted(); // works of a device may not have ended: streams wait for them
  return nullptr;
}

void BatchWork::synchronize() {
  for (const auto& work : works_) work->synchronize();
  EndingWork::synchronize();
}

std::exception_ptr BatchWork::failure() const {
  if (done()) return exception_;
  for (const auto& work : works_) { // of a device
    if (const auto error = work->exception()) return error;
  }
  return nullptr;
}

void BatchWork::finish() {
  const auto failed = std::find_if(works_.begin(), works_.end(), [](auto& work) { return !work->isSuccess(); });
  settle(failed == works_.end() ? Outcome{} : Outcome{(*failed)->exception(), (*failed)->code()});
}

std::vector<at::Tensor> BatchWork::outputs() const {
  std::vector<at::Tensor> all;
  for (const auto& work : works_) {
    auto some = work->outputs();
    all.insert(all.end(), std::make_move_iterator(some.begin()), std::make_move_iterator(some.end()));
  }
  return all;
}

std::optional<c10::Stream> BatchWork::on_stream() {
  std::optional<c10::Stream> one;
  for (const auto& work : works_) {
    const auto stream = work->on_stream();
    if (!stream || (one && *one != *stream)) return std::nullopt;
    one = stream;
  }
  return one;
}

// Messages of a block add nothing.
LineagePtr BatchWork::trace_back() {
  uint64_t id = 0, seq = 0;
  LineagePtr last;
  for (const auto& work : works_) {
    LineagePtr of = work->lineage();
    if (!of) return nullptr;
    if (of->known()) id = mixed(id, of->id), seq = of->seq;
    if (!last || of->known()) last = std::move(of);
  }
  return last->known() ? std::make_shared<Lineage>(last->group, mixed(id, 3), seq) : last;
}

void BatchWork::pursue(bool) {
  auto left = std::make_shared<std::atomic<size_t>>(works_.size());
  auto self = c10::intrusive_ptr<BatchWork>::reclaim_copy(this);
  for (const auto& work : works_) {
    work->getFutureResult()->addCallback([self, left](c10::ivalue::Future&) {
      if (--*left == 0) self->finish();
    });
  }
}

void Coalescing::start() {
  Block block{{}, kFewWorks, next_number()};
  std::lock_guard<std::mutex> lock(mutex_);
  std::swap(blocks_[std::this_thread::get_id()], block); // the Works of the old block are dropped without the lock
  count_ = blocks_.size();
}

uint32_t Coalescing::open() const {
  if (C10_LIKELY(count_.load(std::memory_order_relaxed) == 0)) return 0;
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = blocks_.find(std::this_thread::get_id());
  return found == blocks_.end() ? 0 : found->second.number;
}

uint32_t Coalescing::next_number() {
  static std::atomic<uint32_t> last{0};
  uint32_t number = 0;
  while (number == 0) number = ++last; // 0 means none
  return number;
}

void Coalescing::add(const c10::intrusive_ptr<EndingWork>& work) {
  if (C10_LIKELY(count_.load(std::memory_order_relaxed) == 0)) return;
  Works ended;
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = blocks_.find(std::this_thread::get_id());
  if (found == blocks_.end()) return;
  Block& block = found->second;
  block.works.push_back(work);
  // torch's context manager does not end the block when an exception leaves it, so the block may
  // stay open and must not grow without limit. A Work that has ended successfully has only its
  // outputs left to report.
  if (block.works.size() < block.limit) return;
  const auto open =
      std::stable_partition(block.works.begin(), block.works.end(), [](auto& w) { return !w->isSuccess(); });
  ended.assign(std::make_move_iterator(open), std::make_move_iterator(block.works.end()));
  block.works.erase(open, block.works.end());
  block.limit = std::max(kFewWorks, 2 * block.works.size());
}

Coalescing::Block Coalescing::end() {
  std::lock_guard<std::mutex> lock(mutex_);
  auto block = blocks_.extract(std::this_thread::get_id());
  TORCH_CHECK(!block.empty(), "goccl:coalesced: endCoalescing was called, but this thread has no block open: "
              "startCoalescing must come first, on the same thread, and blocks do not nest");
  count_ = blocks_.size();
  return std::move(block.mapped());
}

WorkPtr GocclBackend::endCoalescing() {
  Coalescing::Block block = coalescing_.end();
  if (block.works.empty()) return nullptr; // as with NCCL; torch's Python expects it
  const Request request(caller(kCoalesced), c10d::kUnsetTimeout);
  check_not_forked(request);
  for (goccl_group each : groups()) lib.group_batch(each, block.number, nullptr);
  return issued(c10::make_intrusive<BatchWork>(origin(request, false), std::move(block.works)), true);
}

} // namespace goccl
