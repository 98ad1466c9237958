// Recorded calls as Chrome's trace events:
// https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
#pragma once

#include <set>
#include <string>
#include <vector>

#include "exchange/log/trace_log.h"

namespace ferry {

// JSON objects, one a line, with commas between them.
class TraceText {
 public:
  // The tracks of a rank's exchange: a process, with the calls in its first thread, a thread for each other worker, and
  // one for kernels, and below it one for each of their steps.
  void name_tracks(const TracedExchange& exchange, const std::vector<TracedCall>& calls);
  void add(const TracedExchange& exchange, const TracedCall& call);
  void add_kernel(const TracedExchange& exchange, const TracedKernel& kernel);
  void add_left_out(const TracedExchange& exchange, std::uint64_t calls);
  std::string take() { return std::move(text_); }

 private:
  void add_object(const std::string& object);
  void name_track(const TracedExchange& exchange, int track, const std::string& name);

  std::set<int> tracks_;  // that have a name, of the exchange whose tracks were named last
  std::string text_;
};

}  // namespace ferry
