// How a group is made: opened, met with the other ranks over the store, joined.
#include "backend.h"

#include <sstream>
#include <thread>

#include <torch/csrc/utils/pybind.h>

namespace goccl {
namespace {

// The ranks of a group that other groups of this process know to have died, as GOCCL_MEETING_LOOK wants them.
std::vector<std::string> known_dead(const GocclOptions& options, int size) {
  std::vector<std::string> lines;
  if (options.strangers) return lines;
  const auto& ours = options.global_ranks_in_group;
  for (const auto& [of_group, text] : GocclBackend::lost()) {
    std::istringstream each(text);
    for (std::string line; std::getline(each, line);) {
      size_t end = 0;
      uint64_t rank = std::stoull(line, &end);
      if (rank < of_group.size()) rank = of_group[rank]; // in the whole job; none are listed if they are the same
      if (!ours.empty()) rank = std::find(ours.begin(), ours.end(), rank) - ours.begin();
      if (rank < static_cast<uint64_t>(size)) lines.push_back(c10::str(rank, line.substr(end)));
    }
  }
  return lines;
}

// What a store says when it fails.
std::string text_of(const std::exception& failure) {
  if (const auto* error = dynamic_cast<const c10::Error*>(&failure)) return error->what_without_backtrace();
  py::gil_scoped_acquire gil; // a store may be written in Python
  return failure.what();
}

// A meeting over torch's store: it does what the library asks for.
class Meeting {
 public:
  // address is what the others need; if it is empty, this rank cannot join, and failed says why.
  Meeting(StorePtr store, int rank, int size, const GocclOptions& options, const std::string& address,
          const std::string& failed)
      : store_(std::move(store)), options_(options), size_(size), buffer_(GOCCL_MEETING_BUFFER(size), '\0') {
    const auto& ranks = options.global_ranks_in_group;
    keeps_store = ranks.empty() ? rank == 0 : ranks.at(rank) == 0; // it serves the store, as a rule
    const goccl_meeting_options open{
        .rank = rank, .size = size, .keeps_store = keeps_store,
        .timeout_ns = std::chrono::nanoseconds(options.timeout).count(), .name = options.group_name.c_str(),
        .global_ranks = ranks.data(), .n_global_ranks = ranks.size(), .address = address.data(),
        .address_len = address.size(), .failed = address.empty() ? failed.c_str() : nullptr};
    checked_call("goccl_meeting_open", lib.meeting_open, &open, &handle);
    title_ = c10::str("goccl: ", member(options, rank, size), ": join");
  }
  ~Meeting() { lib.meeting_free(handle); }
  Meeting(const Meeting&) = delete;

  // Returns when the ranks have met; throws if there is no group.
  void run() {
    std::exception_ptr interrupt;
    for (;;) {
      Failure failure;
      std::vector<const void*> values;
      std::vector<size_t> lengths;
      for (const auto& value : values_) values.push_back(value.data()), lengths.push_back(value.size());
      int rc = lib.meeting_step(handle, number_, values.data(), lengths.data(), values.size(), &request_,
                                buffer_.data(), buffer_.size(), &failure);
      if (rc == GOCCL_OK && request_.op == GOCCL_MEETING_LOOK && !interrupt && slice_ns() != 0) {
        if ((interrupt = raised_by_signals()))
          rc = lib.meeting_interrupt(handle, "it was interrupted by a signal", &request_, buffer_.data(),
                                     buffer_.size(), &failure);
      }
      if (interrupt && (rc != GOCCL_OK || request_.op == GOCCL_MEETING_OVER)) std::rethrow_exception(interrupt);
      // A rank that has come is not there any more, as in join.
      if (rc == GOCCL_PEER_LOST && failure.peer >= 0) C10_THROW_ERROR(DistNetworkError, failure.text);
      check(rc, failure, "goccl_meeting_step");
      if (request_.op == GOCCL_MEETING_OVER) return;
      try {
        carry_out();
      } catch (const std::exception& e) {
        if (interrupt) std::rethrow_exception(interrupt);
        C10_THROW_ERROR(DistNetworkError,
                        c10::str(title_, ": the store, over which the ranks meet, failed; is the process that "
                                "serves it (rank 0, as a rule) alive? ", text_of(e)));
      }
    }
  }

  goccl_meeting handle = 0;
  bool keeps_store = false;

 private:
  void carry_out() {
    std::vector<std::string> keys;
    std::istringstream lines(buffer_.substr(0, request_.keys_len));
    for (std::string key; std::getline(lines, key);) keys.push_back(key);
    const auto begin = buffer_.begin() + request_.keys_len;
    const std::vector<uint8_t> value(begin, begin + request_.value_len);
    number_ = 0;
    values_.clear();
    switch (request_.op) {
      case GOCCL_MEETING_ADD: number_ = store_->add(keys.at(0), request_.number); break;
      case GOCCL_MEETING_SET: store_->set(keys.at(0), value); break;
      case GOCCL_MEETING_CHECK: number_ = store_->check(keys); break;
      case GOCCL_MEETING_READ: read(keys); break;
      case GOCCL_MEETING_SWAP: values_.push_back(store_->compareSet(keys.at(0), {}, value)); break;
      case GOCCL_MEETING_PAUSE: std::this_thread::sleep_for(std::chrono::nanoseconds(request_.number)); break;
      case GOCCL_MEETING_LOOK:
        for (const std::string& line : known_dead(options_, size_)) values_.emplace_back(line.begin(), line.end());
    }
  }

