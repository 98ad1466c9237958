// Trace: what the exchanges of this process do, and when. For each rank it has the steps of every call, and whom they
// waited for. The text is Chrome's JSON trace events, which ui.perfetto.dev opens. docs/trace.md says what is in it.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

namespace ferry {

class TraceLog;

class Trace {
 public:
  static constexpr std::size_t kMostCalls = 65536;

  // Records every call of every exchange of this process, on all threads, until stop() or the end of this object. A
  // call counts when it ends, also if it throws. Past `most_calls` calls are only counted. One Trace of a process
  // records at a time: throws Error(out_of_order) while another one does. Without one a call looks at one word of
  // memory.
  explicit Trace(std::size_t most_calls = kMostCalls);
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  // From any thread; again: does nothing. A call that is under way is still recorded when it ends.
  void stop() noexcept;

  // What was recorded so far; from any thread. Of GPUs: the calls, and the kernels that have ended by now, with their
  // steps: the newest 256 of an exchange.
  std::string json() const;
  // The same as JSON objects with commas between them, without the array around them, so that those of several
  // processes can be put into one file. The clock is that of the host (CLOCK_MONOTONIC), the same for all of its
  // processes. Empty where nothing was recorded.
  std::string events() const;
  // Writes json(). Throws Error(io) with the reason where it cannot.
  void write(const std::string& path) const;

 private:
  std::shared_ptr<TraceLog> log_;
};

// What json() says of these events.
std::string trace_json(const std::string& events);

}  // namespace ferry
