// What runs the cases: ranks that are threads, processes or GPUs, and what they can do.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ferry/world.h"

namespace ferry::conformance {

// What became of the rounds that a case makes.
struct RoundTally {
  int run = 0;
  int skipped = 0;
  std::string why_skipped;  // the first of them

  void skip(const std::string& why);
};

struct Target {
  std::string name;
  // Runs `body` once on each of `ranks` ranks and rethrows the first error.
  std::function<void(int ranks, const std::function<void(World&)>& body)> run_ranks;
  // All ranks' worlds where one process holds them, else not given.
  std::function<std::vector<std::unique_ptr<World>>(int ranks)> make_worlds;
  // Whether a round that a case describes so is run; not given: every one is (few_rounds.h).
  std::function<bool(const std::string& what)> runs_round;
  // Whether some ranks of this world are reached by puts from send buffers; not given: none is.
  std::function<bool(const World&)> has_remote_ranks;
  // Where rounds are counted; all_cases() gives one. Not given: a round that this target cannot run throws Skipped.
  RoundTally* tally = nullptr;
  int max_ranks = 8;
  bool can_lose_ranks = true;     // a rank may leave early, and the others notice and go on
  bool all_combinations = false;  // of the main options; else each two that go together
  bool hooks_may_throw = false;   // hooks run on the host, and what they throw reaches the caller
};

// Ranks as threads of this process.
Target thread_target();

}  // namespace ferry::conformance