  void read(const std::vector<std::string>& keys) {
    constexpr size_t kAtOnce = 256; // values of some KiB that one call of the store returns
    if (!store_->hasExtendedApi()) {
      for (const std::string& key : keys) values_.push_back(store_->get(key));
      return;
    }
    for (auto at = keys.begin(); at != keys.end();) {
      const auto end = at + std::min<size_t>(kAtOnce, keys.end() - at);
      for (auto& value : store_->multiGet({at, end})) values_.push_back(std::move(value));
      at = end;
    }
  }

  const StorePtr store_;
  const GocclOptions& options_;
  const int size_;
  std::string title_;
  goccl_meeting_request request_{};
  std::string buffer_; // of requests
  int64_t number_ = 0; // with values_ the answer to the last request
  std::vector<std::vector<uint8_t>> values_;
};

} // namespace

GocclBackend::Opening GocclBackend::open(int rank, int size, const GocclOptions& options, const std::string& device) {
  char version[64] = "";
  check(lib.version(version, sizeof version), Failure(), "goccl_version");
  // Records and messages tell the groups of one backend apart by their names.
  const std::string name = device.empty() ? options.group_name : c10::str(options.group_name, "/cuda");
  const goccl_group_options open{
      .abi = GOCCL_ABI, .rank = rank, .size = size,
      .timeout_ns = std::chrono::nanoseconds(options.timeout).count(), .name = name.c_str(),
      .options = options.lines.c_str(), .shim_version = version, .device = device.c_str()};
  Opening opening{0, std::string(GOCCL_MAX_ADDRESS, '\0')};
  size_t length = 0;
  Failure failure;
  const int rc = lib.group_open(&open, &opening.group, opening.address.data(), opening.address.size(), &length,
                                &failure);
  TORCH_CHECK_VALUE(rc != GOCCL_INVALID, failure.text); // an invalid option, rank or size
  check(rc, failure, "goccl_group_open");
  opening.address.resize(length);
  return opening;
}

void GocclBackend::join(const StorePtr& store, const Opening& opening, int rank, int size,
                        const GroupOptionsPtr& options) {
  Meeting meeting(store, rank, size, *options, opening.address, "");
  meeting.run();
  const auto met = std::chrono::steady_clock::now();
  goccl_work joining = 0;
  std::exception_ptr interrupt;
  Failure failure;
  int rc = lib.meeting_join(meeting.handle, opening.group, slice_ns(), &joining, &failure);
  if (joining != 0) rc = await(joining, Limit(), opening.group, interrupt, &failure), free_works(joining);
  if (interrupt) std::rethrow_exception(interrupt);
  if (rc != GOCCL_OK && meeting.keeps_store) // the others may still have to read that they have met, and fail like this
    std::this_thread::sleep_until(met + std::chrono::milliseconds(500));
  // All addresses are known here, so an unreachable address is a failure of the network.
  if (rc == GOCCL_TIMEOUT || rc == GOCCL_PEER_LOST || rc == GOCCL_PEER_LEFT)
    C10_THROW_ERROR(DistNetworkError, failure.text);
  check(rc, failure, "goccl_meeting_join");
}

void GocclBackend::cannot_join(const StorePtr& store, int rank, int size, const GocclOptions& options,
                               const std::string& why) noexcept {
  try {
    Meeting(store, rank, size, options, "", why).run();
  } catch (const std::exception&) { // that there is no group; the caller says why
  }
}

GocclBackend::Opening GocclBackend::open_or_tell(const StorePtr& store, int rank, int size,
                                                 const GocclOptions& options, const std::string& device) {
  try {
    return open(rank, size, options, device);
  } catch (const c10::Error& e) {
    if (size > 1) cannot_join(store, rank, size, options, e.what_without_backtrace());
    throw;
  }
}

c10::intrusive_ptr<GocclBackend> GocclBackend::create(const StorePtr& store, int rank, int size,
                                                      const GroupOptionsPtr& options) {
  TORCH_CHECK_VALUE(store, "goccl: a process group needs a store; make groups with torch.distributed");
  TORCH_CHECK(lib.group_open != nullptr, "goccl: libgoccl is not loaded; make groups with torch.distributed");
  check_not_forked("goccl");
  if (size > 1) Callback::refuse("goccl: making a group");
  bool later = false; // the group gets its members later
#ifdef C10D_BACKEND_HAS_RECONFIGURE
  later = options->enable_reconfigure;
  if (later) options->strangers = true;
#endif
  const Opening opening =
      later ? open(0, 0, *options, "") : open_or_tell(store, rank, size, *options, "");
  // From here on, this object closes the group whatever happens.
  const auto backend = c10::make_intrusive<GocclBackend>(store, rank, size, options, opening.group);
  if (!later) join(store, opening, rank, size, options);
  return backend;
}

} // namespace goccl
