#include "sparse.h"

#include "backend.h"
#include "tags.h"

namespace goccl {
namespace {

constexpr Kind kSparse{c10d::OpType::_ALLREDUCE_SPARSE, GOCCL_ALL_REDUCE, "goccl:sparse_all_reduce"};
constexpr Kind kFacts{c10d::OpType::_ALLREDUCE_SPARSE, GOCCL_ALL_GATHER, "goccl:sparse_all_reduce"};
constexpr Kind kSend{c10d::OpType::_ALLREDUCE_SPARSE, GOCCL_SEND, "goccl:sparse_all_reduce"};
constexpr Kind kRecv{c10d::OpType::_ALLREDUCE_SPARSE, GOCCL_RECV, "goccl:sparse_all_reduce"};

// What a rank says of its tensor, as 64-bit integers; the sizes follow.
enum Fact : int64_t { kType, kAverage, kSparseDims, kDims, kElements, kSizes };
constexpr int64_t kMostDims = 64;
constexpr int64_t kMostNamed = 16; // ranks in a message

// In what the values are added up: as dense all_reduce does, short floats in f32; the unsigned ones, for which torch
// has no arithmetic, as the signed integers with the same sums.
at::ScalarType sums_type(at::ScalarType type) {
  using S = at::ScalarType;
  switch (type) {
    case S::Half: case S::BFloat16: case S::Float8_e4m3fn: case S::Float8_e5m2: return S::Float;
    case S::UInt16: return S::Short;
    case S::UInt32: return S::Int;
    case S::UInt64: return S::Long;
    case S::Bool: return S::Int;
    default: return type;
  }
}

bool same_bits(at::ScalarType type) { return type == at::kUInt16 || type == at::kUInt32 || type == at::kUInt64; }

at::Tensor to_sums(const at::Tensor& values) {
  const auto type = sums_type(values.scalar_type());
  return same_bits(values.scalar_type()) ? values.view(type) : values.to(type);
}

at::Tensor from_sums(const at::Tensor& sums, at::ScalarType type) {
  if (type == at::kBool) return sums.ne(0);
  return same_bits(type) ? sums.view(type) : sums.to(type);
}

at::Tensor plain(const at::Tensor& t) { return t.resolve_conj().resolve_neg().contiguous(); }

std::string described(const int64_t* facts) {
  const at::IntArrayRef sizes(facts + kSizes, static_cast<size_t>(facts[kDims]));
  return c10::str(static_cast<at::ScalarType>(facts[kType]), " of sizes ", sizes, " with ", facts[kSparseDims],
                  " sparse dimensions (", facts[kAverage] != 0 ? "avg" : "sum", ")");
}

} // namespace

SparseWork::SparseWork(const Origin& origin, std::string member, int ranks, at::TensorList tensors, const c10d::ReduceOp& op)
    : EndingWork(origin, kSparse, tensors), member_(std::move(member)), ranks_(ranks), tensors_(tensors.vec()), tensor_(tensors_[0]),
      average_(op.op_ == c10d::ReduceOp::AVG) {}

// Refuses what every rank can see by itself, so that nobody waits for one that has refused.
static void check_sparse(const Caller& caller, const Tensors& tensors, const c10d::ReduceOp& op) {
  GOCCL_CHECK(!tensors.empty(), caller, "requires non-empty tensor list");
  const at::Tensor& t = tensors[0];
  for (const at::Tensor& each : tensors) {
    GOCCL_CHECK(each.defined(), caller, "got an undefined tensor");
    GOCCL_CHECK(each.layout() == at::kSparse, caller, "only supports sparse tensors in the COO layout; got ", each.layout(),
                ": call to_sparse() or to_dense() first");
    GOCCL_CHECK(each.sparse_dim() == t.sparse_dim(), caller, "all tensors must have as many sparse dimensions; got ", t.sparse_dim(),
                " and ", each.sparse_dim());
  }
  GOCCL_CHECK(t.device().is_cpu(), caller, "not supported yet: goccl moves CPU tensors in this version; got device ", t.device());
  GOCCL_CHECK(t.dim() <= kMostDims, caller, "supports at most ", kMostDims, " dimensions; got ", t.dim());
  using R = c10d::ReduceOp;
  if (op.op_ != R::SUM && op.op_ != R::AVG) {
    fail(GOCCL_NOT_SUPPORTED, caller, "sparse tensors can be reduced with ReduceOp.SUM and ReduceOp.AVG only; convert them ",
         "with to_dense() for other operators");
  }
  if (core_type(t.scalar_type()) == 0) fail(GOCCL_NOT_SUPPORTED, caller, "cannot reduce elements of type ", t.scalar_type());
  if (op.op_ == R::AVG && at::isIntegralType(t.scalar_type(), /*includeBool=*/true)) {
    fail(GOCCL_NOT_SUPPORTED, caller, "avg is not defined for ", t.scalar_type(), ": use ReduceOp.SUM and divide");
  }
  if (op.op_ == R::AVG && tensors.size() > 1) {
    fail(GOCCL_NOT_SUPPORTED, caller, "ReduceOp.AVG is not defined for several tensors on a rank: use ReduceOp.SUM and divide");
  }
  int64_t places = 1;
  for (int64_t d = 0; d < t.sparse_dim(); d++) {
    GOCCL_CHECK(!__builtin_mul_overflow(places, t.size(d), &places), caller, "sizes ", t.sizes(),
                " have more than 2^63 places for elements");
  }
}

WorkPtr GocclBackend::allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  check_sparse(caller(kSparse), tensors, opts.reduceOp);
  auto work = c10::make_intrusive<SparseWork>(origin(kSparse, timeout_ns(opts.timeout), !opts.asyncOp), member_, getSize(), tensors,
                                              opts.reduceOp);
  work->start();
  return issued(std::move(work), opts.asyncOp);
}

