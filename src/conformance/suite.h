// The conformance suite: what every target must do, as cases that any target can run. It needs no test framework, so
// `ferry verify` runs it on a user's machine. Every case computes all inputs from seeds, on every rank alike, and each
// rank checks its own outputs; so ranks may be threads or processes.
#pragma once

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "ferry/world.h"

namespace ferry::conformance {

struct Target {
  std::string name;
  // Runs `body` once on each of `ranks` ranks and rethrows the first error.
  std::function<void(int ranks, const std::function<void(World&)>& body)> run_ranks;
  // All ranks' worlds where one process holds them, else not given.
  std::function<std::vector<std::unique_ptr<World>>(int ranks)> make_worlds;
  // Whether some ranks of this world are reached by puts from send buffers; not given: none is.
  std::function<bool(const World&)> has_remote_ranks;
  int max_ranks = 8;
  bool can_lose_ranks = true;    // a rank may leave early, and the others notice and go on
  bool encodes_results = false;  // results may travel in any format, not as bf16 only
  bool late_weights = false;     // weights may be narrow, late or go home, sums f16, scales dynamic: not all GPUs do it
  bool hooks_may_throw = false;  // hooks run on the host, and what they throw reaches the caller
};

// Ranks as threads of this process.
Target thread_target();

struct Case {
  std::string name;  // letters, digits, '_' and '/'
  std::string what;
  bool quick = false;  // in the subset for slow builds such as ThreadSanitizer
  std::function<void(const Target&)> run;
};

const std::vector<Case>& all_cases();

// Thrown by a case that the target fails.
class Failure : public std::runtime_error {
 public:
  Failure(int rank, std::string place, std::string expected, std::string got);

  int rank() const { return rank_; }
  const std::string& place() const { return place_; }
  const std::string& expected() const { return expected_; }
  const std::string& got() const { return got_; }

 private:
  int rank_;
  std::string place_;
  std::string expected_;
  std::string got_;
};

// Thrown by a case that this target cannot run; says why.
class Skipped : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace ferry::conformance
