#include "exchange/log/trace_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "ferry/error.h"

namespace ferry {
namespace {

constexpr int kCallTrack = 1;  // the track of the calls; the next are those of the workers from 1 on

constexpr int kKernels = 2000;  // more than there are workers; the next are those of kKernelSteps

int track_of(int worker) { return kCallTrack + worker; }

// Ranks of one job never share a number, so that files of its processes fit together.
std::uint64_t process_of(const TracedExchange& exchange) {
  constexpr std::uint64_t kRanks = 10'000;
  return exchange.number * kRanks + static_cast<std::uint64_t>(exchange.rank);
}

std::string microseconds(std::int64_t nanoseconds) {
  return fmt::format("{}.{:03}", nanoseconds / 1000, nanoseconds % 1000);
}

// Names of formats are the caller's.
std::string escaped(const std::string& text) {
  std::string safe;
  for (const char each : text) {
    if (each == '"' || each == '\\') safe += '\\';
    safe += static_cast<unsigned char>(each) < 0x20 ? ' ' : each;
  }
  return safe;
}

// A complete event, from its begin to its end.
std::string slice(const TracedExchange& exchange, int track, const std::string& name, const TraceSpan& span,
                  const std::string& facts) {
  const auto begin = std::chrono::duration_cast<std::chrono::nanoseconds>(span.begin.time_since_epoch()).count();
  return fmt::format(R"({{"ph":"X","name":"{}","pid":{},"tid":{},"ts":{},"dur":{},"args":{{{}}}}})", name,
                     process_of(exchange), track, microseconds(begin),
                     microseconds(static_cast<std::int64_t>(span.nanoseconds())), facts);
}

std::string named(const TracedExchange& exchange, const char* what, int track, const std::string& facts) {
  return fmt::format(R"({{"ph":"M","name":"{}","pid":{},"tid":{},"args":{{{}}}}})", what, process_of(exchange), track,
                     facts);
}

std::string facts_of(const TracedCall& call) {
  std::string facts;
  const auto add = [&](const char* name, std::uint64_t value) {
    facts += fmt::format(R"({}"{}":{})", facts.empty() ? "" : ",", name, value);
  };
  if (call.dispatch != 0) add("dispatch", call.dispatch);
  if (call.combine != 0) add("combine", call.combine);
  if (call.tokens >= 0) add("tokens", static_cast<std::uint64_t>(call.tokens));
  if (call.waits_left_out != 0) add("waits_left_out", call.waits_left_out);
  if (call.threw) facts += fmt::format(R"({}"threw":true)", facts.empty() ? "" : ",");
  return facts;
}

// For whom it was waited, and how long.
std::string facts_of(const std::vector<std::uint64_t>& waited_ns) {
  std::string ranks;
  for (std::size_t peer = 0; peer < waited_ns.size(); ++peer)
    if (waited_ns[peer] != 0)
      ranks += fmt::format(R"({}"rank {}":{})", ranks.empty() ? "" : ",", peer, waited_ns[peer]);
  return ranks.empty() ? ranks : fmt::format(R"("waited_ns":{{{}}})", ranks);
}

std::string facts_of(const TracedWait& wait) {
  std::string facts = fmt::format(R"("rank":{},"why":"{}","ns":{})", wait.site.peer, to_string(wait.site.phase),
                                  wait.span.nanoseconds());
  if (wait.site.token >= 0) facts += fmt::format(R"(,"token":{})", wait.site.token);
  if (!wait.arrived) facts += R"(,"failed":true)";
  return facts;
}

}  // namespace

void TraceText::add_object(const std::string& object) { text_ += (text_.empty() ? "" : ",\n") + object; }

void TraceText::name_tracks(const TracedExchange& exchange, const std::vector<TracedCall>& calls) {
  add_object(named(exchange, "process_name", 0, fmt::format(R"("name":"rank {}")", exchange.rank)));
  add_object(named(exchange, "process_labels", 0, fmt::format(R"("labels":"{}")", escaped(exchange.about))));
  add_object(named(exchange, "process_sort_index", 0, fmt::format(R"("sort_index":{})", process_of(exchange))));
  tracks_.clear();
  int workers = 0;
  for (const TracedCall& call : calls)
    for (const TracedWait& wait : call.waits) workers = std::max(workers, wait.worker);
  name_track(exchange, kCallTrack, "calls");
  for (int worker = 1; worker <= workers; ++worker)
    name_track(exchange, track_of(worker), fmt::format("waits of worker {}", worker));
}

void TraceText::add(const TracedExchange& exchange, const TracedCall& call) {
  add_object(slice(exchange, kCallTrack, call.name, call.span, facts_of(call)));
  for (const TracedStep& step : call.steps)
    add_object(slice(exchange, kCallTrack, step.name, step.span, facts_of(step.waited_ns)));
  for (const TracedWait& wait : call.waits)
    add_object(
        slice(exchange, track_of(wait.worker), fmt::format("rank {}", wait.site.peer), wait.span, facts_of(wait)));
}

// Once. Perfetto orders tracks by their index; without one, by how much they hold.
void TraceText::name_track(const TracedExchange& exchange, int track, const std::string& name) {
  if (!tracks_.insert(track).second) return;
  add_object(named(exchange, "thread_name", track, fmt::format(R"("name":"{}")", name)));
  add_object(named(exchange, "thread_sort_index", track, fmt::format(R"("sort_index":{})", track)));
}

void TraceText::add_kernel(const TracedExchange& exchange, const TracedKernel& kernel) {
  name_track(exchange, kKernels, "kernels on the GPU");
  const std::string waited = facts_of(kernel.waited_ns);
  add_object(slice(exchange, kKernels, kernel.name, kernel.span,
                   fmt::format(R"("dispatch":{}{}{})", kernel.dispatch, waited.empty() ? "" : ",", waited)));
  for (const TracedKernelStep& step : kernel.steps) {
    const int track = kKernels + 1 + static_cast<int>(step.step);
    const char* name = kKernelSteps[step.step];
    name_track(exchange, track, fmt::format("kernel: {}", name));
    add_object(slice(exchange, track, name, step.span, fmt::format(R"("dispatch":{})", kernel.dispatch)));
  }
}

void TraceText::add_left_out(const TracedExchange& exchange, std::uint64_t calls) {
  add_object(named(exchange, "process_labels", 0,
                   fmt::format(R"("labels":"{}; {} more calls were left out")", escaped(exchange.about), calls)));
}

}  // namespace ferry