std::string SparseWork::text() const {
  return c10::str(kSparse.title, " of ", tensor_.scalar_type(), ' ', tensor_.sizes(), ": ", member_, ", seq ", seq_, ": ");
}

void SparseWork::start() {
  {
    Quietly quietly;
    std::vector<at::Tensor> indices, values;
    for (const at::Tensor& t : tensors_) indices.push_back(plain(t._indices())), values.push_back(plain(t._values()));
    own_ = tensors_.size() == 1 ? Elements{indices[0], values[0]} : Elements{at::cat(indices, 1), at::cat(values, 0)};
    if (tensors_.size() > 1 || !tensor_.is_coalesced()) own_ = merged(own_);
    facts_ = at::zeros({ranks_, kSizes + kMostDims}, at::kLong);
  }
  at::Tensor mine = at::zeros({kSizes + kMostDims}, at::kLong);
  auto* facts = mine.mutable_data_ptr<int64_t>();
  facts[kType] = static_cast<int64_t>(tensor_.scalar_type());
  facts[kAverage] = average_;
  facts[kSparseDims] = tensor_.sparse_dim();
  facts[kDims] = tensor_.dim();
  facts[kElements] = own_.indices.size(1);
  std::copy(tensor_.sizes().begin(), tensor_.sizes().end(), facts + kSizes);

  Request request({kFacts, member_}, mine, origin_.timeout);
  request.read(mine);
  request.write_parts(facts_, ranks_);
  auto phase = c10::make_intrusive<GocclWork>(of_phases(), kFacts, std::move(request.held), at::TensorList());
  phase->start(&request, 1);
  seq_ = phase->getSequencenumber();
  then(phase, &SparseWork::exchange);
}

void SparseWork::then(const c10::intrusive_ptr<GocclWork>& phase, void (SparseWork::*next)()) {
  auto self = c10::intrusive_ptr<SparseWork>::reclaim_copy(this);
  phase->getFutureResult()->addCallback([self, phase, next](c10::ivalue::Future&) {
    int code = phase->code();
    try {
      if (phase->isSuccess()) return ((*self).*next)();
      std::rethrow_exception(phase->exception());
    } catch (const c10::Error& e) {
      if (code == GOCCL_OK) code = GOCCL_INTERNAL;
      self->settle({as_exception(code, c10::str(self->text(), e.what_without_backtrace())), code});
    } catch (...) {
      self->settle({std::current_exception(), GOCCL_INTERNAL});
    }
  });
}

Origin SparseWork::of_phases() const {
  Origin origin = origin_;
  origin.watch = nullptr;
  return origin;
}

bool SparseWork::check_same() {
  const auto* facts = facts_.const_data_ptr<int64_t>();
  const int64_t width = facts_.size(1);
  std::string others;
  int64_t differ = 0;
  for (int r = 1; r < ranks_; r++) {
    const int64_t* theirs = facts + r * width;
    const bool same = std::equal(facts, facts + kElements, theirs) && std::equal(facts + kSizes, facts + width, theirs + kSizes);
    if (!same && differ++ < kMostNamed) others += c10::str("; rank ", r, " has ", described(theirs));
  }
  if (differ == 0) return true;
  settle({as_exception(GOCCL_MISMATCH,
                       c10::str(text(), "mismatch: rank 0 has ", described(facts),
                                others, differ > kMostNamed ? c10::str("; and ", differ - kMostNamed, " more ranks differ") : "",
                                "; type, sizes, sparse dimensions and operator must be the same on all ranks")),
          GOCCL_MISMATCH});
  return false;
}

