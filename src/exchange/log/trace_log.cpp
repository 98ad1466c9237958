// Trace and its log.
#include "exchange/log/trace_log.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>
#include <utility>

#include "exchange/log/trace_text.h"
#include "ferry/error.h"

namespace ferry {

namespace detail {
DeviceWord<std::uint32_t> is_recording;
}

namespace {

// Which log records, and how many exchanges each rank has made.
struct Recording {
  std::mutex guard;
  std::shared_ptr<TraceLog> log;
  std::map<int, std::uint64_t> exchanges;  // by rank
};
Recording& recording() {
  static Recording one;
  return one;
}

}  // namespace

std::shared_ptr<TraceLog> detail::recording_log() {
  const std::lock_guard lock(recording().guard);
  return recording().log;
}

TracedExchange traced_exchange(int rank, int ranks, std::string about) {
  const std::lock_guard lock(recording().guard);
  return {rank, ranks, ++recording().exchanges[rank], std::move(about)};
}

void TraceLog::add(const TracedExchange& exchange, TracedCall call, const std::shared_ptr<KernelTimes>& kernels) {
  const std::lock_guard lock(guard_);
  auto found = std::find_if(exchanges_.begin(), exchanges_.end(), [&](const auto& each) {
    return each->facts.rank == exchange.rank && each->facts.number == exchange.number;
  });
  if (found == exchanges_.end())
    found = exchanges_.insert(found, std::make_unique<Exchange>(Exchange{exchange, {}, {}, 0}));
  if (kernels != nullptr) (*found)->kernels = kernels;
  if (calls_ == most_calls_) {
    ++(*found)->left_out;
    return;
  }
  ++calls_;
  (*found)->calls.push_back(std::move(call));
}

void TraceLog::stop() {
  const std::lock_guard lock(guard_);
  span_.end = std::min(span_.end, TraceClock::now());
}

// A device may have recorded kernels of an earlier trace, too, and its clock is off by some microseconds.
bool TraceLog::has(const TracedKernel& kernel) const {
  constexpr std::chrono::microseconds kOff{100};
  return kernel.span.begin + kOff >= span_.begin && kernel.span.begin <= span_.end;
}

std::string TraceLog::events() const {
  const std::lock_guard lock(guard_);
  TraceText text;
  for (const auto& exchange : exchanges_) {
    text.name_tracks(exchange->facts, exchange->calls);
    for (const TracedCall& call : exchange->calls) text.add(exchange->facts, call);
    if (exchange->kernels != nullptr)
      for (const TracedKernel& kernel : exchange->kernels->read())
        if (has(kernel)) text.add_kernel(exchange->facts, kernel);
    if (exchange->left_out != 0) text.add_left_out(exchange->facts, exchange->left_out);
  }
  return text.take();
}

Trace::Trace(std::size_t most_calls) : log_(std::make_shared<TraceLog>(most_calls)) {
  const std::lock_guard lock(recording().guard);
  if (recording().log != nullptr)
    throw Error(ErrorKind::out_of_order, "another Trace of this process records; stop that one first");
  recording().log = log_;
  store_release(detail::is_recording, 1u);
}

Trace::~Trace() { stop(); }

void Trace::stop() noexcept {
  const std::lock_guard lock(recording().guard);
  if (recording().log != log_) return;
  recording().log = nullptr;
  log_->stop();
  store_release(detail::is_recording, 0u);
}

std::string Trace::events() const { return log_->events(); }
std::string Trace::json() const { return trace_json(events()); }

void Trace::write(const std::string& path) const {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  if (!file) throw Error(ErrorKind::io, "trace file " + path + ": cannot be written: " + std::strerror(errno));
  file << json() << std::flush;
  if (!file) throw Error(ErrorKind::io, "trace file " + path + ": cannot be written: " + std::strerror(errno));
}

std::string trace_json(const std::string& events) {
  return "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n" + events + "\n]}\n";
}

}  // namespace ferry
