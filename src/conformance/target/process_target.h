// A target whose ranks are processes: every process runs the suite, and each case runs on the first few of them.
#pragma once

#include <functional>
#include <memory>

#include "conformance/target/target.h"
#include "ferry/worlds/process_world.h"

namespace ferry::conformance {

struct Processes {
  std::string name;
  ProcessWorld* all = nullptr;  // outlives the target
  // Collective over all processes: the world of the first `ranks`, null for the others.
  std::function<std::unique_ptr<ProcessWorld>(int ranks)> make_world;
};

// Every process learns of every failure: the one that failed throws its own error, the others one that quotes the
// first. Where no process failed and some skipped the case, all throw Skipped.
Target process_target(const Processes& processes);

}  // namespace ferry::conformance
