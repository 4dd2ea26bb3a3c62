#include "callbacks.h"

#include <algorithm>

namespace goccl {
namespace {

thread_local Callback* top = nullptr;

constexpr const char* kAdvice =
    ". Call it where the program waits for the future, or set GOCCL_FUTURES=wait (goccl.Options(futures=\"wait\")), "
    "with which get_future() waits, and callbacks run in the order of the program";

} // namespace

std::atomic<int> Callback::running_{0};

uint64_t mixed(uint64_t a, uint64_t b) { // the finalizer of SplitMix64
  uint64_t x = a + 0x9e3779b97f4a7c15 * (b + 1);
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

bool Members::contain(const Members& other) const {
  return this == &other || (!strangers && !other.strangers &&
                            std::all_of(other.ranks.begin(), other.ranks.end(), [this](uint64_t rank) {
                              return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
                            }));
}

LineagePtr Lineage::next() {
  if (!known()) return std::make_shared<Lineage>(why);
  return std::make_shared<Lineage>(group, mixed(mixed(id, 1), callbacks_++), seq);
}

Callback::Callback(LineagePtr lineage) : lineage_(std::move(lineage)), outer_(std::exchange(top, this)) {
  running_.fetch_add(1, std::memory_order_relaxed);
}

Callback::~Callback() {
  top = outer_;
  running_.fetch_sub(1, std::memory_order_relaxed);
}

Callback* Callback::innermost() { return top; }

void Callback::key(Request& request, const MembersPtr& of) {
  const Caller& caller = request.caller;
  GOCCL_CHECK(seen(), caller, "it is called in a callback of a future that goccl does not make, such as that of "
              "torch.futures.collect_all: threads run such callbacks, and in which order differs between ranks. Give "
              "the callback to the future of an operation (work.get_future().then(...))", kAdvice);
  GOCCL_CHECK(lineage_->known(), caller, "it is called in a callback of ", lineage_->why, kAdvice);
  GOCCL_CHECK(lineage_->group->contain(*of), caller, "it is called in a callback of an operation of a group that does "
              "not have all ranks of this one, so that the ranks cannot tell which of their callbacks belong together",
              kAdvice);
  GOCCL_CHECK(request.device.is_cpu(), caller, "it is called with tensors on ", request.device, " in a callback of an "
              "operation on the host: such calls need an order, which callbacks do not have", kAdvice);
  const auto same = [&](const auto& entry) { return entry.first == of; };
  auto* count = std::find_if(calls_.begin(), calls_.end(), same);
  if (count == calls_.end()) calls_.emplace_back(of, 0), count = &calls_.back();
  // Operations of different groups may have the same number.
  const uint64_t from = lineage_->group == of ? 0 : lineage_->group->name;
  const uint64_t key = mixed(mixed(mixed(lineage_->id, 2), from), count->second++);
  request.call.key = key == 0 ? 1 : key;
  request.call.within = lineage_->seq;
}

void Callback::refuse(const std::string& what) {
  TORCH_CHECK(current() == nullptr, what, ": it is called in a callback of a future. Threads run callbacks, and in "
              "which order differs between ranks", kAdvice);
}

} // namespace goccl
