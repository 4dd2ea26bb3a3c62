#include "observers.h"

#include <c10/util/Logging.h>

#if GOCCL_TORCH_AT_LEAST(2, 15)
#include <unordered_map>

#include <torch/csrc/distributed/c10d/FlightRecorder.hpp>
#include <torch/csrc/jit/serialization/pickle.h>
#include <torch/csrc/profiler/combined_traceback.h>
#endif

namespace goccl {

std::string trace() {
  size_t length = 0;
  std::string bytes;
  do { // the trace may grow between two calls
    bytes.resize(length);
    checked_call("goccl trace", lib.trace, nullptr, bytes.data(), bytes.size(), &length);
  } while (length > bytes.size());
  bytes.resize(length);
  return bytes;
}

#if GOCCL_TORCH_AT_LEAST(2, 15)
namespace {

using Recorder = c10d::FlightRecorder<c10::Event>;
using Dict = c10::impl::GenericDict;

c10::ScalarType scalar_type(const std::string& name) {
  for (int t = 0; t < static_cast<int>(c10::ScalarType::NumOptions); t++) {
    if (name == c10::toString(static_cast<c10::ScalarType>(t))) return static_cast<c10::ScalarType>(t);
  }
  return c10::ScalarType::Undefined;
}

Recorder::Entry entry_of(const Dict& from, const std::shared_ptr<torch::CapturedTraceback>& no_frames) {
  Recorder::Entry e{};
  const auto number = [&](const char* key) { return from.at(key).toInt(); };
  const auto group = from.at("process_group").toTupleRef().elements();
  e.pg_id_ = number("pg_id");
  e.pg_name_ = {group[0].toStringRef(), group[1].toStringRef()};
  e.collective_seq_id_ = number("collective_seq_id");
  e.p2p_seq_id_ = number("p2p_seq_id");
  e.op_id_ = number("op_id");
  e.profiling_name_ = from.at("profiling_name").toStringRef();
  e.traceback_ = no_frames;
  e.time_created_ = number("time_created_ns");
  e.timeout_ms_ = number("timeout_ms");
  e.isP2P_ = from.at("is_p2p").toBool();
  e.retired_ = from.at("retired").toBool();
  e.time_discovered_started_ = from.at("time_discovered_started_ns").toOptional<c10::time_t>();
  e.time_discovered_completed_ = from.at("time_discovered_completed_ns").toOptional<c10::time_t>();
  if (from.contains("duration_ms")) e.duration_ = static_cast<float>(from.at("duration_ms").toDouble());
  const auto shapes = [&](const char* sizes, const char* types, auto& dims, auto& dtypes) {
    for (const c10::IValue& shape : from.at(sizes).toListRef()) {
      dims.push_back(static_cast<int64_t>(shape.toListRef().size()));
      for (const c10::IValue& size : shape.toListRef()) e.sizes_.push_back(size.toInt());
    }
    for (const c10::IValue& type : from.at(types).toListRef()) dtypes.push_back(scalar_type(type.toStringRef()));
  };
  shapes("input_sizes", "input_dtypes", e.input_dims_, e.input_dtypes_);
  shapes("output_sizes", "output_dtypes", e.output_dims_, e.output_dtypes_);
  return e;
}

void hand_to_torch(const std::string& bytes) {
  Recorder* recorder = c10d::getFlightRecorder("goccl");
  if (!recorder->enabled_) return;
  const Dict all = torch::jit::unpickle(bytes.data(), bytes.size()).toGenericDict();
  const auto no_frames = torch::CapturedTraceback::gather(false, false, false);
  const auto listed = all.at("entries").toListRef();
  const size_t first = listed.size() - std::min(listed.size(), recorder->max_entries_);
  std::vector<Recorder::Entry> entries;
  std::lock_guard<std::mutex> lock(recorder->mutex_);
  for (size_t i = first; i < listed.size(); i++) {
    entries.push_back(entry_of(listed[i].toGenericDict(), no_frames));
    entries.back().id_ = i - first;
    entries.back().reset_epoch_ = recorder->reset_epoch_;
  }
  for (const auto& group : all.at("pg_config").toGenericDict()) {
    const Dict about = group.value().toGenericDict();
    std::vector<uint64_t> ranks;
    for (const c10::IValue& rank : about.at("global_ranks").toListRef()) ranks.push_back(rank.toInt());
    recorder->pg_name_to_ranks_[{about.at("name").toStringRef(), about.at("desc").toStringRef()}] = std::move(ranks);
  }
  // As if torch had just recorded the entries: it continues after them if it is connected later.
  recorder->reset_epoch_start_idx_[recorder->reset_epoch_] = 0;
  recorder->id_ = entries.size();
  recorder->next_ = entries.size() % recorder->max_entries_;
  recorder->entries_ = std::move(entries);
}

} // namespace
#else
static void hand_to_torch(const std::string&) {} // torch's recorder is accessible only from torch 2.15 on
#endif

void leave_trace(const std::string& path) {
  size_t length = 0;
  checked_call("goccl trace", lib.trace, path.c_str(), nullptr, 0, &length);
  LOG(INFO) << "goccl: what this process did last is in " << path;
  hand_to_torch(trace());
}

} // namespace goccl
