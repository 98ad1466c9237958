#include "tool/bench/base/bench_trace.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "ferry/trace.h"
#include "tool/ranks/job/job.h"
#include "tool/text/human.h"

namespace ferry::app {

BenchTrace::BenchTrace(const std::string& path) {
  if (is_first_process()) file_.emplace("--trace", path);
}

void BenchTrace::add(const std::string& events) {
  if (events.empty()) return;
  events_ += (events_.empty() ? "" : ",\n") + events;
  ++lines_;
}

void BenchTrace::add_of_all(World& world, const std::string& mine) {
  const auto ranks = static_cast<std::size_t>(world.size());
  const std::uint64_t size = mine.size();
  std::vector<std::uint64_t> sizes(ranks);
  world.all_gather(std::as_bytes(std::span(&size, 1)), std::as_writable_bytes(std::span(sizes)), {}, kDefaultDeadline);
  const std::size_t most = *std::max_element(sizes.begin(), sizes.end());
  std::vector<char> padded(most), all(most * ranks);
  std::copy(mine.begin(), mine.end(), padded.begin());
  world.all_gather(std::as_bytes(std::span(padded)), std::as_writable_bytes(std::span(all)), {}, kDefaultDeadline);
  std::string events;
  for (std::size_t rank = 0; rank < ranks; ++rank)
    if (sizes[rank] != 0) events += (events.empty() ? "" : ",\n") + std::string(all.data() + rank * most, sizes[rank]);
  add(events);
}

void BenchTrace::write() {
  if (!file_ || lines_ == 0) return;
  const std::string text = trace_json(events_);
  file_->write(text.data(), text.size());
  file_->commit();
}

std::string BenchTrace::summary() const {
  if (!file_ || lines_ == 0) return {};
  return fmt::format("{} rounds of {} traced in {}, which ui.perfetto.dev opens\n", kRounds, counted(lines_, "line"),
                     file_->target().string());
}

}  // namespace ferry::app