void SparseWork::exchange() {
  if (!check_same()) return;
  Quietly quietly;
  std::vector<Request> requests;
  const auto message = [&](const Kind& kind, int peer, uint32_t part, const at::Tensor& t) {
    if (t.numel() == 0) return; // neither side has such a message
    Request& request = requests.emplace_back(Caller{kind, member_}, t, origin_.timeout);
    request.call.root = peer;
    request.call.tag = tags::sparse(static_cast<uint32_t>(seq_), part);
    kind.coll == GOCCL_SEND ? request.read(t) : request.write(t);
  };
  const auto* facts = facts_.const_data_ptr<int64_t>();
  requests.reserve(4 * ranks_);
  for (int r = 0; r < ranks_; r++) {
    if (r == origin_.rank) {
      all_.push_back(own_);
      continue;
    }
    const int64_t n = facts[r * facts_.size(1) + kElements];
    auto sizes = own_.values.sizes().vec();
    sizes[0] = n;
    all_.push_back({at::empty({tensor_.sparse_dim(), n}, own_.indices.options()), at::empty(sizes, own_.values.options())});
    message(kRecv, r, 0, all_[r].indices);
    message(kRecv, r, 1, all_[r].values);
  }
  for (int step = 1; step < ranks_; step++) { // not all to the same rank at first
    const int peer = (origin_.rank + step) % ranks_;
    message(kSend, peer, 0, own_.indices);
    message(kSend, peer, 1, own_.values);
  }
  Held held;
  for (Request& request : requests) held.absorb(std::move(request.held));
  auto phase = c10::make_intrusive<GocclWork>(of_phases(), kSend, std::move(held), at::TensorList());
  phase->start(requests.data(), requests.size());
  then(phase, &SparseWork::reduce);
}

// Where each element is: its place in the sparse dimensions, counted in the order of memory.
at::Tensor SparseWork::places_of(const at::Tensor& indices) const {
  at::Tensor places = at::zeros({indices.size(1)}, indices.options());
  for (int64_t d = 0; d < tensor_.sparse_dim(); d++) places = places.mul_(tensor_.size(d)).add_(indices.select(0, d));
  return places;
}

at::Tensor SparseWork::indices_of(at::Tensor places) const {
  at::Tensor indices = at::empty({tensor_.sparse_dim(), places.size(0)}, places.options());
  for (int64_t d = tensor_.sparse_dim() - 1; d >= 0; d--) {
    indices.select(0, d).copy_(places.remainder(tensor_.size(d)));
    places = places.floor_divide(tensor_.size(d));
  }
  return indices;
}

// The elements in the order of their places, those at the same place added up.
SparseWork::Elements SparseWork::merged(const Elements& elements) const {
  auto [places, position, counts] = at::_unique2(places_of(elements.indices), /*sorted=*/true, /*return_inverse=*/true);
  auto sizes = elements.values.sizes().vec();
  sizes[0] = places.size(0);
  const at::Tensor given = to_sums(elements.values);
  const at::Tensor sums = at::zeros(sizes, given.options()).index_add_(0, position, given);
  return {indices_of(places), from_sums(sums, elements.values.scalar_type())};
}

// Each rank has an element at most once at a place, so their sums are made in the order of the ranks whatever the order in
// which one rank's elements are added.
void SparseWork::reduce() {
  Quietly quietly;
  std::vector<at::Tensor> indices;
  for (const Elements& elements : all_) indices.push_back(elements.indices);
  auto [places, position, counts] = at::_unique2(places_of(at::cat(indices, 1)), /*sorted=*/true, /*return_inverse=*/true);
  auto sizes = own_.values.sizes().vec();
  sizes[0] = places.size(0);
  at::Tensor sums = at::zeros(sizes, own_.values.options().dtype(sums_type(own_.values.scalar_type())));
  int64_t first = 0;
  for (Elements& elements : all_) {
    const int64_t n = elements.indices.size(1);
    sums.index_add_(0, position.narrow(0, first, n), to_sums(elements.values));
    first += n;
    elements = {};
  }
  if (average_) sums.div_(ranks_);
  sum_ = at::_sparse_coo_tensor_with_dims_and_tensors(
      tensor_.sparse_dim(), tensor_.dense_dim(), tensor_.sizes(), indices_of(places),
      from_sums(sums, own_.values.scalar_type()), tensor_.options(), /*is_coalesced=*/true);
  settle({});
}

void SparseWork::deliver() {
  Quietly quietly;
  for (at::Tensor tensor : tensors_) tensor.copy_(sum_);
}

bool SparseWork::wait(std::chrono::milliseconds timeout) {
  if (!done()) {
    check_not_forked(*this);
    const auto ended = [this] { return done(); };
    std::unique_lock<std::mutex> lock(mutex_);
    if (timeout.count() <= 0) {
      cv_.wait(lock, ended);
    } else if (!cv_.wait_for(lock, timeout, ended)) {
      lock.unlock();
      const std::string late = c10::str("timeout: the operation had not ended ", timeout.count(), " ms after wait was called");
      Failure failure;
      lib.group_abort(origin_.group, c10::str(kSparse.title, ": ", late).c_str(), &failure); // as after any timeout
      settle({as_exception(GOCCL_TIMEOUT, c10::str(text(), late)), GOCCL_TIMEOUT});
    }
  }
  return waited();
}

} // namespace goccl
